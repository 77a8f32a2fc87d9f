"""What a project's files say about how it is installed, built, tested and started: a recipe, without running anything.

``detect(root, config)`` looks for Node, Python, Go, Rust, Java, a Makefile and Compose, in this order; the first that
is there names the recipe. Its test phase is what the project facts declare, whatever language that is in, so that
learning how to start an application hides no check. What ``school.toml`` declares stands in place of what was found.
``load_or_detect(root, config)`` takes the saved recipe where there is a usable one; what is wrong with a saved one is
said in ``Found.problems``, never passed over.

A start command is only taken where something speaks of a service: a program that prints and ends is no service.
``make install`` is never taken; it writes where the machine keeps its programs. No errors of its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from school.contracts import ProjectConfig
from school.verification import facts as known
from school.verification.recipe import PORT_MAX, Found, Recipe, load
from school.verification.roots import COMPOSE_FILES, is_nobodys
from school.verification.trees import DirectoryTree, Tree

_FRAMEWORKS: Final = (
    ("next", "nextjs", 3000),
    ("@sveltejs/kit", "sveltekit", 5173),
    ("astro", "astro", 4321),
    ("@remix-run/", "remix", 3000),
    ("react-scripts", "cra", 3000),
    ("vite", "vite", 5173),
)
_SCRIPT_PORT: Final = re.compile(r"(?:--port|-p)[ =](\d{2,5})\b|\bPORT=(\d{2,5})\b")
_LISTEN_PORT: Final = re.compile(r"""["'`][\w.]*:(\d{2,5})["'`]""")
_GO_SERVICE: Final = re.compile(r"ListenAndServe|gin-gonic/gin|labstack/echo|gofiber/fiber|go-chi/chi")
_RUST_SERVICE: Final = re.compile(r"^\s*(?:axum|actix-web|rocket|warp|hyper|tide|poem|salvo)\b", re.MULTILINE)
_TEST_EXTRAS: Final = ("test", "tests", "testing", "dev")
_TEST_REQUIREMENTS: Final = (
    "requirements-test.txt",
    "requirements-dev.txt",
    "test-requirements.txt",
    "dev-requirements.txt",
)
_INSTALLABLE: Final = re.compile(r"^\[(?:project|build-system|tool\.poetry)\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Project:
    """One directory, its files and facts."""

    root: Path
    tree: Tree
    facts: known.ProjectFacts

    def text(self, path: str) -> str:
        return (self.tree.read(path) or b"").decode("utf-8", "replace")

    def has(self, *names: str) -> bool:
        return any(name in self.tree.files for name in names)

    def checks(self, *, but: Sequence[str] = ()) -> tuple[str, ...]:
        lines = [shlex.join(argv) for argv in self.facts.verify_commands]
        return tuple(line for line in lines if line not in but)


def load_or_detect(root: Path, config: ProjectConfig | None = None) -> Found:
    """The saved recipe of the project in *root*, otherwise what its files declare."""
    saved, problems = load(root)
    if saved is not None:
        return Found(saved, "manifest", tuple(problems))
    return Found(detect(root, config), "detected", tuple(problems))


def detect(root: Path, config: ProjectConfig | None = None) -> Recipe | None:
    """The recipe of the project in *root*; None where its files declare nothing to run."""
    declared = config.verify.commands if config else []
    if is_nobodys(root):
        return None
    tree = DirectoryTree(root)
    project = _Project(root, tree, known.facts(tree))
    kinds: tuple[Callable[[_Project], Recipe | None], ...] = (
        *(_node, _python, _go, _rust, _java, _make, _compose),
        _checks_only,
    )
    recipe = next((found for kind in kinds if (found := kind(project)) is not None), None)
    if config is None or not (declared or config.setup.commands):
        return recipe
    recipe = recipe or Recipe(root.name, "declared")
    if config.setup.commands:
        recipe = replace(recipe, bootstrap=tuple(map(shlex.join, config.setup.commands)))
    return replace(recipe, test=tuple(map(shlex.join, declared))) if declared else recipe


def _recipe(project: _Project, kind: str, **parts: Any) -> Recipe | None:  # noqa: ANN401 - a recipe's own fields
    """A recipe, if anything is in it."""
    recipe = Recipe(project.root.name or kind, kind, **parts)
    return recipe if recipe.phases else None


def _port_in(text: str) -> int | None:
    found = _SCRIPT_PORT.search(text)
    port = int(found[1] or found[2]) if found else 0
    return port if 1 <= port <= PORT_MAX else None


# --- Node -----------------------------------------------------------------------------------------------------


def _node(project: _Project) -> Recipe | None:
    if not project.has("package.json"):
        return None
    scripts, manager = known.javascript_scripts(project.tree), known.javascript_manager(project.tree)
    needs = _node_dependencies(project)
    kind, usual = next(
        ((kind, port) for name, kind, port in _FRAMEWORKS if any(_is_of(one, name) for one in needs)),
        ("node", None),
    )
    build = tuple(f"{manager} run {name}" for name in ("build", "typecheck") if name in scripts)
    start = _node_start(scripts, framework=kind != "node")
    return _recipe(
        project,
        kind,
        bootstrap=(f"{manager} install",) if needs else (),
        build=build,
        test=project.checks(but=build),
        start=f"{manager} run {start}" if start else "",
        port=(_port_in(scripts[start]) or usual) if start else None,
    )


def _node_start(scripts: dict[str, str], *, framework: bool) -> str:
    """The script that serves. Outside of a framework ``dev`` is often a compiler that watches."""
    if not framework:
        return (
            "start" if "start" in scripts else "dev" if "dev" in scripts and _port_in(scripts["dev"]) else ""
        )
    return next((name for name in ("dev", "start") if name in scripts), "")


def _is_of(name: str, wanted: str) -> bool:
    return name.startswith(wanted) if wanted.endswith("/") else name == wanted


def _node_dependencies(project: _Project) -> set[str]:
    try:
        package = json.loads(project.text("package.json").removeprefix("\ufeff"))
        lists = [
            package.get(key) or {} for key in ("dependencies", "devDependencies", "optionalDependencies")
        ]
        return {name for names in lists for name in names} | set(
            ["workspaces"] * bool(package.get("workspaces"))
        )
    except (ValueError, AttributeError, TypeError, RecursionError):
        return set()


# --- Python ---------------------------------------------------------------------------------------------------


def _python(project: _Project) -> Recipe | None:
    marked = project.has(
        "pyproject.toml", "requirements.txt", "setup.py", "setup.cfg", "manage.py", "Pipfile"
    )
    suite = [argv for argv in project.facts.verify_commands if "python" in argv or "python3" in argv]
    if not (marked or suite):
        return None
    bootstrap, python = _python_environment(project, suite)
    checks = [
        shlex.join([*python, *argv[1:]] if argv[:1] == ["python3"] else argv)
        for argv in project.facts.verify_commands
    ]
    kind, start, port = _python_service(project, shlex.join(python))
    return _recipe(project, kind, bootstrap=bootstrap, test=tuple(checks), start=start, port=port)


def _python_environment(project: _Project, suite: list[list[str]]) -> tuple[tuple[str, ...], list[str]]:
    """How what it needs is installed, and the interpreter that then has it. Never into the machine's own Python."""
    runner = known.python_runner(project.tree)
    if runner[0] != "python3":
        install = {"uv": "uv sync", "pipenv": "pipenv install --dev"}
        return (install.get(runner[0], f"{runner[0]} install"),), runner
    own = next(
        (path for path in (".venv/bin/python", "venv/bin/python") if (project.root / path).exists()), ""
    )
    wanted = _pip_wants(project)
    if not wanted:
        return (), [own or "python3"]
    if any("pytest" in argv for argv in suite) and "pytest" not in wanted:
        wanted += " pytest"
    if own or os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX"):
        python = own or "python"
        return (f"{python} -m pip install {wanted}",), [python]
    python = ".venv/bin/python"
    return ("python3 -m venv .venv", f"{python} -m pip install {wanted}"), [python]


def _pip_wants(project: _Project) -> str:
    """The arguments of ``pip install`` that bring what the project and its tests need; empty for nothing."""
    words = []
    pyproject = project.text("pyproject.toml")
    if project.has("setup.py") or _INSTALLABLE.search(pyproject):
        extra = next((name for name in _TEST_EXTRAS if _has_extra(project, pyproject, name)), "")
        words.append(f"-e '.[{extra}]'" if extra else "-e .")
    lists = [name for name in ("requirements.txt",) if project.has(name)]
    lists += [name for name in _TEST_REQUIREMENTS if project.has(name)][:1]
    return " ".join([*words, *(f"-r {name}" for name in lists)])


def _has_extra(project: _Project, pyproject: str, name: str) -> bool:
    table = re.search(
        r"^\[project\.optional-dependencies\]\n(.*?)(?=^\[|\Z)", pyproject, re.MULTILINE | re.DOTALL
    )
    options = re.search(
        r"^\[options\.extras_require\]\n(.*?)(?=^\[|\Z)", project.text("setup.cfg"), re.MULTILINE | re.DOTALL
    )
    written = "\n".join(found[1] for found in (table, options) if found)
    return re.search(rf"^[\"']?{name}[\"']?\s*=", written, re.MULTILINE) is not None


def _python_service(project: _Project, python: str) -> tuple[str, str, int | None]:
    """Kind, start command and port; a library that merely needs a framework has nothing to start."""
    if project.has("manage.py") and "django" in project.text("manage.py").lower():
        return "django", f"{python} manage.py runserver 8000", 8000
    for name in ("main", "app", "wsgi"):
        text = project.text(f"{name}.py")
        made = re.search(r"^(\w+)\s*(?::[^=\n]+)?=\s*(FastAPI|Starlette|Flask)\(", text, re.MULTILINE)
        if made and made[2] == "Flask":
            return "flask", f"{python} -m flask --app {name} run --port 5000", 5000
        if made:
            return "fastapi", f"{python} -m uvicorn {name}:{made[1]} --port 8000", 8000
    return "python", "", None


# --- compiled languages ---------------------------------------------------------------------------------------


def _go(project: _Project) -> Recipe | None:
    if not project.has("go.mod"):
        return None
    main = project.text("main.go")
    serves = _GO_SERVICE.search(main) is not None
    port = _LISTEN_PORT.search(main)
    return _recipe(
        project,
        "go",
        build=("go build ./...",),
        test=project.checks(),
        start="go run ." if serves else "",
        port=int(port[1]) if serves and port and int(port[1]) <= PORT_MAX else None,
    )


def _rust(project: _Project) -> Recipe | None:
    if not project.has("Cargo.toml"):
        return None
    serves = project.has("src/main.rs") and _RUST_SERVICE.search(project.text("Cargo.toml")) is not None
    return _recipe(
        project, "rust", build=("cargo build",), test=project.checks(), start="cargo run" if serves else ""
    )


def _java(project: _Project) -> Recipe | None:
    if project.has("pom.xml"):
        maven = "./mvnw" if project.has("mvnw") else "mvn"
        boots = "spring-boot-maven-plugin" in project.text("pom.xml")
        return _recipe(
            project,
            "maven",
            build=(f"{maven} -q -DskipTests package",),
            test=project.checks(),
            start=f"{maven} -q spring-boot:run" if boots else "",
            port=8080 if boots else None,
        )
    scripts = ("build.gradle", "build.gradle.kts")
    if not project.has(*scripts, "settings.gradle", "settings.gradle.kts"):
        return None
    gradle = "./gradlew" if project.has("gradlew") else "gradle"
    boots = any("org.springframework.boot" in project.text(name) for name in scripts)
    return _recipe(
        project,
        "gradle",
        build=(f"{gradle} assemble",),
        test=project.checks(),
        start=f"{gradle} bootRun" if boots else "",
        port=8080 if boots else None,
    )


# --- Make, Compose --------------------------------------------------------------------------------------------


def _make(project: _Project) -> Recipe | None:
    targets = known.makefile_targets(project.tree)
    if not targets:
        return None

    def first(*names: str) -> tuple[str, ...]:
        return tuple(f"make {name}" for name in names if name in targets)[:1]

    text = next((project.text(name) for name in known.MAKEFILES if project.has(name)), "")
    port = _port_in(text)
    start = first("serve", "start", "dev", "run") if port else first("serve")
    return _recipe(
        project,
        "make",
        bootstrap=first("setup", "bootstrap", "deps"),
        build=first("build", "compile", "all"),
        test=project.checks(),
        start=start[0] if start else "",
        port=port if start else None,
    )


def _compose(project: _Project) -> Recipe | None:
    name = next((name for name in COMPOSE_FILES if project.has(name)), "")
    if not name:
        return None
    port = _published_port(project.text(name))
    return _recipe(
        project,
        "compose",
        build=("docker compose build",),
        test=project.checks(),
        start="docker compose up" if port else "",
        port=port,
    )


def _published_port(text: str) -> int | None:
    """The first port of the host that a service publishes; without one there is nothing to ask."""
    import yaml

    try:
        services = (yaml.safe_load(text) or {}).get("services") or {}
        for service in services.values():
            for entry in service.get("ports") or []:
                host = entry.get("published") if isinstance(entry, dict) else _host_port(str(entry))
                if host is not None and str(host).isdigit() and 1 <= int(host) <= PORT_MAX:
                    return int(host)
    except (yaml.YAMLError, AttributeError, TypeError, RecursionError):
        return None
    return None


def _host_port(entry: str) -> str | None:
    """``8080:80``, ``127.0.0.1:8080:80/tcp``; a lone container port is published on a port that nobody knows."""
    parts = entry.partition("/")[0].rsplit(":", 2)
    return parts[-2] if len(parts) > 1 else None


def _checks_only(project: _Project) -> Recipe | None:
    """No ecosystem that we know, but the project says how it is checked."""
    return _recipe(project, "checks", test=project.checks())

"""What a repository plainly declares about itself: manifests, package managers, how it is checked, context files.

``facts(tree, declared=...) -> ProjectFacts``; a ``Tree`` is a directory or a commit (see ``trees``). Read by name and
by text, never by running anything. ``rendered`` puts facts into a brief, ``as_document`` into JSON; ``roots`` says
which directory is a project's.

``verify_commands`` are the argv lists that a teacher runs where ``[verify] commands`` says nothing: what judges and
changes nothing (no formatter that rewrites). What the configuration declares (*declared*) comes first, and what was
detected beside it only where it is another check. Nothing is cut off the list. What it does not promise: that they
work on this machine; that base and head are both run with them is what makes them evidence.

Errors: GitError where a commit cannot be read.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from school.verification.commands import kind_of, recognise
from school.verification.trees import DirectoryTree, GitTree, Tree

__all__ = [
    "DirectoryTree",
    "GitTree",
    "ProjectFacts",
    "Tree",
    "as_document",
    "facts",
    "is_manifest",
    "javascript_manager",
    "javascript_scripts",
    "makefile_targets",
    "python_runner",
    "rendered",
]

_TEST_FILES_READ_MAX: Final = 200


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Whatever changes how a project's environment is built, wherever in the tree it lies.
MANIFEST_NAMES: Final = _set("""
    pyproject.toml setup.py setup.cfg Pipfile Pipfile.lock uv.lock poetry.lock pdm.lock pylock.toml tox.ini noxfile.py
    environment.yml environment.yaml .python-version package.json package-lock.json npm-shrinkwrap.json yarn.lock
    pnpm-lock.yaml bun.lock bun.lockb .nvmrc .node-version go.mod go.sum Cargo.toml Cargo.lock rust-toolchain
    rust-toolchain.toml build.gradle build.gradle.kts settings.gradle settings.gradle.kts pom.xml Gemfile Gemfile.lock
    composer.json composer.lock mix.exs mix.lock Makefile CMakeLists.txt MANIFEST.in
""")
_REQUIREMENTS: Final = re.compile(
    r"(?:.*/)?(?:requirements|constraints)[^/]*\.(?:txt|in)|(?:.*/)?requirements/[^/]+\.(?:txt|in)"
)
_CONTEXT_FILES: Final = ("AGENTS.md", "CLAUDE.md", ".cursorrules")
_LOCKS: Final = (
    (("uv.lock", "uv"), ("poetry.lock", "poetry"), ("Pipfile.lock", "pipenv"), ("pdm.lock", "pdm")),
    (
        ("pnpm-lock.yaml", "pnpm"),
        ("bun.lockb", "bun"),
        ("bun.lock", "bun"),
        ("yarn.lock", "yarn"),
        ("package-lock.json", "npm"),
        ("npm-shrinkwrap.json", "npm"),
    ),
    (
        ("Cargo.lock", "cargo"),
        ("go.sum", "go"),
        ("gradle.lockfile", "gradle"),
        ("Gemfile.lock", "bundler"),
        ("composer.lock", "composer"),
        ("mix.lock", "mix"),
    ),
)
MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")
# In this order; what formats or builds changes files and judges nothing.
_JUDGING_TARGETS: Final = ("test", "tests", "lint", "typecheck", "check")
_NPM_PLACEHOLDER: Final = "no test specified"
_PYTHON_TEST: Final = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test|tests?)\.py")


def is_manifest(path: str) -> bool:
    """Whether a change of *path* may change the environment that checks run in."""
    return path.rpartition("/")[2] in MANIFEST_NAMES or _REQUIREMENTS.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """What was found; ``root`` is the directory or the commit it was found in."""

    root: str
    manifests: list[str] = field(default_factory=list)
    package_managers: list[str] = field(default_factory=list)
    verify_commands: list[list[str]] = field(default_factory=list)
    context_files: list[str] = field(default_factory=list)


def facts(tree: Tree, declared: Sequence[Sequence[str]] = ()) -> ProjectFacts:
    """What *tree* declares at its root; *declared* is what its configuration says how it is checked."""
    top = {path for path in tree.files if "/" not in path}
    commands: list[list[str]] = []
    for argv in [*_script(tree), *_npm(tree), *_python(tree), *_compiled(top), *_tasks(tree)]:
        if argv not in commands:
            commands.append(argv)
    return ProjectFacts(
        root=tree.name,
        manifests=sorted(path for path in top if is_manifest(path)),
        package_managers=_package_managers(tree),
        verify_commands=_declared_first(declared, [*commands, *_make(tree, commands)]),
        context_files=[path for path in _CONTEXT_FILES if path in top],
    )


def _declared_first(declared: Sequence[Sequence[str]], found: list[list[str]]) -> list[list[str]]:
    """Who says how the tests are run has said it; a detected check of another kind is one more."""
    first = [list(argv) for argv in declared if argv]
    said = {_sort_of(argv) for argv in first}
    return [*first, *(argv for argv in found if argv not in first and _sort_of(argv) not in said)]


def _sort_of(argv: Sequence[str]) -> str:
    runner = recognise(argv).runner
    return "test" if runner != "other" else kind_of(argv)


def as_document(found: ProjectFacts) -> dict[str, Any]:
    """The facts as JSON values, commands as the lines that one would type."""
    return {
        "root": found.root,
        "manifests": found.manifests,
        "packageManagers": found.package_managers,
        "verifyCommands": [shlex.join(argv) for argv in found.verify_commands],
        "contextFiles": found.context_files,
    }


def rendered(found: ProjectFacts) -> str:
    """The facts as a few lines for a brief; nothing is said of what there is none of."""
    parts = [
        ("manifests", ", ".join(found.manifests)),
        ("package managers", ", ".join(found.package_managers)),
        ("read first", ", ".join(found.context_files)),
        ("checked by", "; ".join(shlex.join(argv) for argv in found.verify_commands)),
    ]
    return "\n".join([f"project: {found.root}", *(f"{name}: {text}" for name, text in parts if text)])


def _text(tree: Tree, path: str) -> str:
    return (tree.read(path) or b"").decode("utf-8", "replace")


def _package_managers(tree: Tree) -> list[str]:
    python, _, others = _LOCKS
    found = [manager for lock, manager in python if lock in tree.files]
    found += [javascript_manager(tree)] if "package.json" in tree.files else []
    return [*found, *(manager for lock, manager in others if lock in tree.files)]


def javascript_manager(tree: Tree) -> str:
    """The package manager whose lock file lies there; npm without any."""
    return next((manager for lock, manager in _LOCKS[1] if lock in tree.files), "npm")


def python_runner(tree: Tree) -> list[str]:
    """How an interpreter is started in the environment that a lock file describes; ``python3`` without any."""
    for lock, manager in _LOCKS[0]:
        if lock in tree.files:
            return [manager, "run", "python"]
    return ["python3"]


def _script(tree: Tree) -> list[list[str]]:
    return [["bash", "scripts/run_tests.sh"]] if "scripts/run_tests.sh" in tree.files else []


def javascript_scripts(tree: Tree) -> dict[str, str]:
    """The scripts of ``package.json`` that do something; npm's own placeholder does not."""
    try:
        scripts = json.loads(_text(tree, "package.json").removeprefix("\ufeff") or "{}").get("scripts", {})
    except (ValueError, AttributeError, RecursionError):
        return {}
    if not isinstance(scripts, dict):
        return {}
    return {
        name: text
        for name, text in scripts.items()
        if isinstance(text, str) and text.strip() and _NPM_PLACEHOLDER not in text
    }


def _npm(tree: Tree) -> list[list[str]]:
    scripts, manager = javascript_scripts(tree), javascript_manager(tree)
    return [[manager, "run", target] for target in _JUDGING_TARGETS if target in scripts]


def _python(tree: Tree) -> list[list[str]]:
    """Test by pytest where anything speaks of it, else as Django does, else unittest where a test file imports it."""
    runner = python_runner(tree)
    if _configures_pytest(tree):
        return [[*runner, "-m", "pytest"]]
    if "manage.py" in tree.files and "django" in _text(tree, "manage.py").lower():
        return [[*runner, "manage.py", "test"]]
    test_files = sorted(path for path in tree.files if _PYTHON_TEST.fullmatch(path))[:_TEST_FILES_READ_MAX]
    texts = {path: _text(tree, path) for path in test_files}
    if any(
        re.search(r"^\s*(?:import|from) pytest\b|^def test_", text, re.MULTILINE) for text in texts.values()
    ):
        return [[*runner, "-m", "pytest"]]
    if any(re.search(r"^\s*(?:import|from) unittest\b", text, re.MULTILINE) for text in texts.values()):
        return [[*runner, "-m", "unittest", "discover", *_discovery_start(tree, test_files)]]
    return []


def _configures_pytest(tree: Tree) -> bool:
    return (
        bool({"pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py", "tests/conftest.py"} & tree.files)
        or "[tool.pytest" in _text(tree, "pyproject.toml")
        or "[tool:pytest]" in _text(tree, "setup.cfg")
        or re.search(r"^\[pytest\]", _text(tree, "tox.ini"), re.MULTILINE) is not None
    )


def _discovery_start(tree: Tree, test_files: list[str]) -> list[str]:
    """Discovery from the root enters packages only; a plain folder of tests has to be named."""
    for folder in ("tests", "test"):
        inside = [path for path in test_files if path.startswith(f"{folder}/")]
        if inside and f"{folder}/__init__.py" not in tree.files:
            return ["-s", folder]
    return []


def _compiled(top: set[str]) -> list[list[str]]:
    found = []
    if "go.mod" in top:
        found.append(["go", "test", "./..."])
    if "Cargo.toml" in top:
        found.append(["cargo", "test"])
    if {"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"} & top:
        found.append(["./gradlew" if "gradlew" in top else "gradle", "test"])
    if "pom.xml" in top:
        found.append(["./mvnw" if "mvnw" in top else "mvn", "-q", "test"])
    return found


def _tasks(tree: Tree) -> list[list[str]]:
    """What tox and nox declare: they build environments of their own, so they speak only where nothing quicker does."""
    if _script(tree) or _npm(tree) or _python(tree):
        return []
    found = []
    if re.search(r"^\[testenv", _text(tree, "tox.ini"), re.MULTILINE) or "tox.toml" in tree.files:
        found.append(["tox"])
    if "noxfile.py" in tree.files:
        found.append(["nox"])
    return found


def makefile_targets(tree: Tree) -> frozenset[str]:
    """The names that the Makefile has rules for; an assignment is no rule, and neither is a pattern."""
    text = next((_text(tree, name) for name in MAKEFILES if name in tree.files), "")
    rules = re.findall(
        r"^([A-Za-z0-9][^\s:=#%$]*(?:[ \t]+[^\s:=#%$]+)*)[ \t]*::?(?![:=])", text, re.MULTILINE
    )
    return frozenset(name for rule in rules for name in rule.split())


def _make(tree: Tree, others: list[list[str]]) -> list[list[str]]:
    """Makefile targets; its tests only where nothing else declares any, since they are the same."""
    there = makefile_targets(tree)
    targets = _JUDGING_TARGETS if not others else ("lint", "typecheck")
    return [["make", target] for target in targets if target in there]

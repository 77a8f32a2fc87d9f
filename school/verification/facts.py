"""What a repository plainly declares about itself: manifests, package managers, how it is checked, context files.

``facts(tree) -> ProjectFacts``; a ``Tree`` is a directory (``DirectoryTree``) or a commit without a checkout
(``GitTree``). Read by name and by text, never by running anything. Files over 256 KiB count as empty.

``verify_commands`` are the argv lists that a teacher runs where ``[verify] commands`` says nothing: what judges and
changes nothing (no formatter that rewrites). Nothing is cut off the list. What it does not promise: that they
work on this machine; that base and head are both run with them is what makes them evidence.

Errors: GitError where a commit cannot be read.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

from school.system.git import Git

FILE_BYTES_MAX: Final = 256 * 1024
FILES_MAX: Final = 200_000
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
    (("uv.lock", "uv"), ("poetry.lock", "poetry"), ("Pipfile.lock", "pipenv")),
    (
        ("pnpm-lock.yaml", "pnpm"),
        ("bun.lockb", "bun"),
        ("bun.lock", "bun"),
        ("yarn.lock", "yarn"),
        ("package-lock.json", "npm"),
    ),
)
# In this order; what formats or builds changes files and judges nothing.
_JUDGING_TARGETS: Final = ("test", "tests", "lint", "typecheck", "check")
_NPM_PLACEHOLDER: Final = "no test specified"
_PYTHON_TEST: Final = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test|tests?)\.py")


def is_manifest(path: str) -> bool:
    """Whether a change of *path* may change the environment that checks run in."""
    return path.rpartition("/")[2] in MANIFEST_NAMES or _REQUIREMENTS.fullmatch(path) is not None


class Tree(Protocol):
    """The files of one state of a project, by path relative to its root, with ``/``."""

    @property
    def name(self) -> str: ...

    @property
    def files(self) -> frozenset[str]: ...

    def read(self, path: str) -> bytes | None: ...


class DirectoryTree:
    """A directory as it is now, ``.git`` and environments left out."""

    _LEFT_OUT: Final = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox"})

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def name(self) -> str:
        return str(self.root)

    @cached_property
    def files(self) -> frozenset[str]:
        found: list[str] = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name not in self._LEFT_OUT]
            below = Path(folder).relative_to(self.root)
            found += [(below / name).as_posix() for name in names]
            if len(found) > FILES_MAX:
                break
        return frozenset(found)

    def read(self, path: str) -> bytes | None:
        target = self.root / path
        if not target.is_file() or target.stat().st_size > FILE_BYTES_MAX:
            return None
        return target.read_bytes()


class GitTree:
    """One commit, read from a repository without a checkout."""

    def __init__(self, git: Git, commit: str) -> None:
        self.git = git
        self.commit = commit

    @property
    def name(self) -> str:
        return self.commit

    @cached_property
    def files(self) -> frozenset[str]:
        raw = self.git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", self.commit).stdout
        return frozenset(path.decode("utf-8", "surrogateescape") for path in raw.split(b"\0") if path)

    def read(self, path: str) -> bytes | None:
        if path not in self.files:
            return None
        name = f"{self.commit}:{path}"
        if int(self.git.text("cat-file", "-s", name)) > FILE_BYTES_MAX:
            return None
        return self.git.run("cat-file", "blob", name).stdout


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """What was found; ``root`` is the directory or the commit it was found in."""

    root: str
    manifests: list[str] = field(default_factory=list)
    package_managers: list[str] = field(default_factory=list)
    verify_commands: list[list[str]] = field(default_factory=list)
    context_files: list[str] = field(default_factory=list)


def facts(tree: Tree) -> ProjectFacts:
    """What *tree* declares at its root."""
    top = {path for path in tree.files if "/" not in path}
    commands: list[list[str]] = []
    for argv in [*_script(tree), *_npm(tree), *_python(tree), *_compiled(top), *_tasks(tree)]:
        if argv not in commands:
            commands.append(argv)
    return ProjectFacts(
        root=tree.name,
        manifests=sorted(path for path in top if is_manifest(path)),
        package_managers=_package_managers(tree),
        verify_commands=[*commands, *_make(tree, commands)],
        context_files=[path for path in _CONTEXT_FILES if path in top],
    )


def _text(tree: Tree, path: str) -> str:
    return (tree.read(path) or b"").decode("utf-8", "replace")


def _package_managers(tree: Tree) -> list[str]:
    python, javascript = _LOCKS
    found = [manager for lock, manager in python if lock in tree.files]
    return [*found, _javascript_manager(tree, javascript)] if "package.json" in tree.files else found


def _javascript_manager(tree: Tree, locks: tuple[tuple[str, str], ...] = _LOCKS[1]) -> str:
    return next((manager for lock, manager in locks if lock in tree.files), "npm")


def _script(tree: Tree) -> list[list[str]]:
    return [["bash", "scripts/run_tests.sh"]] if "scripts/run_tests.sh" in tree.files else []


def _npm(tree: Tree) -> list[list[str]]:
    try:
        scripts = json.loads(_text(tree, "package.json") or "{}").get("scripts", {})
    except (ValueError, AttributeError):
        return []
    if not isinstance(scripts, dict):
        return []
    manager = _javascript_manager(tree)
    return [
        [manager, "run", target]
        for target in _JUDGING_TARGETS
        if isinstance(scripts.get(target), str) and _NPM_PLACEHOLDER not in scripts[target]
    ]


def _python(tree: Tree) -> list[list[str]]:
    """Test by pytest where anything speaks of it, else unittest where a test file imports it."""
    runner = ["uv", "run", "python"] if "uv.lock" in tree.files else ["python3"]
    if _configures_pytest(tree):
        return [[*runner, "-m", "pytest"]]
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
    if {"build.gradle", "build.gradle.kts"} & top:
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


def _make(tree: Tree, others: list[list[str]]) -> list[list[str]]:
    """Makefile targets (not assignments); its tests only where nothing else declares any, since they are the same."""
    text = _text(tree, "Makefile")
    targets = _JUDGING_TARGETS if not others else ("lint", "typecheck")
    return [["make", t] for t in targets if re.search(rf"^{t}\s*::?(?![:=])", text, re.MULTILINE)]

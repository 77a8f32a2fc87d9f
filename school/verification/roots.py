"""Which directory is a project's root: for a place on disk, and for each changed path of a tree with several projects.

``project_root(place)`` is the nearest directory above that git or a manifest makes one; the home directory, the
directory for temporary files and ``/`` are never one, whatever lies in them. ``facts_at(place)`` gives its facts, None
where there is no root. ``nearest_roots(tree, changed)`` says which folder answers for which path, ``facts_of_changed``
what those folders declare. No errors of its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from school.verification.facts import MAKEFILES, ProjectFacts, facts
from school.verification.trees import Below, DirectoryTree, Tree

MARKER_LEVELS_MAX: Final = 6
COMPOSE_FILES: Final = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
# What makes a folder a project of its own. A Makefile or a requirements file alone does not: folders of
# documentation have them too.
_PROJECTS: Final = frozenset(
    {"pyproject.toml", "setup.py", "package.json", "go.mod", "Cargo.toml", "pom.xml", "build.gradle"}
    | {"build.gradle.kts", "composer.json", "Gemfile", "mix.exs", "manage.py"}
)
MARKERS: Final = _PROJECTS | {
    *("school.toml", "setup.cfg", "tox.ini", "noxfile.py", "pytest.ini", "Pipfile", "requirements.txt"),
    *("settings.gradle", "settings.gradle.kts", "CMakeLists.txt", ".hermes/environment.json"),
    *MAKEFILES,
    *COMPOSE_FILES,
    "scripts/run_tests.sh",
}


def project_root(place: Path) -> Path | None:
    """The root of the project that the directory *place* belongs to: by git, else by a manifest."""
    here = Path(os.path.realpath(place))
    above = [folder for folder in (here, *here.parents) if not is_nobodys(folder)]
    by_git = next((folder for folder in above if os.path.lexists(folder / ".git")), None)
    if by_git is not None:
        return by_git
    return next((folder for folder in above[: MARKER_LEVELS_MAX + 1] if has_marker(folder)), None)


def has_marker(folder: Path) -> bool:
    """Whether a manifest lies in *folder* itself, and it may be a project at all."""
    return not is_nobodys(folder) and any((folder / name).is_file() for name in MARKERS)


def is_nobodys(folder: Path) -> bool:
    """Whether *folder* is one that belongs to no project, whatever lies in it."""
    shared = (os.path.expanduser("~"), tempfile.gettempdir(), "/tmp", "/var/tmp", "/")  # noqa: PTH111, S108
    return os.path.realpath(folder) in {os.path.realpath(path) for path in shared}


def root_meant(place: Path) -> Path | None:
    """The root that a user means who names the directory *place*: it, if it is a project, else the one around it.

    A directory that nothing around it makes a project stands for itself; None where it is nobody's.
    """
    here = Path(os.path.realpath(place))
    if has_marker(here):
        return here
    return project_root(here) or (None if is_nobodys(here) else here)


def facts_at(place: Path, declared: Sequence[Sequence[str]] = ()) -> ProjectFacts | None:
    """What the project around the directory *place* declares; None where there is no project."""
    root = project_root(place)
    return None if root is None else facts(DirectoryTree(root), declared)


def nearest_roots(tree: Tree, changed: Iterable[str]) -> dict[str, list[str]]:
    """For each folder that answers for some of *changed* (``""`` is the top), those paths.

    The nearest project above a path answers for it, as long as it declares how it is checked; a member of a
    workspace that leaves that to the top is checked there.
    """
    checked: dict[str, bool] = {"": True}
    found: dict[str, list[str]] = {}
    for path in changed:
        folder = path.rpartition("/")[0]
        while folder and not _answers(tree, folder, checked):
            folder = folder.rpartition("/")[0]
        found.setdefault(folder, []).append(path)
    return found


def _answers(tree: Tree, folder: str, checked: dict[str, bool]) -> bool:
    if folder not in checked:
        is_project = any(f"{folder}/{name}" in tree.files for name in _PROJECTS)
        checked[folder] = is_project and bool(facts(Below(tree, folder)).verify_commands)
    return checked[folder]


def facts_of_changed(
    tree: Tree, changed: Iterable[str], declared: Sequence[Sequence[str]] = ()
) -> list[ProjectFacts]:
    """The facts of every project that *changed* touches; what is *declared* is said of the top."""
    return [
        facts(Below(tree, folder) if folder else tree, () if folder else declared)
        for folder in sorted(nearest_roots(tree, changed))
    ]

"""What tests ask of git repositories: their state to the byte, a bag for them, a place to work."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

from school.settings import Settings
from school.worktrees import Repository, SchoolClone, inspect_repository


def digest(path: Path) -> str:
    """Kind, mode and content of *path*."""
    seen = path.lstat()
    if stat.S_ISLNK(seen.st_mode):
        return "link:" + str(path.readlink())
    if not stat.S_ISREG(seen.st_mode):
        return f"other:{seen.st_mode:o}"
    return f"file:{stat.S_IMODE(seen.st_mode):o}:" + hashlib.sha256(path.read_bytes()).hexdigest()


def tree_state(root: Path, *, without: frozenset[str] = frozenset({".git"})) -> dict[str, str]:
    """Every file and link below *root*, by its digest."""
    state: dict[str, str] = {}
    for directory, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not (directory == str(root) and name in without)]
        for name in [*names, *(name for name in folders if Path(directory, name).is_symlink())]:
            path = Path(directory, name)
            if name not in without:
                state[str(path.relative_to(root))] = digest(path)
    return state


def repository_state(path: Path) -> dict[str, str]:
    """All that must stay byte for byte: working tree, index, HEAD, branches, tags, config, info, hooks, logs.

    Left out is what may grow: objects, ``refs/school/*`` and the branches below ``refs/heads/school/``.
    """
    admin = path / ".git"
    state = {f"tree/{name}": what for name, what in tree_state(path).items()}
    for directory, folders, names in os.walk(admin):
        folders[:] = [name for name in folders if not (directory == str(admin) and name == "objects")]
        for name in names:
            relative = str(Path(directory, name).relative_to(admin))
            if not relative.startswith(("refs/school/", "refs/heads/school/")):
                state[f"git/{relative}"] = digest(Path(directory, name))
    return state


def bag_for(
    repository: Repository, bead: str = "coder-python-coding-a1b2c3d4", **fields: Any
) -> dict[str, Any]:
    """What a leaf needs of a bookbag."""
    return {
        "bead": bead,
        "task": "Make add quicker",
        "task_id": "quick-add",
        "repo": str(repository.path),
        "repo_key": repository.key,
        "base_commit": repository.head_commit,
        "agent": {"name": "demo", "kind": "run"},
        "timestamp": "2030-01-01T00:00:00+00:00",
        **fields,
    }


def opened(path: Path, settings: Settings) -> tuple[Repository, SchoolClone]:
    """The repository at *path* and its school clone, made."""
    repository = inspect_repository(path)
    return repository, SchoolClone.open(repository, settings=settings)

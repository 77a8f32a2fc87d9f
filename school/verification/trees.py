"""The files of one state of a project: a directory as it is now, a commit without a checkout, a part of either.

Read by name, never by running anything. A file of more than 256 KiB reads as None, like one that is not there.
An unreadable file of a directory counts as absent. Errors: GitError where a commit cannot be read.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

from school.system.git import Git

FILE_BYTES_MAX: Final = 256 * 1024
FILES_MAX: Final = 200_000


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
        try:
            if not target.is_file() or target.stat().st_size > FILE_BYTES_MAX:
                return None
            return target.read_bytes()
        except OSError:  # unreadable, or gone between two looks
            return None


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
        raw = self.git.fixed("ls-tree", "-r", "-z", "--name-only", "--full-tree", self.commit)
        return frozenset(path.decode("utf-8", "surrogateescape") for path in raw.split(b"\0") if path)

    def read(self, path: str) -> bytes | None:
        if path not in self.files:
            return None
        name = f"{self.commit}:{path}"
        if int(self.git.text("cat-file", "-s", name)) > FILE_BYTES_MAX:
            return None
        return self.git.run("cat-file", "blob", name).stdout


class Below:
    """The part of *tree* in *folder* (``packages/a``), as a tree of its own."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self._tree = tree
        self._prefix = f"{folder}/"

    @property
    def name(self) -> str:
        return f"{self._tree.name}/{self._prefix[:-1]}"

    @cached_property
    def files(self) -> frozenset[str]:
        start = len(self._prefix)
        return frozenset(path[start:] for path in self._tree.files if path.startswith(self._prefix))

    def read(self, path: str) -> bytes | None:
        return self._tree.read(self._prefix + path)

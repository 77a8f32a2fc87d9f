"""What a project's files are at this moment, as one digest, whoever changed them.

``TreeDigest(root).take() -> TreeState``: HEAD, and the id of the git tree that the files make as they lie there, byte for
byte: tracked ones and untracked ones that are not ignored. Nothing is written, no filter or hook runs, and what an index
says of a file is not believed. By-products of running checks (``__pycache__``, ``.coverage``, …) count only when
tracked. Outside a repository every file counts that is no by-product and in no environment's folder. The school's own
folders never count, wherever they lie: they change with every look that is written down. Files are read
again only where size, times or inode differ from the last time, and where they were changed just before it.

``changed(before, after)`` names the paths that differ. A repository inside (a submodule too) counts as the folder it
is, so that with one the digest is not git's own id.

Not promised: that all files are of one moment, when somebody writes while they are read. Errors: MachineError when a
listed file cannot be read.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from school import settings as school_settings
from school.errors import GitError
from school.system import clock, files
from school.system.git import Git
from school.verification.trees import DirectoryTree

_NESTING_MAX: Final = 8
# Coarser than the time stamps of any file system.
_JUST_NOW_NS: Final = 2_100_000_000
_BY_PRODUCTS: Final = frozenset(
    b"__pycache__ .pytest_cache .mypy_cache .ruff_cache .hypothesis .tox .nox .venv venv node_modules htmlcov .coverage"
    b" coverage.xml .nyc_output .DS_Store .eggs .gradle".split()
)
_BY_PRODUCT_ENDINGS: Final = (b".pyc", b".pyo", b".egg-info")

Entry = tuple[bytes, str]  # mode, object id


@dataclass(frozen=True, slots=True)
class TreeState:
    """HEAD (empty without one), the digest, and what each path is."""

    commit: str
    tree: str
    entries: dict[bytes, Entry]


@dataclass(slots=True)
class _Known:
    facts: tuple[int, ...]
    entry: Entry


def changed(before: TreeState, after: TreeState) -> list[str]:
    """The paths that are not the same in both, in order."""
    return sorted(
        os.fsdecode(path)
        for path in before.entries.keys() | after.entries.keys()
        if before.entries.get(path) != after.entries.get(path)
    )


class TreeDigest:
    """The digest of one root; keep it, for it remembers what it has read. *excludes* is a file of more ignore rules."""

    def __init__(self, root: Path, *, excludes: str = "", depth: int = 0) -> None:
        self.root = root
        self._excludes = {"core.excludesFile": excludes} if excludes else {}
        self._depth = depth
        self._known: dict[bytes, _Known] = {}
        self._nested: dict[bytes, TreeDigest] = {}
        base = os.path.realpath(root) + "/"
        own = [os.path.realpath(folder) + "/" for folder in school_settings.current().own_dirs]
        self._own = tuple(
            os.fsencode(one.removeprefix(base)) for one in own if one != base and one.startswith(base)
        )

    def take(self) -> TreeState:
        """What the files are now."""
        commit, paths = self._listed()
        now_ns = int(clock.parse(clock.now()).timestamp() * 1e9)
        known: dict[bytes, _Known] = {}
        entries: dict[bytes, Entry] = {}
        base = os.fsencode(self.root) + b"/"
        for path in paths:
            if path.startswith(self._own):
                continue
            found = self._entry(base + path, path, now_ns, known)
            if found is not None:
                entries[path.rstrip(b"/")] = found
        self._known = known
        return TreeState(commit, _tree(entries), entries)

    def _listed(self) -> tuple[str, list[bytes]]:
        """HEAD and the paths that count; in a folder that its repository ignores, as outside of one."""
        if any((folder / ".git").exists() for folder in (self.root, *self.root.parents)):
            git = Git(cwd=self.root, config=self._excludes)
            with suppress(GitError):
                raw = git.run("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard").stdout
                commit = git.run("rev-parse", "-q", "--verify", "HEAD", check=False).stdout.decode().strip()
                tagged = [line.partition(b" ") for line in raw.split(b"\0") if line]
                paths = [path for tag, _, path in tagged if tag != b"?" or not _by_product(path)]
                if tagged or (self.root / ".git").exists():
                    return commit, list(dict.fromkeys(paths))
        return "", [
            path for path in map(os.fsencode, DirectoryTree(self.root).files) if not _by_product(path)
        ]

    def _entry(self, full: bytes, path: bytes, now_ns: int, known: dict[bytes, _Known]) -> Entry | None:
        try:
            status = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as cause:
            raise files.machine_error("look at", os.fsdecode(full), cause) from cause
        facts = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        before = self._known.get(path)
        if before is not None and before.facts == facts:
            entry: Entry | None = before.entry
        else:
            entry = self._read(full, path, status)
        if entry is None:
            return None
        settled = max(status.st_mtime_ns, status.st_ctime_ns) < now_ns - _JUST_NOW_NS
        if settled and not stat.S_ISDIR(status.st_mode):
            known[path] = _Known(facts, entry)
        return entry

    def _read(self, full: bytes, path: bytes, status: os.stat_result) -> Entry | None:
        try:
            if stat.S_ISREG(status.st_mode):
                return (b"100755" if status.st_mode & stat.S_IXUSR else b"100644"), _blob(full)
            if stat.S_ISLNK(status.st_mode):
                return b"120000", object_id(b"blob", os.readlink(full))  # noqa: PTH115 - bytes
        except FileNotFoundError:
            return None
        except OSError as cause:
            raise files.machine_error("read", os.fsdecode(full), cause) from cause
        if not stat.S_ISDIR(status.st_mode) or self._depth >= _NESTING_MAX:
            return None
        inside = self._nested.get(path)
        if inside is None:
            inside = self._nested[path] = TreeDigest(Path(os.fsdecode(full)), depth=self._depth + 1)
        return b"40000", inside.take().tree


def _by_product(path: bytes) -> bool:
    parts = path.split(b"/")
    return any(part in _BY_PRODUCTS or part.endswith(_BY_PRODUCT_ENDINGS) for part in parts) or parts[
        -1
    ].startswith(b".coverage.")


def object_id(kind: bytes, content: bytes) -> str:
    """What git calls an object of that *kind* and *content*."""
    digest = hashlib.sha1(b"%s %d\0" % (kind, len(content)), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def _blob(path: bytes) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as stream:  # noqa: PTH123 - a descriptor
        digest = hashlib.sha1(b"blob %d\0" % os.fstat(fd).st_size, usedforsecurity=False)
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _tree(entries: dict[bytes, Entry]) -> str:
    """The id of the git tree that has *entries*."""
    folders: dict[bytes, dict[bytes, Entry]] = {b"": {}}
    for path, entry in entries.items():
        folder, _, name = path.rpartition(b"/")
        above = folder
        while above not in folders:
            folders[above] = {}
            above = above.rpartition(b"/")[0]
        folders[folder][name] = entry
    for folder in sorted(folders, key=lambda name: name.count(b"/") + bool(name), reverse=True):
        if folder:
            parent, _, name = folder.rpartition(b"/")
            folders[parent][name] = (b"40000", _tree_object(folders[folder]))
    return _tree_object(folders[b""])


def _tree_object(entries: dict[bytes, Entry]) -> str:
    ordered = sorted(entries.items(), key=lambda item: item[0] + (b"/" if item[1][0] == b"40000" else b""))
    return object_id(
        b"tree", b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(oid)) for name, (mode, oid) in ordered)
    )

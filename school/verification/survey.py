"""What kept folders hold, entry by entry, so that a change by code under test is seen.

``take(root, names, known)`` gives the survey; ``same(one, other)`` compares what matters. A content is read again only
where its times differ from *known*: the change time is the kernel's, no program can set it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# mode, size, mtime_ns, ctime_ns, digest
Survey = dict[str, list[Any]]


def _walk(top: Path) -> Iterator[Path]:
    if not os.path.lexists(top):
        return
    yield top
    if top.is_symlink():
        return
    for folder, folders, names in os.walk(top):
        for name in sorted(folders + names):
            yield Path(folder) / name


def _digest(path: Path, mode: int) -> str:
    if stat.S_ISLNK(mode):
        return f"-> {os.fsencode(path.readlink())!r}"
    if not stat.S_ISREG(mode):
        return ""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()[:32]


def take(root: Path, names: Sequence[str], known: Mapping[str, Sequence[Any]] | None = None) -> Survey:
    """Every entry below *names* (relative to *root*); folders count by kind and mode only, their entries follow."""
    known = known or {}
    found: Survey = {}
    for path in (entry for name in names for entry in _walk(root / name)):
        status = path.lstat()
        plain = not stat.S_ISDIR(status.st_mode)
        facts = [status.st_mode] + (
            [status.st_size, status.st_mtime_ns, status.st_ctime_ns] if plain else [0, 0, 0]
        )
        key = repr(os.fsencode(path.relative_to(root)))
        before = known.get(key)
        fresh = before is None or list(before[:4]) != facts
        found[key] = [*facts, _digest(path, status.st_mode) if fresh or before is None else before[4]]
    return found


def same(one: Mapping[str, Sequence[Any]], other: Mapping[str, Sequence[Any]]) -> bool:
    """Whether both hold the same: kinds and modes, sizes, contents. A file touched or linked again is the same."""
    return _essence(one) == _essence(other)


def _essence(survey: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    return {key: (entry[0], entry[1], entry[4]) for key, entry in survey.items()}

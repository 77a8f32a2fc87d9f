"""A change from one commit to another as data: which files, how many lines, the patch, what of it was shown.

``Change.of(git, base, head)`` names two commits (or trees) in a repository of ours; everything is asked of git when
first needed. Paths are str with undecodable bytes as surrogates (``os.fsencode`` gives the bytes back), and nothing
is parsed from text that a file's name or content could forge: lists come NUL-separated, lines are counted by hunk.

``patch(limit_bytes)`` never cuts a file in half: a file is in it whole or named as left out in its ``Coverage``,
small ones first, so that one huge lock file cannot hide a line in a small one.

Not promised: that a binary file's content is in the patch, that every rename is found, or that a repository whose
own attributes declare files binary shows them (the school clone's attributes do not).

Errors: ``GitError`` when a commit is not there, or when a single file's patch is too large to be read.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from school.errors import GitError
from school.system.git import Git

# More than this at once is asked for in parts; more than this for one file is not read at all.
READ_BYTES_MAX: Final = 64 * 1024 * 1024
_TIMEOUT_S: Final = 300.0
_PATHS_A_CALL_MAX: Final = 400
_HEADER: Final = b"diff --git "
_HUNK: Final = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_OPTIONS: Final = ("--no-color", "--no-ext-diff", "--no-textconv")


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file. ``status`` is git's letter (A, M, D, R, T); ``old_path`` is empty unless it was renamed.

    Line counts are 0 for a binary file; modes are as in a tree (``000000`` where there is none).
    """

    status: str
    path: str
    old_path: str
    added: int
    deleted: int
    binary: bool
    old_mode: str
    new_mode: str
    old_oid: str
    new_oid: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of a change was shown; ``complete`` only when nothing was left out."""

    files: int
    shown: int
    left_out: list[str] = field(default_factory=list)
    total_bytes: int = 0
    shown_bytes: int = 0

    @property
    def complete(self) -> bool:
        return not self.left_out


class Change:
    """The change from *base* to *head*."""

    def __init__(self, git: Git, base: str, head: str) -> None:
        self.git = git
        self.base = base
        self.head = head

    @classmethod
    def of(cls, git: Git, base: str, head: str) -> Change:
        return cls(git, base, head)

    @cached_property
    def files(self) -> list[ChangedFile]:
        """Every changed file, in git's order of paths."""
        return _parse_files(self._diff("--raw", "--numstat", "-z", "--no-abbrev").stdout)

    @property
    def paths(self) -> list[str]:
        """Every path that is not as it was; of a rename, both."""
        return sorted({name for file in self.files for name in (file.path, file.old_path) if name})

    @property
    def empty(self) -> bool:
        return not self.files

    def stat(self, width: int = 100) -> str:
        """The diffstat and the mode changes, for people."""
        return self._diff(f"--stat={width}", "--summary").stdout.decode("utf-8", "replace").strip("\n")

    def blob(self, oid: str) -> bytes:
        """The content of the object *oid*."""
        return self.git.run("cat-file", "blob", oid, limit_bytes=READ_BYTES_MAX).stdout

    # --- the patch --------------------------------------------------------------------------------------

    def patch(self, limit_bytes: int, *, context: int = 3) -> tuple[bytes, Coverage]:
        """The patch of as many files as fit whole into *limit_bytes*, smallest first, in path order."""
        sizes: list[int | None] = [None] * len(self.files)
        kept: dict[int, bytes] = {}
        for number, section in self._sections(f"-U{context}"):
            sizes[number] = None if section is None else len(section)
            if section is not None and len(section) <= limit_bytes:
                kept[number] = section
                _drop_largest(kept, limit_bytes)
        left_out = [file.path for number, file in enumerate(self.files) if number not in kept]
        text = b"".join(kept[number] for number in sorted(kept))
        total = sum(size or 0 for size in sizes)
        return text, Coverage(len(self.files), len(kept), left_out, total, len(text))

    def added_lines(self) -> Iterator[tuple[str, int, str]]:
        """Every added line as (path, its number at head, its text), undecodable bytes as surrogates."""
        for number, section in self._sections("-U0"):
            path = self.files[number].path
            if section is None:
                raise GitError(f"{path!r}: its patch is larger than {READ_BYTES_MAX} bytes")
            for line_number, line in _added(section):
                yield path, line_number, line.decode("utf-8", "surrogateescape")

    def sections(self, *, context: int = 3) -> Iterator[tuple[ChangedFile, bytes | None]]:
        """Each file with its whole part of the patch, in path order; None for one too large to read."""
        for number, section in self._sections(f"-U{context}"):
            yield self.files[number], section

    def _sections(self, *how: str) -> Iterator[tuple[int, bytes | None]]:
        """Each file's number and its part of the patch; None for one too large to read."""
        numbers = range(len(self.files))
        if numbers:
            yield from self._sections_of(numbers, how, limited=False)

    def _sections_of(
        self, numbers: Sequence[int], how: Sequence[str], *, limited: bool = True
    ) -> Iterator[tuple[int, bytes | None]]:
        many = limited and len(numbers) > _PATHS_A_CALL_MAX
        out = None if many else self._read_patch(numbers, how, limited=limited)
        parts = None if out is None else _split(out, [self.files[number] for number in numbers])
        if parts is not None:
            yield from zip(numbers, parts, strict=True)
        elif len(numbers) == 1 and limited:
            yield numbers[0], None
        else:
            middle = (len(numbers) + 1) // 2
            yield from self._sections_of(numbers[:middle], how)
            if numbers[middle:]:
                yield from self._sections_of(numbers[middle:], how)

    def _read_patch(self, numbers: Sequence[int], how: Sequence[str], *, limited: bool) -> bytes | None:
        """The patch of the files *numbers*, or None when it is too large."""
        chosen = [self.files[number] for number in numbers] if limited else []
        paths = [name for file in chosen for name in (file.old_path, file.path) if name]
        out = self._diff("-p", *how, paths=paths, cut_at_bytes=READ_BYTES_MAX + 1).stdout
        return out if len(out) <= READ_BYTES_MAX else None

    def _diff(
        self, *how: str, paths: Sequence[str] = (), cut_at_bytes: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        command = (
            "--literal-pathspecs",
            "diff-tree",
            "-r",
            "-M",
            *_NO_OPTIONS,
            *how,
            self.base,
            self.head,
            "--",
        )
        if cut_at_bytes:
            return self.git.run(*command, *paths, timeout_s=_TIMEOUT_S, limit_bytes=cut_at_bytes, cut=True)
        return self.git.run(*command, *paths, timeout_s=_TIMEOUT_S)


def _drop_largest(kept: dict[int, bytes], limit_bytes: int) -> None:
    while sum(map(len, kept.values())) > limit_bytes:
        del kept[max(kept, key=lambda number: (len(kept[number]), number))]


# --- what git says ------------------------------------------------------------------------------------------


def _parse_files(listing: bytes) -> list[ChangedFile]:
    tokens = iter(listing.split(b"\0"))
    raw: list[tuple[list[str], str, str]] = []
    counts: dict[str, tuple[bytes, bytes]] = {}
    for token in tokens:
        if token.startswith(b":"):
            head = token[1:].decode("ascii").split()
            old = os.fsdecode(next(tokens)) if head[4][0] in "RC" else ""
            raw.append((head, old, os.fsdecode(next(tokens))))
        elif token:
            added, deleted, name = token.split(b"\t", 2)
            if not name:
                next(tokens)
                name = next(tokens)
            counts[os.fsdecode(name)] = (added, deleted)
    return [_changed(head, old, path, counts.get(path, (b"0", b"0"))) for head, old, path in raw]


def _changed(head: list[str], old: str, path: str, count: tuple[bytes, bytes]) -> ChangedFile:
    binary = count == (b"-", b"-")
    return ChangedFile(
        status=head[4][0],
        path=path,
        old_path=old,
        added=0 if binary else int(count[0]),
        deleted=0 if binary else int(count[1]),
        binary=binary,
        old_mode=head[0],
        new_mode=head[1],
        old_oid=head[2],
        new_oid=head[3],
    )


def _split(patch: bytes, files: Sequence[ChangedFile]) -> list[bytes] | None:
    """*patch* by file, or None when it has not the sections that *files* must have.

    Every line of content begins with a blank, a plus, a minus or a backslash, so a header at a line's beginning is
    one. A change of type (file to link) has two.
    """
    starts = [0] if patch.startswith(_HEADER) else []
    starts.extend(found.start() + 1 for found in re.finditer(rb"\n" + _HEADER, patch))
    sections = [patch[start:end] for start, end in zip(starts, [*starts[1:], len(patch)], strict=True)]
    expected = [2 if file.status == "T" else 1 for file in files]
    if len(sections) != sum(expected):
        return None
    numbered = iter(sections)
    return [b"".join(next(numbered) for _ in range(count)) for count in expected]


def _added(section: bytes) -> Iterator[tuple[int, bytes]]:
    """The added lines of one file's patch without context, by the counts that its hunks announce."""
    old_left = new_left = number = 0
    for line in section.split(b"\n"):
        if old_left or new_left:
            if line.startswith(b"+"):
                yield number, line[1:]
                number += 1
                new_left -= 1
            elif line.startswith(b"-"):
                old_left -= 1
            continue
        hunk = _HUNK.match(line)
        if hunk:
            old_left, number, new_left = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)

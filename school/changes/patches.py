"""A patch of any size, read once as it comes from git: each file's line counts, and the texts that fit.

``read_patch(pieces, keep_bytes)`` takes the output of a ``git diff… --raw -p -z``. The list comes first, NUL-separated,
and the patch after it, where git quotes names, so no name or content can forge either: within a hunk every line begins
with a blank, a plus, a minus or a backslash. Memory is bounded by *keep_bytes*, twice, and by ``LISTING_BYTES_MAX``,
whatever the patch is long: lines are counted as they pass.

Of files that do not all fit the small ones are kept, whole; of one of the others the beginning is.

Errors: GitError for a list that is too long, or a patch that has not the sections that its list asks for.
"""

from __future__ import annotations

import hashlib
import heapq
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from school.errors import GitError

LISTING_BYTES_MAX: Final = 32 * 1024 * 1024
_HEADER: Final = b"diff --git "
_HUNK: Final = b"@@ "
_LIST_ENDS: Final = b"\0\0"
# A name can be no longer than this, twice and spelled out; what is longer is a line of content.
_CARRY_BYTES_MAX: Final = 64 * 1024


@dataclass(slots=True, eq=False)
class Section:
    """One file of a patch. ``text`` is empty when it was not kept, or only its beginning was (then ``clipped``)."""

    status: str
    path: str
    old_path: str = ""
    added: int = 0
    deleted: int = 0
    binary: bool = False
    length: int = 0
    text: bytes = b""
    clipped: bytes = b""


@dataclass(slots=True)
class Patch:
    """Every file in git's order; ``digest`` is of the whole list and patch, kept or not."""

    files: list[Section] = field(default_factory=list)
    digest: str = ""

    @property
    def total_bytes(self) -> int:
        return sum(file.length for file in self.files)


def read_patch(pieces: Iterable[bytes], keep_bytes: int) -> Patch:
    """What *pieces* say, with at most *keep_bytes* of text kept."""
    hashed = hashlib.sha256()
    stream = _hashing(pieces, hashed)
    listing, rest = _listing(stream)
    files = parse_list(listing)
    reader = _Reader(files, keep_bytes)
    reader.feed(rest)
    for piece in stream:
        reader.feed(piece)
    reader.end()
    return Patch(files, hashed.hexdigest())


def _hashing(pieces: Iterable[bytes], hashed: hashlib._Hash) -> Iterator[bytes]:
    for piece in pieces:
        hashed.update(piece)
        yield piece


def _listing(stream: Iterator[bytes]) -> tuple[bytes, bytes]:
    """The list before the patch, and what has been read beyond it."""
    read = bytearray()
    for piece in stream:
        start = max(len(read) - 1, 0)
        read += piece
        end = read.find(_LIST_ENDS, start)
        if end >= 0:
            return bytes(read[: end + 1]), bytes(read[end + 2 :])
        if len(read) > LISTING_BYTES_MAX:
            raise GitError(f"the list of changed files is longer than {LISTING_BYTES_MAX} bytes")
    return bytes(read), b""


def parse_list(listing: bytes) -> list[Section]:
    """The files of a raw list with NULs; a rename has two paths."""
    tokens = iter(listing.split(b"\0"))
    files = []
    for token in tokens:
        if token.startswith(b":"):
            status = token.rsplit(b" ", 1)[1].decode("ascii")[0]
            old = os.fsdecode(next(tokens, b"")) if status in "RC" else ""
            files.append(Section(status, os.fsdecode(next(tokens, b"")), old))
    return files


class _Reader:
    """Takes the patch apart as it comes; see ``read_patch``."""

    def __init__(self, files: list[Section], keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._expected = [file for file in files for _ in range(2 if file.status == "T" else 1)]
        self._count = 0
        self._current: Section | None = None
        # Before its first hunk a section has lines of git's own, and two of them begin like content.
        self._before_hunks = True
        self._at_line_start = True
        self._carry = b""
        self._text = bytearray()
        self._dropped = False
        self._kept: list[tuple[int, int, Section]] = []
        self._kept_bytes = 0
        self._has_beginning = False

    def feed(self, piece: bytes) -> None:
        """Take *piece*; its last line waits for its end, if that is not too far away."""
        block = self._carry + piece
        end = block.rfind(b"\n") + 1
        if not end and len(block) <= _CARRY_BYTES_MAX:
            self._carry = block
            return
        if len(block) - end > _CARRY_BYTES_MAX:
            end = len(block)
        self._carry = block[end:]
        self._take(block[:end])

    def end(self) -> None:
        if self._carry:
            self._take(self._carry)
        self._close()
        if self._count != len(self._expected):
            raise GitError(f"a patch of {self._count} sections where its list asks for {len(self._expected)}")

    def _take(self, block: bytes) -> None:
        at = 0
        while at < len(block):
            if self._at_line_start and block.startswith(_HEADER, at):
                self._begin()
            following = block.find(b"\n" + _HEADER, at)
            stop = len(block) if following < 0 else following + 1
            self._add(block[at:stop])
            self._at_line_start = block[stop - 1 : stop] == b"\n"
            at = stop

    def _begin(self) -> None:
        following = self._expected[self._count] if self._count < len(self._expected) else None
        self._count += 1
        self._before_hunks = True
        if following is None or following is not self._current:
            self._close()
            self._current = following

    def _add(self, block: bytes) -> None:
        file = self._current
        if file is None:
            return
        file.length += len(block)
        self._count_lines(file, block)
        if not self._dropped:
            self._text += block
            if len(self._text) > self._keep_bytes:
                self._give_up(file, bytes(self._text[: self._keep_bytes]))
                self._dropped = True

    def _count_lines(self, file: Section, block: bytes) -> None:
        start = self._at_line_start
        if self._before_hunks:
            hunk = 0 if block.startswith(_HUNK) else block.find(b"\n" + _HUNK)
            file.binary = file.binary or b"\nBinary files " in (b"\n" + block if hunk < 0 else block[:hunk])
            if hunk < 0:
                return
            self._before_hunks, start = False, False
            block = block[hunk:]
        file.added += block.count(b"\n+") + (start and block.startswith(b"+"))
        file.deleted += block.count(b"\n-") + (start and block.startswith(b"-"))

    def _close(self) -> None:
        file = self._current
        if file is not None and not self._dropped:
            file.text = bytes(self._text)
            heapq.heappush(self._kept, (-len(file.text), self._count, file))
            self._kept_bytes += len(file.text)
            while self._kept_bytes > self._keep_bytes:
                largest = heapq.heappop(self._kept)[2]
                self._kept_bytes -= len(largest.text)
                self._give_up(largest, largest.text)
        self._text.clear()
        self._dropped = False

    def _give_up(self, file: Section, beginning: bytes) -> None:
        """Do not keep *file*; the beginning of the first such file is."""
        file.text = b""
        if not self._has_beginning:
            self._has_beginning = True
            file.clipped = beginning

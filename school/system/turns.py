"""Whose turn it is among those who wait for an ``OwnedLock``: a hint, which nobody needs to take the lock.

Without it, who has just released the lock takes it again while all others sleep, and some never get it. One waiter at
a time has the turn (a kernel lock on a file that stays, ``TURN_S`` at most) and looks often. The next is who has waited
longest among those who looked while they could be: its time of coming stands in the file. And an owner that takes the lock
again and again gives way, once in ``BURST_S``, while somebody has the turn.

Not promised: an order. What stands in the file may be stale, torn or anybody's. Who is named there and does not look for
``STALE_S`` is passed over, so that a waiter that is stopped or dead delays nobody. Errors: none; where the file cannot be had
all look seldom, and where nothing can be written to it whoever looks first is next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from enum import Enum
from typing import Final, Self

from school.system import files

TURN_S: Final = 0.020
# Who is next is so for a while before it takes the turn: who has waited longer may still look, and be it instead.
NEXT_LEAST_S: Final = 0.005
STALE_S: Final = 0.100
BURST_S: Final = 0.010
AGAIN_S: Final = 0.001
# When it came and when it looked last, by the monotonic clock, which all processes of a boot share.
_STAMP: Final = struct.Struct("=dd")
_NOBODY: Final = _STAMP.pack(0.0, 0.0)


class Place(Enum):
    """Where a waiter stands: it looks often, soon again, or seldom."""

    MINE = "mine"
    NEXT = "next"
    BEHIND = "behind"


class Turn:
    """One waiter, which came at *now*, among all that wait with the file *path*."""

    def __init__(self, path: str, now: float) -> None:
        self._path = path
        self._fd = -1
        self._came = now
        self._next_since: float | None = None
        self._since: float | None = None

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):  # a full disk, say: then all look seldom
            self._fd = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, files.FILE_MODE
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def place(self, now: float) -> Place:
        """Where the caller stands now; it may change with each call."""
        if self._fd < 0:
            return Place.BEHIND
        if self._since is None:
            return self._advance(now)
        if now - self._since < TURN_S:
            return Place.MINE
        self._since = None
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return Place.BEHIND

    def _advance(self, now: float) -> Place:
        if not self._longest(now):
            self._next_since = None
            return Place.BEHIND
        if self._next_since is None:
            self._next_since = now
        if now - self._next_since < NEXT_LEAST_S or not _lock(self._fd):
            return Place.NEXT
        self._write(_NOBODY)
        self._since, self._next_since = now, None
        return Place.MINE

    def _longest(self, now: float) -> bool:
        """Whether nobody who looked lately has waited longer; then the caller stands in the file."""
        said = b""
        with contextlib.suppress(OSError):
            said = os.pread(self._fd, _STAMP.size, 0)
        if len(said) == _STAMP.size:
            came, looked = _STAMP.unpack(said)
            if came < self._came and 0 <= now - looked < STALE_S:
                return False
        self._write(_STAMP.pack(self._came, now))
        return True

    def _write(self, stamp: bytes) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, stamp, 0)


class Burst:
    """How long this process has now taken one lock again and again."""

    def __init__(self) -> None:
        self._lock = ""
        self._since = 0.0
        self._released = 0.0

    def release(self, lock: str, now: float) -> None:
        """*lock* has been given back."""
        if lock != self._lock:
            self._lock, self._since = lock, now
        self._released = now

    def over(self, lock: str, turn: str, now: float) -> bool:
        """Whether who is about to take *lock* had it for long, and somebody has the *turn*."""
        if lock != self._lock or now - self._released > AGAIN_S:
            self._lock, self._since = lock, now
            return False
        if now - self._since <= BURST_S:
            return False
        self._since = now
        return _taken(turn)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _taken(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # nobody ever waited
    try:
        return not _lock(fd)
    finally:
        os.close(fd)

"""How much a process tree uses: memory, processes, what it adds to some folders; and what its file system has left.

``Bounds`` says what is allowed; ``Gauge(bounds).verdict(pid)`` looks, at most every ``LOOK_S``, and names the bound that
is crossed; ``whose_fault()`` says of a tree that has ended whether it filled the disk itself. Memory is what the tree has resident, shared pages counted once (Linux; elsewhere each process is counted
whole). Folders are walked, and never more than a twentieth of the time.

Not promised: exactness. Between two looks a tree can use more than it may, so this bounds what a mistake or a
malice costs, and keeps nothing from being used for a moment. What lies in ``/dev/shm`` counts for nobody.
Errors: none; what vanishes during a look is not there.
"""

# ruff: noqa: PTH123 - /proc is read by plain names, quickly
from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from school.system.progress import children_of

# What a command must leave free, whatever else it may use: records and snapshots still have to be written.
RESERVE_BYTES: Final = 64 * 1024 * 1024
# With less than this a disk is full for whoever writes a file of any size.
FREE_BYTES_MIN: Final = 1024 * 1024
LOOK_S: Final = 0.1
WALK_S: Final = 1.0
WALK_SHARE: Final = 20
_BLOCK: Final = 512
_LINUX: Final = sys.platform.startswith("linux")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a tree may use; None is no bound. ``reserve_bytes`` must stay free where *folders* lie.

    ``file_bytes`` is for each single file and kept by the kernel.
    """

    memory_bytes: int | None = None
    processes: int | None = None
    disk_bytes: int | None = None
    reserve_bytes: int = 0
    folders: tuple[Path, ...] = ()
    file_bytes: int | None = None

    def any(self) -> bool:
        return any((self.memory_bytes, self.processes, self.disk_bytes, self.reserve_bytes))


class Gauge:
    """One tree and its bounds; what lies in the folders when this is made is not the tree's."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        # Processes of the tree that belong to its confinement.
        self.not_counted = 0
        self._looked = self._walked = self._room_looked = time.monotonic()
        self._pause_s = WALK_S
        self._before = _size(bounds.folders) if bounds.disk_bytes is not None else 0
        # Where there was little room from the start, somebody else has taken it.
        self._rooms = {folder: _room(folder) for folder in bounds.folders}
        self._begun = time.time()
        room = min(self._rooms.values(), default=0)
        self._reserve = bounds.reserve_bytes if room > 2 * bounds.reserve_bytes else 0

    @property
    def look_s(self) -> float:
        """How long to wait between looks at most."""
        return LOOK_S if self.bounds.memory_bytes or self.bounds.processes else WALK_S

    def verdict(self, pid: int) -> tuple[str, str]:
        """``memory``, ``processes``, ``disk`` or ``disk_full`` and a sentence; both empty within bounds. *pid* is not counted."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return "", ""
        self._looked = now
        bounds = self.bounds
        if bounds.memory_bytes is not None or bounds.processes is not None:
            tree = _below(pid)
            count = len(tree) - self.not_counted
            if bounds.processes is not None and count > bounds.processes:
                return "processes", f"{count} processes, {bounds.processes} are allowed"
            if bounds.memory_bytes is not None and (used := _memory(tree, bounds.memory_bytes)):
                return "memory", f"{used} bytes of memory, {bounds.memory_bytes} are allowed"
        return self._disk(now)

    def _disk(self, now: float) -> tuple[str, str]:
        bounds = self.bounds
        if self._reserve and now - self._room_looked >= LOOK_S:
            self._room_looked = now
            for folder in bounds.folders:
                if (room := _room(folder)) < self._reserve:
                    return "disk_full", f"{folder}: {room} bytes are left on its file system"
        if bounds.disk_bytes is None or now - self._walked < self._pause_s:
            return "", ""
        added = _size(bounds.folders) - self._before
        self._walked = time.monotonic()
        self._pause_s = max(WALK_S, WALK_SHARE * (self._walked - now))
        if added > bounds.disk_bytes:
            return "disk", f"{added} bytes were added on disk, {bounds.disk_bytes} are allowed"
        return "", ""

    def at_the_end(self) -> tuple[str, str]:
        """The same of the folders alone, when the tree has ended between two looks."""
        self._walked, self._reserve = float("-inf"), 0
        return self._disk(time.monotonic())

    def whose_fault(self) -> str:
        """A sentence when the ended tree itself left less than the reserve: most of what went is in files it made. Else ''."""
        reserve = self.bounds.reserve_bytes
        for folder, before in self._rooms.items():
            room = _room(folder)
            if room >= reserve or before <= 2 * reserve:
                continue
            own = _size(self.bounds.folders, since=self._begun)
            if 2 * own > before - room:
                return f"{own} bytes were written by it, and {room} were left on the file system of {folder}"
        return ""


def _below(pid: int) -> list[int]:
    found: list[int] = []
    todo = children_of(pid)
    while todo:
        child = todo.pop()
        if child not in found:
            found.append(child)
            todo += children_of(child)
    return found


def _memory(tree: list[int], limit: int) -> int:
    """What *tree* has resident where that is more than *limit*, else 0."""
    whole = sum(map(_resident, tree))
    if whole <= limit or not _LINUX:
        return whole if whole > limit else 0
    # Shared pages were counted for each who shares them; the exact number costs more and is asked only now.
    shares = [_share(pid) for pid in tree]
    exact = sum(share if share >= 0 else _resident(pid) for pid, share in zip(tree, shares, strict=True))
    return exact if exact > limit else 0


def _resident(pid: int) -> int:
    if not _LINUX:
        import psutil

        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0
    try:
        with open(f"/proc/{pid}/statm", "rb") as stream:
            return int(stream.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _share(pid: int) -> int:
    """The proportional share of *pid*; -1 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as stream:
            line = next((line for line in stream if line.startswith(b"Pss:")), b"")
    except OSError:
        return -1
    return int(line.split()[1]) * 1024 if line else -1


def _entries(folders: tuple[Path, ...]) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """Everything below *folders*, links not followed; what vanishes or may not be looked at is passed over."""
    todo = [os.fspath(folder) for folder in folders]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    with contextlib.suppress(FileNotFoundError):
                        yield entry, entry.stat(follow_symlinks=False)
        except OSError:
            continue


def _size(folders: tuple[Path, ...], since: float = float("-inf")) -> int:
    """What lies in *folders* takes on disk, if changed after *since*; a file with several names counts once."""
    total, seen = 0, set()
    for _, status in _entries(folders):
        if status.st_ino not in seen and status.st_ctime >= since:
            seen.add(status.st_ino)
            total += status.st_blocks * _BLOCK
    return total


def free(folders: tuple[Path, ...], since: float) -> None:
    """Remove the large plain files below *folders* that were changed after *since* (seconds of the wall clock)."""
    for entry, status in _entries(folders):
        large = stat.S_ISREG(status.st_mode) and status.st_blocks * _BLOCK >= FREE_BYTES_MIN
        if large and status.st_ctime >= since:
            with contextlib.suppress(OSError):
                Path(entry.path).unlink()


def half_of_room(folders: tuple[Path, ...]) -> int | None:
    """Half of what is free for the one of *folders* that has least; None where that is too little to share."""
    room = min(map(_room, folders), default=0) // 2
    return room if room > RESERVE_BYTES else None


def starved(*folders: Path) -> str:
    """The first of *folders* whose file system has no room left, or ''."""
    for folder in folders:
        room = os.statvfs(folder)
        if room.f_bavail * room.f_frsize < FREE_BYTES_MIN or (room.f_files and not room.f_favail):
            return str(folder)
    return ""


def _room(folder: Path) -> int:
    try:
        status = os.statvfs(folder)
    except OSError:
        return sys.maxsize
    return status.f_bavail * status.f_frsize

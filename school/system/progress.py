"""Does a process tree still do something: output, processor time, files.

Output is told (``said``); processor time and files are looked at only while there is no output, so that a busy
command costs nothing to watch. Processor time counts when it is more than a process uses that merely waits.

Errors: none; a process or file that vanishes during a look is no longer there.
"""

# The os functions, on plain strings: this is paid for every process, again and again.
# ruff: noqa: PTH110, PTH208
from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

# A runtime's own start takes tens of milliseconds; a program that polls while it waits stays below the share.
CPU_STARTED_S: Final = 0.05
CPU_SHARE: Final = 0.005
LOOK_MIN_S: Final = 0.2
LOOK_MAX_S: Final = 30.0
CPU_LOOK_S: Final = 1.0
_LINUX: Final = sys.platform.startswith("linux")


def children_of(pid: int) -> list[int]:
    """The children of *pid* as the kernel lists them now; a hint, processes come and go."""
    if not _LINUX:
        return _children_by_psutil(pid)
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    except FileNotFoundError:
        listed = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
        return found if listed else _children_by_psutil(pid)
    except OSError:
        return found
    return found


def _children_by_psutil(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def _cpu_of(pid: int) -> tuple[float, float]:
    """Processor seconds of *pid* itself, and of the children that it has waited for."""
    if not _LINUX:
        return _cpu_by_psutil(pid)
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0.0, 0.0
    fields = raw[raw.rfind(b")") + 2 :].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / ticks, (int(fields[13]) + int(fields[14])) / ticks


def _cpu_by_psutil(pid: int) -> tuple[float, float]:
    import psutil

    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0, 0.0
    return times.user + times.system, times.children_user + times.children_system


def cpu_below(pid: int) -> float:
    """Processor seconds of everything below *pid*, ended children included, itself not."""
    total = _cpu_of(pid)[1]
    todo, seen = children_of(pid), {pid}
    while todo:
        child = todo.pop()
        if child not in seen:
            seen.add(child)
            total += sum(_cpu_of(child))
            todo += children_of(child)
    return total


def signature(directory: Path) -> tuple[int, int, int]:
    """What changes when anything below *directory* is made, written, renamed or removed."""
    count = newest = size = 0
    todo = [os.fspath(directory)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    count += 1
                    size += status.st_size
                    newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue
    return count, newest, size


class Progress:
    """When a command did something last. *pid* is the process that it runs below."""

    def __init__(self, watch_dir: Path | None, startup_s: float | None, stall_s: float | None) -> None:
        self.watch_dir = watch_dir
        self.startup_s = startup_s
        self.stall_s = stall_s
        self.pid = 0
        self.ever = False
        limits = [limit for limit in (startup_s, stall_s) if limit is not None]
        self._watched = bool(limits)
        self._look_s = min(max(min(limits) / 4, LOOK_MIN_S), LOOK_MAX_S) if limits else LOOK_MAX_S
        self._files = signature(watch_dir) if limits and watch_dir is not None else (0, 0, 0)
        self._start = self._last = self._cpu_looked = self._files_looked = time.monotonic()
        self._cpu = 0.0

    def said(self) -> None:
        """There was output."""
        self._progressed(time.monotonic())

    def _progressed(self, now: float) -> None:
        self.ever = True
        self._last = now

    def verdict(self) -> str:
        """``stalled`` or ``startup`` when a limit is reached, otherwise empty."""
        if not self._watched:
            return ""
        now = time.monotonic()
        self._look_at_cpu(now)
        quiet = now - self._last
        over_startup = not self.ever and self.startup_s is not None and now - self._start >= self.startup_s
        over_stall = self.stall_s is not None and quiet >= self.stall_s
        if over_startup or over_stall or now - max(self._files_looked, self._last) >= self._look_s:
            self._look_at_files(now)
        if over_startup and not self.ever:
            return "startup"
        return "stalled" if self.stall_s is not None and now - self._last >= self.stall_s else ""

    def _look_at_cpu(self, now: float) -> None:
        if now - max(self._cpu_looked, self._last) < min(CPU_LOOK_S, self._look_s):
            return
        self._cpu_looked = now
        used = cpu_below(self.pid)
        if used - self._cpu >= max(CPU_STARTED_S, CPU_SHARE * (now - self._last)):
            self._cpu = used
            self._progressed(now)
        elif used < self._cpu:
            self._cpu = used  # a child ended without being waited for, and took its account with it

    def _look_at_files(self, now: float) -> None:
        if self.watch_dir is None:
            return
        self._files_looked = now
        seen = signature(self.watch_dir)
        if seen != self._files:
            self._files = seen
            self._progressed(now)

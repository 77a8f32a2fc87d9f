"""Find and end processes by the mark in their environment, whatever their session or parent.

A command that is not ours carries ``SCHOOL_MARKER`` in its environment, and so does what it starts. When nobody
is left who knows the tree (its warden and its leaf were killed), the mark still finds it.

Not promised: processes that cleared their environment are found only below one that did not.
Every process is known by PID and start when it is signalled; a PID that was given away is left alone.
"""

# ruff: noqa: PTH123, PTH208 - /proc is read by plain names, quickly
from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

from school.system import identity

VARIABLE: Final = "SCHOOL_MARKER"
# Names one single run of a command, where the marker may name several at once.
RUN_VARIABLE: Final = "SCHOOL_COMMAND_RUN"
END_WITHIN_S: Final = 5.0
# All are stopped before the first is killed; a flood of forks that outruns this is killed as far as it is known.
STOP_WITHIN_S: Final = 1.0
# A warden that is asked politely ends its tree better than we can: it also knows who cleared the mark.
WARDEN_GRACE_S: Final = 1.5
_LINUX: Final = sys.platform.startswith("linux")


def signal_exactly(pid: int, start: str, number: int) -> bool:
    """Send *number* to the process with this PID *and* start; whether it was sent."""
    try:
        if hasattr(os, "pidfd_open"):
            # The descriptor is of one process for ever; if the start fits after opening it, it is that one.
            fd = os.pidfd_open(pid)
            try:
                if identity.look(pid).start != start:
                    return False
                signal.pidfd_send_signal(fd, number)
            finally:
                os.close(fd)
        else:
            if identity.look(pid).start != start:
                return False
            os.kill(pid, number)
    except OSError:
        return False
    return True


def _environment(pid: int) -> bytes:
    if not _LINUX:
        import psutil

        try:
            return "\0".join(
                f"{key}={value}" for key, value in psutil.Process(pid).environ().items()
            ).encode()
        except (psutil.Error, OSError):
            return b""
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def _all_pids() -> list[int]:
    if _LINUX:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    import psutil

    return psutil.pids()


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def _ourselves() -> set[int]:
    pids, pid = set(), os.getpid()
    while pid > 1 and pid not in pids:
        pids.add(pid)
        pid = identity.look(pid).parent
    return pids


def marked(marker: str, variable: str = VARIABLE) -> dict[int, str]:
    """Every living process that carries *marker*, and all below them: PID to start. Never us or our parents."""
    word = f"{variable}={marker}".encode()
    everything = {pid: identity.look(pid) for pid in _all_pids()}
    below: dict[int, list[int]] = {}
    for pid, seen in everything.items():
        below.setdefault(seen.parent, []).append(pid)
    spared = _ourselves()
    todo = [pid for pid in everything if pid not in spared and word in _environment(pid).split(b"\0")]
    found: dict[int, str] = {}
    while todo:
        pid = todo.pop()
        if pid not in found and pid not in spared:
            found[pid] = everything[pid].start
            todo += below.get(pid, ())
    return {pid: start for pid, start in found.items() if start and not everything[pid].zombie}


def all_marked() -> dict[int, str]:
    """Every living process that carries a mark, and which: PID to marker. Never us or our parents."""
    spared, word = _ourselves(), f"{VARIABLE}=".encode()
    found = {}
    for pid in _all_pids():
        if pid in spared:
            continue
        mark = next((item for item in _environment(pid).split(b"\0") if item.startswith(word)), b"")
        if mark and not identity.look(pid).zombie:
            found[pid] = mark[len(word) :].decode("utf-8", "replace")
    return found


def end_marked(marker: str, variable: str = VARIABLE) -> int:
    """End every process that carries *marker*, and all below them; how many there were."""
    known = marked(marker, variable)
    wardens = {pid: start for pid, start in known.items() if b"warden.py\0" in _command(pid)}
    for pid, start in wardens.items():
        signal_exactly(pid, start, signal.SIGTERM)
    if wardens:
        _until_gone(known, WARDEN_GRACE_S, lambda: marked(marker, variable), kill=False)
    _until_gone(known, END_WITHIN_S, lambda: marked(marker, variable), kill=True)
    return len(known)


def _until_gone(
    known: dict[int, str], limit_s: float, look_again: Callable[[], dict[int, str]], *, kill: bool
) -> None:
    """Wait for the end of all in *known*, which grows by what turns up meanwhile."""
    begun, stopped = time.monotonic(), dict[int, str]()
    while time.monotonic() < begun + limit_s:
        known |= look_again()
        # Not only who is marked now: who loses its marked parent in between is no less known.
        living = {pid: start for pid, start in known.items() if _runs(pid, start)}
        if not living:
            return
        if kill:
            _stop(living)
            # Who has just been met may have forked while it was met. Its child may be found only as long as it lives.
            if living.items() <= stopped.items() or time.monotonic() > begun + STOP_WITHIN_S:
                _kill(living)
            else:
                stopped = living
                continue
        time.sleep(0.01)


def _stop(living: dict[int, str]) -> None:
    for pid, start in living.items():
        signal_exactly(pid, start, signal.SIGSTOP)


def _kill(living: dict[int, str]) -> None:
    for pid, start in living.items():
        signal_exactly(pid, start, signal.SIGKILL)


def _runs(pid: int, start: str) -> bool:
    seen = identity.look(pid)
    return seen.exists and not seen.zombie and seen.start == start

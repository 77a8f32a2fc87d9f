"""From a flag's appearance to a waiter in another process having it: events, and looking without events."""

# The system calls by their own names: they are what is measured.
# ruff: noqa: PTH208
from __future__ import annotations

import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from _common import SHORT, Goals, percentile, scratch
from school.system import files, watch
from school.system.watch import Watcher

ROUNDS = 100 if SHORT else 400
POLL_ROUNDS = 4 if SHORT else 8


def _waiter(directory: Path, rounds: int, poll: bool, results: Connection) -> None:
    if poll:
        watch.REMOTE_TYPES |= {watch.file_system_type(directory)}  # type: ignore[misc] # as if events came from nowhere
    seen: set[str] = set()
    with Watcher(directory, rescan_s=5.0) as watcher:
        results.send(watcher.mode)
        while len(seen) < rounds:
            watcher.wait(10)
            for name in os.listdir(directory):
                if name.endswith(".ready") and name not in seen:
                    seen.add(name)
                    results.send((name, time.monotonic()))


def _measure(rounds: int, *, poll: bool) -> list[float]:
    """Seconds from before the flag is written to when the waiter has listed it."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    with scratch() as name:
        directory = files.ensure_dir(Path(name) / "signals")
        waiter = context.Process(target=_waiter, args=(directory, rounds, poll, there))
        waiter.start()
        assert here.recv() == ("poll" if poll else "inotify")
        times = []
        for number in range(rounds):
            time.sleep(0.37 if poll else 0.005)
            begun = time.monotonic()
            files.write_atomic(directory / f"{number}.ready", b"{}")
            times.append(here.recv()[1] - begun)
        waiter.join()
    return times


def main() -> None:
    goals = Goals("handoff")
    times = [value * 1e3 for value in _measure(ROUNDS, poll=False)]
    goals.add("flag to waiter, p50", percentile(times, 0.5), 5.0, unit="ms")
    goals.add("flag to waiter, p95", percentile(times, 0.95), 50.0, unit="ms")
    slow = _measure(POLL_ROUNDS, poll=True)
    goals.add("flag to waiter without inotify, longest", max(slow), 1.0, unit="s")
    goals.close()


if __name__ == "__main__":
    sys.exit(main())

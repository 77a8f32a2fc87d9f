"""Read-modify-write of one record by many processes at once: ours against a blocking flock, same work inside."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

from _common import SHORT, Goals, scratch
from school.system import files
from school.system.locks import OwnedLock

SECONDS = 1.0 if SHORT else 2.5
RECORD = {"count": 0, "text": ["x" * 60] * 90}


def _step(record: Path) -> None:
    value = files.read_json(record)
    value["count"] += 1
    files.write_plain(record, files.dumps(value))


def _owned(directory: Path) -> Callable[[], None]:
    lock = OwnedLock(directory / "bead.lock", directory / ".guard")

    def work() -> None:
        assert lock.acquire(60)
        _step(directory / "record.json")
        lock.release()

    return work


def _flock(directory: Path) -> Callable[[], None]:
    fd = os.open(directory / "flock", os.O_RDWR | os.O_CREAT, 0o600)

    def work() -> None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _step(directory / "record.json")
        fcntl.flock(fd, fcntl.LOCK_UN)

    return work


KINDS = {"owned": _owned, "flock": _flock}


def _worker(kind: str, directory: Path, go: Event, results: multiprocessing.Queue[tuple[int, float]]) -> None:
    work = KINDS[kind](directory)
    go.wait()
    turns, longest = 0, 0.0
    end = time.monotonic() + SECONDS
    while (begun := time.monotonic()) < end:
        work()
        turns += 1
        longest = max(longest, time.monotonic() - begun)
    results.put((turns, longest))


def _measure(kind: str, processes: int) -> tuple[float, float, int]:
    """Turns a second, longest wait, and how many processes had none."""
    context = multiprocessing.get_context("spawn")
    with scratch() as name:
        directory = Path(name)
        files.write_json(directory / "record.json", RECORD)
        go, results = context.Event(), context.Queue()
        workers = [
            context.Process(target=_worker, args=(kind, directory, go, results)) for _ in range(processes)
        ]
        for worker in workers:
            worker.start()
        time.sleep(0.1 * processes)
        go.set()
        gathered = [results.get(timeout=120) for _ in workers]
        for worker in workers:
            worker.join()
        total = sum(turns for turns, _ in gathered)
        assert files.read_json(directory / "record.json")["count"] == total, "an update was lost"
        starved = sum(1 for turns, _ in gathered if turns == 0)
        return total / SECONDS, max(wait for _, wait in gathered), starved


def main() -> None:
    goals = Goals("contention")
    for processes, least, wait_s in ((8, 0.75, 0.5), (32, 0.65, 1.5)):
        raw, _, _ = _measure("flock", processes)
        ours, longest, starved = _measure("owned", processes)
        goals.add_least(f"{processes} processes, turns", ours, least, unit="a second", raw=raw)
        goals.add(f"{processes} processes, longest wait", longest, wait_s, unit="s")
        goals.add(f"{processes} processes, starved", starved, 0, unit="processes")
    goals.close()


if __name__ == "__main__":
    sys.exit(main())

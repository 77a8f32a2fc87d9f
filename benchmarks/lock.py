"""One lock, nobody waiting: ours with its owner record against raw link and unlink, and against filelock.

Also the recovery of a lock whose owner is dead, against the proof of death alone.
"""

# The system calls by their own names: they are what is measured.
# ruff: noqa: PTH108
from __future__ import annotations

import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from _common import SHORT, Goals, alternated, percentile, scratch
from school.system.identity import is_dead, this_process
from school.system.locks import OwnedLock

ROUNDS = 1000 if SHORT else 5000


def main() -> None:
    goals = Goals("lock")
    with scratch() as name:
        directory = Path(name)
        record = this_process("benchmark").text.encode()
        temporary, raw_lock = str(directory / "temporary"), str(directory / "raw")
        owned = OwnedLock(directory / "bead.lock", directory / ".guard")
        library = FileLock(directory / "filelock")

        def raw() -> None:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(fd, record)
            os.close(fd)
            os.link(temporary, raw_lock)
            os.unlink(temporary)
            os.unlink(raw_lock)

        def ours() -> None:
            owned.acquire(0)
            owned.release()

        def theirs() -> None:
            library.acquire()
            library.release()

        dead = replace(this_process(), start="1")

        def recover() -> None:
            (directory / "bead.lock").write_text(dead.text)
            assert owned.acquire(0)
            owned.release()

        ours()
        recover()  # the first takeover imports what it needs
        raw_s, ours_s, theirs_s = (
            statistics.median(times) for times in alternated(raw, ours, theirs, rounds=ROUNDS)
        )
        goals.add("acquire and release, nobody waiting", ours_s * 1e6, 3.0, unit="us", raw=raw_s * 1e6)
        goals.add("the same, against filelock.FileLock", ours_s * 1e6, 1.0, unit="us", raw=theirs_s * 1e6)
        proof, recovery = alternated(lambda: is_dead(dead), recover, rounds=ROUNDS // 5)
        print(
            f"lock: proof of death {statistics.median(proof) * 1e6:.3g} us,"
            f" recovery p95 {percentile(recovery, 0.95) * 1e3:.3g} ms"
        )
        goals.add("recovery of a dead owner's lock, p50", statistics.median(recovery) * 1e3, 5.0, unit="ms")
    goals.close()


if __name__ == "__main__":
    sys.exit(main())

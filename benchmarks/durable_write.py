"""A durable write of an 8 KB record, and a locked update of it, against the bare system calls."""

# The system calls by their own names: they are what is measured.
# ruff: noqa: PTH105
from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path

from _common import SHORT, Goals, alternated, scratch
from school.system import files
from school.system.locks import OwnedLock

ROUNDS = 200 if SHORT else 1000
RECORD = {"bead": "coder-python-coding-a1b2c3d4", "rev": 1, "output": ["x" * 78] * 95}


def main() -> None:
    goals = Goals("durable write")
    data = json.dumps(RECORD).encode()
    with scratch() as name:
        directory = Path(name)
        temporary, target = str(directory / "temporary"), str(directory / "raw.json")
        record = directory / "record.json"
        lock = OwnedLock(directory / "bead.lock", directory / ".guard")
        files.write_json(record, RECORD)

        def raw() -> None:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(fd, data)
            os.fsync(fd)
            os.close(fd)
            os.replace(temporary, target)
            fd = os.open(name, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

        def write() -> None:
            files.write_json(record, RECORD)

        def update() -> None:
            assert lock.acquire(1)
            value = files.read_json(record)
            value["rev"] += 1
            files.write_json(record, value)
            lock.release()

        raw_s, write_s, update_s = (
            statistics.median(times) for times in alternated(raw, write, update, rounds=ROUNDS)
        )
        goals.add("write", write_s * 1e3, 1.5, unit="ms", raw=raw_s * 1e3)
        goals.add("locked update", update_s * 1e3, 3.0, unit="ms", raw=raw_s * 1e3)
    goals.close()


if __name__ == "__main__":
    sys.exit(main())

"""Fifty leaves at once with silent agents: what conductor and teachers cost while nothing happens.

Goal: the three together at most 5 % of a core. All processes are real; the agents only sleep. ``BENCHMARK_SHORT`` makes
it 12 leaves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from end_to_end import make_repository

from _common import ROOT, SHORT, Goals, scratch

LEAVES = 12 if SHORT else 50
WATCH_S = 10.0 if SHORT else 30.0
BEGIN_WITHIN_S = 240.0
GOAL_PERCENT = 5.0


def tasks(path: Path) -> Path:
    entries = [
        {"id": f"t{number}", "role": "executor", "task": "Wait.", "run": ["sleep", "600"]}
        for number in range(LEAVES)
    ]
    path.write_text(json.dumps({"version": 1, "tasks": entries}))
    return path


def named(process: psutil.Process, word: str) -> bool:
    try:
        return any(argument.endswith(word) for argument in process.cmdline())
    except psutil.Error:
        return False


def all_at_work(conductor: psutil.Process) -> bool:
    below = conductor.children(recursive=True)
    return sum(process.name() == "sleep" for process in below if process.is_running()) >= LEAVES


def spent_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def main() -> None:
    goals = Goals("leaves")
    with scratch() as folder:
        place = Path(folder)
        repository = make_repository(place / "tally")
        command = [
            sys.executable,
            str(ROOT / "conductor.py"),
            "--repo",
            str(repository),
            "--leaves",
            str(LEAVES),
        ]
        run = subprocess.Popen(
            [*command, "--tasks", str(tasks(place / "tasks.yaml"))],
            env={**os.environ, "HOME": folder, "HERMES_HOME": str(place / ".hermes")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            conductor = psutil.Process(run.pid)
            begun = time.monotonic()
            while not all_at_work(conductor):
                assert run.poll() is None, "the run ended before its leaves were at work"
                assert time.monotonic() - begun < BEGIN_WITHIN_S, f"not {LEAVES} leaves at work in time"
                time.sleep(0.5)
            teachers = [child for child in conductor.children(recursive=True) if named(child, "teacher.py")]
            assert len(teachers) == 2, "expected two teachers"
            time.sleep(3.0)  # the last start is over
            before, begun = spent_s([conductor, *teachers]), time.monotonic()
            time.sleep(WATCH_S)
            share = 100 * (spent_s([conductor, *teachers]) - before) / (time.monotonic() - begun)
            goals.add(
                f"conductor and teachers, {LEAVES} silent leaves", share, GOAL_PERCENT, unit="% of a core"
            )
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(120)
    goals.close()


if __name__ == "__main__":
    main()

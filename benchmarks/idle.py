"""Idle cost: two standing teachers with 1,000 blocked and 100,000 archived bookbags around them.

Goal: at most 0.2 % of a core, each. The raw baseline is a process that does nothing, which costs 0; so the figure is
the share itself. ``BENCHMARK_SHORT`` makes it 10,000 archived beads and ten seconds of watching.
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

from _common import ROOT, SHORT, Goals, scratch

BLOCKED = 1_000
ARCHIVED = 10_000 if SHORT else 100_000
WATCH_S = 10.0 if SHORT else 60.0
SETTLE_S = 60.0
GOAL_PERCENT = 0.2


def fill(home: Path) -> None:
    """Bookbags as earlier runs would have left them."""
    from bookbag import read_bookbag, update_bookbag, write_bookbag
    from school import settings

    settings.configure(settings.Settings.from_env({"HOME": str(home.parent), "HERMES_HOME": str(home)}))
    first = "coder-python-coding-00000000"
    write_bookbag(
        first, task="t", student="coder", domain="python-coding", difficulty="easy", status="running"
    )
    update_bookbag(first, lambda bag: {**bag, "status": "blocked", "reason": "agent"}, by="leaf")
    bag = read_bookbag(first)
    assert bag is not None
    for number in range(1, BLOCKED):
        bead = f"coder-python-coding-{number:08x}"
        (home / "bookbag" / f"{bead}.json").write_text(json.dumps({**bag, "bead": bead}))
    for number in range(ARCHIVED):
        bead = f"coder-python-coding-{BLOCKED + number:08x}"
        place = home / "bookbag" / "archive" / bead
        place.mkdir(parents=True)
        (place / "bookbag.json").write_text(json.dumps({**bag, "bead": bead, "outcome": "rejected"}))


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def until_settled(watched: list[psutil.Process]) -> None:
    """Boot, first scan and first sweep are over: two seconds in which nobody does anything to speak of."""
    time.sleep(6.0)
    end = time.monotonic() + SETTLE_S
    while time.monotonic() < end:
        before = sum(map(cpu_s, watched))
        time.sleep(2.0)
        if sum(map(cpu_s, watched)) - before < 0.02:
            return


def main() -> None:
    goals = Goals("idle")
    with scratch() as folder:
        home = Path(folder) / ".hermes"
        fill(home)
        env = {**os.environ, "HOME": folder, "HERMES_HOME": str(home)}
        teachers = [
            subprocess.Popen([sys.executable, str(ROOT / "teacher.py"), "--role", role], env=env)
            for role in ("cto", "coo")
        ]
        try:
            watched = [psutil.Process(teacher.pid) for teacher in teachers]
            until_settled(watched)
            before, begun = [cpu_s(process) for process in watched], time.monotonic()
            time.sleep(WATCH_S)
            elapsed = time.monotonic() - begun
            for role, process, spent in zip(("cto", "coo"), watched, before, strict=True):
                share = 100 * (cpu_s(process) - spent) / elapsed
                goals.add(
                    f"{role}, {BLOCKED} blocked, {ARCHIVED} archived", share, GOAL_PERCENT, unit="% of a core"
                )
        finally:
            for teacher in teachers:
                teacher.send_signal(signal.SIGTERM)
            for teacher in teachers:
                teacher.wait(30)
    goals.close()


if __name__ == "__main__":
    main()

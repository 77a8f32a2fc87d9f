"""What a person waits for: ``--help`` and, around 1,000 blocked and 100,000 archived bookbags, ``status`` and its like.

Raw, in the same run: a bare interpreter that imports click and prints. Goals: ``--help`` at most 1.5 times that,
``status`` at most 3 times. For ``list`` and a run with nothing to do the goals are this project's own, against the same
raw: 7 and 25 times. ``check`` reads every archived record and holds it against its rules and its reviews; its raw is an
interpreter that reads and parses the same records, its goal, this project's own, 5 times that.
``BENCHMARK_SHORT`` makes it 10,000 archived beads.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

from end_to_end import make_repository, make_tasks
from idle import ARCHIVED, BLOCKED, fill

from _common import ROOT, SHORT, Goals, alternated, scratch

ROUNDS = 5 if SHORT else 15
CLICK = "import click; click.command()(lambda: print('x'))(standalone_mode=False)"
READ = """
import json, os, sys
with os.scandir(sys.argv[1]) as beads:
    for bead in beads:
        with open(f"{bead.path}/bookbag.json", "rb") as record:
            json.loads(record.read())
"""
GOALS = {
    "--help": (["--help"], 1.5),
    "status": (["status"], 3.0),
    "list": (["list"], 7.0),
    "check": (["check"], 5.0),
}


def call(command: list[str], env: dict[str, str], codes: tuple[int, ...] = (0,)) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in codes, f"{command}: {done.returncode}: {done.stderr}"


def main() -> None:
    goals = Goals("command line")
    with scratch() as folder:
        place = Path(folder)
        home = place / ".hermes"
        fill(home)
        repository = make_repository(place / "tally")
        env = {**os.environ, "HOME": folder, "HERMES_HOME": str(home)}
        conductor = [sys.executable, str(ROOT / "conductor.py"), "--repo", str(repository)]
        raw = partial(call, [sys.executable, "-c", CLICK], env)
        around = f"{BLOCKED} blocked, {ARCHIVED} archived"
        read = partial(call, [sys.executable, "-c", READ, str(home / "bookbag" / "archive")], env)
        for what, (arguments, goal) in GOALS.items():
            # The blocked records name no repository of this machine; check says so of nothing that it is asked about.
            ours = partial(call, [*conductor, *arguments], env, (0, 1))
            times = alternated(read if what == "check" else raw, ours, rounds=ROUNDS, block=1)
            base, measured = (statistics.median(gathered) for gathered in times)
            where = "" if what == "--help" else f", {around}"
            goals.add(f"{what}{where}", measured, goal, unit="s", raw=base)
        tasks = make_tasks(place / "tasks.yaml", 1)
        run = [*conductor, "--tasks", str(tasks), "--json"]
        call(run, env)  # the task is done now; the next run finds nothing due
        times = alternated(raw, partial(call, run, env), rounds=ROUNDS, block=1)
        base, measured = (statistics.median(gathered) for gathered in times)
        goals.add(f"a run with nothing due, {around}", measured, 25.0, unit="s", raw=base)
    goals.close()


if __name__ == "__main__":
    main()

"""One accepted trivial bead, end to end, all processes real, against the sum of what it cannot do without.

Raw, in the same run: ``git worktree add`` and ``remove`` three times (a leaf's and two teachers'), one Python start (the
leaf), and the commands of the bead's own receipts, run by hand. Goal: at most twice that sum, and at most 30 ms of the
conductor's own CPU a bead (from two runs of different length, so that its start does not count).

Each bead needs the one before it, so that none waits for another's review and its time is its own; so each has a base of
its own too, on which the teachers' commands run as well. What the time is made of is printed beside it. ``python3`` is
the interpreter itself: a version manager's shim, which takes longer than the tests, would hide our own share.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from _common import ROOT, SHORT, Goals, scratch, timed

DIRECT = {"PATH": os.pathsep.join([str(Path(sys.base_prefix) / "bin"), os.environ["PATH"]])}
FEW, MANY = (2, 6) if SHORT else (2, 14)
FILES = {
    "tally.py": "def total(values):\n    return sum(values)\n",
    "test_tally.py": "import unittest\n\nimport tally\n\n\nclass T(unittest.TestCase):\n    def test_total(self):\n"
    "        self.assertEqual(tally.total([1, 2]), 3)\n",
    "school.toml": '[verify]\ncommands = [["python3", "-m", "unittest", "-v"]]\n',
    ".gitignore": "__pycache__/\n",
}


def git(cwd: Path, *args: str) -> None:
    identity = ["-c", "user.name=B", "-c", "user.email=b@example.invalid"]
    subprocess.run(["git", *identity, *args], cwd=cwd, check=True, capture_output=True)


def make_repository(place: Path) -> Path:
    place.mkdir()
    for name, text in FILES.items():
        (place / name).write_text(text)
    git(place, "init", "-q", "-b", "main")
    git(place, "add", ".")
    git(place, "commit", "-q", "-m", "Begin")
    return place


def make_tasks(path: Path, number: int) -> Path:
    tasks = [
        {
            "id": f"t{index}",
            "role": "executor",
            "task": "Write a note.",
            "needs": [f"t{index - 1}"] if index else [],
            "run": ["sh", "-c", f"echo N = {index} > note{index}.py"],
            "accept": [{"text": "it is there", "check": ["test", "-f", f"note{index}.py"]}],
        }
        for index in range(number)
    ]
    path.write_text(json.dumps({"version": 1, "tasks": tasks}))
    return path


def conduct(repository: Path, home: Path, tasks: Path) -> tuple[float, float]:
    """Run all *tasks* one after the other; CPU seconds of the conductor itself, and of everybody."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, str(ROOT / "conductor.py"), "--repo", str(repository), "--tasks", str(tasks)]
    process = subprocess.Popen(
        [*command, "--leaves", "1", "--json"],
        env={**os.environ, **DIRECT, "HOME": str(home), "HERMES_HOME": str(home / ".hermes")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    own, spent = psutil.Process(process.pid), 0.0
    while process.poll() is None:
        try:
            times = own.cpu_times()
        except psutil.Error:
            break
        spent = max(spent, times.user + times.system)
        time.sleep(0.02)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def archived(home: Path) -> list[dict[str, Any]]:
    folder = home / ".hermes" / "bookbag" / "archive"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/bookbag.json"))]


def took_s(bag: dict[str, Any]) -> float:
    at = [datetime.fromisoformat(step["at"]) for step in bag["history"]]
    return (max(at) - min(at)).total_seconds()


PHASES = (
    ("the leaf", "leaf", "WRITTEN"),
    ("coo", "coo", "REVIEWED"),
    ("cto", "cto", "REVIEWED"),
    ("conductor, to the branch and the archive", "conductor", "DISPOSED"),
)


def phases(bags: list[dict[str, Any]]) -> str:
    """The median length of each phase; the teachers' begin together, the conductor's when both are done."""
    said = []
    for what, by, state in PHASES:
        lengths = []
        for bag in bags:
            at = {}
            for step in bag["history"]:
                key = "REVIEWED" if step["state"].endswith("REVIEWED") else step["state"]
                at[step["by"], key] = datetime.fromisoformat(step["at"])
            written = at["leaf", "WRITTEN"]
            reviewed = max(at["coo", "REVIEWED"], at["cto", "REVIEWED"])
            begun = {"leaf": at["conductor", "RUNNING"], "conductor": reviewed}.get(by, written)
            lengths.append((at[by, state] - begun).total_seconds())
        said.append(f"{what} {statistics.median(lengths):.2f}")
    return "of a bead's seconds (medians): " + "; ".join(said)


def by_hand(command: list[str], tree: Path) -> None:
    subprocess.run(command, cwd=tree, env={**os.environ, **DIRECT}, capture_output=True, check=False)


def raw_s(repository: Path, bag: dict[str, Any]) -> tuple[float, float, float]:
    """What the bead could not do without, by hand: worktrees, a Python start, its commands."""
    tree = repository.parent / "raw-tree"

    def add_and_remove() -> None:
        git(repository, "worktree", "add", "--detach", "-q", str(tree), bag["head_commit"])
        git(repository, "worktree", "remove", "--force", str(tree))

    rounds = 5
    worktrees = 3 * statistics.median(timed(add_and_remove, rounds))
    start = statistics.median(
        timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), rounds)
    )
    git(repository, "worktree", "add", "--detach", "-q", str(tree), bag["head_commit"])
    commands = [
        receipt["argv"]
        for role in ("cto", "coo")
        for lens in bag[f"{role}_review"]["lenses"]
        for receipt in lens["receipts"]
        if receipt["argv"] and not receipt["cached"]
    ]
    checks = sum(statistics.median(timed(partial(by_hand, command, tree), 3)) for command in commands)
    git(repository, "worktree", "remove", "--force", str(tree))
    return worktrees, start, checks


def main() -> None:
    goals = Goals("end-to-end")
    with scratch() as folder:
        place = Path(folder)
        repository = make_repository(place / "tally")
        spent = {
            number: conduct(
                repository, place / f"home-{number}", make_tasks(place / f"{number}.yaml", number)
            )
            for number in (FEW, MANY)
        }
        bags = archived(place / f"home-{MANY}")
        assert [bag["outcome"] for bag in bags] == ["accepted"] * MANY
        typical = sorted(bags, key=took_s)[len(bags) // 2]
        raw = raw_s(place / "tally", typical)
        goals.add("a trivial bead, accepted", took_s(typical), 2.0, unit="s", raw=sum(raw))
        own, everybody = (
            (many - few) / (MANY - FEW) for few, many in zip(spent[FEW], spent[MANY], strict=True)
        )
        goals.add("the conductor's own CPU a bead", 1000 * own, 30.0, unit="ms")
        goals.note(phases(bags))
        names = ("three worktrees", "a Python start", "its commands")
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in zip(names, raw, strict=True))
        goals.note(f"the raw seconds: {parts}; CPU of all processes a bead {everybody:.2f} s")
    goals.close()


if __name__ == "__main__":
    main()

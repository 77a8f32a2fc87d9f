"""Many leaves at once, and few for many tasks: every verdict arrives, no lock is waited for in vain, nothing stays.

``LEAVES_AT_ONCE`` scales it; fifty take some minutes on two cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from school.system import processes
from tests.e2e.projects import conduct, environment
from tests.support import ROOT, git

LEAVES = int(os.environ.get("LEAVES_AT_ONCE", "6"))
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120 + 60 * LEAVES)]

# Each waits until all are at work, so that they really are at once; the last to come lets all end together.
STUDENT = """
import pathlib, sys, time
here, number, count = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
pathlib.Path(f"calc/part_{number}.py").write_text(f"PART = {number}\\n")
(here / number).touch()
end = time.monotonic() + 30 * count
while len(list(here.iterdir())) < count and time.monotonic() < end:
    time.sleep(0.1)
assert len(list(here.iterdir())) == count, "the others never came"
"""


def task_file(place: Path, count: int, together: int) -> Path:
    (place / "student.py").write_text(STUDENT)
    (place / "met").mkdir()
    argv = [sys.executable, str(place / "student.py"), str(place / "met")]
    tasks = [
        {
            "id": f"part-{n}",
            "role": "executor",
            "task": f"Add part {n}.",
            "run": [*argv, str(n), str(together)],
        }
        for n in range(count)
    ]
    path = place / "tasks.yaml"
    path.write_text(json.dumps({"version": 1, "defaults": {"max_attempts": 1}, "tasks": tasks}))
    return path


@contextmanager
def running(repo: Path, tasks: Path, leaves: int, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(ROOT / "conductor.py"), "--repo", str(repo), "--tasks", str(tasks)]
    # Unconfined, they meet in a folder that none of them could write to otherwise.
    flags = ["--leaves", str(leaves), "--sandbox", "off", "--json"]
    with (tasks.parent / "told").open("w") as told, subprocess.Popen(
        [*command, *flags], env=env, cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=told,
    ) as run:  # fmt: skip
        try:
            yield run
        finally:
            run.terminate()


def below(run: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(run.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def in_order(repo: Path, count: int, document: dict[str, Any], place: Path, env: dict[str, str]) -> None:
    """Every task is accepted by two reviews of its own, and nothing is left of the run."""
    told = (place / "told").read_text()
    assert document["counts"]["accepted"] == count, told[-4000:]
    assert "Timeout" not in told
    assert " lock" not in told, [line for line in told.splitlines() if " lock" in line]
    state = Path(env["HERMES_HOME"])
    bags = [json.loads(path.read_text()) for path in (state / "bookbag/archive").glob("*/bookbag.json")]
    assert len(bags) == count
    given = [bag[f"{role}_review"]["review_id"] for bag in bags for role in ("cto", "coo")]
    assert len(set(given)) == 2 * count
    assert {path.stem for path in (state / "school/reviews").glob("*.json")} == set(given)
    assert len((state / "school/score-journal.jsonl").read_text().splitlines()) == count
    for number in range(count):
        assert git(repo, "show", f"school/part-{number}:calc/part_{number}.py") == f"PART = {number}"
    assert list((state / "worktrees").rglob("study-*")) == []
    assert [path.name for path in (state / "locks").iterdir() if path.name.endswith(".lock")] == []
    assert list((state / "signals").iterdir()) == []
    assert [bag["bead"] for bag in bags if processes.marked(bag["bead"])] == []
    code, rows, _ = conduct("check", env=env)
    assert code == 0, [row for row in rows if not row["ok"]]


def test_all_at_once_lose_no_verdict_and_wait_for_no_lock_in_vain(
    repo: Path, own_home: Path, tmp_path: Path
) -> None:
    env, tasks = environment(own_home), task_file(tmp_path, LEAVES, LEAVES)
    begun = time.monotonic()
    with running(repo, tasks, LEAVES, env) as run:
        out, _ = run.communicate()
    print(f"{LEAVES} leaves at once took {time.monotonic() - begun:.0f} s")
    in_order(repo, LEAVES, json.loads(out), tmp_path, env)


def test_many_tasks_one_after_the_other_never_have_more_processes_than_they_may(
    repo: Path, own_home: Path, tmp_path: Path
) -> None:
    count = max(6, LEAVES // 2)
    env, tasks = environment(own_home), task_file(tmp_path, count, 1)
    most, dead = 0, 0
    with running(repo, tasks, 2, env) as run:
        while run.poll() is None:
            found = [(process, command_of(process)) for process in below(run)]
            most = max(most, sum(command[1:2] == [str(tmp_path / "student.py")] for _, command in found))
            dead = max(dead, sum(_is_zombie(process) for process, _ in found))
            time.sleep(0.02)
        assert run.stdout is not None
        document = json.loads(run.stdout.read())
    assert 1 <= most <= 2
    assert dead <= 4  # who has just ended is being waited for; they do not gather
    in_order(repo, count, document, tmp_path, env)


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False

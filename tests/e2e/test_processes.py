"""Separate processes that meet through files: seen in the process table while a run is on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.driver import CONTROL, Stage
from tests.support import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def until(true: Callable[[], object], what: str, limit_s: float = 60) -> None:
    """Wait for *true* to hold, looking every 20 ms; *what* says in the failure what never came."""
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"never saw {what}"
        time.sleep(0.02)


@pytest.fixture
def stage(tmp_path: Path, own_home: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, own_home)
    yield stage
    for process in stage.ours():
        process.kill()


def teacher(stage: Stage, role: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "teacher.py"), "--role", role],
        env=stage.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def end(process: subprocess.Popen[str]) -> int:
    """Stop *process* politely and close what was open towards it; its exit status."""
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    return process.returncode


def test_conductor_two_teachers_and_k_leaves(stage: Stage) -> None:
    runner = stage.start()
    until(lambda: len(stage.victims("leaf")) == 3, "three leaves at once")
    assert [len(stage.victims(kind)) for kind in ("conductor", "cto", "coo")] == [1, 1, 1]
    assert (
        len({process.pid for kind in ("conductor", "cto", "coo", "leaf") for process in stage.victims(kind)})
        >= 5
    )
    assert max(len(stage.victims("leaf")) for _ in range(20)) <= 3
    runner.wait(200)
    assert stage.outcomes() == CONTROL
    assert stage.faults() == []


def test_with_the_cto_stopped_the_coo_goes_on(stage: Stage) -> None:
    runner = stage.start()
    until(lambda: stage.victims("cto"), "a CTO")
    (cto,) = stage.victims("cto")
    cto.suspend()
    until(lambda: stage.states()["COO_REVIEWED"] > 0, "a bead in COO_REVIEWED")
    bags = [json.loads(path.read_text()) for path in (stage.state / "bookbag").glob("*.json")]
    waiting = [bag for bag in bags if bag["coo_verdict"] and not bag["cto_verdict"]]
    receipts = [
        receipt for bag in waiting for lens in bag["coo_review"]["lenses"] for receipt in lens["receipts"]
    ]
    assert receipts
    assert {receipt["commit"] for receipt in receipts if receipt["at"] == "head"} <= {
        bag["head_commit"] for bag in bags
    }
    assert list((stage.state / "worktrees").glob("*/teacher-coo"))
    cto.resume()
    runner.wait(200)
    assert stage.outcomes() == CONTROL


def test_teachers_started_by_hand_serve_and_stay(stage: Stage) -> None:
    by_hand = [teacher(stage, role) for role in ("cto", "coo")]
    try:
        until(
            lambda: len(list((stage.state / "school/teachers").glob("*.json"))) == 2, "two teachers at work"
        )
        code, _ = stage.run()
        assert (code, stage.outcomes()) == (1, CONTROL)
        assert [process.poll() for process in by_hand] == [None, None]
        journal = [path for path in stage.archived() if path["cto_review"]["verdict"]]
        assert len(journal) == len(CONTROL)
    finally:
        assert [end(process) for process in by_hand] == [128 + signal.SIGTERM] * 2
    assert stage.faults() == []


def test_a_second_teacher_of_a_role_refuses_and_says_who_holds_it(stage: Stage) -> None:
    first = teacher(stage, "cto")
    try:
        until((stage.state / "school/teachers/cto.json").exists, "the first CTO")
        second = teacher(stage, "cto")
        output, _ = second.communicate(timeout=30)
        assert second.returncode == 4
        assert str(first.pid) in output
    finally:
        end(first)


def test_two_conductors_share_teachers_and_both_finish(tmp_path: Path, own_home: Path) -> None:
    one, two = Stage(tmp_path / "one", own_home), Stage(tmp_path / "two", own_home)
    first = one.start()
    until(lambda: one.victims("cto") and one.victims("coo"), "the first conductor's teachers")
    second = two.start()
    until(lambda: two.states().total() > 0, "work of the second conductor")
    first.kill()  # the one whose teachers they are
    first.wait(10)
    second.wait(250)
    assert json.loads(two.logs[-1].read_text())["counts"]["accepted"] == 6
    one.run()
    assert one.faults() == []
    assert two.faults() == []


def test_a_second_conductor_of_one_repository_is_refused(stage: Stage) -> None:
    runner = stage.start()
    until(lambda: stage.states().total() > 0, "a run at work")
    (holder,) = stage.victims("conductor")
    code, _ = stage.run()
    assert code == 4
    assert str(holder.pid) in stage.logs[-1].with_suffix(".err").read_text() + stage.logs[-1].read_text()
    runner.wait(200)


def test_sync_gives_the_same_verdicts_and_records(tmp_path: Path, own_home: Path) -> None:
    def told(stage: Stage) -> dict[str, tuple[object, ...]]:
        return {
            bag["task_id"]: (
                bag["cto_verdict"],
                bag["coo_verdict"],
                bag["accepted"],
                # Each attempt also writes a file under a name of its own.
                sorted(re.sub(r"[0-9a-f]{32}", "", path) for path in bag["files_changed"]),
                sorted(finding["issue_class"] for finding in bag["findings"]),
                [step["state"] for step in bag["history"] if "REVIEWED" not in step["state"]],
                sorted(bag),
            )
            for bag in stage.archived()
        }

    processes, inline = Stage(tmp_path / "p", own_home / "p"), Stage(tmp_path / "i", own_home / "i")
    assert processes.run()[0] == inline.run("--sync", "--tasks", str(inline.tasks))[0] == 1
    assert told(inline) == told(processes)
    assert len(told(inline)) == len(CONTROL)

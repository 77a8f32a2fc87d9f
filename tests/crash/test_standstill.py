"""A leaf that stands still (stopped, or held up by the kernel) holds up no run, and its work is saved."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import bookbag
from school.settings import Settings
from school.supervisor import leaves as leaves_module
from school.supervisor.leaves import Leaves
from school.worktrees.salvage import salvage
from tests.leaves import content, new_bead, script

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

WRITES_AND_HANGS = "import pathlib, time; pathlib.Path('work').write_text('kept'); time.sleep(600)"


def wait_until(what: Callable[[], object], limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.02)


@pytest.fixture
def stopped(repo: Path, school: Settings) -> tuple[str, Leaves]:
    """A bead whose agent has written something, and whose leaf was then stopped."""
    bead = new_bead(repo, script(WRITES_AND_HANGS))
    leaves = Leaves(school, 1)
    school.processes_dir.mkdir(parents=True)
    school.logs_dir.mkdir(parents=True)
    leaves.start(bead)
    wait_until(lambda: list(school.worktrees_dir.glob("*/study-*/work")))
    wait_until(lambda: leaves.lives(bead))
    leaf = psutil.Process(leaves.children[bead].pid)
    leaf.send_signal(signal.SIGSTOP)
    wait_until(lambda: leaf.status() == psutil.STATUS_STOPPED)
    return bead, leaves


def saved(bead: str, school: Settings) -> str:
    salvage(bead, reason="leaf_died", settings=school)
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    assert bag["status"] == "failed"
    return content(bag, school, "work")


def test_no_step_for_longer_than_any_may_last(stopped, school, monkeypatch):
    bead, leaves = stopped
    bag = bookbag.read_bookbag(bead)
    pid = leaves.children[bead].pid
    for _ in range(3):  # within the limit it is left alone
        leaves.watch(bag)
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    monkeypatch.setattr(leaves_module, "step_limit_s", lambda _: 0.05)
    time.sleep(0.1)
    leaves.watch(bag)
    wait_until(lambda: not leaves.lives(bead))
    assert saved(bead, school) == "kept"
    assert leaves.reap() == [bead]


def test_one_of_a_dead_conductor_is_woken_to_end(stopped, school):
    bead, leaves = stopped
    child = leaves.children.pop(bead)
    child.close()  # as the kernel does for a conductor that was killed
    later = Leaves(school, 1)
    assert later.lives(bead)
    later.watch(bookbag.read_bookbag(bead))
    assert child.wait(30) is not None
    wait_until(lambda: not later.lives(bead))
    assert saved(bead, school) == "kept"


def test_told_to_end_it_is_woken_and_saves_its_own_work(stopped, school):
    bead, leaves = stopped
    leaves.end_all()
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    assert (bag["status"], bag["reason"]) == ("failed", "interrupted")
    assert content(bag, school, "work") == "kept"

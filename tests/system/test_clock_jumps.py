"""The machine's wall clock is set by years, either way, while we wait, hold locks and look at ages."""

from __future__ import annotations

import os

import pytest

from tests.preload import Clock
from tests.system.support import python

YEARS = 10 * 366 * 86400
# ``jump(seconds)`` is in place; ``since`` measures by the monotonic clock, which nobody sets.
BEGIN = """
    import os, struct, sys, threading, time
    from pathlib import Path
    from school.system import clock, files, identity, processes
    from school.system.locks import KernelLock, OwnedLock
    from school.system.watch import Watcher
    here, years, years_at_least = Path(sys.argv[1]), int(sys.argv[2]), 9 * 365 * 86400
    skew = open(os.environ["SKEW_FILE"], "r+b", buffering=0)
    def jump(seconds):
        before = time.time()
        os.pwrite(skew.fileno(), struct.pack("q", seconds), 0)
        assert abs(time.time() - before) > years_at_least, "the clock did not jump"
    def soon(seconds=years):
        threading.Timer(0.1, jump, [seconds]).start()
    begun = time.monotonic()
"""


@pytest.fixture(params=[YEARS, -YEARS], ids=["forward", "back"])
def during(request, tmp_path):
    """What *code* prints in a process whose clock can jump, and will by ten years."""
    clock = Clock(tmp_path / "preload")
    (tmp_path / "here").mkdir()

    def during(code: str) -> list[str]:
        env = {**os.environ, **clock.env}
        process = python(BEGIN + code, tmp_path / "here", request.param, env=env)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return said.splitlines()

    return during


def test_waits_end_by_the_time_that_really_passes(during):
    said = during("""
    (here / "bead.lock").write_text(identity.this_process().text)
    lock = OwnedLock(here / "bead.lock", here / ".guard")
    soon()
    print(lock.acquire(0.4), 0.4 <= time.monotonic() - begun < 3)
    jump(0)
    with Watcher(here / "watched", rescan_s=60) as watcher:
        watcher.wait(0)
        begun = time.monotonic()
        soon()
        print(watcher.wait(0.4), 0.4 <= time.monotonic() - begun < 3)
        jump(0)
    begun = time.monotonic()
    soon()
    limits = processes.RunLimits(0.6, grace_s=0.2)
    done = processes.run(["sleep", "60"], cwd=here, env={"PATH": os.environ["PATH"]}, limits=limits, marker="jump")
    print(done.reason, 0.6 <= time.monotonic() - begun < 10, 0.6 <= done.duration_s < 10)
    """)
    assert said == ["False True", "False True", "timeout True True"]


def test_the_locks_of_the_living_and_their_half_written_files_are_no_older_for_it(during):
    said = during("""
    held = OwnedLock(here / "bead.lock", here / ".guard")
    role = KernelLock(here / "role.lock")
    temporary = Path(files.temporary_name(here / "record.json"))
    temporary.write_text("half")
    print(held.acquire(0), role.try_acquire("cto"))
    jump(years)
    other = OwnedLock(here / "bead.lock", here / ".guard")
    print(other.acquire(0.05), KernelLock(here / "role.lock").try_acquire(), identity.alive(identity.this_process()))
    files.sweep_temporaries(here)
    print(temporary.exists())
    held.release()
    print(other.acquire(0))
    """)
    assert said == ["True True", "False False True", "True", "True"]


def test_a_lock_that_names_nobody_is_waited_for_no_longer_than_its_bound(during):
    said = during("""
    (here / "bead.lock").write_text("")
    jump(years)
    lock = OwnedLock(here / "bead.lock", here / ".guard")
    print(lock.acquire(30), time.monotonic() - begun < 10)
    """)
    assert said == ["True True"]


def test_who_is_dead_stays_dead(during):
    said = during("""
    import subprocess
    child = subprocess.Popen(["sleep", "0"])
    owner = identity.identity(child.pid)
    child.wait()
    (here / "bead.lock").write_text(owner.text)
    jump(years)
    print(OwnedLock(here / "bead.lock", here / ".guard").acquire(0))
    """)
    assert said == ["True"]

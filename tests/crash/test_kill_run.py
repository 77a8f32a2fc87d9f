"""Whatever is killed, whenever: the next run ends as one that nobody killed, and nothing is lost or left.

``SCHOOL_KILLS`` says how often each kind of process is struck (continuous integration strikes three times); the
moments are random, with the seed printed, and the states in which the strikes hit are printed too.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.crash.driver import CONTROL, Stage, strike

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("SCHOOL_KILLS", "1"))
SEED = int(os.environ.get("SCHOOL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
# About as long as such a run takes: a strike may come anywhere in it.
SPAN_S = 15.0


def wait_for_victims(stage: Stage, kind: str, runner: object, rng: random.Random) -> list[psutil.Process]:
    """The victims at a random moment of the run; keeps looking while the run goes on and none is there yet."""
    moment = time.monotonic() + rng.uniform(0.1, SPAN_S)
    while True:
        found = stage.victims(kind)
        if (found and time.monotonic() >= moment) or runner.poll() is not None:
            return found
        time.sleep(0.02)


def finish(stage: Stage) -> int:
    """Run again until nothing is due; a handful of runs is the most that any kill may cost."""
    for _ in range(4):
        code, _ = stage.run()
        if stage.outcomes() == CONTROL and code in (0, 1):
            return code
    return code


def gone_within(stage: Stage, seconds: float) -> list[str]:
    end = time.monotonic() + seconds
    while (left := stage.ours()) and time.monotonic() < end:
        time.sleep(0.05)
    names = []
    for process in left:
        try:
            names.append(f"{process.pid} {process.cmdline()}")
        except psutil.Error:
            continue
    return names


def test_control_run(tmp_path: Path, own_home: Path) -> None:
    stage = Stage(tmp_path, own_home)
    code, run = stage.run()
    assert (code, stage.outcomes()) == (1, CONTROL), run
    assert stage.faults() == []


@pytest.mark.parametrize("kind", ["conductor", "cto", "coo", "leaf"])
@pytest.mark.parametrize("number", range(KILLS))
def test_kill_9(kind: str, number: int, tmp_path: Path, own_home: Path) -> None:
    rng = random.Random(f"{SEED}-{kind}-{number}")
    stage = Stage(tmp_path, own_home)
    runner = stage.start()
    victims = wait_for_victims(stage, kind, runner, rng)
    hit: Counter[str] = stage.states()
    struck = [victim for victim in victims[:1] if strike(victim, signal.SIGKILL)]
    print(f"\nseed {SEED}: kill -9 {kind} hit {len(struck)} process while beads were {dict(hit)}")
    if kind == "conductor":
        runner.wait(10)
        assert gone_within(stage, 3.0) == []
    runner.wait(240)
    finish(stage)
    assert stage.outcomes() == CONTROL
    assert stage.faults() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_polite_signals(number: signal.Signals, tmp_path: Path, own_home: Path) -> None:
    rng = random.Random(f"{SEED}-{number}")
    stage = Stage(tmp_path, own_home)
    runner = stage.start()
    victims = wait_for_victims(stage, "conductor", runner, rng)
    hit = stage.states()
    struck = [victim for victim in victims[:1] if strike(victim, number)]
    code = runner.wait(60)
    print(f"\nseed {SEED}: {number.name} hit {len(struck)} conductor while beads were {dict(hit)}")
    if struck:
        # -n: struck before it could say what it does with a signal, which to a shell is the same 128 + n.
        assert code in (128 + number, -number, 1)
    assert gone_within(stage, 3.0) == []
    finish(stage)
    assert stage.outcomes() == CONTROL
    assert stage.faults() == []

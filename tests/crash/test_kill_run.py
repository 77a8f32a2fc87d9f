"""Whatever is killed, whenever: the next run ends as one that nobody killed, and nothing is lost or left.

``SCHOOL_KILLS`` says how often each kind of process is struck (continuous integration strikes three times); the
moments are random, with the seed printed, each strike of a kind in another part of the run; how far the run had come and the
states in which the strikes hit are printed too. A moment is one of progress, not of time, so that a busy machine moves none.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.crash.driver import CONTROL, Stage, strike

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KILLS = int(os.environ.get("SCHOOL_KILLS", "1"))
SEED = int(os.environ.get("SCHOOL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
GONE_S = 2.0


def wait_for_victims(
    stage: Stage, kind: str, runner: subprocess.Popen[bytes], moment: float
) -> list[psutil.Process]:
    """The victims once the run has come as far as *moment*; keeps looking while it goes on and none is there yet."""
    while True:
        # The last leaf is gone long before the run is: how far leaves have come is how many there were.
        come = stage.begun() if kind == "leaf" else stage.progress()
        found = stage.victims(kind) if come >= moment else []
        if found or runner.poll() is not None:
            return found
        time.sleep(0.02)


def moment_of(kind: str, number: int, of: int) -> tuple[float, int]:
    """A random moment in the *number*-th part of a run, and the seed that it comes from."""
    part = 0.95 / of
    return random.Random(f"{SEED}-{kind}-{number}").uniform(part * number, part * (number + 1)), SEED


def finish(stage: Stage) -> int:
    """Run again until nothing is due; a handful of runs is the most that any kill may cost."""
    for _ in range(4):
        code, _ = stage.run()
        if stage.outcomes() == CONTROL and code in (0, 1):
            return code
    return code


def test_control_run(tmp_path: Path, own_home: Path) -> None:
    stage = Stage(tmp_path, own_home, huge=True)
    code, run = stage.run()
    assert (code, stage.outcomes()) == (1, CONTROL), run
    assert stage.faults() == []


@pytest.mark.parametrize("kind", ["conductor", "cto", "coo", "leaf"])
@pytest.mark.parametrize("number", range(KILLS))
def test_kill_9(kind: str, number: int, tmp_path: Path, own_home: Path) -> None:
    moment, seed = moment_of(kind, number, KILLS)
    stage = Stage(tmp_path, own_home, huge=True)
    runner = stage.start()
    victims = wait_for_victims(stage, kind, runner, moment)
    struck = [victim for victim in victims[:1] if strike(victim, signal.SIGKILL)]
    end = time.monotonic() + GONE_S
    if kind == "conductor":
        assert stage.gone_by(end) == []
    hit: Counter[str] = stage.states()
    print(f"\nseed {seed}: kill -9 {kind} at {moment:.2f} hit {len(struck)} process, beads were {dict(hit)}")
    assert struck
    runner.wait(240)
    finish(stage)
    assert stage.outcomes() == CONTROL
    assert stage.faults() == []


@pytest.mark.parametrize("number", POLITE)
def test_polite_signals(number: signal.Signals, tmp_path: Path, own_home: Path) -> None:
    moment, seed = moment_of("conductor", list(POLITE).index(number), len(POLITE))
    stage = Stage(tmp_path, own_home, huge=True)
    runner = stage.start()
    victims = wait_for_victims(stage, "conductor", runner, moment)
    hit = stage.states()
    struck = [victim for victim in victims[:1] if strike(victim, number)]
    code = runner.wait(60)
    print(f"\nseed {seed}: {number.name} at {moment:.2f} hit {len(struck)} conductor, beads were {dict(hit)}")
    if struck:
        # -n: struck before it could say what it does with a signal, which to a shell is the same 128 + n.
        assert code in (128 + number, -number, 1)
    assert stage.gone_by(time.monotonic() + GONE_S) == []
    finish(stage)
    assert stage.outcomes() == CONTROL
    assert stage.faults() == []

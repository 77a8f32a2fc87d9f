"""``kill -9`` of a random process of ours (conductor, teacher, leaf, warden) at random moments, until a run's tasks are done.

``SCHOOL_RANDOM_KILLS`` is how often: up to eight strikes come in a run of eight tasks, and, from forty on, up to a hundred in
a run of forty; as many runs as it takes. Half of the moments are random ones, in the other half the killer lies in wait for a
bead to stand where the fewest strikes have hit. Each run must end as one did that nobody killed, with nothing lost, doubled or
left over; the histogram of what was hit is printed, and from five hundred on none of its bars may be empty. ``SCHOOL_SEED``,
which is printed, gives the same choices again; when they come about is up to the machine.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from school.system import confine
from tests.crash.driver import Stage, strike
from tests.crash.strikes import BARS, PROGRAMS, Hits, campaign, judged, made

pytestmark = [pytest.mark.crash, pytest.mark.timeout(4 * 3600)]

KILLS = int(os.environ.get("SCHOOL_RANDOM_KILLS", "5"))
SEED = int(os.environ.get("SCHOOL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
LONG = KILLS >= 40
TASKS, KILLS_A_RUN = (40, 100) if LONG else (8, 8)
MEAN_PAUSE_S = 1.0
# So long it lies in wait for a bead in a certain state, then it strikes whatever there is.
WAIT_S = 4.0
GONE_S = 2.0
# Where a command could have killed its warden itself, it counts as killed. A check that three times lost its warden blocks
# its bead, and that is not what is looked for here.
WARDENS_A_RUN = 2 if confine.probe().kind else 0


class Killer:
    """Strikes one run after another of a stage, *due* times at most."""

    def __init__(self, stage: Stage, chance: random.Random, hits: Hits, due: int) -> None:
        self.stage, self.chance, self.hits, self.due = stage, chance, hits, due
        self.kills: list[str] = []
        self.wrong: list[str] = []
        self.plan()

    def plan(self) -> None:
        """When the next strike comes, and at whom."""
        self.not_before = time.monotonic() + self.chance.expovariate(1 / MEAN_PAUSE_S)
        self.aim = ("", "")
        wardens = len([kill for kill in self.kills if kill == "warden"])
        self.program = self.chance.choice([*PROGRAMS, *(["warden"] if wardens < WARDENS_A_RUN else [])])
        if self.chance.random() < 0.5:
            least = min(self.hits.bars[bar] for bar in BARS)
            self.aim = self.chance.choice([bar for bar in BARS if self.hits.bars[bar] == least])
            self.program = self.aim[0]

    def look(self, runner: subprocess.Popen[bytes]) -> None:
        now = time.monotonic()
        if len(self.kills) >= self.due or now < self.not_before:
            return
        state = self.aim[1] if now < self.not_before + WAIT_S else ""
        if state and state not in self.stage.unfinished().values():
            return
        if found := self.found(state):
            self.strike(self.chance.choice(found), runner)
        elif not state:
            self.plan()

    def found(self, state: str) -> list[psutil.Process]:
        if self.program == "warden":
            return self.stage.wardens()
        return self.aimed(state) if self.program == "leaf" and state else self.stage.victims(self.program)

    def aimed(self, state: str) -> list[psutil.Process]:
        """Leaves whose bead stands in that state."""
        beads = {bead for bead, at in self.stage.unfinished().items() if at == state}
        return [leaf for leaf in self.stage.victims("leaf") if beads & set(words_of(leaf).split())]

    def strike(self, victim: psutil.Process, runner: subprocess.Popen[bytes]) -> None:
        words = words_of(victim)
        beads = self.stage.unfinished()
        if not words or not strike(victim, signal.SIGKILL):
            return
        self.hits.count(beads, self.program, words)
        self.kills.append(f"{self.program} {self.aim[1]}".strip())
        # Half of the conductors are started again before what they left has gone.
        if self.program == "conductor" and self.chance.random() < 0.5:
            runner.wait(GONE_S)
            left = self.stage.gone_by(time.monotonic() + GONE_S)
            self.wrong += [f"{GONE_S} s after kill {len(self.kills)}: {name}" for name in left]
        self.plan()

    def struck(self) -> int:
        return len(self.kills)


def words_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def killed_run(stage: Stage, killer: Killer) -> list[str]:
    """One repository, struck until all of its tasks are done; what is wrong with it then."""
    found = [*campaign(stage, killer.look, killer.struck), *killer.wrong]
    kills = f"{killer.struck()} strikes in {len(stage.logs)} starts"
    print(f"{stage.place.name}: {kills}; {found or 'holds'}", flush=True)
    return judged(stage, found, f"SCHOOL_SEED={SEED}, struck: {', '.join(killer.kills)}")


def test_random_kills(tmp_path: Path, own_home: Path) -> None:
    if LONG:  # the same eight tasks are run without a killer in test_points
        control = made(tmp_path / "control", own_home, TASKS)
        assert control.run(timeout_s=600)[0] == 1
        assert (control.outcomes(), control.faults()) == (control.control, [])
    chance, hits = random.Random(SEED), Hits()
    print(f"\nSCHOOL_SEED={SEED}: {KILLS} strikes over runs of {TASKS} tasks", flush=True)
    wrong: list[str] = []
    try:
        for number in itertools.count(1):
            if (due := KILLS - hits.strikes.total()) <= 0:
                break
            stage = made(tmp_path / f"run-{number}", own_home, TASKS)
            wrong += killed_run(stage, Killer(stage, chance, hits, min(KILLS_A_RUN, due)))
    finally:  # also of one that somebody breaks off
        print(hits.shown())
    assert wrong == []
    assert not hits.empty() or KILLS < 500

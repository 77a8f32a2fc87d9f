"""Every interleaving of one bead's handoff with crashes; seeded runs of many; and that planted faults are found."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from school.records.moves import STATES
from tests.simulation.explorer import Broken, explore
from tests.simulation.handoff_model import (
    BUGS,
    GONE,
    ROLES,
    Rules,
    World,
    begin,
    broken,
    settled,
    state_of,
)

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "1000"))
STEPS_MAX = 5_000


def no_rule(_world: World) -> str:
    return ""  # the rules are about steps; ``successors`` checks each


def test_one_bead_in_every_order_with_three_deaths_anywhere():
    space = explore([begin(1, crashes=3)], Rules().successors, no_rule)
    assert len(space.came) > 10_000
    reached = {state_of(world.beads[0]) for world in space.came}
    assert reached == set(STATES)
    # From wherever it is, without a further death, it comes to its end; and what has come to rest is at an end.
    assert space.cannot_reach(settled, lambda event: not event.endswith("dies")) == []
    assert all(
        settled(world) for world, edges in space.edges.items() if not [e for e, _ in edges if "dies" not in e]
    )


def test_two_beads_in_every_order_that_pass():
    space = explore([begin(2, crashes=0)], Rules(verdicts=("PASS",)).successors, no_rule)
    ends = {(w.beads[0].outcome, w.beads[1].outcome) for w in space.came if settled(w)}
    assert ends == {("accepted", "accepted")}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_fault_is_found_by_the_model(bug):
    told = {
        "flag_cleared_by_first": "the flag is gone, and a verdict is still due",
        "score_twice": "a score was applied twice",
        "verdict_twice": "a verdict was entered twice",
        "removed_before_snapshot": "a tree was removed, and its work is in no commit",
    }
    with pytest.raises(Broken, match=told[bug]):
        explore([begin(1, crashes=1)], Rules(bugs=frozenset({bug})).successors, no_rule)


# --- seeded runs: many leaves, a disk that fails, a clock that both teachers' back-offs hang on ---------------------


class Run:
    """One run by its seed. Each turn somebody who may act does one step; the disk may refuse it; anybody may die."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self.chance = random.Random(seed)
        self.rules = rules
        self.world = begin(self.chance.randint(1, 6), crashes=self.chance.randint(0, 8))
        self.now = 0.0
        self.back_off: dict[str, float] = {}
        self.disk_fails = self.chance.choice((0.0, 0.05, 0.3))
        self.disk_until = self.chance.randint(0, 200)
        self.turn = 0

    def play(self) -> World:
        while not settled(self.world):
            self.turn += 1
            assert self.turn < STEPS_MAX, "the run does not come to an end"
            self.now += self.chance.expovariate(2.0)
            self.once()
        return self.world

    def once(self) -> None:
        awake = [who for who in self.rules.actors(self.world) if self.back_off.get(who, 0.0) <= self.now]
        able = [(who, steps) for who in awake if (steps := self.rules.steps(self.world, who))]
        if not able:
            self.now = max([self.now, *self.back_off.values()])  # nothing to do but to wait
            return
        who, steps = self.chance.choice(able)
        if self.world.crashes and self.chance.random() < 0.05:
            self.take(self.rules.crash(self.world, who), f"{who} dies")
            self.back_off[who] = self.now + self.chance.choice((0.5, 1, 2))
        elif self.turn < self.disk_until and self.chance.random() < self.disk_fails:
            self.refuse(who)
        else:
            event, after = self.chance.choice(steps)
            if "cannot judge" in event:
                self.back_off[who] = self.now + self.chance.choice((1.0, 4.0))
            self.take(after, event)

    def refuse(self, who: str) -> None:
        """The disk is full: whoever writes gives up what is in hand, and a leaf its bead."""
        if who.startswith("leaf"):
            self.take(
                replace(self.world, leaves=_gone(self.world.leaves, int(who[5:]))), f"{who} finds no room"
            )
        elif who == "conductor":
            self.take(replace(self.world, conductor=()), "conductor finds no room")
        else:
            r = ROLES.index(who)
            teachers = tuple(() if at == r else place for at, place in enumerate(self.world.teachers))
            self.take(replace(self.world, teachers=teachers), f"{who} finds no room")
        self.back_off[who] = self.now + 1.0

    def take(self, after: World, event: str) -> None:
        for old, new in zip(self.world.beads, after.beads, strict=True):
            if old is not new and (why := broken(old, new)):
                raise Broken(f"{why}, when {event}")
        self.world = after


def _gone(leaves: tuple[int, ...], i: int) -> tuple[int, ...]:
    return tuple(GONE if at == i else step for at, step in enumerate(leaves))


@pytest.mark.timeout(120 + SEEDS // 20)
def test_seeded_runs_come_to_their_end_and_break_no_rule():
    outcomes: dict[str, int] = {}
    for seed in range(SEEDS):
        try:
            world = Run(seed, Rules()).play()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        for bead in world.beads:
            outcomes[bead.outcome] = outcomes.get(bead.outcome, 0) + 1
    assert set(outcomes) == {"accepted", "rejected", "failed", "blocked"}
    assert min(outcomes.values()) > SEEDS / 20


def test_a_seed_gives_the_same_run_again():
    assert Run(7, Rules()).play() == Run(7, Rules()).play()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_fault_is_found_by_some_seed(bug):
    rules = Rules(bugs=frozenset({bug}))
    found = 0
    for seed in range(200):
        try:
            Run(seed, rules).play()
        except Broken:
            found += 1
    assert found > 0

"""Every interleaving of the lock protocol, with crashes; and that the explorer finds what is wrong with two others."""

from __future__ import annotations

import os
import random

import pytest

from tests.simulation.explorer import Broken, explore
from tests.simulation.lock_model import DEAD, DONE, GARBLED, NONE, Locks, Protocol, begin, check, ended

STEPS_MAX = 5_000
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "1000"))


@pytest.mark.parametrize("file", [NONE, DEAD, GARBLED])
def test_three_processes_never_own_it_together_and_whoever_lives_gets_it(file):
    protocol = Protocol()
    space = explore([begin(3, file, crashes=2)], protocol.successors, check)
    assert len(space.came) > 2_000
    # Whatever happened before: without a further crash everybody who lives comes to the end.
    assert space.cannot_reach(ended, lambda event: not event.endswith("dies")) == []
    # A state in which nothing more can happen is one in which all are done.
    assert all(ended(state) for state, edges in space.edges.items() if not edges)


def test_a_file_that_another_hand_emptied_costs_nobody_else_the_lock():
    explore([begin(3, NONE, vandals=1, crashes=1)], Protocol().successors, check)


def test_a_release_that_does_not_look_at_whose_it_is_takes_the_lock_of_another():
    with pytest.raises(Broken, match=r"\d releases the lock of \d, which lives"):
        explore([begin(3, NONE, vandals=1, crashes=0)], Protocol(release_looks=False).successors, check)


def test_to_unlink_what_was_read_to_be_stale_makes_two_owners():
    with pytest.raises(Broken, match=r"two owners: \[0, 1\]"):
        explore([begin(2, DEAD, crashes=0)], Protocol("seed").successors, check)


def test_to_rename_aside_verify_and_put_back_makes_two_owners_of_three():
    explore([begin(2, DEAD, crashes=0)], Protocol("aside").successors, check)
    with pytest.raises(Broken, match=r"two owners: "):
        explore([begin(3, DEAD, crashes=0)], Protocol("aside").successors, check)


def run_lock(seed: int, protocol: Protocol) -> Locks:
    """One random run of five processes with everything that may go wrong."""
    chance = random.Random(seed)
    file = chance.choice([NONE, DEAD, GARBLED])
    state = begin(5, file, vandals=chance.randint(0, 2), crashes=chance.randint(0, 3))
    for _ in range(STEPS_MAX):
        edges = protocol.successors(state)
        if not edges:
            return state
        _, state = chance.choice(edges)
        if why := check(state):
            raise Broken(why)
    raise Broken("it does not come to an end")


@pytest.mark.timeout(120 + SEEDS // 20)
def test_five_processes_at_random():
    done = {seed: run_lock(seed, Protocol()) for seed in range(SEEDS)}
    assert all(ended(state) for state in done.values())
    assert sum(state.at.count(DONE) for state in done.values()) > 2 * SEEDS


@pytest.mark.parametrize(
    "protocol",
    [Protocol("seed"), Protocol("aside"), Protocol(release_looks=False)],
    ids=["seed", "aside", "no look"],
)
def test_a_wrong_protocol_is_found_by_some_seed(protocol):
    found = []
    for seed in range(500):
        try:
            run_lock(seed, protocol)
        except Broken as broken:
            found.append(str(broken))
    assert len(found) > 5

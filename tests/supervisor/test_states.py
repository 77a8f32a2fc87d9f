"""The conductor's table is complete, and each cell says what the contract says."""

import pytest

from school.records.moves import STATES
from school.supervisor.states import AWAITING_REVIEW, TABLE, Action, decide

CELLS = [
    ("RUNNING", True, Action.LEAF),
    ("RUNNING", False, Action.SALVAGE),
    ("WRITTEN", True, Action.REVIEW),
    ("WRITTEN", False, Action.REVIEW),
    ("CTO_REVIEWED", True, Action.REVIEW),
    ("CTO_REVIEWED", False, Action.REVIEW),
    ("COO_REVIEWED", True, Action.REVIEW),
    ("COO_REVIEWED", False, Action.REVIEW),
    ("REVIEWED", True, Action.SCORE),
    ("REVIEWED", False, Action.SCORE),
    ("SCORED", True, Action.LEAF),
    ("SCORED", False, Action.CLOSE),
    ("FAILED", True, Action.LEAF),
    ("FAILED", False, Action.CLOSE),
    ("BLOCKED", True, Action.LEAF),
    ("BLOCKED", False, Action.PARK),
    ("DISPOSED", True, Action.LEAF),
    ("DISPOSED", False, Action.FORGET),
]


@pytest.mark.parametrize(("state", "lives", "due"), CELLS)
def test_each_cell(state, lives, due):
    assert decide(state, leaf_lives=lives) is due


def test_every_state_has_a_row_and_every_cell_a_test():
    assert set(TABLE) == set(STATES)
    assert len(CELLS) == 2 * len(STATES)


def test_a_worktree_is_never_removed_under_a_living_leaf():
    removing = {Action.CLOSE, Action.PARK, Action.FORGET}
    assert not removing & {row.lives for row in TABLE.values()}


def test_an_unknown_state_is_a_programmers_error():
    with pytest.raises(KeyError):
        decide("SOMEWHERE", leaf_lives=False)


def test_what_awaits_review_is_what_waits_in_the_table():
    assert {state for state, row in TABLE.items() if row.gone is Action.REVIEW} == AWAITING_REVIEW

"""What the conductor owes a bead: one complete table of (state, does its leaf live?).

Purpose: taking up what an earlier run left in flight and carrying a bead through this run are the same table, so
there is no code path that only a crash takes. The table decides and does nothing; ``run`` does.

It does not say who may change a record (``bookbag.LEGAL_MOVES`` does), nor how long to wait (``handover`` does).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Action(StrEnum):
    """What is due, as a past-less verb; each is idempotent, so it may be begun again after any crash."""

    LEAF = "wait for the leaf"
    SALVAGE = "salvage what a dead leaf left"
    REVIEW = "wait for the teachers"
    SCORE = "score"
    CLOSE = "publish, deliver, archive, remove"
    PARK = "keep for a human, remove the worktree"
    FORGET = "remove what is left of it"


class Row(NamedTuple):
    """The two cells of a state: its leaf process lives, or it is gone."""

    lives: Action
    gone: Action


# A leaf that has handed over is about to exit. Its worktree must not be removed under it, but nothing else waits.
TABLE: Final[dict[str, Row]] = {
    "RUNNING": Row(Action.LEAF, Action.SALVAGE),
    "WRITTEN": Row(Action.REVIEW, Action.REVIEW),
    "CTO_REVIEWED": Row(Action.REVIEW, Action.REVIEW),
    "COO_REVIEWED": Row(Action.REVIEW, Action.REVIEW),
    "REVIEWED": Row(Action.SCORE, Action.SCORE),
    "SCORED": Row(Action.LEAF, Action.CLOSE),
    "FAILED": Row(Action.LEAF, Action.CLOSE),
    "BLOCKED": Row(Action.LEAF, Action.PARK),
    "DISPOSED": Row(Action.LEAF, Action.FORGET),
}

AWAITING_REVIEW: Final = frozenset({"WRITTEN", "CTO_REVIEWED", "COO_REVIEWED"})


def decide(state: str, *, leaf_lives: bool) -> Action:
    """The cell for *state*; an unknown state is a programmer's error, not a bead's."""
    row = TABLE[state]
    return row.lives if leaf_lives else row.gone

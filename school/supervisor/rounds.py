"""Which task is ready, which is settled, which waits for another: pure functions over what is known of each.

A round gives every task that is ready one attempt. Ready: due, dependencies done, attempts left, not tried in this
round, nothing of it in flight. A rejected task waits for the next round; a task whose need was accepted in this
round is ready in the same one. An attempt that cost nothing (``contracts.UNCHARGED_REASONS``) gives the round's
attempt back, at most ``max_interruptions`` times in a row.

Nothing here reads the disk: ``ledger`` fills a ``TaskState`` from it and refreshes it after each bead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

DONE: Final = frozenset({"accepted", "no_change"})
OUTCOMES: Final = ("accepted", "rejected", "failed", "expired", "blocked", "no_change")


@dataclass(slots=True)
class TaskState:
    """What is known of one task. ``outcome`` is of its latest attempt, empty while it has none."""

    id: str
    needs: tuple[str, ...] = ()
    max_attempts: int = 1
    outcome: str = ""
    reason: str = ""
    charged: int = 0
    interruptions: int = 0
    bead: str = ""
    in_flight: str = ""
    tried_in: int = 0
    expired: bool = False
    waits_for_human: bool = False
    cut_short: int = 0

    @property
    def closed(self) -> bool:
        """Nothing more is due for it: done, or a human has to look first."""
        return self.outcome in DONE or self.waits_for_human

    @property
    def exhausted(self) -> bool:
        return self.charged >= self.max_attempts


class Board:
    """The tasks of one run by id, in the order in which they were written."""

    def __init__(self, states: Iterable[TaskState]) -> None:
        self.states: dict[str, TaskState] = {state.id: state for state in states}

    def __getitem__(self, task_id: str) -> TaskState:
        return self.states[task_id]

    def get(self, task_id: str) -> TaskState | None:
        return self.states.get(task_id)

    def unmet(self, state: TaskState) -> list[str]:
        """The needs of *state* that are not done, in id order."""
        return sorted(need for need in state.needs if self.states[need].outcome not in DONE)

    def startable(self, state: TaskState) -> bool:
        """Due, attempts left, needs done, nothing in flight; whether the round allows it is another question."""
        return not (state.closed or state.exhausted or state.expired or state.in_flight or self.unmet(state))

    def ready(self, round_: int) -> list[TaskState]:
        """The tasks that may be given their attempt of this round now."""
        return [s for s in self.states.values() if s.tried_in < round_ and self.startable(s)]

    def in_flight(self) -> list[TaskState]:
        return [s for s in self.states.values() if s.in_flight]

    def anything_left(self) -> bool:
        """Whether another round could do anything."""
        return any(self.startable(s) for s in self.states.values())

    def may_come(self, state: TaskState) -> bool:
        """Whether a later run could still give *state* an attempt: neither it nor what it needs is settled for good."""
        if state.outcome in DONE:
            return True
        if state.closed or state.exhausted:
            return False
        return all(self.may_come(self.states[need]) for need in self.unmet(state))

    def final(self, state: TaskState, cut_short: str = "") -> tuple[str, str]:
        """(outcome, reason) of *state* as a run's result tells it.

        A task that never got an attempt because of its needs is blocked by them; one that the run ended before is
        blocked as ``not_started``, so that nothing that is not done looks done. Of a run that was *cut_short* (why, in a
        word) nothing is said of those that the next one can still do but that they are left to it.
        """
        if state.expired:
            return "expired", state.reason
        if state.outcome:
            return state.outcome, state.reason
        if cut_short and self.may_come(state):
            return "expired", state.reason or f"not_started: {cut_short}"
        if unmet := self.unmet(state):
            return "blocked", "needs:" + ",".join(unmet)
        return "blocked", state.reason or "not_started"


def counts(outcomes: Iterable[str]) -> dict[str, int]:
    """How many tasks ended how, in the contract's order; every key is there."""
    found = list(outcomes)
    return {name: found.count(name) for name in OUTCOMES}


def last_line(numbers: Mapping[str, int]) -> str:
    """The last line of a run: ``accepted 3, rejected 1, failed 0, expired 0, blocked 0, no_change 0``."""
    return ", ".join(f"{name} {numbers[name]}" for name in OUTCOMES)


def exit_code(numbers: Mapping[str, int]) -> int:
    """0 when every task was accepted or unchanged (or there was none), otherwise 1."""
    return int(any(numbers[name] for name in OUTCOMES if name not in DONE))

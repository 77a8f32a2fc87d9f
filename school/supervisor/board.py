"""The board of a run filled from disk: each task's ledger, and the beads of it that are in flight.

``rounds.Board`` decides; this reads. A bead that an earlier run left and whose task is not on this run's list (or was
edited since) is a *stranger*: it is carried to its end like any other and listed in the result, and gets no second
attempt. Nothing is cached that the disk does not hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import bookbag
from school.contracts import TEACHER_ROLES
from school.errors import BookbagCorruptedError, BookbagInvalidError
from school.supervisor.plan import Plan
from school.supervisor.rounds import Board, TaskState
from school.supervisor.states import Action
from school.tasks import Task, TaskLedger

SENTENCE_CHARACTERS_MAX: Final = 1000
KINDS_SHOWN_MAX: Final = 3
_WEIGHT: Final = {"CRITICAL": 0, "HIGH": 1, "MEDIUM": 2, "LOW": 3}

Bag = Mapping[str, Any]


def bag_of(bead: str) -> Bag | None:
    """The record of *bead*, archived or live; None when there is none that can be read."""
    try:
        return bookbag.read_archived(bead) or bookbag.read_bookbag(bead)
    except (BookbagCorruptedError, BookbagInvalidError):
        return None


def why_ended(bag: Bag) -> str:
    """Why *bag* ended as it did, in one line: what stopped it, or its reason and what was said of it."""
    findings: list[Mapping[str, Any]] = bag.get("findings") or []
    stopping = [f for f in findings if f.get("severity") in ("CRITICAL", "HIGH")]
    if bag.get("outcome") == "rejected" and stopping:
        first = stopping[0]
        more = f" (and {len(stopping) - 1} more)" if len(stopping) > 1 else ""
        return _short(f"{first['issue_class']}: {first['description']}") + more
    reason, summary = bag.get("reason") or "", bag.get("summary") or ""
    return _short(": ".join(part for part in (reason, summary) if part))


def remarks(bag: Bag) -> str:
    """What there is to know of work that was accepted all the same, in a few words; '' where there is nothing."""
    found = Counter(f"{f.get('severity')} {f.get('issue_class')}" for f in bag.get("findings") or [])
    kinds = sorted(found, key=lambda kind: _WEIGHT.get(kind.partition(" ")[0], 0))
    named = [f"{kind} ({found[kind]})" if found[kind] > 1 else kind for kind in kinds[:KINDS_SHOWN_MAX]]
    more = ", …" if len(kinds) > KINDS_SHOWN_MAX else ""
    many = found.total()
    parts = [f"{many} finding{'s' if many > 1 else ''}: {', '.join(named)}{more}"] if many else []
    if denied := refused(bag):
        parts.append(f"{denied} thing{'s' if denied > 1 else ''} that its checks tried or left")
    return "with " + " and ".join(parts) if parts else ""


def refused(bag: Bag) -> int:
    """How many things the commands of the teachers' checks tried in vain or left behind, each counted once."""
    lenses = [
        lens for role in TEACHER_ROLES for lens in (bag.get(f"{role}_review") or {}).get("lenses") or []
    ]
    receipts = [receipt for lens in lenses for receipt in lens.get("receipts") or []]
    return len({line for receipt in receipts for line in receipt.get("refused") or []})


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SENTENCE_CHARACTERS_MAX else line[: SENTENCE_CHARACTERS_MAX - 1] + "…"


@dataclass(frozen=True, slots=True)
class View:
    """One bead as it is on disk now, and what is due for it."""

    bag: Bag
    state: str
    action: Action

    @property
    def bead(self) -> str:
        return str(self.bag["bead"])


@dataclass(slots=True)
class Register:
    """Tasks, their states, and which bead belongs to which."""

    plan: Plan
    ledger: TaskLedger
    board: Board = field(init=False)
    strangers: dict[str, TaskState] = field(default_factory=dict)
    _by_bead: dict[str, TaskState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        states = [TaskState(task.id, tuple(task.needs), task.max_attempts) for task in self.plan.tasks]
        self.board = Board(states)
        for task in self.plan.tasks:
            self.refresh(task)

    def refresh(self, task: Task) -> TaskState:
        """Read the ledger of *task* into its state."""
        state, record = self.board[task.id], self.ledger.state(task)
        limit = self.plan.config.limits.max_interruptions
        last = record.attempts[-1] if record.attempts else None
        state.outcome, state.reason = record.outcome, last.reason if last else ""
        state.charged, state.interruptions = record.charged, record.interruptions
        state.bead = last.bead if last else ""
        state.waits_for_human = bool(record.blocked) or (not record.done and record.interruptions >= limit)
        if record.interruptions >= limit and not record.done:
            state.outcome, state.reason = "blocked", f"{record.interruptions} leaves died in a row"
        return state

    def adopt(self, bag: Bag) -> TaskState:
        """The state that *bag* belongs to; a bead that nobody knows becomes a stranger."""
        bead = bag["bead"]
        if bead in self._by_bead:
            return self._by_bead[bead]
        task = self.task_of(bag)
        state = self.board[task.id] if task else TaskState(str(bag.get("task_id") or bead), max_attempts=0)
        if task is None:
            self.strangers[bead] = state
        state.bead = state.in_flight = bead
        self._by_bead[bead] = state
        return state

    def task_of(self, bag: Bag) -> Task | None:
        """The task of this run that *bag* is an attempt at: same id and same definition."""
        for task in self.plan.tasks:
            if task.id == bag.get("task_id") and task.digest == bag.get("task_digest"):
                return task
        return None

    def settle(self, bag: Bag) -> TaskState:
        """*bag* has ended and is in the ledger: its state as it is now, nothing of it in flight."""
        state, task = self.adopt(bag), self.task_of(bag)
        if task is None:
            state.outcome, state.reason = str(bag.get("outcome", "")), str(bag.get("reason", ""))
            state.charged = self.ledger.record(bag).charged if self.ledger.knows(bag) else 0
        else:
            self.refresh(task)
        state.in_flight = ""
        return state

    def states(self) -> Iterator[TaskState]:
        yield from self.board.states.values()
        yield from self.strangers.values()

    def in_flight(self) -> bool:
        return any(state.in_flight for state in self.states())

    def beads_of(self, task: Task) -> list[str]:
        """The beads of every attempt at *task* since its last retry, newest first."""
        return [attempt.bead for attempt in reversed(self.ledger.state(task).counted)]

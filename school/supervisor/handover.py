"""How long a bead may wait for its teachers: no progress within one limit, a place in the queue within another.

``HandOver.overdue`` is told, at every look, what the teachers' records say, and answers why a bead has waited too
long, or nothing. Only changes count as progress, never the renewal of a record: a teacher that is alive and stuck
renews it too. While a teacher works on *another* bead and gets on with it, this one is merely queued, and only the
queue's limit applies. A back-off between two attempts at a review (``not_before``) is not a lack of progress.

Pure but for the clock it is handed; it keeps no truth, so a new conductor starts its watches again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from school.contracts import TEACHER_ROLES
from school.review.budget import owing
from school.system.clock import Clock, parse

Record = Mapping[str, Any]


@dataclass(slots=True)
class _Watch:
    """Since when nothing has changed, and what it was."""

    mark: object
    since: float


@dataclass(slots=True)
class HandOver:
    """The clocks of one run. ``no_progress_s`` is HANDOFF_TIMEOUT, ``queue_s`` is ``[limits] queue_timeout_s``."""

    clock: Clock
    no_progress_s: float
    queue_s: float
    beads: dict[str, _Watch] = field(default_factory=dict)
    queued: dict[str, float] = field(default_factory=dict)

    def overdue(self, bag: Mapping[str, Any], teachers: Mapping[str, Record | None], now: datetime) -> str:
        """Why *bag* has waited too long, in a sentence; empty while it has not."""
        missing = owing(bag)
        still = [role for role in missing if not self._gets_on(bag, role, teachers.get(role), now)]
        if still:
            return f"no progress by {' and '.join(still)} for {self.no_progress_s:g} s"
        if self._queued_for(bag, missing, teachers) > self.queue_s:
            return f"in the queue of {' and '.join(missing)} for {self.queue_s:g} s"
        return ""

    def forget(self, beads: Iterable[str]) -> None:
        """Drop the watches of *beads*; they are no longer waited for."""
        for bead in beads:
            self.queued.pop(bead, None)
            for role in TEACHER_ROLES:
                self.beads.pop(f"{role} {bead}", None)

    def _gets_on(self, bag: Mapping[str, Any], role: str, record: Record | None, now: datetime) -> bool:
        review = bag.get(f"{role}_review") or {}
        if (until := review.get("not_before")) and parse(until) > now:
            mark: object = ("back-off", until, now)
        else:
            mark = (bag.get("rev"), _mark(record))
        watch = self._watch(self.beads, f"{role} {bag['bead']}", mark)
        return self.clock.monotonic() - watch.since <= self.no_progress_s

    def _queued_for(
        self, bag: Mapping[str, Any], missing: Sequence[str], teachers: Mapping[str, Record | None]
    ) -> float:
        """How long no teacher has had *bag* in hand that still owes it a verdict."""
        bead = bag["bead"]
        if any((teachers.get(role) or {}).get("bead") == bead for role in missing):
            self.queued.pop(bead, None)
            return 0.0
        return self.clock.monotonic() - self.queued.setdefault(bead, self.clock.monotonic())

    def _watch(self, watches: dict[str, _Watch], key: str, mark: object) -> _Watch:
        watch = watches.get(key)
        if watch is None or watch.mark != mark:
            watch = watches[key] = _Watch(mark, self.clock.monotonic())
        return watch


def _mark(record: Record | None) -> tuple[object, ...]:
    """What of a teacher's record changes when, and only when, it gets on with something."""
    if record is None:
        return ()
    return tuple(record.get(name) for name in ("pid", "state", "bead", "check", "progress", "reviewed"))

"""Whose fault it is that an ACP agent did not come to its end, told by what was heard of it. Pure.

``unanswered`` reads a turn that ended in good order and is none, for its model gave no answer: such agents end it like any
other, and say so in the answer's place or say nothing. ``never_began`` is about an agent that opened no session, ``waited``
about one that was ended from outside: with no call of its own at work it waited for its model. All else is as the
process ended.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from school.agents.presets.faults import NEVER_BEGAN, SILENT, fault
from school.agents.presets.hermes import gave_up
from school.agents.process import Job
from school.agents.turns import End
from school.contracts import AgentOutcome, bounded

DETAIL_BYTES_MAX: Final = 1000
_PRINTED_CHARS: Final = 2000
_STOOD_STILL: Final = ("stalled", "startup")


def unanswered(answer: str, now: datetime, *, worked: bool) -> End | None:
    """Why a turn that ended with *answer* is none; None for one that counts. *worked* is whether anything was done."""
    if gave_up(answer):
        meant = fault(answer, now)
        reason, detail = meant.reason or "unavailable", bounded(answer, DETAIL_BYTES_MAX)
        return End(reason=reason, detail=detail, retry_at=meant.retry_at)
    if answer or worked:
        return None
    return End(reason="unavailable", detail=SILENT)


def never_began(outcome: AgentOutcome, end: End, printed: str, now: datetime) -> None:
    """Put into *end* why no session was opened: what was *printed* may say, and who is mute waits for somebody."""
    words = "\n".join(part for part in (printed, outcome.output.strip()[-_PRINTED_CHARS:]) if part)
    end.waiting = NEVER_BEGAN + (f"; it wrote: {printed}" if printed else "")
    if outcome.reason in ("", "exit") and end.reason in ("", "exit", "unavailable"):
        meant = fault(words, now)
        how = end.detail or outcome.detail or "ended before it opened a session"
        # It was told of no task yet: whatever ended it, no work of its own did.
        end.reason, end.retry_at = meant.reason or "unavailable", meant.retry_at
        end.detail = bounded(f"{how}; it wrote: {words}" if words else how, DETAIL_BYTES_MAX)


def waited(reason: str, quiet_s: float, job: Job) -> str:
    """What an agent waited for that nothing was heard of for *quiet_s*, and had no call at work; '' where that is no cause."""
    if reason in _STOOD_STILL or job.kept_waiting(quiet_s):
        return "it waited for an answer of its model"
    return ""

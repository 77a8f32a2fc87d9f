"""One turn of a command agent as it went, and all turns as one outcome. Pure.

``judged`` decides how a turn ended, from what its CLI reported and from how its process ended. What the CLI reported
counts more than an exit status: a status of 0 proves nothing, and one of 1 nothing beside a reported end. A turn that
was ended from outside has that reason, unless the last that the CLI had to say was that its endpoint fails or refuses,
or it stood still while it waited for its model: then that is why, and not the student. So it is where the first turn ended
and there was neither a word nor a call in it. ``combined`` adds the turns up: as the last of them ended, or, where that was a
further one that broke off (``further``), as the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from school.agents import further
from school.agents.presets.base import Reading
from school.agents.presets.faults import NEVER_BEGAN, SILENT
from school.contracts import AgentOutcome, AgentSpec, Claim, bounded

MESSAGE_BYTES_MAX: Final = 64 * 1024
SUMMARY_BYTES_MAX: Final = 16 * 1024
_ENDED_BY_ITSELF: Final = ("", "exit")
# ``unavailable``: by a vigil, since it told of nothing but errors, of which none may say whose they are.
_ENDED_FROM_OUTSIDE: Final = ("timeout", "stalled", "startup", "killed", "unavailable")
_OF_THE_ENDPOINT: Final = ("quota", "unavailable", "login")
_COUNTS: Final = ("requests", "input_tokens", "output_tokens", "cost_usd", "wall_s", "cpu_s")


@dataclass(slots=True)
class Turn:
    """One turn: what was asked, what its CLI reported, how its process ended, and what both mean."""

    number: int
    message: str
    outcome: AgentOutcome
    reading: Reading
    reason: str
    detail: str

    def record(self) -> dict[str, Any]:
        """The turn for ``turns.json``. A further turn's message is a gate's, kept as guidance, and no user's word."""
        further = self.number > 1
        return {
            "turn": self.number,
            "session": self.reading.session,
            **({"synthetic": True} if further else {"message": bounded(self.message, MESSAGE_BYTES_MAX)}),
            "answer": self.reading.answer,
            "reason": self.reason,
            "detail": self.detail,
            "exit_code": self.outcome.exit_code,
            "usage": self.outcome.usage,
            "errors": self.reading.errors,
            "tools": [{"tool": use.tool, "args": use.args} for use in self.reading.tools],
        }


def judged(
    number: int,
    message: str,
    outcome: AgentOutcome,
    reading: Reading,
    spec: AgentSpec,
    *,
    kept_waiting: bool = False,
) -> Turn:
    """What a turn came to; *kept_waiting* is whether nothing was told for so long that a waiting model is to blame."""
    reason, detail = _ending(outcome, reading, spec, kept_waiting=kept_waiting)
    if spec.preset and number == 1 and not (reason or reading.answer or reading.tools or outcome.claimed):
        reason, detail = "unavailable", f"{spec.name}: {SILENT}"
    if reading.retry_at and reason == "quota" and not outcome.claim.retry_at:
        outcome.claim.retry_at = reading.retry_at
    outcome.usage = {**outcome.usage, **reading.usage}
    if spec.preset:
        # The events of a CLI are for programs, and lie in the archive; people and teachers read what it said.
        outcome.output = reading.answer or outcome.output
        outcome.claimed = outcome.claimed or reading.ended
        outcome.claim = _claim(outcome.claim, reading)
    return Turn(number, message, outcome, reading, reason, detail)


def _ending(
    outcome: AgentOutcome, reading: Reading, spec: AgentSpec, *, kept_waiting: bool
) -> tuple[str, str]:
    """Reason and sentence for how the turn ended; both empty for one that the CLI brought to its end."""
    if not spec.preset or outcome.reason not in (*_ENDED_BY_ITSELF, *_ENDED_FROM_OUTSIDE):
        return outcome.reason, outcome.detail
    said = reading.detail or (reading.errors[-1] if reading.errors else "")
    why = f": {said}" if said else ""
    if outcome.reason in _ENDED_FROM_OUTSIDE:
        return _cut_short(outcome, reading, why, kept_waiting=kept_waiting)
    how = f"{spec.name} ended with exit status {outcome.exit_code}"
    if reading.reason:
        return reading.reason, f"{how}{why}"
    return ("", "") if reading.ended else ("exit", f"{how} and reported no end of its turn{why}")


def _cut_short(outcome: AgentOutcome, reading: Reading, why: str, *, kept_waiting: bool) -> tuple[str, str]:
    """Why a turn was ended from outside: its own fault, or that of the endpoint it waited for."""
    if reading.reason in _OF_THE_ENDPOINT and not reading.ended:
        return reading.reason, f"{outcome.detail}; its model could not be had{why}"
    stood_still = outcome.reason in ("stalled", "startup") or (outcome.reason == "timeout" and kept_waiting)
    if stood_still and reading.waiting:
        waited = "it waited for an answer of its model"
        return "unavailable", f"{outcome.detail}; {waited if reading.session else NEVER_BEGAN}"
    return outcome.reason, outcome.detail + (f"; its last error{why}" if why else "")


def _claim(claim: Claim, reading: Reading) -> Claim:
    """The claim, its summary from the answer where the result file has none."""
    if claim.summary or not reading.ended:
        return claim
    return claim.model_copy(update={"summary": bounded(reading.answer, SUMMARY_BYTES_MAX)})


def combined(turns: Sequence[Turn]) -> AgentOutcome:
    """All turns as one outcome: the last end and claim that count, the first one's answer before any later one."""
    last = turns[-1]
    note = further.broke_off(last.number - 1, last.reason, last.detail)
    finished = turns[:-1] if note else turns
    outcome = finished[-1].outcome
    outcome.reason, outcome.detail = finished[-1].reason, finished[-1].detail
    outcome.claim = outcome.claim.model_copy(update={"summary": _summary(finished)})
    outcome.output = _output(turns)
    outcome.output_path = turns[0].outcome.output_path
    outcome.output_bytes = sum(turn.outcome.output_bytes for turn in turns)
    outcome.usage = _usage(turns)
    outcome.claimed = any(turn.outcome.claimed for turn in finished)
    notes = [said for turn in turns for said in turn.outcome.notes]
    outcome.notes = list(dict.fromkeys([*notes, *([note] if note else [])]))
    return outcome


def _summary(turns: Sequence[Turn]) -> str:
    said = [turn.outcome.claim.summary for turn in turns]
    later = [text for text in said[1:] if text and text != said[0]]
    parts = [said[0], *(f"At a later turn: {text}" for text in dict.fromkeys(later))]
    return bounded("\n\n".join(part for part in parts if part), SUMMARY_BYTES_MAX)


def _output(turns: Sequence[Turn]) -> str:
    first, *more = turns
    later = [f"--- turn {turn.number} ---\n{turn.outcome.output}" for turn in more]
    return bounded("\n".join([first.outcome.output, *later])) if later else first.outcome.output


def _usage(turns: Sequence[Turn]) -> dict[str, Any]:
    used: dict[str, Any] = {}
    for turn in turns:
        whole_session = turn.reading.usage if turn.reading.cumulative else {}
        for name, value in turn.outcome.usage.items():
            known = used.get(name)
            adds = name in _COUNTS and name not in whole_session and known is not None and value is not None
            used[name] = round(known + value, 6) if adds else (value if value is not None else known)
    return used

"""Where a finding goes: a card always, and then into the session as a note for its next turn, or as a message at once.

``posted(state, …)`` enters a finding and says which way it goes; it is the same finding as one seen before by its digest, and
then goes nowhere. Injected are, with ``delivery = "inject"``, findings that are more than notes, at most ``corrective_cap`` a
session; all others are pending notes. ``handed_over(state, …)`` takes the pending notes out: each is given once, one for
each turn and title, and those that are too old, or from a future that a clock has taken back, are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from school.coach.findings import Finding
from school.coach.state import Note, State
from school.coach.terms import CoachTerms
from school.system import clock

# Clocks of two processes may differ so much.
_FUTURE_S: Final = 60.0
_TAG: Final = re.compile(r"<(/?\s*coach-)", re.IGNORECASE)


def posted(state: State, finding: Finding, *, turn: int, source: str, at: str) -> bool:
    """Enter *finding* with its card; False when it is known already."""
    if finding.digest in state.seen:
        _not_followed(state, finding.digest)
        return False
    state.seen.append(finding.digest)
    state.cards.append({"at": at, "turn": turn, "source": source, **finding.dump()})
    return True


def route(state: State, finding: Finding, terms: CoachTerms, *, can_inject: bool) -> str:
    """``inject`` or ``note``; an injection is counted here."""
    wanted = terms.delivery == "inject" and finding.severity != "note" and can_inject
    if not wanted or state.corrective >= terms.corrective_cap:
        return "note"
    state.corrective += 1
    return "inject"


def pend(state: State, finding: Finding, *, turn: int, source: str, at: str) -> None:
    """Keep *finding* for the next turn."""
    state.pending.append(Note(turn=turn, source=source, created_at=at, **finding.dump()))
    tell(state, "note", finding, at=at, source=source, delivered=False)


def tell(state: State, kind: str, finding: Finding, *, at: str, source: str, delivered: bool) -> None:
    state.tell(at, kind, source=source, delivered=delivered, followed=None, **finding.dump())


def handed_over(state: State, terms: CoachTerms, *, at: str) -> str:
    """The pending notes as context for a turn, '' for none; after this there are none."""
    notes, state.pending = state.pending, []
    given: list[str] = []
    told: set[tuple[int, str]] = set()
    for note in notes:
        key = (note.turn, " ".join(note.title.split()).casefold())
        outcome = "expired" if _expired(note, terms, at) else "duplicate" if key in told else ""
        if not outcome:
            told.add(key)
            given.append(as_text(note.severity, note.title, note.body, note.evidence))
        _mark(state.advice, note.digest, outcome)
    return "\n\n".join(given)


def _expired(note: Note, terms: CoachTerms, at: str) -> bool:
    try:
        age_s = (clock.parse(at) - clock.parse(note.created_at)).total_seconds()
    except ValueError:
        return True
    return not -_FUTURE_S <= age_s <= terms.note_ttl_s


def _mark(advice: Sequence[dict[str, Any]], digest: str, dropped: str) -> None:
    for row in reversed(advice):
        if row.get("digest") == digest and row.get("kind") == "note":
            row["delivered"] = not dropped
            if dropped:
                row["dropped"] = dropped
            return


def _not_followed(state: State, digest: str) -> None:
    """The same finding again: what was advised was not done."""
    for row in reversed(state.advice):
        if row.get("digest") == digest and row.get("delivered"):
            row["followed"] = False
            return


def as_text(severity: str, title: str, body: str, evidence: str) -> str:
    """A finding as the agent reads it; its own text cannot end it."""
    lines = [f"[{severity}] {title}", body, f"Seen in: {evidence}" if evidence else ""]
    return tagged("coach-note", "\n".join(line for line in lines if line))


def tagged(tag: str, text: str) -> str:
    """*text* between tags of ours, which nothing in it can close."""
    inner = _TAG.sub(r"&lt;\1", text)
    return f"<{tag}>\n{inner}\n</{tag}>"


def hold_message(finding: Finding) -> str:
    """What an agent is told whose completion is held."""
    return (
        "Before you finish: a second model that reviewed the change sees a blocker. Fix it, or say why it is none.\n"
        + as_text(finding.severity, finding.title, finding.body, finding.evidence)
    )

"""From how an agent ended to where its bead stands: pure, and the only place where that is decided.

``decide(outcome, spec, changed)`` gives status and reason for the bookbag. An agent that was ended from outside has
failed whatever it claims, for nobody knows what it still meant to do. One that ended by itself is taken at its claim:
``done`` and ``no_change`` are handed over for judgement, ``blocked`` and ``failed`` are not. A non-zero exit status
proves nothing beside a claim; without one it means failure, except for a plain command that changed something (many
tools end with 1 because something is left to do; what they did is judged).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from school.contracts import AgentOutcome, AgentSpec, Status

AGENT: Final = "agent"


class Ending(NamedTuple):
    """Status and reason for the bookbag; a reason only where the bead is not handed over."""

    status: Status
    reason: str


def decide(outcome: AgentOutcome, spec: AgentSpec, *, changed: bool) -> Ending:
    """Where the bead stands after *outcome*; *changed* is whether the tree differs from its base."""
    if outcome.reason and not (outcome.reason == "exit" and _excused(outcome, spec, changed=changed)):
        return Ending("failed", outcome.reason)
    if outcome.claim.status in ("blocked", "failed"):
        return Ending("blocked" if outcome.claim.status == "blocked" else "failed", AGENT)
    return Ending("open", "")


def _excused(outcome: AgentOutcome, spec: AgentSpec, *, changed: bool) -> bool:
    return outcome.claimed or (spec.kind == "run" and not spec.chore and changed)

"""What the bookbag says of a student's run to its end, from outcome, snapshot and session. Pure but for git's words.

``fields_of(run)`` gives the fields; where the bead stands is the caller's to write. No errors of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from school.agents.ending import Ending
from school.contracts import AgentOutcome, Snapshot, Workspace, bounded
from school.study.session import Study
from school.worktrees import salvage

SUMMARY_BYTES_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Ended:
    """One run of an agent that is over: how, what lies in the tree, where the bead stands because of it."""

    outcome: AgentOutcome
    snapshot: Snapshot
    ending: Ending
    study: Study
    workspace: Workspace


def fields_of(run: Ended, notes: list[str]) -> dict[str, Any]:
    """What the bookbag says of a run to its end; *notes* are those that were made before the agent began."""
    outcome, claim = run.outcome, run.outcome.claim
    summary = bounded(_summary(run), SUMMARY_BYTES_MAX)
    fields = salvage.fields_of(run.snapshot)
    notes = [*notes, *outcome.notes, *fields.pop("notes", [])]
    return {
        **fields,
        **run.study.fields(),
        **({"notes": notes} if notes else {}),
        **({"retry_at": claim.retry_at} if claim.retry_at else {}),
        "output": outcome.output,
        "claim": claim.status if run.ending.status == "open" or outcome.claimed else "",
        "summary": summary,
        "blockers": claim.blockers or ([summary] if run.ending.status == "blocked" else []),
        "usage": {
            **outcome.usage,
            **run.study.usage(),
            "exit_code": outcome.exit_code,
            "output_bytes": outcome.output_bytes,
        },
    }


def _summary(run: Ended) -> str:
    outcome, claim, verified = run.outcome, run.outcome.claim, run.study.told()
    if run.ending.status == "open":
        nothing = f"{run.study.spec.name} said nothing; {len(run.snapshot.files_changed)} files changed"
        parts = [run.study.summary(claim, nothing), verified]
    else:
        claimed = claim.summary or "; ".join(claim.blockers) or f"the agent claims {claim.status}"
        why = run.study.why or outcome.detail or claimed
        parts = [why, verified, salvage.describe(run.snapshot, run.workspace)]
    return "; ".join(part for part in parts if part)

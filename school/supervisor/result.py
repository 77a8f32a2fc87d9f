"""What a run says at its end: the JSON document of the contract, and the same for people.

Built from the records on disk, not from what the run remembers, so the screen says what the disk says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from school.supervisor.board import Register, bag_of
from school.supervisor.plan import Plan
from school.supervisor.rounds import TaskState, counts


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a run. ``error`` says what ended it early, in a sentence."""

    document: dict[str, Any]
    exit: int
    error: str = ""
    deliveries: list[Mapping[str, Any]] = field(default_factory=list)


def task_row(state: TaskState, outcome: str, reason: str) -> dict[str, Any]:
    """One entry of ``tasks``."""
    bag = (bag_of(state.bead) if state.bead else None) or {}
    delivered = bag.get("delivered") or {}
    published = bag.get("head_commit") if bag.get("head_commit") != bag.get("base_commit") else ""
    return {
        "id": state.id,
        "outcome": outcome,
        "attempts": state.charged,
        "bead": state.bead,
        "cto_verdict": bag.get("cto_verdict", ""),
        "coo_verdict": bag.get("coo_verdict", ""),
        "branch": delivered.get("branch", ""),
        "commit": delivered.get("commit") or published or "",
        "ref": f"refs/school/{state.bead}" if published else "",
        "reason": reason,
    }


def document(plan: Plan, run: str, register: Register) -> dict[str, Any]:
    """The document without its ``exit``, which also depends on how the run ended."""
    rows = [task_row(state, *register.board.final(state)) for state in register.states()]
    return {
        "run": run,
        "repo": str(plan.repository.path),
        "base": plan.base_commit,
        "tasks": rows,
        "counts": counts(row["outcome"] for row in rows),
    }


def nothing(repo: str) -> dict[str, Any]:
    """The document of a run that there was no reason to begin."""
    return {"run": "", "repo": repo, "base": "", "tasks": [], "counts": counts([]), "exit": 0}

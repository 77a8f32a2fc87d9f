"""From which commit a task with ``needs`` starts: the base with what it needs merged in, in id order.

What base already holds adds nothing. The commits of needs that an earlier run finished are brought back from the
user's repository, where each lies under its own ref, should the clone have been made anew since. A conflict blocks
the task, with the names and the paths; so does a merge that breaks what base passes (``premerge``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from school.supervisor.board import Register, bag_of
from school.supervisor.plan import Plan
from school.supervisor.premerge import Premerge
from school.tasks import Task
from school.worktrees import Conflict, SchoolClone

PATHS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Start:
    """Where a task starts, or why it cannot; neither while its merge is still being judged."""

    commit: str = ""
    blocked: str = ""


def starting_point(
    task: Task, register: Register, plan: Plan, clone: SchoolClone, premerge: Premerge
) -> Start:
    """The commit for *task*, or the reason that blocks it."""
    if not task.needs:
        return Start(commit=plan.base_commit)
    wanted = [(need, commit) for need in sorted(task.needs) if (commit := _commit_of(need, register))]
    missing = [commit for _, commit in wanted if not clone.has(commit)]
    if missing:
        clone.fetch(plan.repository.common_dir, missing)
    merged = clone.merge(plan.base_commit, wanted)
    if isinstance(merged, Conflict):
        shown = ", ".join(merged.paths[:PATHS_SHOWN])
        return Start(blocked=f"needs do not merge: {', '.join(merged.names)} (in {shown})")
    broken = premerge.verdict(merged.commit, [plan.base_commit, *(commit for _, commit in wanted)])
    if broken is None:
        return Start()
    if broken:
        return Start(blocked=f"needs do not work together: {', '.join(need for need, _ in wanted)}: {broken}")
    return Start(commit=merged.commit)


def _commit_of(need: str, register: Register) -> str:
    """The accepted commit of *need*; empty where it changed nothing."""
    state = register.board[need]
    if state.outcome != "accepted":
        return ""
    attempts = register.ledger.state(register.plan.tasks.get(need)).attempts
    bead = next(attempt.bead for attempt in attempts if attempt.outcome == "accepted")
    return str((bag_of(bead) or {}).get("head_commit", ""))

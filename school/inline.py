"""Both teachers in the conductor's own process, for ``--sync``: the same checks, the same records.

``reviewer()`` gives the function that a run calls to have a bead judged by a role. Each teacher boots at its first bead.
Errors: those of ``teacher``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from school.contracts import TEACHER_ROLES

if TYPE_CHECKING:
    from teacher import TeacherWorktree


def reviewer() -> Callable[[str, str], str]:
    """What judges bead by role, here and now; it answers with the verdict."""
    from teacher import TeacherWorktree

    teachers: dict[str, TeacherWorktree] = {}

    def review(role: str, bead: str) -> str:
        assert role in TEACHER_ROLES
        if role not in teachers:
            teachers[role] = TeacherWorktree(role)
            teachers[role].boot()
        return teachers[role].review(bead)

    return review

"""The deterministic checks of both teachers, but for those that run the repository's own tests (verification).

``for_role(role, bench=…, compare=…, spoil=…)`` gives a role's checks, cheap ones first. What they need of the
verification room is handed in (``seams``): the two rooms stand on one floor. Each check is a ``contracts.Check``: it
takes a ``CheckContext``, leaves the worktree clean at head, and gives findings that say what, where, why, and what to
do. A check that cannot know says ``no_verdict``; it never guesses in the student's favour.
"""

from __future__ import annotations

from school.contracts import Check, TeacherRole
from school.review.checks.acceptance import Acceptance
from school.review.checks.artifact import Artifact
from school.review.checks.completeness import Completeness
from school.review.checks.preservation import Preservation
from school.review.checks.scope import Scope
from school.review.checks.seams import Compare, OpenBench, Spoil
from school.review.checks.security import Security
from school.review.checks.steering import Steering
from school.review.checks.tampering import Tampering


def for_role(role: TeacherRole, *, bench: OpenBench, compare: Compare, spoil: Spoil) -> list[Check]:
    """The checks of *role* on what they are handed."""
    if role == "cto":
        return [Artifact(), Scope(), Security(), Steering(), Preservation(), Tampering(bench)]
    return [Completeness(), Acceptance(bench, compare, spoil)]

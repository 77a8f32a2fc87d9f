"""Working trees: the user's repository looked at, its school clone, leaves' and teachers' trees, snapshots, reaping.

Rooms above use what is named here. ``salvage`` (which also ends processes and moves bookbags) is a module of its own.
"""

from __future__ import annotations

from school.worktrees.clone import Conflict, Merged, SchoolClone, clone_for
from school.worktrees.layout import how_to_recover
from school.worktrees.leaves import GitLeafWorktrees, workspace_from, workspace_of
from school.worktrees.makers import leaf_worktrees
from school.worktrees.publish import (
    branch_name_ok,
    branch_name_problem,
    create_branch,
    create_ref,
    publish,
    publish_beside,
)
from school.worktrees.reap import reap
from school.worktrees.repository import (
    Repository,
    check_space,
    fingerprint,
    free_bytes,
    inspect_repository,
    resolve_base,
    space_needed,
)
from school.worktrees.snapshot import snapshot
from school.worktrees.teachers import TeacherTrees

__all__ = [
    "Conflict",
    "GitLeafWorktrees",
    "Merged",
    "Repository",
    "SchoolClone",
    "TeacherTrees",
    "branch_name_ok",
    "branch_name_problem",
    "check_space",
    "clone_for",
    "create_branch",
    "create_ref",
    "fingerprint",
    "free_bytes",
    "how_to_recover",
    "inspect_repository",
    "leaf_worktrees",
    "publish",
    "publish_beside",
    "reap",
    "resolve_base",
    "snapshot",
    "space_needed",
    "workspace_from",
    "workspace_of",
]

"""Who makes leaf worktrees, by name; above both makers, so that neither has to know the other."""

from __future__ import annotations

from school.contracts import LeafWorktrees
from school.errors import ConfigError
from school.settings import Settings
from school.worktrees.leaves import GitLeafWorktrees
from school.worktrees.orca import OrcaLeafWorktrees


def leaf_worktrees(name: str = "git", *, settings: Settings | None = None) -> LeafWorktrees:
    """The maker of leaf worktrees called *name*: ``git``, or ``orca`` (OrcaUnavailableError without its CLI)."""
    for maker in (GitLeafWorktrees, OrcaLeafWorktrees):
        if name == maker.name:
            return maker(settings)
    raise ConfigError(f"leaf worktrees {name!r}: expected git or orca")

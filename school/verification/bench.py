"""A teacher's bench: its worktree moved between base and head, commands run there, the worktree left clean at head.

``with Bench.of(context) as bench: bench.go("base"); bench.run(argv, timeout_s=…, check=…)``. Each ``go`` cleans the tree,
makes sure of that side's environment and empties TMPDIR, so that no run sees what another left. The end of the
block settles the worktree at head, also after an error.

Errors: WorktreeError (``place``), SetupFailedError (``environment``), CheckCancelledError where the teacher was told to
stop in the middle of a command.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from school.contracts import CheckContext, Limits, Terms
from school.errors import TeacherError, WorktreeError
from school.system import files
from school.system.gauge import Bounds
from school.verification.environment import Environment, Side
from school.verification.place import Place, copies_from
from school.verification.runner import CheckRun, run_check


class CheckCancelledError(TeacherError):
    """The teacher was told to stop; what ran counts as nothing."""


@dataclass(slots=True)
class Bench:
    """One bead on one teacher's worktree; ``side`` is where it stands."""

    context: CheckContext
    terms: Terms
    environment: Environment
    side: Side = "head"

    @classmethod
    def of(cls, context: CheckContext) -> Bench:
        """The bench of this context; its worktree must hang on the context's clone."""
        bag = context.bag
        raw = bag.get("terms") or {}
        terms = raw if isinstance(raw, Terms) else Terms.model_validate(raw)
        place = Place.find(context.worktree, context.scratch)
        if place.git_dir.parent != Path(os.path.realpath(context.clone)) / "worktrees":
            raise WorktreeError(f"{context.worktree}: is no worktree of {context.clone}")
        place.copies = copies_from(Path(str(bag.get("repo", ""))), terms.copy_files)
        environment = Environment(
            place=place,
            terms=terms,
            store=context.baselines,
            bead=str(bag["bead"]),
            commits={"base": str(bag["base_commit"]), "head": str(bag["head_commit"])},
            env=context.env,
            confinement=context.confinement,
            caches=context.caches,
            marker=f"{bag['bead']}-{context.role}",
            progress=context.progress,
            cancelled=context.cancelled,
        )
        return cls(context, terms, environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.environment.place.settle(self.environment.commits["head"])

    def commit(self, side: Side) -> str:
        return self.environment.commits[side]

    def tree(self, side: Side) -> str:
        """The tree that a side's commit holds."""
        return self.environment.place.git.tree_of(self.commit(side))

    def changed(self) -> list[tuple[str, str]]:
        """What differs from base to head: status letter and path; a rename is a removal and an addition."""
        raw = self.environment.place.git.fixed(
            "diff-tree", "-r", "-z", "--no-renames", "--name-status", self.commit("base"), self.commit("head")
        )
        fields = raw.decode("utf-8", "surrogateescape").split("\0")
        return list(zip(fields[::2], fields[1::2], strict=False))

    def go(self, side: Side) -> None:
        """The worktree clean at *side* with its environment, TMPDIR empty."""
        self.context.progress(f"at {side}")
        self.environment.go(side)
        tmpdir = self.context.env.get("TMPDIR")
        if tmpdir and Path(tmpdir) != self.context.scratch:
            files.remove_tree(Path(tmpdir))
            files.ensure_dir(Path(tmpdir))
        self.side = side

    def run(self, argv: Sequence[str], *, timeout_s: float, check: str, fail_fast: bool = False) -> CheckRun:
        """Run *argv* where the bench stands."""
        run = run_check(
            argv,
            worktree=self.context.worktree,
            env=self.environment.env_at(self.side),
            confinement=self.environment.confined_at(self.side),
            timeout_s=timeout_s,
            marker=self.environment.marker,
            check=check,
            progress=self.context.progress,
            at=self.side,
            commit=self.commit(self.side),
            tree=self.tree(self.side),
            environment=self.environment.fingerprint(self.side),
            cancelled=self.context.cancelled,
            scratch=self.context.scratch / "reports",
            fail_fast=fail_fast,
            bounds=self._bounds(),
        )
        if run.cancelled:
            raise CheckCancelledError("cancelled: the teacher was told to stop")
        return run

    def _bounds(self) -> Bounds:
        """What the student may use, its work may use too."""
        limits = Limits.model_validate(self.context.bag.get("limits") or {})
        return Bounds(limits.memory_bytes, limits.processes, limits.disk_bytes)

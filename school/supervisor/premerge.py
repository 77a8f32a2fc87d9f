"""Whether needs that merge without a conflict also work together: the repository's own checks, before anybody starts.

``Premerge.verdict(commit, parts)`` answers None while it is not known yet, '' when nothing that base passes fails at
the merge, else which tests it breaks. It runs in one thread of its own, in a working tree of the conductor's own, so
that the loop goes on; ``wake`` is called when an answer is there. A merge whose tree is base's or one part's alone is
nothing new and needs no run.

Not promised: that it finds what no test of the repository tests. A comparison that cannot be made stops nobody: the
teachers judge the work that starts there anyway. ``stop`` cancels what runs and waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from school.contracts import CheckContext, TeacherRole, Terms, dump
from school.errors import SchoolError
from school.supervisor.plan import Plan
from school.system import files, log
from school.verification.compare import compare
from school.verification.environment import prepare
from school.worktrees import SchoolClone, TeacherTrees

# The conductor's working tree stands beside the teachers', under a name that is no teacher's.
ROLE: Final = cast("TeacherRole", "merge")
STOPPING: Final = frozenset({"CRITICAL", "HIGH"})

_log = log.get("supervisor.premerge")


@dataclass(slots=True)
class Premerge:
    """The merges of one run, each judged once."""

    plan: Plan
    clone: Path
    wake: Callable[[], None]
    terms: Terms
    cancelled: bool = False
    _answers: dict[str, Future[str]] = field(default_factory=dict)
    _thread: ThreadPoolExecutor | None = None

    def verdict(self, commit: str, parts: Sequence[str]) -> str | None:
        """What is known of the merge *commit* of *parts* (base is one of them)."""
        if commit not in self._answers:
            if self._is_nothing_new(commit, parts) or not self.terms.verify:
                return ""
            self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="premerge")
            self._answers[commit] = self._thread.submit(self._judge, commit)
            self._answers[commit].add_done_callback(lambda _: self.wake())
        answer = self._answers[commit]
        return answer.result() if answer.done() else None

    def stop(self) -> None:
        """End what runs, and remove the working tree."""
        self.cancelled = True
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
            self.clear()

    def clear(self) -> None:
        """Remove working tree and scratch of this repository's merges, also those that a killed run left."""
        TeacherTrees(ROLE, self.plan.settings).remove_all(self.plan.repository.key)
        files.remove_tree(self._scratch)

    @property
    def _scratch(self) -> Path:
        return self.plan.settings.scratch_dir / f"conductor-{self.plan.repository.key}"

    def _is_nothing_new(self, commit: str, parts: Sequence[str]) -> bool:
        clone = SchoolClone(self.clone)
        tree = clone.tree_of(commit)
        return any(clone.tree_of(part) == tree for part in parts)

    def _judge(self, commit: str) -> str:
        """In the thread: compare the merge with base as a teacher would."""
        try:
            return self._broken(commit)
        except (SchoolError, OSError) as error:
            _log.warning("premerge.not_compared", commit=commit, why=str(error))
            return ""

    def _broken(self, commit: str) -> str:
        plan = self.plan
        bag: dict[str, Any] = {
            "bead": f"merge-{commit[:12]}",
            "repo": str(plan.repository.path),
            "repo_key": plan.repository.key,
            "base_commit": plan.base_commit,
            "head_commit": commit,
            "tree": SchoolClone(self.clone).tree_of(commit),
            "terms": dump(self.terms),
        }
        trees = TeacherTrees(ROLE, plan.settings)
        worktree = trees.ensure(bag)
        trees.checkout(worktree, commit, self.terms.keep)
        scratch = files.ensure_dir(self._scratch)
        try:
            found = compare(self._context(bag, worktree, scratch), self.terms.verify).findings
        finally:
            files.remove_tree(scratch)
        return "; ".join(finding.description for finding in found if finding.severity in STOPPING)

    def _context(self, bag: dict[str, Any], worktree: Path, scratch: Path) -> CheckContext:
        prepared = prepare(
            worktree,
            self.terms,
            role=ROLE,
            settings=self.plan.settings,
            progress=_unheard,
            bag=bag,
            scratch=scratch,
            cancelled=lambda: self.cancelled,
        )
        return CheckContext(
            bag=bag,
            role=ROLE,
            worktree=worktree,
            clone=self.clone,
            scratch=scratch,
            baselines=files.ensure_dir(self.plan.settings.baselines_dir / "conductor"),
            environment=prepared.fingerprint,
            env=prepared.env,
            confinement=prepared.confinement.policy,
            caches=prepared.caches,
            progress=_unheard,
            cancelled=lambda: self.cancelled,
        )


def _unheard(_step: str) -> None:
    """Nobody waits for single steps of this."""

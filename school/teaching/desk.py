"""One review, from the bag to the verdict: what both a standing teacher and an inline one do with a bead.

``Desk.review(bead, memory)`` -> ``PASS``, ``FAIL``, ``NO_VERDICT`` or ``SKIPPED``. In this order, so that a teacher
killed anywhere loses no verdict and gives none twice:

1. the bag is due (it waits, this role's verdict is empty, no back-off runs), otherwise SKIPPED;
2. a finished review of this very tree that already lies in ``reviews/`` is entered as it is;
3. the head is checked out in this role's own worktree, its environment prepared, the checks run, cheap ones first;
4. the review file is made, durable, before
5. the verdict is entered under the bead's lock, if it is still empty.

A review that reached no verdict is only counted in the bag, with a back-off; the third blocks the bead for a human,
with the reason. One that the budget stopped is not even counted: it says what it is short of, and nothing is due until the
conductor takes that away (``school.review.budget``). Whatever a check or the machine does wrong ends here, at one seam, as NO_VERDICT with the reason:
never as the student's fault, never as a PASS. A review that is cancelled counts as nothing.

Errors: only what keeps the bag itself from being read or written (BookbagInvalidError, MachineError).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

import bookbag
from school import masking
from school.contracts import (
    LENSES,
    AgentSpec,
    Check,
    CheckContext,
    CheckResult,
    Finding,
    Receipt,
    Review,
    ReviewFile,
    TeacherRole,
    Terms,
    bounded,
    dump,
)
from school.errors import BookbagInvalidError, SchoolError, TeacherError
from school.records.moves import WAITING
from school.review.budget import stopped
from school.review.filed import without_evidence
from school.review.verdicts import decide, review_id, usage_sum
from school.settings import Settings
from school.system import clock, faults, files, log

ATTEMPTS_MAX: Final = 3
# How long after the first and the second review without a verdict the next may begin, if no model says otherwise.
BACK_OFF_S: Final = (1.0, 4.0)
# No reset of a model's quota is waited for longer than this at once.
RESET_S_MAX: Final = 6 * 3600.0
LOCK_TIMEOUT_S: Final = 30.0

_log = log.get("teacher.desk")


def due_for(check: Check, bag: Mapping[str, Any]) -> bool:
    """Whether *check* has anything to judge in *bag*: one that asks a model only where one is to be asked."""
    due = getattr(check, "due", None)
    return due is None or bool(due(bag))


def _learn_secrets(bag: Mapping[str, Any]) -> None:
    """Let nothing be written of what the agents of *bag* have for keys."""
    reviewers = Terms.model_validate(bag.get("terms") or {}).reviewers.values()
    specs = [AgentSpec.model_validate(bag["agent"])] if bag.get("agent") else []
    masking.learn(*specs, *(terms.agent for terms in reviewers if terms.agent))


def _reset(review: Review) -> datetime:
    """When the model that could not be asked says it can be; long ago where none says so."""
    try:
        return clock.parse(review.retry_at)
    except ValueError:
        return clock.parse("2000-01-01T00:00:00+00:00")


class ReviewCancelledError(TeacherError):
    """The teacher was told to stop in the middle of a review; it counts as nothing."""


@dataclass(slots=True)
class Desk:
    """Where one role judges. ``step`` is told of each step, ``cancelled`` is asked whether to stop."""

    role: TeacherRole
    settings: Settings
    checks: Sequence[Check]
    step: Callable[[str], None]
    cancelled: Callable[[], bool]
    remember: Callable[[Mapping[str, Any], Review, str], None] = field(
        default=lambda _bag, _review, _outcome: None
    )
    confined: str = field(default="", init=False)

    # --- what is due --------------------------------------------------------------------------------------

    def due(self, bag: Mapping[str, Any]) -> bool:
        """Whether this role may get on with a verdict of *bag*, back-off or not."""
        return self.owes(bag) and not stopped(bag, self.role)

    def owes(self, bag: Mapping[str, Any]) -> bool:
        """Whether this role owes *bag* a verdict. A seed record names no tree: nothing to judge."""
        waits = bookbag.bookbag_state(bag) in WAITING and not bag.get(f"{self.role}_verdict")
        return waits and "schema" in bag

    def not_before(self, bag: Mapping[str, Any]) -> float:
        """Seconds until a back-off of *bag* is over; 0 when none runs."""
        review = bag.get(f"{self.role}_review") or {}
        text = review.get("not_before")
        if not text:
            return 0.0
        # A stamp can lie in the future because a clock was set back: no back-off is longer than its table says.
        longest = RESET_S_MAX if review.get("retry_at") else max(BACK_OFF_S)
        return min(longest, max(0.0, (clock.parse(text) - clock.parse(clock.now())).total_seconds()))

    # --- one review ---------------------------------------------------------------------------------------

    def review(self, bead: str, *, memory: str = "", session: str = "") -> str:
        """Review *bead*; see the module for what it returns."""
        bag = bookbag.read_bookbag(bead)
        if bag is None or not self.due(bag) or self.not_before(bag) > 0:
            return "SKIPPED"
        finished = self.finished_review(bag)
        try:
            review = finished or self._judge(bag, memory, session)
        except ReviewCancelledError:
            _log.info("review.cancelled", bead=bead, role=self.role)
            return "SKIPPED"
        if review.verdict and finished is None:
            review = self._keep(bag, review)
        outcome = self._enter(bag, review) if review.verdict else self._count(bag, review)
        if outcome != "SKIPPED" and not review.short_of:
            self.remember(bag, review, outcome)
        return outcome

    def _judge(self, bag: Mapping[str, Any], memory: str, session: str) -> Review:
        started, self.confined = clock.now(), ""
        try:
            review = decide(self.role, self._run_checks(bag, memory))
        except ReviewCancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the one seam: a bead's trouble must not end its teacher
            _log.warning(
                "review.failed", bead=bag["bead"], role=self.role, exc_info=not isinstance(error, SchoolError)
            )
            review = Review(reason=bounded(f"{type(error).__name__}: {error}", 2000))
        before = bag.get(f"{self.role}_review") or {}
        return review.model_copy(
            update={
                "tree": str(bag.get("tree", "")),
                "review_id": review_id(bag["bead"], str(bag.get("tree", "")), self.role)
                if bag.get("tree")
                else "",
                "attempts": int(before.get("attempts", 0)) + (0 if review.short_of else 1),
                # What an attempt without a verdict used was used all the same.
                "usage": usage_sum([used for used in (before.get("usage"), review.usage) if used]),
                "memory": session,
                "confinement": self.confined,
                "started_at": started,
                "ended_at": clock.now(),
            }
        )

    # --- the checks ---------------------------------------------------------------------------------------

    def _run_checks(self, bag: Mapping[str, Any], memory: str) -> list[CheckResult]:
        from school.verification.filing import file_receipts

        for name in ("repo", "repo_key", "base_commit", "head_commit", "tree"):
            if not bag.get(name):
                raise TeacherError(
                    f"{bag['bead']}: its bookbag names no {name}, so there is nothing to judge"
                )
        results: list[CheckResult] = []
        _learn_secrets(bag)
        with self._context(bag, memory) as (context, failed, restore):
            if failed is not None:
                results.append(failed)
            for check in self.checks:
                if not due_for(check, bag):
                    continue
                self._stop_if_told()
                context.earlier = tuple(results)
                context.progress = self._steps_of(check.name)
                self.step(check.name)
                results.append(self._run_check(check, context))
                if results[-1].no_verdict:
                    restore()  # a check leaves the tree as it found it; one that broke may not have
            receipts = [receipt for result in results for receipt in result.receipts]
            file_receipts(bag, context.worktree, receipts, self.settings.evidence_db)
        self._stop_if_told()
        return results

    def _steps_of(self, check: str) -> Callable[[str], None]:
        """What a check says of its steps, with its own name before it."""
        return lambda step: self.step(step if step.startswith(check) else f"{check}: {step}")

    def _run_check(self, check: Check, context: CheckContext) -> CheckResult:
        try:
            return check(context)
        except Exception as error:  # noqa: BLE001 - a check that breaks judges nothing; the others still do
            _log.warning(
                "check.failed",
                bead=context.bag["bead"],
                check=check.name,
                exc_info=not isinstance(error, SchoolError),
            )
            return CheckResult(
                name=check.name, lens=check.lens, no_verdict=bounded(f"{type(error).__name__}: {error}", 1000)
            )

    def _stop_if_told(self) -> None:
        if self.cancelled():
            raise ReviewCancelledError("told to stop")

    @contextlib.contextmanager
    def _context(
        self, bag: Mapping[str, Any], memory: str
    ) -> Iterator[tuple[CheckContext, CheckResult | None, Callable[[], None]]]:
        """What the checks may look at, the finding where head's own environment cannot be built, and a broom."""
        from school.verification.environment import prepare
        from school.worktrees.clone import clone_for
        from school.worktrees.teachers import TeacherTrees

        terms = Terms.model_validate(bag.get("terms") or {})
        trees = TeacherTrees(self.role, self.settings)
        self.step("checkout")
        worktree = trees.ensure(bag)

        def restore() -> None:
            trees.checkout(worktree, bag["head_commit"], terms.keep)

        restore()
        scratch = self.settings.scratch_dir / f"teacher-{self.role}"
        files.remove_tree(scratch)  # of a teacher that was killed: what its git held, holds up nobody
        files.ensure_dir(scratch)
        prepared = prepare(
            worktree,
            terms,
            role=self.role,
            settings=self.settings,
            progress=self.step,
            bag=bag,
            scratch=scratch,
            cancelled=self.cancelled,
            proven=trees.proven,
        )
        self.confined = prepared.confinement.said
        try:
            yield (
                CheckContext(
                    bag=bag,
                    role=self.role,
                    worktree=worktree,
                    clone=clone_for(bag).path,
                    scratch=scratch,
                    baselines=files.ensure_dir(self.settings.baselines_dir / self.role),
                    environment=prepared.fingerprint,
                    env=prepared.env,
                    confinement=prepared.confinement.policy,
                    caches=prepared.caches,
                    progress=self.step,
                    cancelled=self.cancelled,
                    memory=memory,
                ),
                self._unbuildable(bag, prepared.failed),
                restore,
            )
        finally:
            files.remove_tree(scratch)

    def _unbuildable(self, bag: Mapping[str, Any], why: str) -> CheckResult | None:
        """A change whose own environment cannot be built fails: it changed what it is built from."""
        if not why:
            return None
        finding = Finding(
            section="environment",
            severity="HIGH",
            issue_class="setup_failed",
            description=f"with this change the set-up commands fail: {bounded(why, 4000)}",
        )
        receipt = Receipt(
            check="setup", outcome="failed", commit=bag["head_commit"], tree=bag["tree"], output=why
        )
        return CheckResult(
            name="environment", lens=LENSES[self.role][0], findings=[finding], receipts=[receipt]
        )

    # --- what comes of it ---------------------------------------------------------------------------------

    def _file(self, bag: Mapping[str, Any]) -> Path:
        return (
            self.settings.reviews_dir / f"{review_id(bag['bead'], str(bag.get('tree', '')), self.role)}.json"
        )

    def finished_review(self, bag: Mapping[str, Any]) -> Review | None:
        """The review of this very tree that was finished before; one that cannot be read counts as none."""
        path = self._file(bag)
        try:
            raw = files.read_json(path)
            if raw is None:
                return None
            found = ReviewFile.model_validate(raw)
        except (ValueError, ValidationError) as error:
            place = files.quarantine(path, path.parent / "corrupt")
            _log.error(
                "review.quarantined", bead=bag["bead"], moved_to=str(place), why=str(error).splitlines()[0]
            )
            return None
        mine = (bag["bead"], self.role, bag.get("tree"), bag.get("head_commit"), found.review.verdict)
        if (found.bead, found.role, found.tree, found.head_commit, found.verdict) != mine:
            place = files.quarantine(path, path.parent / "corrupt")
            _log.error("review.foreign", bead=bag["bead"], moved_to=str(place))
            return None
        if why := without_evidence(bag, self.role, found.review):
            place = files.quarantine(path, path.parent / "corrupt")
            _log.error("review.forged", bead=bag["bead"], moved_to=str(place), why=why)
            return None
        return found.review

    def _keep(self, bag: Mapping[str, Any], review: Review) -> Review:
        """Make the review file. There was none when this began: one that is there now and is no milder counts; one that
        passes what fails here was made by what ran in the checks, and is set aside.
        """
        assert review.verdict
        file = ReviewFile(
            review_id=review.review_id,
            bead=bag["bead"],
            role=self.role,
            tree=bag["tree"],
            head_commit=bag["head_commit"],
            verdict=review.verdict,
            review=review,
            by=f"teacher-{self.role} pid {os.getpid()}",
        )
        files.ensure_dir(self.settings.reviews_dir)
        try:
            with faults.around("review.filed"):
                files.create_json(self._file(bag), dump(file))
        except FileExistsError:
            found = self.finished_review(bag)
            if found is not None and found.verdict in ("FAIL", review.verdict):
                return found
            if found is not None:
                place = files.quarantine(self._file(bag), self.settings.reviews_dir / "corrupt")
                why = "it appeared during the review, and passes what fails"
                _log.error("review.forged", bead=bag["bead"], moved_to=str(place), why=why)
            files.create_json(self._file(bag), dump(file))
        return review

    def _enter(self, judged: Mapping[str, Any], review: Review) -> str:
        """Enter the verdict, if it is still due and the bag still says what was judged."""
        said = {f"{self.role}_verdict": review.verdict, f"{self.role}_review": dump(review)}

        def change(bag: dict[str, Any]) -> dict[str, Any]:
            same = all(bag.get(name) == judged.get(name) for name in ("tree", "head_commit", "base_commit"))
            return bag | said if self.owes(bag) and same else bag

        bag = self._update(judged["bead"], change)
        if bag is None or bag.get(f"{self.role}_review") != said[f"{self.role}_review"]:
            return "SKIPPED"
        _log.info("verdict.entered", bead=judged["bead"], role=self.role, verdict=review.verdict)
        return str(review.verdict)

    def _count(self, judged: Mapping[str, Any], review: Review) -> str:
        """Count a review without a verdict; the third blocks the bead, with the reason, for a human. No budget is no attempt."""
        attempts, counted = review.attempts, 0 if review.short_of else 1
        if counted and attempts < ATTEMPTS_MAX:
            until = clock.parse(clock.now()) + timedelta(
                seconds=BACK_OFF_S[min(attempts, len(BACK_OFF_S)) - 1]
            )
            review = review.model_copy(update={"not_before": max(until, _reset(review)).isoformat()})
        said: dict[str, Any] = {f"{self.role}_review": dump(review)}
        if counted and attempts >= ATTEMPTS_MAX:
            said |= {
                "status": "blocked",
                "reason": bounded(f"no verdict from the {self.role}: {review.reason}", 2000),
            }

        def change(bag: dict[str, Any]) -> dict[str, Any]:
            before = (bag.get(f"{self.role}_review") or {}).get("attempts", 0)
            return bag | said if self.owes(bag) and before == attempts - counted else bag

        _log.warning(
            "review.no_verdict", bead=judged["bead"], role=self.role, attempt=attempts, why=review.reason
        )
        return "NO_VERDICT" if self._update(judged["bead"], change) else "SKIPPED"

    def _update(self, bead: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any] | None:
        """A finished review is not thrown away because a lock was busy: the next look enters it from its file."""
        try:
            return bookbag.update_bookbag(bead, change, by=self.role, lock_timeout=LOCK_TIMEOUT_S)
        except BookbagInvalidError as error:
            _log.error("verdict.refused", bead=bead, role=self.role, why=str(error))
            raise

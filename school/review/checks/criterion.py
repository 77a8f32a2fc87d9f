"""One criterion with a check: run at the exact commit, and asked whether its answer means anything.

In this order, until a step decides:

1. its check runs at base and at head; failing at head is ``unmet``;
2. tests, test settings and programs by which it judges, that existed at base and were changed: base's copy must
   pass on the new code too;
3. tests and programs that are new or changed must fail on base's sources, or they do not test the change
   (``unjudged``); those that the check names, and, where it was not met at base, those that its runner finds;
4. a criterion that was met at base already must fail once no source can be parsed and the other files that it names
   are gone: one that cannot fail proves nothing (``unjudged``). With the claim ``no_change`` that is asked only of a
   check that names nothing of the repository (``true``).

A program that the check runs may be the judge or the work itself; where it was changed and base's copy does not
agree, only ``allow`` naming it can tell, and without that it is ``unjudged``. What cannot be run here is
``unjudged`` as well, unless it is a program that the task was to make.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from school.contracts import CheckContext, Receipt
from school.guarded import TEST, TEST_CONFIG, is_guarded, is_source, is_test, words
from school.review.checks import commands
from school.review.checks.seams import Side, Spoil, detail_of, was_cancelled
from school.review.checks.standing import Standing
from school.review.checks.work import Work, list_tree

_RUNNERS: Final = words(
    "pytest unittest tox nox nose2 make npm yarn pnpm cargo go just bun jest vitest ctest"
)
_EXPECTED: Final = ("expected", "golden", "oracle", "snapshot", "fixture")
_SLOWER_AT_HEAD: Final = 10.0


class CancelledError(Exception):
    """The teacher was told to stop; nothing of this counts."""


@dataclass(slots=True)
class Case:
    """One criterion and what came of it."""

    id: str
    text: str
    argv: list[str]
    verdict: str = "met"
    why: str = ""
    met_at_base: bool = False
    receipts: list[Receipt] = field(default_factory=list)

    @property
    def shown(self) -> str:
        return " ".join(self.argv)[:200]

    def end(self, verdict: str, why: str) -> None:
        self.verdict, self.why = verdict, why


def limit_s(context: CheckContext) -> float:
    return float((context.bag.get("terms") or {}).get("verify_timeout_s") or 600.0)


@dataclass(frozen=True)
class Judgement:
    """One criterion under judgement; ``judges`` are changed scripts that the project's own files run as checks."""

    stand: Standing
    work: Work
    spoil: Spoil
    case: Case
    judges: Collection[str]

    def judge(self) -> None:
        """Run the steps of the module's docstring until one of them decides."""
        case = self.case
        given_s = limit_s(self.stand.context)
        base = self._run("base", "at base", given_s) if self.work.files else None
        allowed_s = max(given_s, _SLOWER_AT_HEAD * (base.duration_s if base else 0.0))
        head = self._run("head", "at head", allowed_s)
        if not self._passes(head, base):
            return
        case.met_at_base = base is None or base.outcome == "passed"
        if self._changed_judges() and not self._old_judges_agree(allowed_s):
            return
        if self._new_judges():
            if not self._new_judges_can_fail(allowed_s):
                return
            # With the tests as they now are it was not met at base, so it has judged the change.
            case.met_at_base = False
        if case.met_at_base and (self._looks_at_nothing() or not self._claims_no_change()):
            self._must_be_able_to_fail(allowed_s)

    def _run(self, side: Side, what: str, timeout_s: float, **over: Sequence[str]) -> Receipt:
        self.stand.at(side, **over)
        return self._record(
            self.stand.run(self.case.argv, timeout_s=timeout_s, check=f"criterion {self.case.id} {what}")
        )

    def _record(self, receipt: Receipt) -> Receipt:
        if was_cancelled(receipt):
            raise CancelledError
        self.case.receipts.append(receipt)
        return receipt

    def _passes(self, head: Receipt, base: Receipt | None) -> bool:
        case = self.case
        # A program that is missing is the repository's own, so that making it was part of the task.
        own = "/" in case.argv[0] and not case.argv[0].startswith("/")
        if head.outcome == "passed":
            return True
        if head.outcome == "timed_out" and base is not None and base.outcome == "timed_out":
            case.end("unjudged", "its check does not come to an end, at base neither")
        elif head.outcome == "not_run" and not own:
            case.end("unjudged", f"its check cannot be run here: {detail_of(head)}")
        else:
            case.end("unmet", detail_of(head) if head.outcome != "no_tests" else "it ran no test")
        return False

    # --- what judges --------------------------------------------------------------------------------------

    def _programs(self) -> list[str]:
        return commands.programs(self.case.argv, [file.path for file in self.work.files])

    def _is_judge(self, path: str) -> bool:
        """Whether the check judges by *path*: runs it, is configured by it, finds it as a test, compares with it."""
        if path in self._programs() or path in commands.configured_by(self.case.argv) or path in self.judges:
            return True
        named = bool(commands.mentioned(self.case.argv, [path]))
        if is_guarded(path) in (TEST, TEST_CONFIG):
            return named or self._finds(path)
        stem = posixpath.basename(path).lower()
        return named and not is_source(path) and any(word in stem for word in _EXPECTED)

    def _finds(self, path: str) -> bool:
        """Whether a runner reads *path* without being told: settings and helpers always, tests where none is named."""
        if commands.tool(self.case.argv) not in _RUNNERS:
            return False
        if is_guarded(path) == TEST_CONFIG or posixpath.basename(path) == "__init__.py":
            return True
        tree = list_tree(self.work.git, self.work.head)
        return not any(is_test(named) for named in commands.mentioned(self.case.argv, tree))

    def _changed_judges(self) -> list[str]:
        return [file.path for file in self.work.files if not file.new and self._is_judge(file.path)]

    def _new_judges(self) -> list[str]:
        touched = [file.path for file in self.work.files if not file.gone and self._is_judge(file.path)]
        told = {commands.relative(word.partition("::")[0]) for word in self.case.argv}
        named = [path for path in touched if path in told or path in self._programs()]
        return named or ([] if self.case.met_at_base else touched)

    def _are_the_work(self, paths: Sequence[str]) -> bool:
        """Whether all that judges here are programs that could as well be what the task is about."""
        return all(
            path in self._programs() and is_source(path) and not commands.judge_like(path) for path in paths
        )

    def _named_by_allow(self, paths: Sequence[str]) -> bool:
        allow = (self.stand.context.bag.get("terms") or {}).get("allow") or []
        return all(path in allow for path in paths)

    def _claims_no_change(self) -> bool:
        return self.stand.context.bag.get("claim") == "no_change"

    def _looks_at_nothing(self) -> bool:
        """Whether no word of its check, nor of a line of code within, names a file or folder of the repository."""
        tree = list_tree(self.work.git, self.work.head)
        words = [word for given in self.case.argv for word in (given, *re.split(r"[^\w./-]+", given))]
        return not (commands.named_folder(words) or commands.mentioned(words, tree))

    # --- whether its answer means anything ----------------------------------------------------------------

    def _old_judges_agree(self, timeout_s: float) -> bool:
        changed = self._changed_judges()
        drop = [file.path for file in self.work.files if file.new and is_guarded(file.path) == TEST_CONFIG]
        receipt = self._run("head", "with base's tests", timeout_s, base=changed, drop=drop)
        if receipt.outcome == "passed":
            return True
        shown = ", ".join(changed[:3])
        if not self._are_the_work(changed):
            self.case.end(
                "unmet", f"it passes only with the changed {shown}; with base's copy: {detail_of(receipt)}"
            )
            return False
        if self._named_by_allow(changed):
            return True
        self.case.end(
            "unjudged",
            f"it runs {shown}, which was changed: name it in allow if it is the work, not the judge",
        )
        return False

    def _new_judges_can_fail(self, timeout_s: float) -> bool:
        files = self.work.files
        tests = [f.path for f in files if not f.gone and is_guarded(f.path) in (TEST, TEST_CONFIG)]
        judges = self._new_judges()
        receipt = self._run(
            "base", "with the new tests on base's sources", timeout_s, head=sorted({*tests, *judges})
        )
        if receipt.outcome != "passed" or (self._are_the_work(judges) and self._named_by_allow(judges)):
            return True
        shown = ", ".join(judges[:3])
        self.case.end("unjudged", f"{shown} passes on base's sources too, so it does not test the change")
        return False

    def _must_be_able_to_fail(self, timeout_s: float) -> None:
        tree = list_tree(self.work.git, self.work.head)
        ran = commands.programs(self.case.argv, tree)
        sources = [p for p, (mode, _) in tree.items() if mode[:3] == "100" and is_source(p) and p not in ran]
        named = commands.mentioned(self.case.argv, tree)
        gone = [path for path in named if not is_source(path) and not is_guarded(path) and path not in ran]
        self.stand.at("head", drop=gone)
        with self.spoil(self.stand.context.worktree, sources, how="parse") as spoiled:
            if not spoiled and not gone:
                self.case.end("unjudged", "it was met at base, and nothing is known by which it could fail")
                return
            check = f"criterion {self.case.id} with the sources spoiled"
            receipt = self._record(self.stand.run(self.case.argv, timeout_s=timeout_s, check=check))
        if receipt.outcome == "passed":
            self.case.end("unjudged", "its check passes whatever the sources hold, so it cannot fail")

"""COO, acceptance: every criterion with a check, run here, at the exact commit; met, unmet or unjudged.

For each criterion, in this order:

1. its check runs at head; failing is ``unmet``;
2. it runs at base; a criterion that is met there already is reported, and then must fail once the sources cannot be
   parsed and the files that it names are gone: one that cannot fail proves nothing and is ``unjudged``;
3. tests, test settings and the program of the check that existed at base and were changed: base's copy must pass
   on the new code too;
4. tests (or a program) that are new or changed must fail on base's sources, or they do not test the change.

Without a criterion that judges the change (none has a check, or all were met at base), a chore is run a second
time and must change nothing; otherwise the repository's own commands are compared with base. ``no_change`` holds
when the tree is base's and every criterion is met, or the chore's second run changes nothing. What only a human or
a model can judge ends as ``no_verdict``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from school.contracts import READ_ONLY_ROLES, CheckContext, CheckResult, Receipt
from school.guarded import TEST, TEST_CONFIG, is_guarded, is_source, is_test, words
from school.review.checks import commands
from school.review.checks.seams import Compare, OpenBench, Spoil, detail_of, was_cancelled
from school.review.checks.standing import Standing
from school.review.checks.work import Findings, Work, list_tree, role_of

_RUNNERS: Final = words(
    "pytest unittest tox nox nose2 make npm yarn pnpm cargo go just bun jest vitest ctest"
)
_EXPECTED: Final = ("expected", "golden", "oracle", "snapshot", "fixture")
_SLOWER_AT_HEAD: Final = 10.0
_TAIL_CHARS: Final = 600


@dataclass(slots=True)
class _Case:
    """One criterion under judgement."""

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


class _CancelledError(Exception):
    """The teacher was told to stop; nothing of this counts."""


@dataclass(slots=True)
class Acceptance:
    bench: OpenBench
    compare: Compare
    spoil: Spoil
    name: str = "acceptance"
    lens: str = "COMPLETENESS"

    def __call__(self, context: CheckContext) -> CheckResult:
        work = Work.of(context)
        result = CheckResult(self.name, self.lens)
        cases = [_case(c) for c in context.bag.get("acceptance") or []]
        checked = [case for case in cases if case.argv]
        try:
            if checked:
                with Standing.on(context, self.bench) as stand:
                    for case in checked:
                        _Judge(stand, work, self.spoil, case, _claims_no_change(context)).judge()
            findings = _told(cases, result)
            if not any(case.verdict == "met" and not case.met_at_base for case in checked):
                self._by_other_means(context, work, cases, result, findings)
        except _CancelledError:
            return CheckResult(self.name, self.lens, no_verdict="cancelled: the teacher was told to stop")
        result.findings = [*findings.done(), *result.findings]
        return result

    def _by_other_means(
        self, context: CheckContext, work: Work, cases: list[_Case], result: CheckResult, findings: Findings
    ) -> None:
        """Nothing of the criteria has judged the change itself: the chore's second run, or the repository's checks."""
        if result.no_verdict or any(case.verdict == "unmet" for case in cases):
            return
        if _claims_no_change(context) and any(case.argv for case in cases):
            return
        if chore_argv(context):
            self._chore_again(context, findings, result)
        elif _claims_no_change(context):
            result.no_verdict = "no_change is claimed, and no criterion with a check bears it out"
        elif not work.files and role_of(context.bag) not in READ_ONLY_ROLES:
            findings.add(
                "HIGH",
                "nothing_done",
                "The claim is done, and nothing was changed; no criterion says that nothing had to be.",
                todo="Make the change that the task asks for; or claim no_change and say why.",
            )
        elif work.files or not _answers(context):
            self._own_checks(context, result)
        else:
            result.no_verdict = "the answer can only be judged by a reader: no criterion has a check"

    def _chore_again(self, context: CheckContext, findings: Findings, result: CheckResult) -> None:
        """A chore that is done finds nothing left to do."""
        argv = chore_argv(context)
        with Standing.on(context, self.bench) as stand:
            stand.at("head")
            receipt = stand.run(argv, timeout_s=_limit_s(context), check=f"{self.name}: the chore again")
            result.receipts.append(receipt)
            if was_cancelled(receipt):
                raise _CancelledError
            if receipt.outcome in ("not_run", "timed_out"):
                result.no_verdict = f"the chore could not be run again: {detail_of(receipt)}"
            elif stand.tree_now() != context.bag["tree"]:
                findings.add(
                    "HIGH",
                    "chore_unfinished",
                    "Run a second time, the chore still changes files, so it had not been done.",
                    "$ " + " ".join(argv)[:200],
                    "Run the chore to its end on the allowed files.",
                )

    def _own_checks(self, context: CheckContext, result: CheckResult) -> None:
        verify = [list(argv) for argv in (context.bag.get("terms") or {}).get("verify") or []]
        if not verify:
            result.no_verdict = (
                "nothing to judge it by: no criterion has judged the change, and no verify command is known"
            )
            return
        receipts, found, no_verdict = self.compare(context, verify)
        result.receipts += receipts
        result.findings += found
        result.no_verdict = no_verdict


def _case(criterion: Any) -> _Case:  # noqa: ANN401 - a record or its JSON
    raw: Mapping[str, Any] = criterion if isinstance(criterion, Mapping) else criterion.model_dump()
    return _Case(str(raw.get("id", "")), str(raw.get("text", "")), list(raw.get("check") or []))


def _claims_no_change(context: CheckContext) -> bool:
    return context.bag.get("claim") == "no_change"


def _answers(context: CheckContext) -> bool:
    return bool(str(context.bag.get("output") or "").strip())


def _limit_s(context: CheckContext) -> float:
    return float((context.bag.get("terms") or {}).get("verify_timeout_s") or 600.0)


def chore_argv(context: CheckContext) -> list[str]:
    """The command of the bead's chore, if it is one."""
    agent = context.bag.get("agent") or {}
    is_chore = agent.get("chore") or (context.bag.get("terms") or {}).get("chore")
    return list(agent.get("argv") or []) if is_chore and agent.get("kind", "run") == "run" else []


def _told(cases: Sequence[_Case], result: CheckResult) -> Findings:
    """Verdicts, receipts and findings of all criteria; those that nobody could judge make no_verdict."""
    findings = Findings("acceptance")
    unjudged = []
    for case in cases:
        if not case.argv:
            case.end("unjudged", "it has no check, and no model reviewer is configured")
        result.criteria[case.id] = case.verdict
        result.receipts += case.receipts
        if case.verdict == "unjudged":
            unjudged.append(f"{case.id} ({case.why})")
        elif case.verdict == "unmet":
            _unmet(findings, case)
        elif case.met_at_base:
            findings.add(
                "LOW",
                "already_met",
                f"Criterion {case.id} was met at base already: {case.text}",
                f"$ {case.shown}",
            )
    if unjudged:
        result.no_verdict = f"criteria nobody could judge: {'; '.join(unjudged)}"
    return findings


def _unmet(findings: Findings, case: _Case) -> None:
    last = case.receipts[-1] if case.receipts else None
    tail = last.output[-_TAIL_CHARS:].strip() if last else ""
    findings.add(
        "HIGH",
        "criterion_unmet",
        f"Criterion {case.id} is not met: {case.text} ({case.why})",
        "",
        "Make the check pass.",
    )
    # The output keeps its lines: it is what the student learns from.
    findings.found[-1].citation = f"$ {case.shown}\n{tail}" if tail else f"$ {case.shown}"


# --- one criterion ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judge:
    stand: Standing
    work: Work
    spoil: Spoil
    case: _Case
    no_change: bool

    def judge(self) -> None:
        """Run the steps of the module's docstring until one of them decides."""
        case = self.case
        base = self._run("base", "at base", _limit_s(self.stand.context)) if self.work.files else None
        limit_s = max(_limit_s(self.stand.context), _SLOWER_AT_HEAD * (base.duration_s if base else 0.0))
        head = self._run("head", "at head", limit_s)
        if not self._passes(head, base):
            return
        case.met_at_base = base is None or base.outcome == "passed"
        if self._changed_judges() and not self._old_judges_agree(limit_s):
            return
        if self._new_judges():
            if not self._new_judges_can_fail(limit_s):
                return
            # With the tests as they now are it was not met at base, so it has judged the change.
            case.met_at_base = False
        if case.met_at_base and not self.no_change:
            self._must_be_able_to_fail(limit_s)

    def _run(self, side: Any, what: str, limit_s: float, **over: Sequence[str]) -> Receipt:  # noqa: ANN401 - a Side
        self.stand.at(side, **over)
        receipt = self.stand.run(self.case.argv, timeout_s=limit_s, check=f"criterion {self.case.id} {what}")
        if was_cancelled(receipt):
            raise _CancelledError
        self.case.receipts.append(receipt)
        return receipt

    def _passes(self, head: Receipt, base: Receipt | None) -> bool:
        case = self.case
        if head.outcome == "passed":
            return True
        if head.outcome == "timed_out" and base is not None and base.outcome == "timed_out":
            case.end("unjudged", "its check does not come to an end, at base neither")
        elif head.outcome == "not_run" and not self._should_be_there(case.argv[0]):
            case.end("unjudged", f"its check cannot be run here: {detail_of(head)}")
        else:
            case.end("unmet", detail_of(head) if head.outcome != "no_tests" else "it ran no test")
        return False

    def _should_be_there(self, program: str) -> bool:
        """Whether a program that is missing is the repository's own, so that making it was part of the task."""
        return "/" in program and not program.startswith("/")

    # --- what judges, and whether the student touched it

    def _relevant(self, path: str) -> bool:
        """Whether the check may use *path* to judge: it names it or its folder, or lets a runner find it."""
        named = commands.mentioned(self.case.argv, [path])
        finds = commands.tool(self.case.argv) in _RUNNERS and not self._names_tests()
        helper = posixpath.basename(path) in ("conftest.py", "__init__.py") and is_guarded(path) != ""
        return (
            bool(named)
            or (is_test(path) and (finds or helper))
            or (is_guarded(path) == TEST_CONFIG and self._is_test_run())
        )

    def _is_test_run(self) -> bool:
        return commands.tool(self.case.argv) in _RUNNERS

    def _names_tests(self) -> bool:
        tree = list_tree(self.work.git, self.work.head)
        return any(is_test(path) for path in commands.mentioned(self.case.argv, tree))

    def _is_judge(self, path: str) -> bool:
        if path == commands.program(self.case.argv):
            return True
        if is_guarded(path) in (TEST, TEST_CONFIG):
            return self._relevant(path)
        stem = posixpath.basename(path).lower()
        expected = any(word in stem for word in _EXPECTED) and not is_source(path)
        return expected and bool(commands.mentioned(self.case.argv, [path]))

    def _changed_judges(self) -> list[str]:
        return [f.path for f in self.work.files if not f.new and self._is_judge(f.path)]

    def _new_judges(self) -> list[str]:
        """New or changed tests that decide this check: named one by one, or, where it was not met at base, found."""
        touched = [f.path for f in self.work.files if not f.gone and self._is_judge(f.path)]
        named = {word.partition("::")[0] for word in self.case.argv} | {commands.program(self.case.argv)}
        return [p for p in touched if p in {commands.relative(n) for n in named}] or (
            [] if self.case.met_at_base else touched
        )

    def _old_judges_agree(self, limit_s: float) -> bool:
        changed = self._changed_judges()
        drop = [f.path for f in self.work.files if f.new and is_guarded(f.path) == TEST_CONFIG]
        receipt = self._run("head", "with base's tests", limit_s, base=changed, drop=drop)
        if receipt.outcome == "passed":
            return True
        program = commands.program(self.case.argv)
        allow = (self.stand.context.bag.get("terms") or {}).get("allow") or []
        if changed == [program] and is_source(program) and not commands.judge_like(program):
            if program in allow:
                return True
            self.case.end(
                "unjudged",
                f"it runs {program}, which was changed: name it in allow if it is the work, not the judge",
            )
            return False
        self.case.end(
            "unmet",
            f"it passes only with the changed {', '.join(changed[:3])}; with base's copy: {detail_of(receipt)}",
        )
        return False

    def _new_judges_can_fail(self, limit_s: float) -> bool:
        fresh = [f.path for f in self.work.files if not f.gone and is_guarded(f.path) in (TEST, TEST_CONFIG)]
        over = sorted({*fresh, *self._new_judges()})
        receipt = self._run("base", "with the new tests on base's sources", limit_s, head=over)
        if receipt.outcome != "passed":
            return True
        program = commands.program(self.case.argv)
        if (
            self._new_judges() == [program]
            and is_source(program)
            and self.work.find(program)
            and program in self._allow()
        ):
            return True
        shown = ", ".join(self._new_judges()[:3])
        self.case.end("unjudged", f"{shown} passes on base's sources too, so it does not test the change")
        return False

    def _allow(self) -> list[str]:
        return list((self.stand.context.bag.get("terms") or {}).get("allow") or [])

    def _must_be_able_to_fail(self, limit_s: float) -> None:
        """A criterion that was met all along proves something only if it can fail at all."""
        tree = list_tree(self.work.git, self.work.head)
        sources = [path for path, (mode, _) in tree.items() if mode[:3] == "100" and is_source(path)]
        named = commands.mentioned(self.case.argv, tree)
        gone = [
            p
            for p in named
            if not is_source(p) and not is_guarded(p) and p != commands.program(self.case.argv)
        ]
        program = commands.program(self.case.argv)
        self.stand.at("head", drop=gone)
        with self.spoil(
            self.stand.context.worktree, [s for s in sources if s != program], how="parse"
        ) as spoiled:
            if not spoiled and not gone:
                self.case.end("unjudged", "it was met at base, and nothing is known by which it could fail")
                return
            check = f"criterion {self.case.id} with the sources spoiled"
            receipt = self.stand.run(self.case.argv, timeout_s=limit_s, check=check)
        if was_cancelled(receipt):
            raise _CancelledError
        self.case.receipts.append(receipt)
        if receipt.outcome == "passed":
            self.case.end("unjudged", "its check passes whatever the sources hold, so it cannot fail")

"""COO, acceptance: every criterion with a check, run here, at the exact commit; met, unmet or unjudged.

How one criterion is judged is said in ``criterion``.

Without a criterion that judges the change (none has a check, or all were met at base), a chore is run a second
time and must change nothing; otherwise the repository's own commands are compared with base. ``no_change`` holds
when the tree is base's and every criterion is met, or the chore's second run changes nothing. What only a reader can
judge is left to the COO's model where the bag names one, and otherwise ends as ``no_verdict``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from school.contracts import READ_ONLY_ROLES, CheckContext, CheckResult
from school.review.checks.criterion import CancelledError, Case, Judgement, limit_s
from school.review.checks.scope import judging_scripts
from school.review.checks.seams import Compare, OpenBench, Spoil, detail_of, was_cancelled
from school.review.checks.standing import Standing
from school.review.checks.work import Findings, Work, role_of
from school.review.reviewer import reviewer_of

_TAIL_CHARS: Final = 600


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
        if reviewer_of(context.bag, "coo"):
            cases = [case for case in cases if case.argv]  # the others are its model's to judge
        checked = [case for case in cases if case.argv]
        judges = judging_scripts(context, work)
        try:
            if checked:
                with Standing.on(context, self.bench) as stand:
                    for case in checked:
                        Judgement(stand, work, self.spoil, case, judges).judge()
            findings = _told(cases, result)
            if not any(case.verdict == "met" and not case.met_at_base for case in checked):
                self._by_other_means(context, work, cases, result, findings)
        except CancelledError:
            return CheckResult(self.name, self.lens, no_verdict="cancelled: the teacher was told to stop")
        result.findings = [*findings.done(), *result.findings]
        return result

    def _by_other_means(
        self, context: CheckContext, work: Work, cases: list[Case], result: CheckResult, findings: Findings
    ) -> None:
        """Nothing of the criteria has judged the change itself: the chore's second run, or the repository's checks."""
        if result.no_verdict or any(case.verdict == "unmet" for case in cases):
            return
        if _claims_no_change(context) and work.files:
            findings.add(
                "HIGH",
                "claim_mismatch",
                f"The claim is no_change, but {len(work.files)} files differ from base.",
                work.files[0].path,
                "Say done, or take the changes back.",
            )
            return
        if _claims_no_change(context) and any(case.argv for case in cases):
            return
        if chore_argv(context):
            self._chore_again(context, findings, result)
        elif _claims_no_change(context):
            if not _read_by_a_model(context):
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
        elif not reviewer_of(context.bag, "coo"):
            result.no_verdict = "the answer can only be judged by a reader: no criterion has a check"

    def _chore_again(self, context: CheckContext, findings: Findings, result: CheckResult) -> None:
        """A chore that is done finds nothing left to do."""
        argv = chore_argv(context)
        with Standing.on(context, self.bench) as stand:
            stand.at("head")
            receipt = stand.run(argv, timeout_s=limit_s(context), check=f"{self.name}: the chore again")
            result.receipts.append(receipt)
            if was_cancelled(receipt):
                raise CancelledError
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
        if not verify and reviewer_of(context.bag, "coo"):
            return
        if not verify:
            result.no_verdict = (
                "nothing to judge it by: no criterion has judged the change, and no verify command is known"
            )
            return
        receipts, found, no_verdict = self.compare(context, verify)
        result.receipts += receipts
        result.findings += found
        result.no_verdict = no_verdict


def _case(criterion: Any) -> Case:  # noqa: ANN401 - a record or its JSON
    raw: Mapping[str, Any] = criterion if isinstance(criterion, Mapping) else criterion.model_dump()
    return Case(str(raw.get("id", "")), str(raw.get("text", "")), list(raw.get("check") or []))


def _claims_no_change(context: CheckContext) -> bool:
    return context.bag.get("claim") == "no_change"


def _read_by_a_model(context: CheckContext) -> bool:
    """Whether a model is asked about a criterion that has no check, and so can bear out that nothing was due."""
    unchecked = any(not _case(c).argv for c in context.bag.get("acceptance") or [])
    return unchecked and reviewer_of(context.bag, "coo") is not None


def _answers(context: CheckContext) -> bool:
    return bool(str(context.bag.get("output") or "").strip())


def chore_argv(context: CheckContext) -> list[str]:
    """The command of the bead's chore, if it is one."""
    agent = context.bag.get("agent") or {}
    is_chore = agent.get("chore") or (context.bag.get("terms") or {}).get("chore")
    return list(agent.get("argv") or []) if is_chore and agent.get("kind", "run") == "run" else []


def _told(cases: Sequence[Case], result: CheckResult) -> Findings:
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


def _unmet(findings: Findings, case: Case) -> None:
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

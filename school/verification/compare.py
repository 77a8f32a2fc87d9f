"""Head against base: what passed and no longer does, test by test where the runner names tests, else by command.

``against_base(bench, baselines) -> Comparison`` runs every command at head and judges it; ``compare(context,
commands)`` is the whole of it as ``(receipts, findings, no_verdict)``. Rules (contract, section 8):

- nothing that passed at base fails at head; it is ``flaky`` (LOW) only if it also fails in one of three further base runs;
- a test that is new must pass; what is red at base may stay red;
- a test that passed at base and is skipped or missing at head is a finding, unless the change touches its file
  (whether that was in order is for the tampering check);
- where the runner names no tests and base is red, the command cannot judge; where *no* test command can, the
  comparison says so (``unjudged``), and only criteria can.

A change with base's own tree needs no second run. Errors: those of ``bench``; ``compare`` makes no_verdict of a cancelled
run and of an environment that cannot be built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from school.contracts import CheckContext, Finding, Receipt, Severity, bounded
from school.verification import commands as argvs
from school.verification.baselines import Baseline, Baselines, failing, limit_s
from school.verification.bench import Bench, CheckCancelledError
from school.verification.environment import SetupFailedError
from school.verification.reports import COMMAND
from school.verification.runner import CheckRun

NAMES_SHOWN: Final = 12
CITED_CHARS: Final = 2000
_LAST_LINE_BYTES: Final = 200

_COLLECTION_ERROR: Final = re.compile(r"^(?:::|unittest\.loader\._FailedTest[.:]+)(?P<module>.+)$")


@dataclass(slots=True)
class Comparison:
    """What came out. ``no_verdict``: it could not be compared; ``unjudged``: it could, and shows nothing."""

    receipts: list[Receipt] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    no_verdict: str = ""
    unjudged: str = ""


class Compared(NamedTuple):
    """The same as three values."""

    receipts: list[Receipt]
    findings: list[Finding]
    no_verdict: str


@dataclass(slots=True)
class Judgement:
    """One command: names by what is wrong with them, or why it cannot judge."""

    broken: set[str] = field(default_factory=set)
    new_red: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    still_red: set[str] = field(default_factory=set)
    wrong: tuple[str, str] | None = None
    unjudged: str = ""
    evidence: bool = False


# --- one command, pure ------------------------------------------------------------------------------------


def judge(base: Baseline, head: CheckRun, changed: Sequence[str]) -> Judgement:
    """Set one command's run at head against base."""
    if head.outcome == "timed_out":
        return _judge_timeout(base, head)
    if head.outcome == "no_tests":
        return _judge_no_tests(base)
    if head.tests_by_name is not None and base.tests is not None:
        return _judge_by_test(base, head, changed)
    return _judge_by_command(base, head)


def _judge_timeout(base: Baseline, head: CheckRun) -> Judgement:
    if base.receipt.outcome == "timed_out":
        return Judgement(unjudged="does not come to an end at base either")
    return Judgement(
        wrong=("timed_out", f"did not come to an end: {head.detail}; base took {base.slowest_s:.1f} s")
    )


def _judge_no_tests(base: Baseline) -> Judgement:
    if base.receipt.outcome == "no_tests":
        return Judgement(unjudged="finds no test, at base and at head")
    return Judgement(wrong=("no_tests", "ran no test at head; a run that collected no test is no pass"))


def _judge_by_command(base: Baseline, head: CheckRun) -> Judgement:
    """By exit status, where one of the two sides names no tests."""
    if head.outcome == "passed":
        return Judgement(evidence=True)
    red_at_base = base.receipt.outcome in ("failed", "timed_out")
    if red_at_base and base.tests is None:
        last = next((line.strip() for line in reversed(base.receipt.output.splitlines()) if line.strip()), "")
        said = f"; it ends with: {bounded(last, _LAST_LINE_BYTES)}" if last else ""
        return Judgement(unjudged=f"is red at base and names no tests{said}")
    if base.green and base.tests is None and head.outcome == "failed":
        return Judgement(broken={COMMAND}, evidence=True)
    return Judgement(wrong=("command_failed", f"failed at head: {head.detail}"))


def _judge_by_test(base: Baseline, head: CheckRun, changed: Sequence[str]) -> Judgement:
    before, after = base.tests or {}, dict(head.tests_by_name or {})
    red = failing(after)
    known_red = {
        name for name in red if before.get(name) in ("failed", "error") or _was_uncollected(name, before)
    }
    # A whole that is red beside tests that are red at base says no more than they do.
    if COMMAND in red and not base.green:
        known_red.add(COMMAND)
    new = {name for name in red - known_red if name not in before and name != COMMAND}
    gone = {name for name in base.passed if after.get(name, "skipped") == "skipped"} - red
    return Judgement(
        broken=red - known_red - new,
        new_red=new,
        missing=_unexplained(gone, base.passed, after, changed),
        still_red=known_red,
        evidence=any(outcome == "passed" for outcome in after.values()),
    )


def _was_uncollected(name: str, before: dict[str, str]) -> bool:
    """Whether *name* lies in a module that could not be collected at base: then all in it was red there."""
    modules = [found["module"] for one in failing(before) if (found := _COLLECTION_ERROR.match(one))]
    return any(name.startswith((f"{module}.", f"{module}::")) for module in modules)


def _function(name: str) -> str:
    """A test without its parameters."""
    return re.sub(r"(?:\[.*\])?(?:#\d+)?$", "", name, flags=re.DOTALL)


def _unexplained(gone: set[str], passed: set[str], after: dict[str, str], changed: Sequence[str]) -> set[str]:
    """Those that are gone though their file is untouched and their function has fewer passing cases than before."""
    count = dict.fromkeys(map(_function, gone), 0)
    for name in passed:
        if _function(name) in count:
            count[_function(name)] += 1
    for name, outcome in after.items():
        if outcome == "passed" and _function(name) in count:
            count[_function(name)] -= 1
    return {name for name in gone if count[_function(name)] > 0 and not of_any(name, changed)}


def of_any(name: str, paths: Iterable[str]) -> bool:
    """Whether a test's id begins with the dotted name of one of these files, from whichever folder it is counted."""
    for path in paths:
        parts = path.rsplit(".", 1)[0].split("/")
        dotted = (".".join(parts[start:]) for start in range(len(parts)))
        if any(name.startswith((f"{module}.", f"{module}::")) for module in dotted):
            return True
    return False


# --- all commands -----------------------------------------------------------------------------------------


def against_base(bench: Bench, baselines: Baselines) -> Comparison:
    """Run every command at head, judge it by its baseline, and give what is newly red its chance to be flaky."""
    receipts = [baseline.receipt for baseline in baselines.found]
    reason = _cannot_compare(baselines)
    if reason or bench.tree("base") == bench.tree("head"):
        return Comparison(receipts=receipts, no_verdict=reason)
    bench.go("head")
    runs: list[CheckRun] = []
    for argv, baseline in zip(baselines.commands, baselines.found, strict=True):
        timeout_s = limit_s(baseline, bench.terms.verify_timeout_s)
        runs.append(bench.run(argv, timeout_s=timeout_s, check="verification"))
    changed = [path for _, path in bench.changed()]
    judged = [judge(base, run, changed) for base, run in zip(baselines.found, runs, strict=True)]
    _try_again(baselines, judged)
    if baselines.shaken:
        reason = f"base no longer does what it did with `{baselines.shaken}`: the environment has changed meanwhile"
        return Comparison(receipts=receipts, no_verdict=reason)
    comparison = Comparison(receipts=[*receipts, *(Receipt.model_validate(run.model_dump()) for run in runs)])
    for base, run, one in zip(baselines.found, runs, judged, strict=True):
        comparison.findings += _findings(base, run, one)
        if one.broken == {COMMAND} and COMMAND in base.unsteady and base.tests is None:
            one.evidence, one.unjudged, one.broken = False, "fails now and then, at base too", set()
    comparison.unjudged = _shows_nothing(baselines.commands, judged)
    return comparison


def _cannot_compare(baselines: Baselines) -> str:
    for baseline in baselines.found:
        if baseline.receipt.outcome == "not_run":
            return f"{_shown(baseline.receipt.argv)} cannot be run at base: {baseline.detail}"
    return ""


def _try_again(baselines: Baselines, judged: list[Judgement]) -> None:
    """Run base again while something newly red has not been seen to fail there; many at once get one more run only."""
    suspects = [one.broken | one.missing for one in judged]
    for tried in range(3):
        steady = [
            names - set(baseline.unsteady) for names, baseline in zip(suspects, baselines.found, strict=True)
        ]
        last = max((index for index, names in enumerate(steady) if names), default=-1)
        if last < 0 or (tried and sum(map(len, steady)) > NAMES_SHOWN) or not baselines.again(last):
            return


def _shows_nothing(commands: Sequence[Sequence[str]], judged: Sequence[Judgement]) -> str:
    """Why these runs are no evidence: of the test commands (of all, where there is none) not one can judge."""
    pairs = list(zip(commands, judged, strict=True))
    tests = [pair for pair in pairs if argvs.kind_of(pair[0]) == "test"] or pairs
    if not tests:
        return "the repository declares no verify command"
    if any(one.evidence or one.wrong or one.broken or one.new_red or one.missing for _, one in tests):
        return ""
    said = [f"{_shown(argv)} {one.unjudged or 'passes no test'}" for argv, one in tests]
    return "; ".join(said)


# --- words ------------------------------------------------------------------------------------------------


def _shown(argv: Sequence[str]) -> str:
    return "`" + " ".join(argv)[:200] + "`"


def _names(names: set[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - NAMES_SHOWN} more" if len(ordered) > NAMES_SHOWN else ""
    return ", ".join(ordered[:NAMES_SHOWN]) + more


def _finding(
    severity: Severity, issue_class: str, description: str, run: CheckRun, suggestion: str = ""
) -> Finding:
    return Finding(
        section="verification",
        severity=severity,
        issue_class=issue_class,
        description=description,
        citation=f"$ {' '.join(run.argv)}\nexit {run.exit_code} at {run.commit[:12]}\n{run.output[-CITED_CHARS:]}",
        suggestion=suggestion,
    )


def _findings(base: Baseline, run: CheckRun, one: Judgement) -> list[Finding]:
    unsteady = set(base.unsteady)
    shown = _shown(run.argv)
    flaky = (one.broken | one.missing) & unsteady
    found = []
    if one.wrong is not None:
        found.append(_finding("HIGH", one.wrong[0], f"{shown} {one.wrong[1]}", run))
    if broken := one.broken - unsteady:
        what = (
            "passes at base and fails at head"
            if broken == {COMMAND}
            else f"passes at base, fails at head: {_names(broken)}"
        )
        found.append(
            _finding(
                "HIGH", "tests_broken", f"{shown} {what} ({run.detail})", run, "Repair what the change broke."
            )
        )
    if one.new_red:
        found.append(
            _finding(
                "HIGH", "new_tests_fail", f"{shown}: new at head and failing: {_names(one.new_red)}", run
            )
        )
    if missing := one.missing - unsteady:
        text = f"{shown}: passed at base, skipped or missing at head, their file unchanged: {_names(missing)}"
        found.append(_finding("HIGH", "tests_missing", text, run))
    if flaky:
        text = f"{shown}: failed at head, and in one of {base.runs} runs at base too: {_names(flaky)}"
        found.append(_finding("LOW", "flaky", text, run))
    if one.still_red:
        found.append(
            _finding(
                "LOW", "red_at_base", f"{shown}: red at base and still red: {_names(one.still_red)}", run
            )
        )
    return found


def compare(context: CheckContext, commands: Sequence[Sequence[str]]) -> Compared:
    """Head against base by *commands*, on the context's worktree, which is left clean at head."""
    try:
        with Bench.of(context) as bench:
            baselines = Baselines(bench, commands)
            baselines.measure()
            result = against_base(bench, baselines)
    except (CheckCancelledError, SetupFailedError) as error:
        return Compared([], [], str(error))
    return Compared(result.receipts, result.findings, result.no_verdict or result.unjudged)

"""What a teacher calls: ``verification`` and ``wrong_tree``, each a ``contracts.Check``; ``for_role`` lists them.

``verification`` measures base (and whether the tests see this tree there) *before* any code of head has run, then sets
head against base. ``wrong_tree`` turns the second answer into findings, and asks at head which changed files no test
notices, and whether every test can still fail (``blunt``). Without verify commands in the bag's terms both have nothing to say: criteria, or nobody, can judge.

Errors of the machine or the worktree come through as what they are; a teacher's one seam makes NO_VERDICT of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from school.contracts import Check, CheckContext, CheckResult, Finding, Severity, TeacherRole, bounded
from school.verification.baselines import Baselines
from school.verification.bench import Bench, CheckCancelledError
from school.verification.blunt import Forged, forged
from school.verification.compare import against_base
from school.verification.environment import SHOWN_BYTES, SetupFailedError
from school.verification.sight import Noticed, Sight, sees_tree, unnoticed

LENS: Final = "CORRECTNESS"
_NAMES_SHOWN: Final = 20


def _has_criteria(bag: Mapping[str, Any]) -> bool:
    """Whether a criterion with a check can judge where the repository's own checks cannot."""
    criteria = bag.get("acceptance") or []
    return any((c.get("check") if isinstance(c, Mapping) else c.check) for c in criteria)


def _finding(
    section: str, severity: Severity, issue_class: str, description: str, suggestion: str = ""
) -> Finding:
    return Finding(
        section=section,
        severity=severity,
        issue_class=issue_class,
        description=description,
        suggestion=suggestion,
    )


def _setup_failed(section: str, failed: SetupFailedError) -> CheckResult:
    if failed.side == "base":
        return CheckResult(section, LENS, no_verdict=bounded(str(failed), SHOWN_BYTES))
    finding = _finding(
        section,
        "HIGH",
        "setup_failed",
        f"the environment cannot be built from this change: {failed.why}",
        "Make the set-up commands work with the changed manifests.",
    )
    finding.citation = failed.output
    return CheckResult(section, LENS, findings=[finding])


def _judged(name: str, context: CheckContext, judge: Callable[[Bench], CheckResult]) -> CheckResult:
    """What *judge* finds at a bench; a set-up that fails is the change's fault, a cancelled run nobody's."""
    with Bench.of(context) as bench:
        try:
            return judge(bench)
        except SetupFailedError as failed:
            return _setup_failed(name, failed)
        except CheckCancelledError as cancelled:
            return CheckResult(name, LENS, no_verdict=str(cancelled))


class Verification:
    """The repository's own checks at head against base."""

    name = "verification"
    lens = LENS

    def __call__(self, context: CheckContext) -> CheckResult:
        return _judged(self.name, context, self._judge)

    def _judge(self, bench: Bench) -> CheckResult:
        result = CheckResult(self.name, self.lens)
        baselines = Baselines(bench, bench.terms.verify)
        if baselines.commands:
            baselines.measure()
            if bench.tree("base") != bench.tree("head"):
                sees_tree(bench, baselines)
        comparison = against_base(bench, baselines)
        result.receipts = comparison.receipts
        result.findings = comparison.findings
        result.no_verdict = comparison.no_verdict
        if comparison.unjudged and not comparison.no_verdict:
            self._unjudged(bench, comparison.unjudged, result)
        return result

    def _unjudged(self, bench: Bench, why: str, result: CheckResult) -> None:
        if not _has_criteria(bench.context.bag):
            result.no_verdict = f"the repository's own checks cannot judge: {why}"
            return
        text = f"the repository's own checks cannot judge, only the criteria do: {why}"
        result.findings.append(_finding(self.name, "LOW", "unverified", text))


class WrongTree:
    """Whether the tests see this tree and the changed files in it, and whether they can still fail there."""

    name = "wrong_tree"
    lens = LENS

    def __call__(self, context: CheckContext) -> CheckResult:
        return _judged(self.name, context, self._judge)

    def _judge(self, bench: Bench) -> CheckResult:
        result = CheckResult(self.name, self.lens)
        baselines = Baselines(bench, bench.terms.verify)
        if not baselines.commands or bench.tree("base") == bench.tree("head"):
            return result
        baselines.measure()
        sight = sees_tree(bench, baselines)
        self._sight(sight, result)
        if sight.seen and not sight.only_lint:
            paths = [path for status, path in bench.changed() if status != "D"]
            strict = bench.terms.require_exercised
            self._noticed(unnoticed(bench, baselines, paths, every=strict), result, strict=strict)
            self._forged(forged(bench, baselines), result)
        return result

    def _forged(self, found: Forged, result: CheckResult) -> None:
        result.receipts += found.receipts
        for command, names in found.names.items():
            shown = ", ".join(sorted(names)[:_NAMES_SHOWN])
            text = (
                f"`{command}` reports as passed what was made to fail, and did fail at base: {shown}; at head the result "
                "is made outside the tests"
            )
            result.findings.append(
                _finding(
                    "tampering",
                    "HIGH",
                    "result_from_outside",
                    text,
                    "Take out what changes how tests are run.",
                )
            )

    def _sight(self, sight: Sight, result: CheckResult) -> None:
        result.receipts += sight.receipts
        if sight.unknown:
            result.notes.append(f"whether the tests see this tree was not judged: {sight.unknown}")
        elif not sight.seen:
            result.findings.append(_wrong_tree(_BLIND))
        if sight.only_lint and not sight.unknown:
            text = "no test command is declared, only linters and builds: nothing was run"
            result.findings.append(_finding(self.name, "MEDIUM", "no_test_command", text))

    def _noticed(self, noticed: Noticed, result: CheckResult, *, strict: bool) -> None:
        result.receipts += noticed.receipts
        severity: Severity = "HIGH" if strict else "MEDIUM"
        for path, origin in noticed.elsewhere.items():
            result.findings.append(_wrong_tree(f"the tests take the package of {path} from {origin}"))
        for path in noticed.unnoticed:
            text = f"no test notices when {path} cannot be loaded"
            result.findings.append(
                _finding(self.name, severity, "not_exercised", text, "Add a test that uses what changed.")
            )
        for what, paths in (("no known spoiler", noticed.no_spoiler), ("no time left", noticed.not_tried)):
            if paths:
                more = f" and {len(paths) - _NAMES_SHOWN} more" if len(paths) > _NAMES_SHOWN else ""
                result.notes.append(f"not judged ({what}): {', '.join(paths[:_NAMES_SHOWN])}{more}")


_BLIND: Final = (
    "with every source file of this tree unloadable, all test commands still do as well as before: they test another copy "
    "of the code, or none"
)


def _wrong_tree(what: str) -> Finding:
    return _finding(
        "wrong_tree",
        "HIGH",
        "wrong_tree",
        what,
        "Let [setup] commands install this tree (an editable install in .venv), or set the import path in the command, as "
        "in `env PYTHONPATH=src python -m pytest`.",
    )


verification: Final = Verification()
wrong_tree: Final = WrongTree()


def for_role(role: TeacherRole) -> list[Check]:
    """The checks of this room that a teacher of *role* runs, in their order."""
    return [verification, wrong_tree] if role == "cto" else []

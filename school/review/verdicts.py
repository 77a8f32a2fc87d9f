"""From what the checks found to a verdict: computed, never guessed, the same for the same results.

``decide(role, results)`` gives one ``LensResult`` a lens and the review's verdict: FAIL when any finding is CRITICAL
or HIGH; PASS only when every lens of the role was run by at least one check and none of them said that it could not
judge; otherwise no verdict, with the reasons. A check that could not judge never turns a FAIL into anything else:
what was found stands. Pure.

``normalise_severity`` understands any spelling; one that nobody knows counts as HIGH, and is never dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from school.contracts import (
    LENSES,
    SEVERITIES,
    CheckResult,
    Finding,
    LensResult,
    Review,
    ReviewOutcome,
    Severity,
    TeacherRole,
)
from school.review.budget import spent

STOPPING: Final = frozenset({"CRITICAL", "HIGH"})
FINDINGS_MAX: Final = 200
REASON_CHARACTERS_MAX: Final = 2000

_SPELLINGS: Final[Mapping[str, Severity]] = {
    "critical": "CRITICAL",
    "crit": "CRITICAL",
    "blocker": "CRITICAL",
    "fatal": "CRITICAL",
    "severe": "CRITICAL",
    "p0": "CRITICAL",
    "high": "HIGH",
    "error": "HIGH",
    "major": "HIGH",
    "p1": "HIGH",
    "medium": "MEDIUM",
    "moderate": "MEDIUM",
    "med": "MEDIUM",
    "warning": "MEDIUM",
    "warn": "MEDIUM",
    "p2": "MEDIUM",
    "low": "LOW",
    "minor": "LOW",
    "info": "LOW",
    "informational": "LOW",
    "note": "LOW",
    "nit": "LOW",
    "trivial": "LOW",
    "p3": "LOW",
    "p4": "LOW",
}


def normalise_severity(text: object) -> Severity:
    """The severity that *text* means in whatever spelling; HIGH for one that nobody knows."""
    return _SPELLINGS.get(_spelling(text), "HIGH")


def _spelling(text: object) -> str:
    return str(text).strip().strip("[]()*:.!").strip().lower()


def finding_from(raw: Mapping[str, Any], section: str) -> Finding:
    """A finding from whatever a reviewer sent, its severity understood; what it lacks is empty, never dropped."""
    said = raw.get("severity", "")
    severity = normalise_severity(said)
    description = str(raw.get("description") or raw.get("issue_class") or "no description")
    if _spelling(said) not in _SPELLINGS:
        description += f" (severity {said!r} is unknown and counts as HIGH)"
    return Finding(
        section=str(raw.get("section") or section),
        severity=severity,
        issue_class=str(raw.get("issue_class") or "unclassified"),
        description=description,
        citation=str(raw.get("citation") or ""),
        suggestion=str(raw.get("suggestion") or ""),
    )


def review_id(bead: str, tree: str, role: str) -> str:
    """The name of the one review of *tree* of *bead* by *role*: doing it twice gives the same."""
    return hashlib.sha256(f"{bead}\n{tree}\n{role}".encode()).hexdigest()[:32]


def decide(role: TeacherRole, results: Sequence[CheckResult]) -> Review:
    """The review that *results* add up to; ``verdict`` is empty, with ``reason``, when they do not add up to one."""
    lenses = [_lens(lens, [r for r in results if r.lens == lens]) for lens in _all_lenses(role, results)]
    outcome = overall(lens.outcome for lens in lenses)
    reasons = [f"{lens.lens}: {lens.reason}" for lens in lenses if lens.outcome == "NO_VERDICT"]
    return Review(
        verdict="" if outcome == "NO_VERDICT" else outcome,
        lenses=lenses,
        criteria=_criteria(results),
        reason="; ".join(reasons)[:REASON_CHARACTERS_MAX],
        retry_at="" if outcome != "NO_VERDICT" else max((result.retry_at for result in results), default=""),
        short_of={} if outcome != "NO_VERDICT" else _short_of(results),
        usage=usage_sum([result.usage for result in results if result.usage]),
    )


def _short_of(results: Sequence[CheckResult]) -> dict[str, float]:
    """What the review takes up to the call that the budget did not allow, begun anew; empty where it allowed all."""
    if not any(result.short_of for result in results):
        return {}
    tokens, cost = spent(result.usage for result in results)
    return {"tokens": tokens + sum(result.short_of.get("tokens", 0) for result in results), "cost_usd": cost}


def usage_sum(used: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several calls used, added up by kind; a number that one of them does not know makes the sum unknown."""
    total: dict[str, Any] = {}
    for name in dict.fromkeys(name for usage in used for name in usage):
        values = [usage.get(name) for usage in used]
        numbers = [value for value in values if isinstance(value, int | float)]
        total[name] = sum(numbers) if len(numbers) == len(values) else None
    return total


def overall(outcomes: Iterable[ReviewOutcome]) -> ReviewOutcome:
    """FAIL beats NO_VERDICT beats PASS; no lens at all is no verdict."""
    seen = set(outcomes)
    if "FAIL" in seen:
        return "FAIL"
    return "PASS" if seen == {"PASS"} else "NO_VERDICT"


def _all_lenses(role: TeacherRole, results: Sequence[CheckResult]) -> list[str]:
    assigned = LENSES[role]
    return [*assigned, *dict.fromkeys(r.lens for r in results if r.lens not in assigned)]


def _lens(lens: str, results: Sequence[CheckResult]) -> LensResult:
    findings = [finding for result in results for finding in result.findings]
    reasons = [f"{result.name}: {result.no_verdict}" for result in results if result.no_verdict]
    if not results:
        reasons = ["no check of this lens was run"]
    outcome: ReviewOutcome = "NO_VERDICT" if reasons else "PASS"
    if any(finding.severity in STOPPING for finding in findings):
        outcome = "FAIL"
    return LensResult(
        lens=lens,
        outcome=outcome,
        by=", ".join(dict.fromkeys(result.by or "checks" for result in results)) or "checks",
        receipts=[receipt for result in results for receipt in result.receipts],
        findings=_capped(findings, lens),
        reason="; ".join(reasons)[:REASON_CHARACTERS_MAX],
        checks=[result.name for result in results],
        notes=[f"{result.name}: {note}" for result in results for note in result.notes],
    )


def _capped(findings: list[Finding], lens: str) -> list[Finding]:
    """The gravest first, at most FINDINGS_MAX, and one more that says how many were left out."""
    ranked = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    if len(ranked) <= FINDINGS_MAX:
        return ranked
    left_out = ranked[FINDINGS_MAX:]
    rest = Finding(
        section=lens,
        severity=left_out[0].severity,
        issue_class="more_findings",
        description=f"{len(left_out)} more findings like these were left out",
    )
    return [*ranked[:FINDINGS_MAX], rest]


# Two checks that speak of one criterion: the worse word stands.
_WORSE: Final = {"met": 0, "unjudged": 1, "unmet": 2}


def _criteria(results: Sequence[CheckResult]) -> dict[str, str]:
    marks: dict[str, str] = {}
    for result in results:
        for criterion, mark in result.criteria.items():
            if criterion not in marks or _WORSE.get(mark, 2) > _WORSE.get(marks[criterion], 2):
                marks[criterion] = mark
    return marks

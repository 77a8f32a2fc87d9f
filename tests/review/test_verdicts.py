"""Verdicts: computed, in whatever order the checks come, and never better than what they found."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from school.contracts import LENSES, CheckResult, Finding, Severity, TeacherRole
from school.review.verdicts import (
    FINDINGS_MAX,
    decide,
    finding_from,
    normalise_severity,
    overall,
    review_id,
)


def found(severity: Severity, issue_class: str = "x") -> Finding:
    return Finding(section="s", severity=severity, issue_class=issue_class, description="d")


def result(lens: str, *findings: Finding, no_verdict: str = "", **criteria: str) -> CheckResult:
    return CheckResult("check", lens, findings=list(findings), no_verdict=no_verdict, criteria=criteria)


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("CRITICAL", "CRITICAL"), ("Critical", "CRITICAL"), (" blocker ", "CRITICAL"), ("[High]", "HIGH"), ("major", "HIGH"),
        ("Medium:", "MEDIUM"), ("warning", "MEDIUM"), ("low", "LOW"), ("nit", "LOW"), ("**info**", "LOW"), ("P1", "HIGH"),
        ("", "HIGH"), ("whatever", "HIGH"), (None, "HIGH"), (7, "HIGH"), ("PASS_WITH_NITS", "HIGH"),
    ],
)  # fmt: skip
def test_severity_in_any_spelling(text: object, severity: str) -> None:
    assert normalise_severity(text) == severity


def test_an_unknown_severity_counts_as_high_and_says_so() -> None:
    finding = finding_from({"severity": "cosmic", "description": "it is off"}, "SECURITY")
    assert (finding.severity, finding.section) == ("HIGH", "SECURITY")
    assert "'cosmic' is unknown and counts as HIGH" in finding.description
    assert finding_from({"severity": "nit", "description": "off"}, "SECURITY").description == "off"
    assert finding_from({}, "SECURITY").issue_class == "unclassified"


def test_pass_needs_every_lens() -> None:
    both = [result("CORRECTNESS"), result("SECURITY", found("MEDIUM"), found("LOW"))]
    assert decide("cto", both).verdict == "PASS"
    assert decide("cto", both[:1]).verdict == ""
    assert decide("cto", both[:1]).reason == "SECURITY: no check of this lens was run"
    assert decide("cto", []).verdict == ""
    assert decide("coo", both).verdict == ""


def test_who_could_not_judge_makes_no_verdict_but_hides_no_fail() -> None:
    unsure = result("SECURITY", no_verdict="the tool is away")
    review = decide("cto", [result("CORRECTNESS"), unsure])
    assert (review.verdict, review.reason) == ("", "SECURITY: check: the tool is away")
    assert decide("cto", [result("CORRECTNESS", found("HIGH")), unsure]).verdict == "FAIL"
    assert (
        decide(
            "cto", [result("CORRECTNESS"), result("SECURITY", found("CRITICAL"), no_verdict="half")]
        ).verdict
        == "FAIL"
    )


def test_a_lens_beyond_the_assigned_counts_too() -> None:
    results = [result("COMPLETENESS"), result("STYLE", found("HIGH"))]
    assert decide("coo", results).verdict == "FAIL"
    assert [lens.lens for lens in decide("coo", results).lenses] == ["COMPLETENESS", "STYLE"]


def test_the_worse_word_on_a_criterion_stands() -> None:
    results = [
        result("COMPLETENESS", a="met", b="unjudged"),
        result("COMPLETENESS", a="unmet", b="met", c="met"),
    ]
    for order in (results, results[::-1]):
        assert decide("coo", order).criteria == {"a": "unmet", "b": "unjudged", "c": "met"}


def test_many_findings_are_capped_gravest_first_and_counted() -> None:
    findings = [found("LOW")] * (FINDINGS_MAX + 5) + [found("CRITICAL", "last")]
    lens = decide("coo", [result("COMPLETENESS", *findings)]).lenses[0]
    assert lens.findings[0].issue_class == "last"
    assert len(lens.findings) == FINDINGS_MAX + 1
    assert lens.findings[-1].description.startswith("6 more findings")
    assert (lens.outcome, lens.findings[-1].severity) == ("FAIL", "LOW")


def test_overall() -> None:
    assert overall([]) == "NO_VERDICT"
    for outcomes in itertools.permutations(["PASS", "NO_VERDICT", "FAIL"]):
        assert overall(outcomes) == "FAIL"
    assert overall(["PASS", "NO_VERDICT"]) == "NO_VERDICT"
    assert overall(["PASS", "PASS"]) == "PASS"


def test_review_id_is_of_bead_tree_and_role() -> None:
    ids = {
        review_id(bead, tree, role) for bead in ("a", "b") for tree in ("1", "2") for role in ("cto", "coo")
    }
    assert len(ids) == 8
    assert review_id("a", "1", "cto") == review_id("a", "1", "cto")
    assert review_id("a", "1cto", "") != review_id("a", "1", "cto")


severities = st.sampled_from(["CRITICAL", "HIGH", "MEDIUM", "LOW"])
results = st.lists(
    st.builds(
        CheckResult,
        name=st.just("check"),
        lens=st.sampled_from(["CORRECTNESS", "SECURITY", "COMPLETENESS"]),
        findings=st.lists(st.builds(found, severities), max_size=3),
        no_verdict=st.sampled_from(["", "", "why"]),
    ),
    max_size=6,
)


@given(role=st.sampled_from(["cto", "coo"]), checks=results)
def test_what_a_verdict_means(role: TeacherRole, checks: list[CheckResult]) -> None:
    """Held against the sentence of the contract, said the other way round."""
    verdict = decide(role, checks).verdict
    grave = any(finding.severity in ("CRITICAL", "HIGH") for check in checks for finding in check.findings)
    ran = {check.lens for check in checks}
    sure = not any(check.no_verdict for check in checks) and set(LENSES[role]) <= ran
    assert verdict == ("FAIL" if grave else "PASS" if sure else "")
    assert verdict == decide(role, checks[::-1]).verdict

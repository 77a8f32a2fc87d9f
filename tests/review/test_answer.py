"""What each kind of answer comes to, in one table: nothing that was not understood whole is a PASS."""

from __future__ import annotations

import json
from typing import Any

import pytest

from school.review.answer import FINDINGS_MAX, form, read, schema
from school.review.fence import Fence, visible

PASSED = '{"outcome": "PASS", "reason": "it holds", "findings": []}'


def answer(outcome: str = "PASS", *findings: dict[str, Any], **more: Any) -> str:
    return json.dumps({"outcome": outcome, "reason": "so it is", "findings": list(findings), **more})


def finding(severity: str = "HIGH", **more: Any) -> dict[str, Any]:
    return {"severity": severity, "issue_class": "bug", "description": "it breaks", **more}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (PASSED, "PASS"),
        (f"  \n{PASSED}\n", "PASS"),
        (f"```json\n{PASSED}\n```", "PASS"),
        (f"```\n{PASSED}\n```\n", "PASS"),
        (answer("FAIL", finding("CRITICAL")), "FAIL"),
        (answer("FAIL", finding("hIgH")), "FAIL"),
        # What the findings say counts, not the word before them.
        (answer("PASS", finding("High")), "FAIL"),
        (answer("PASS", finding("[blocker]")), "FAIL"),
        (answer("PASS", finding("medium")), "PASS"),
        (answer("PASS", finding("Nit.")), "PASS"),
        (answer("PASS", finding("catastrophic-ish")), "FAIL"),
        (answer("PASS", finding("")), "FAIL"),
        (answer("NO_VERDICT"), "NO_VERDICT"),
        (answer("NO_VERDICT", finding("HIGH")), "FAIL"),
    ],
)
def test_answers_that_are_understood(text: str, outcome: str) -> None:
    reading = read(text, section="model-security")
    assert (reading.wrong, reading.outcome) == ("", outcome)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "it is empty"),
        (" \n\t", "it is empty"),
        ("PASS", "not one JSON object"),
        ("The change looks good to me. Verdict: PASS", "not one JSON object"),
        ("FAIL, now PASS", "not one JSON object"),
        ('The diff says:\n+  return "PASS"\nso it passes.', "not one JSON object"),
        (f"+{PASSED}", "not one JSON object"),
        (f"> {PASSED}", "not one JSON object"),
        (f"Here it is:\n{PASSED}", "not one JSON object"),
        (f"Here it is:\n```json\n{PASSED}\n```", "not one JSON object"),
        (f"{PASSED}\nI hope that helps.", "something follows"),
        (f"{PASSED}\n{PASSED}", "something follows"),
        (f"{answer('FAIL', finding())}{PASSED}", "something follows"),
        (f"```json\n{PASSED}\n```\n```json\n{PASSED}\n```", "something follows"),
        (f"```json\n{PASSED}\n```\ndone", "not one JSON object"),
        (f"[{PASSED}]", "not one JSON object"),
        ('"PASS"', "not one JSON object"),
        (PASSED[:-1], "not whole JSON"),
        (PASSED[:30], "not whole JSON"),
        (f"```json\n{PASSED[:-1]}\n```", "not whole JSON"),
        (f"```json\n{PASSED}", "not one JSON object"),
        (PASSED.replace("}", ', "confidence": 1}'), "confidence: Extra inputs"),
        (answer("PASS", finding("LOW", score=1)), "findings.0.score: Extra inputs"),
        ('{"outcome": "FAIL", "outcome": "PASS", "findings": []}', "twice"),
        ('{"outcome": "PASS"}', "findings: Field required"),
        ('{"findings": []}', "outcome: Field required"),
        ('{"outcome": "pass", "findings": []}', "outcome: Input should be"),
        ('{"outcome": "APPROVED", "findings": []}', "outcome: Input should be"),
        ('{"outcome": "PASS", "findings": {}}', "findings: Input should be a valid list"),
        ('{"outcome": "PASS", "findings": ["bug"]}', "findings.0: Input should be"),
        ('{"outcome": "PASS", "findings": [], "reason": NaN}', "NaN is no JSON value"),
        (answer("PASS", {**finding(), "severity": 3}), "findings.0.severity: Input should be a valid string"),
        (answer("PASS", {"severity": "LOW", "issue_class": "x"}), "findings.0.description: Field required"),
        (answer("PASS", finding("LOW", description="")), "findings.0.description: String should have"),
        (answer("FAIL"), "FAIL, and no finding is CRITICAL or HIGH"),
        (answer("FAIL", finding("LOW")), "FAIL, and no finding is CRITICAL or HIGH"),
        ('{"outcome": "NO_VERDICT", "reason": " ", "findings": []}', "no reason is given"),
        (answer("PASS", *[finding("LOW")] * (FINDINGS_MAX + 1)), "findings: List should have"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, ""),
        ("[" * 1_000_001, "longer than"),
        (answer("PASS", criteria=[]), "criteria: Extra inputs"),
    ],
)
def test_answers_that_do_not_count(text: str, wrong: str) -> None:
    reading = read(text, section="model-security")
    assert reading.wrong
    assert wrong in reading.wrong
    assert (reading.outcome, reading.findings, reading.criteria) == ("NO_VERDICT", (), ())


def test_a_finding_keeps_what_was_said_and_who_said_it() -> None:
    said = finding("blocker!", citation="a.py:3", suggestion="mend it", description="x" * 5000)
    (found,) = read(answer("FAIL", said), section="model-security").findings
    assert (found.section, found.severity, found.issue_class) == ("model-security", "CRITICAL", "bug")
    assert (found.citation, found.suggestion, len(found.description)) == ("a.py:3", "mend it", 4000)
    (odd,) = read(answer("PASS", finding("meh")), section="s").findings
    assert odd.description == "it breaks (severity 'meh' is unknown and counts as HIGH)"


MET = {"id": "a1", "state": "met", "evidence": "`x = 1`"}


@pytest.mark.parametrize(
    ("criteria", "outcome", "wrong"),
    [
        ([MET, {**MET, "id": "a2"}], "PASS", ""),
        ([MET, {**MET, "id": "a2", "state": "unmet"}], "FAIL", ""),
        ([MET, {**MET, "id": "a2", "state": "unjudged"}], "PASS", ""),
        ([MET], "", "exactly one entry for each of a1, a2"),
        ([MET, MET, {**MET, "id": "a2"}], "", "exactly one entry"),
        ([MET, {**MET, "id": "a3"}], "", "exactly one entry"),
        ([MET, {**MET, "id": "a2", "evidence": " "}], "", "a2: evidence is empty"),
        ([MET, {**MET, "id": "a2", "state": "Met"}], "", "criteria.1.state"),
    ],
)
def test_criteria(criteria: list[dict[str, str]], outcome: str, wrong: str) -> None:
    reading = read(answer(criteria=criteria), section="s", criteria=["a1", "a2"])
    if wrong:
        assert wrong in reading.wrong
    else:
        assert (reading.wrong, reading.outcome) == ("", outcome)


def test_criteria_that_are_asked_about_must_be_answered() -> None:
    assert "criteria: Field required" in read(PASSED, section="s", criteria=["a1"]).wrong


def test_the_form_is_the_schema_in_words() -> None:
    for criteria in ([], ["a1"]):
        for key in schema(criteria)["properties"]:
            assert f'"{key}"' in form(criteria)
    assert schema([])["additionalProperties"] is False


# --- fences -----------------------------------------------------------------------------------------------


def test_a_mark_is_in_none_of_the_data_and_new_each_time() -> None:
    marks = {Fence.around(["abc"]).mark for _ in range(50)}
    assert len(marks) == 50
    fence = Fence("0123456789abcdef")
    assert fence("diff", "a\n\tb") == "<<<0123456789abcdef diff\na\n\tb\n0123456789abcdef>>>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tab\tand\nline", "tab\tand\nline"),
        ("é 漢 😀", "é 漢 😀"),
        ("a\u202eb", "a\\u{202E}b"),
        ("a\u2066b", "a\\u{2066}b"),
        ("a\u200bb", "a\\u{200B}b"),
        ("\x1b[2J\r", "\\u{001B}[2J\\u{000D}"),
        ("\U000e0041", "\\u{E0041}"),
        ("\ud800", "\\u{D800}"),
        ("\ufeffa\x00", "\\u{FEFF}a\\u{0000}"),
    ],
)
def test_what_hides_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown

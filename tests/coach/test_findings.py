"""Findings: a dict or one JSON object, in a fence or bare, and nothing else; bounded, and known again by their digest."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from school.coach.findings import SCHEMA, Finding, Verdict, parse, parse_object

GOOD = {"verdict": "finding", "severity": "blocker", "title": "T", "body": "B"}


@pytest.mark.parametrize(
    "said",
    [
        GOOD,
        json.dumps(GOOD),
        f"\n {json.dumps(GOOD, indent=2)}\n",
        f"I looked.\n```json\n{json.dumps(GOOD, indent=1)}\n```\nThat is all.",
        f"```\n{json.dumps(GOOD)}\n```",
    ],
)
def test_what_is_a_finding(said: object) -> None:
    assert parse(said) == Verdict(Finding("blocker", "T", "B"))


@pytest.mark.parametrize(
    "said",
    [
        "",
        "The tests were not run, which is a blocker.",
        "I think: " + json.dumps(GOOD),
        json.dumps(GOOD) + " and more",
        f"```json\n{json.dumps(GOOD)}\n```\n```json\n{json.dumps(GOOD)}\n```",
        f"```json\n{json.dumps(GOOD)}",
        json.dumps([GOOD]),
        json.dumps({**GOOD, "severity": "catastrophe"}),
        json.dumps({**GOOD, "title": "  "}),
        json.dumps({**GOOD, "title": ["T"]}),
        json.dumps({**GOOD, "body": 7}),
        json.dumps({"severity": "blocker", "title": "T", "body": "B"}),
        json.dumps({"verdict": "approve"}),
        '{"verdict": NaN}',
        '{"verdict": "ok"',
        "{" * 5000,
        '{"a":' * 3000,
        "null",
        None,
        7,
        b"{}",
        '{"verdict": "ok", "x": "' + "y" * 70_000 + '"}',
        "\ud800",
    ],
)
def test_what_is_none(said: object) -> None:
    assert parse(said) is None


def test_nothing_to_object_to() -> None:
    assert parse('{"verdict": "ok"}') == Verdict(None)
    assert parse('{"verdict": "ok", "title": "T"}') == Verdict(None)


def test_bounds_are_ours_not_the_models() -> None:
    verdict = parse({**GOOD, "title": "t\n" * 500, "body": "b" * 5000, "evidence": "e" * 5000})
    assert verdict is not None
    assert verdict.finding is not None
    assert len(verdict.finding.title) == 80
    assert "\n" not in verdict.finding.title
    assert (len(verdict.finding.body), len(verdict.finding.evidence)) == (600, 300)


def test_the_digest_is_of_severity_title_and_evidence() -> None:
    one = Finding("blocker", "Run the Tests", "body", "in  turn 3")
    assert one.digest == Finding("blocker", " run the  tests", "other body", "In turn 3").digest
    assert one.digest != Finding("corrective", "Run the Tests", "body", "in  turn 3").digest
    assert one.digest != Finding("blocker", "Run the Tests", "body", "in turn 4").digest
    assert Finding("note", "a", "", "b c").digest != Finding("note", "a b", "", "c").digest


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.text() | JSON | st.fixed_dictionaries({"verdict": JSON, "severity": JSON, "title": JSON, "body": JSON})
)
def test_nonsense_never_raises_and_findings_are_whole(said: Any) -> None:
    for form in (said, repr(said), f"```\n{said}\n```"):
        verdict = parse(form)
        if verdict is not None and verdict.finding is not None:
            assert 0 < len(verdict.finding.title) <= 80
            assert 0 < len(verdict.finding.body) <= 600
        parse_object(form)


def test_the_schema_that_is_sent_is_one_and_accepts_what_we_accept() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(GOOD, SCHEMA)
    jsonschema.validate({"verdict": "ok"}, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"verdict": "finding", "title": "T"}, SCHEMA)

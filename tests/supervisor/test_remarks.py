"""What a run says of accepted work that was objected to all the same: one short line, and nothing where there is nothing."""

from __future__ import annotations

from typing import Any

import pytest

from school.supervisor.board import refused, remarks


def found(*kinds: str) -> list[dict[str, str]]:
    return [dict(zip(("severity", "issue_class"), kind.split(), strict=True)) for kind in kinds]


def tried(*lines: str) -> dict[str, Any]:
    return {"lenses": [{"receipts": [{"refused": list(lines)}, {"refused": None}, {}]}]}


@pytest.mark.parametrize(
    ("bag", "said"),
    [
        ({}, ""),
        ({"findings": [], "cto_review": {}, "coo_review": None}, ""),
        ({"findings": found("LOW flaky")}, "with 1 finding: LOW flaky"),
        (
            {"findings": found("LOW flaky", "MEDIUM dangerous_code", "LOW flaky")},
            "with 3 findings: MEDIUM dangerous_code, LOW flaky (2)",
        ),
        (
            {"findings": found("LOW a", "LOW b", "MEDIUM c", "LOW d")},
            "with 4 findings: MEDIUM c, LOW a, LOW b, …",
        ),
        ({"cto_review": tried("cat: /x: denied")}, "with 1 thing that its checks tried or left"),
        (
            {"findings": found("LOW flaky"), "cto_review": tried("a", "b"), "coo_review": tried("b", "c")},
            "with 1 finding: LOW flaky and 3 things that its checks tried or left",
        ),
    ],
)
def test_what_is_said_of_accepted_work(bag: dict[str, Any], said: str) -> None:
    assert remarks(bag) == said


def test_the_same_attempt_of_two_checks_counts_once() -> None:
    assert refused({"cto_review": tried("a", "a"), "coo_review": tried("a")}) == 1

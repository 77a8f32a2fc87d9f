"""A PASS stands on receipts of the judged tree; one of another tree, commit or side counts as none."""

from __future__ import annotations

from typing import Any

import pytest

from school.contracts import LensResult, Receipt, Review
from school.review.filed import without_evidence

HEAD, TREE = "a" * 40, "b" * 40
PYTEST = ["python3", "-m", "pytest"]
CHECK = ["python3", "-c", "assert True"]
BAG: dict[str, Any] = {
    "head_commit": HEAD,
    "tree": TREE,
    "files_changed": ["calc/core.py"],
    "claim": "done",
    "terms": {"verify": [PYTEST, ["ruff", "check"]]},
    "acceptance": [{"id": "ac1", "text": "t", "check": CHECK}, {"id": "ac2", "text": "t", "check": []}],
}


def passed(*receipts: Receipt) -> Review:
    lenses = [LensResult(lens="CORRECTNESS", outcome="PASS", receipts=list(receipts))]
    return Review(verdict="PASS", tree=TREE, lenses=lenses)


def receipt(argv: list[str], **fields: Any) -> Receipt:
    said = {"at": "head", "commit": HEAD, "tree": TREE, "outcome": "passed", **fields}
    return Receipt(check="verification", argv=argv, **said)


def test_a_pass_with_every_receipt_stands() -> None:
    assert without_evidence(BAG, "cto", passed(receipt(PYTEST), receipt(["ruff", "check"]))) == ""
    assert without_evidence(BAG, "coo", passed(receipt(CHECK))) == ""


@pytest.mark.parametrize(
    "other",
    [
        {"tree": "c" * 40},
        {"commit": "c" * 40},
        {"tree": ""},
        {"at": "base"},
        {"outcome": "not_run"},
        {"argv": ["python3", "-m", "pytest", "-k", "one"]},
    ],
)
@pytest.mark.parametrize(("role", "argv"), [("cto", PYTEST), ("coo", CHECK)])
def test_a_receipt_of_something_else_counts_as_none(
    role: str, argv: list[str], other: dict[str, Any]
) -> None:
    made = receipt(**{"argv": argv, **other})
    said = without_evidence(BAG, role, passed(made, receipt(["ruff", "check"])))
    assert said == f"passes what it never ran: {' '.join(argv)}"


def test_what_was_not_due_needs_no_receipt() -> None:
    assert without_evidence({**BAG, "files_changed": []}, "cto", passed()) == ""
    assert without_evidence({**BAG, "claim": "no_change"}, "cto", passed()) == ""
    assert without_evidence({**BAG, "claim": "no_change"}, "coo", passed()) != ""
    assert without_evidence(BAG, "cto", Review(verdict="FAIL", tree=TREE)) == ""


@pytest.mark.parametrize(
    ("terms", "checks", "says"),
    [
        ({"reviewers": {"cto": {"model": "m"}}}, [], "model-correctness, model-security"),
        ({"reviewers": {"cto": {"model": "m"}}}, ["model-correctness"], "model-security"),
        ({"reviewers": {"cto": {"model": "m"}}}, ["model-correctness", "model-security"], ""),
        ({"reviewers": {"coo": {"model": "m"}}}, [], ""),
        ({"reviewers": {"cto": {"agent": None, "model": ""}}}, [], ""),
    ],
)
def test_a_pass_whose_model_was_never_asked_does_not_stand(
    terms: dict[str, Any], checks: list[str], says: str
) -> None:
    review = passed()
    review.lenses[0].checks = checks
    said = without_evidence({**BAG, "terms": terms}, "cto", review)
    assert said == (f"passes what its model was never asked: {says}" if says else "")

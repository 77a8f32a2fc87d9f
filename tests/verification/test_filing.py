"""A review's receipts in the evidence ledger: what ran on a clean tree of base or head, and for exactly that tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from school.contracts import Receipt
from school.settings import Settings
from school.verification.evidence import Ledger
from school.verification.filing import file_receipts
from tests.support import git

PYTEST = ["python3", "-m", "pytest"]


@pytest.fixture
def bag(repo: Path) -> dict[str, Any]:
    """Two commits: base, and the head that is checked out."""
    base = git(repo, "rev-parse", "HEAD")
    (repo / "calc" / "core.py").write_text("x = 1\n")
    git(repo, "commit", "-qam", "Change it")
    return {
        "bead": "coder-python-00000001",
        "base_commit": base,
        "head_commit": git(repo, "rev-parse", "HEAD"),
    }


def made(
    repo: Path, bag: dict[str, Any], at: str = "head", outcome: str = "passed", **fields: Any
) -> Receipt:
    commit = bag[f"{at}_commit"]
    said = {
        "check": "verification",
        "argv": PYTEST,
        "outcome": outcome,
        "exit_code": 0 if outcome == "passed" else 1,
        "output": "1 passed",
        "commit": commit,
        "tree": git(repo, "rev-parse", f"{commit}^{{tree}}"),
    }
    return Receipt(at=at, **{**said, **fields})  # type: ignore[arg-type]


def standing(repo: Path, school: Settings) -> tuple[str, str]:
    with Ledger(school.evidence_db) as ledger:
        found = ledger.status("coder-python-00000001", repo, canonical=["python3 -m pytest"])
        return found.status, found.scope


def test_a_pass_at_head_speaks_for_head(repo: Path, school: Settings, bag: dict[str, Any]) -> None:
    receipts = [made(repo, bag), made(repo, bag, "base", "failed")]
    assert file_receipts(bag, repo, receipts, school.evidence_db) == 2
    assert standing(repo, school) == ("passed", "full")
    with Ledger(school.evidence_db) as ledger:
        events = ledger.events(bag["bead"], repo)
    assert [(event.commit, event.status) for event in events] == [
        (bag["head_commit"], "passed"),
        (bag["base_commit"], "failed"),
    ]
    assert events[0].tree == git(repo, "rev-parse", "HEAD^{tree}")
    assert (events[0].kind, events[0].exit_code, events[0].output_summary) == ("test", 0, "1 passed")


def test_it_speaks_for_nothing_else(repo: Path, school: Settings, bag: dict[str, Any]) -> None:
    file_receipts(bag, repo, [made(repo, bag)], school.evidence_db)
    (repo / "calc" / "core.py").write_text("x = 2\n")
    assert standing(repo, school) == ("unverified", "")


def test_a_receipt_of_another_tree_says_nothing_of_this_one(
    repo: Path, school: Settings, bag: dict[str, Any]
) -> None:
    file_receipts(bag, repo, [made(repo, bag, tree="c" * 40)], school.evidence_db)
    assert standing(repo, school) == ("unverified", "")


@pytest.mark.parametrize(
    "fields",
    [
        {"check": "wrong_tree"},
        {"check": "criterion ac1 with the sources spoiled"},
        {"check": "criterion ac1 with base's tests"},
        {"check": "tampering: base's tests at head"},
        {"cached": True},
        {"outcome": "not_run"},
        {"outcome": "no_tests"},
        {"commit": "c" * 40},
        {"tree": ""},
    ],
)
def test_what_is_no_evidence_of_a_commit(
    repo: Path, school: Settings, bag: dict[str, Any], fields: dict[str, Any]
) -> None:
    receipt = made(repo, bag).model_copy(update=fields)
    assert file_receipts(bag, repo, [receipt], school.evidence_db) == 0
    assert not school.evidence_db.exists()


def test_a_criterion_and_one_that_never_ended(repo: Path, school: Settings, bag: dict[str, Any]) -> None:
    receipts = [
        made(repo, bag, check="criterion ac1 at head"),
        made(repo, bag, outcome="timed_out", exit_code=None, argv=["make", "test"]),
    ]
    assert file_receipts(bag, repo, receipts, school.evidence_db) == 2
    assert standing(repo, school) == ("failed", "full")


def test_a_ledger_that_cannot_be_written_changes_no_review(
    repo: Path, school: Settings, bag: dict[str, Any]
) -> None:
    school.evidence_db.mkdir(parents=True)
    assert file_receipts(bag, repo, [made(repo, bag)], school.evidence_db) == 0

"""Teachers with the checks that they really have, on a real project: good work passes, bad work does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.contracts import TEACHER_ROLES
from school.settings import Settings
from teacher import TeacherWorktree, checks_for
from tests.support import CALC_FILES, git
from tests.teacher_support import hand_over

VERIFY = [["python3", "-m", "unittest", "discover", "-v"]]
RAISES = {
    "calc/core.py": CALC_FILES["calc/core.py"].replace(
        "    return [int(part)",
        '    if not text.strip():\n        raise ValueError("nothing to parse")\n    return [int(part)',
    ),
    "tests/test_parse.py": (
        "import unittest\n\nfrom calc import parse\n\n\nclass ParseTest(unittest.TestCase):\n"
        "    def test_empty(self):\n        with self.assertRaises(ValueError):\n            parse('')\n"
    ),
}
CRITERION = [
    {"id": "a1", "text": "parse('') raises", "check": ["python3", "-m", "unittest", "tests.test_parse"]}
]


def judged(repo: Path, files: dict[str, str], **fields: Any) -> dict[str, Any]:
    fields = {"acceptance": CRITERION, "terms": {"verify": VERIFY, "allow": []}} | fields
    bead = hand_over(repo, files=files, **fields)
    for role in TEACHER_ROLES:
        TeacherWorktree(role).review(bead)
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    return bag


def classes(bag: dict[str, Any]) -> set[str]:
    return {
        finding["issue_class"] for finding in bag["findings"] if finding["severity"] in ("CRITICAL", "HIGH")
    }


def test_good_work_is_accepted_on_evidence_of_both(school: Settings, repo: Path) -> None:
    before = git(repo, "for-each-ref"), git(repo, "status", "--porcelain=v2", "--branch")
    bag = judged(repo, RAISES)
    assert (bag["cto_verdict"], bag["coo_verdict"], bag["accepted"]) == ("PASS", "PASS", True), bag[
        "cto_review"
    ]
    assert bag["ac_met"] == ["parse('') raises"]
    for role in TEACHER_ROLES:
        receipts = [receipt for lens in bag[f"{role}_review"]["lenses"] for receipt in lens["receipts"]]
        assert any(receipt["at"] == "head" and receipt["outcome"] == "passed" for receipt in receipts), role
    assert (git(repo, "for-each-ref"), git(repo, "status", "--porcelain=v2", "--branch")) == before


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({**RAISES, "calc/core.py": RAISES["calc/core.py"].replace("left + right", "left - right")}, "tests_broken"),
        ({**RAISES, "tests/test_core.py": ""}, "test_deleted"),
        ({"calc/core.py": CALC_FILES["calc/core.py"] + "\n# done\n", "tests/test_parse.py": RAISES["tests/test_parse.py"]}, "criterion_unmet"),
    ],
)  # fmt: skip
def test_bad_work_is_not(school: Settings, repo: Path, files: dict[str, str], reason: str) -> None:
    bag = judged(repo, files)
    assert "FAIL" in (bag["cto_verdict"], bag["coo_verdict"]), (bag["cto_review"], bag["coo_review"])
    assert bag["accepted"] is False
    assert reason in classes(bag)


@pytest.mark.parametrize("role", TEACHER_ROLES)
def test_every_lens_has_a_check(role: str) -> None:
    lenses = {"cto": {"CORRECTNESS", "SECURITY"}, "coo": {"COMPLETENESS"}}[role]
    checks = checks_for(role)  # type: ignore[arg-type]
    assert {check.lens for check in checks} == lenses
    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    if role == "cto":
        assert names.index("verification") < names.index("tampering")

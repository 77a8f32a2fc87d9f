"""What ``show`` tells of the evidence: every check with its receipt, and findings that can be read."""

from __future__ import annotations

import re
from typing import Any

from school.status.paper import plain, sections_of

RECEIPT = {
    "check": "verification",
    "argv": ["python3", "-m", "pytest", "-k", "a b"],
    "at": "head",
    "outcome": "failed",
    "exit_code": 1,
    "tests": {"passed": 3, "failed": 1, "errors": 0},
    "scope": "targeted",
    "commit": "c" * 40,
    "tree": "d" * 40,
    "environment": "e" * 32,
    "output_sha256": "f" * 64,
    "duration_s": 3.21,
}
FINDING = {
    "severity": "HIGH",
    "issue_class": "tests_broken",
    "description": "It broke.",
    "citation": "$ pytest\n" + "\n".join(f"line {number}" for number in range(40)),
}


def shown(**bag: Any) -> str:
    lens = {"lens": "CORRECTNESS", "outcome": "NO_VERDICT", "receipts": [RECEIPT], "findings": [FINDING]}
    record = {"bead": "coder-python-00000001", "cto_review": {"lenses": [lens]}, **bag}
    return plain(sections_of("show", record))


def test_every_check_is_shown_with_its_receipt():
    lines = shown().splitlines()
    row = next(line for line in lines if "verification: " in line)
    assert re.split(r" {2,}", row) == [
        "targeted", "failed", "CTO", "head", "1", "3 passed, 1 failed", "3.2 s", "cccccccc/dddddddd/eeeeeeee", "ffffffff",
        "verification: python3 -m pytest -k 'a b'",
    ]  # fmt: skip
    assert lines[lines.index(row) - 2] == "receipts (on: commit/tree/environment)"


def test_a_failed_check_that_no_finding_cites_shows_how_it_ended():
    at_base = {**RECEIPT, "at": "base", "output": "\n".join(f"line {number}" for number in range(40))}
    passed = {**RECEIPT, "outcome": "passed", "output": "all is well"}
    lens = {
        "lens": "CORRECTNESS",
        "outcome": "NO_VERDICT",
        "receipts": [at_base, {**at_base, "at": "head"}, passed],
    }
    said = shown(cto_review={"lenses": [lens]})
    lines = said[said.index("CTO targeted failed at base: `python3 -m pytest -k 'a b'`") :].splitlines()
    assert [lines[1], lines[12]] == ["line 28", "line 39"]
    assert said.count("line 39") == 1
    assert "all is well" not in said
    assert "line 39" not in shown(cto_review={"lenses": [{**lens, "findings": [FINDING]}]}, findings=[{}])
    wanted = {**lens, "outcome": "PASS", "receipts": [{**at_base, "check": "wrong_tree"}]}
    assert "wrong_tree, made to fail: python3 -m pytest -k 'a b'" in shown(cto_review={"lenses": [wanted]})
    assert "line 39" not in shown(cto_review={"lenses": [wanted]})


def test_the_students_own_evidence_and_what_it_was_told_are_shown():
    said = shown(
        evidence={"status": "unverified", "words": "unverified: nothing ran"},
        guidance=[
            {"by": "verify_on_stop", "turn": 1, "followed": False, "text": "Run\nthe tests. " + "x" * 500},
            {"by": "governor", "followed": None, "text": "Stop."},
        ],
    )
    assert re.search(r"(?m)^evidence +unverified: nothing ran$", said)
    assert re.search(r"(?m)^verify_on_stop +1 +no +Run the tests. x+$", said)
    assert re.search(r"(?m)^governor +- +- +Stop\.$", said)
    assert max(map(len, said.splitlines())) < 200


def test_what_was_tried_or_left_running_is_shown_with_whose_it_is():
    tried = "refused while confined: rm: Read-only file system"
    left = "left running when it had ended, and ended then: process 7: sleep 300"
    receipt = {**RECEIPT, "refused": [tried, left]}
    lens = {"lens": "CORRECTNESS", "outcome": "PASS", "receipts": [receipt, receipt]}
    said = shown(notes=[left], coo_review={"lenses": [lens]})
    assert re.search(rf"(?m)^student +{re.escape(left)}$", said)
    assert re.search(rf"(?m)^COO's check at head +{re.escape(left)}$", said)
    assert said.count(left) == 2
    assert said.count(tried) == 1
    assert "noted:" not in shown()


def test_findings_are_shown_before_both_reviews_are_in_and_once_after():
    assert shown(findings=[]).count("It broke.") == 1
    assert shown(findings=[FINDING]).count("It broke.") == 1


def test_a_long_citation_keeps_its_lines_its_command_and_its_end():
    said = shown(findings=[FINDING])
    assert "\\n" not in said
    lines = [line.strip() for line in said.splitlines()]
    assert lines[lines.index("$ pytest") + 1] == "…"
    assert lines[lines.index("line 30") + 9] == "line 39"
    assert "line 29" not in lines
    short = shown(findings=[{**FINDING, "citation": "a.py:1"}])
    assert "It broke. [a.py:1]" in short


def test_a_working_tree_is_named_only_while_it_can_be_there():
    places = {"worktree": "/w/study-coder-00000001", "ref": "refs/school/coder-python-00000001"}
    for state, there in (("RUNNING", True), ("FAILED", True), ("BLOCKED", False), ("DISPOSED", False)):
        said = shown(state=state, **places)
        assert (places["worktree"] in said) is there
        assert places["ref"] in said

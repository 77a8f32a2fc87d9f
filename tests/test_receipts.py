"""A receipt in words: everything that makes it one, scope first, and nothing that it does not say."""

from __future__ import annotations

from school.contracts import Receipt
from school.records.receipts import COLUMNS, line, row

WHOLE = Receipt(
    check="verification", argv=["python3", "-m", "pytest", "-k", "a b"], scope="targeted", at="base", outcome="failed",
    exit_code=1, commit="c" * 40, tree="d" * 40, environment="e" * 32, duration_s=12.345, output_sha256="f" * 64,
    tests={"passed": 3, "failed": 1, "errors": 0, "skipped": 2}, cached=True,
).model_dump(mode="json")  # fmt: skip


def test_a_line_says_it_all() -> None:
    assert line(WHOLE) == (
        "targeted failed at base: `python3 -m pytest -k 'a b'` (verification; exit 1; 3 passed, 1 failed, 2 skipped; "
        "12.3 s, from an earlier run; commit cccccccccccc; tree dddddddddddd; environment eeeeeeeeeeee; "
        "output ffffffffffff)"
    )


def test_a_line_of_little_says_little() -> None:
    assert line({"check": "setup", "outcome": "failed"}) == "full failed at head: (setup)"
    assert line({}) == "full  at head: ()"


def test_a_row_has_its_columns() -> None:
    assert dict(zip(COLUMNS, row("CTO", WHOLE), strict=True)) == {
        "scope": "targeted", "outcome": "failed", "by": "CTO", "at": "base", "exit": "1",
        "tests": "3 passed, 1 failed, 2 skipped", "took": "12.3 s", "on": "cccccccc/dddddddd/eeeeeeee",
        "output": "ffffffff", "check": "verification: python3 -m pytest -k 'a b'",
    }  # fmt: skip
    assert row("COO", {"check": "x"}) == ("full", "", "COO", "", "-", "-", "-", "-/-/-", "-", "x: ")

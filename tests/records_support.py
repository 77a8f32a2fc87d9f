"""Bags for tests: what a leaf hands over, and what a teacher says of it."""

from __future__ import annotations

from typing import Any

import bookbag
from school.contracts import LENSES, Finding, LensResult, Receipt, Review, TeacherRole

TREE = "a" * 40
FIELDS: dict[str, Any] = {
    "task": "parse('') must raise ValueError",
    "student": "coder",
    "domain": "python",
    "difficulty": "easy",
}


def running(bead: str, **fields: Any) -> dict[str, Any]:
    return bookbag.write_bookbag(bead, **{**FIELDS, "status": "running", **fields})


def written(bead: str, **fields: Any) -> dict[str, Any]:
    """Handed over by its leaf."""
    running(bead, **fields)
    bag = bookbag.locked_update_bookbag(
        bead, by="leaf", status="open", tree=TREE, head_commit="b" * 40, claim="done"
    )
    assert bag is not None
    return bag


def review(role: TeacherRole, verdict: str = "PASS", *, tree: str = TREE, **fields: Any) -> dict[str, Any]:
    finding = Finding(section="t", severity="HIGH", issue_class="broken", description="it is broken")
    lenses = [
        LensResult(
            lens=lens,
            outcome=verdict,
            findings=[finding] if verdict == "FAIL" else [],
            receipts=[Receipt(check=f"{role}-check", argv=["true"], outcome="passed", exit_code=0)],
        )
        for lens in LENSES[role]
    ]
    return Review(verdict=verdict, tree=tree, review_id="r", lenses=lenses, attempts=1, **fields).model_dump(
        mode="json"
    )


def give(bead: str, role: TeacherRole, verdict: str = "PASS", **fields: Any) -> dict[str, Any] | None:
    """The verdict of *role*, entered as the teacher enters it."""
    said = {f"{role}_verdict": verdict, f"{role}_review": review(role, verdict, **fields)}
    return bookbag.update_bookbag(bead, lambda bag: bag | said, by=role)

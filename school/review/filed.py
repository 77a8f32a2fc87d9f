"""The finished reviews as they lie on disk: what a verdict rests on.

A bag that says PASS is not believed by whoever acts on it: ``filed_review`` reads the file that its teacher wrote
before entering the verdict, and takes only one that is about exactly this bead, tree and commit, and whose PASS brings the
receipts, and the models' answers, that such a review always has (``without_evidence``). ``filed_refusal`` says, by the two files alone, why a bag
cannot count as accepted. What it does not promise: a file forged with receipts and all, by a process with the user's own
rights, looks like any other.

Reads only; errors are data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from school.contracts import LENSES, TEACHER_ROLES, Review, ReviewFile
from school.errors import SchoolError
from school.records.derive import acceptance_refusal
from school.review.verdicts import review_id
from school.settings import Settings
from school.system import files


def filed_review(bag: Mapping[str, Any], role: str, settings: Settings) -> tuple[ReviewFile | None, str]:
    """The review file of *role* for *bag*, or None and why there is none that counts."""
    bead, tree = str(bag.get("bead")), str(bag.get("tree"))
    name = review_id(bead, tree, role)
    try:
        raw = files.read_json(settings.reviews_dir / f"{name}.json")
        review = None if raw is None else ReviewFile.model_validate(raw)
    except (ValueError, ValidationError, SchoolError) as error:
        return None, f"the {role}'s review file {name} cannot be read: {error}"
    if review is None:
        return None, f"there is no review file of the {role} ({name})"
    said = {
        "review_id": (review.review_id, name),
        "bead": (review.bead, bead),
        "role": (review.role, role),
        "tree": (review.tree, tree),
        "head_commit": (review.head_commit, str(bag.get("head_commit"))),
        "review.tree": (review.review.tree, tree),
        "review.verdict": (review.review.verdict, review.verdict),
    }
    wrong = [f"{key} {value!r} instead of {due!r}" for key, (value, due) in said.items() if value != due]
    if wrong:
        return None, f"the {role}'s review file {name} is about something else: {'; '.join(wrong)}"
    if why := without_evidence(bag, role, review.review):
        return None, f"the {role}'s review file {name} {why}"
    return review, ""


def without_evidence(bag: Mapping[str, Any], role: str, review: Review) -> str:
    """Which check of its own a PASS of *role* has no receipt of, on what *bag* hands over; '' when it has all."""
    if review.verdict != "PASS":
        return ""
    judged = (bag.get("head_commit"), bag.get("tree"))
    receipts = [receipt for lens in review.lenses for receipt in lens.receipts]
    ran = [
        r.argv for r in receipts if (r.at, r.commit, r.tree) == ("head", *judged) and r.outcome != "not_run"
    ]
    for argv in _due(bag, role):
        if argv not in ran:
            return f"passes what it never ran: {' '.join(argv)}"
    asked = {name for lens in review.lenses for name in lens.checks}
    if unasked := [name for name in models_due(bag, role) if name not in asked]:
        return f"passes what its model was never asked: {', '.join(unasked)}"
    return ""


def models_due(bag: Mapping[str, Any], role: str) -> list[str]:
    """The checks by a model that a review of *role* has where the bag names a reviewer for it."""
    terms = ((bag.get("terms") or {}).get("reviewers") or {}).get(role) or {}
    if not (terms.get("agent") or terms.get("model")):
        return []
    return [f"model-{lens.lower()}" for lens in LENSES[role]]  # type: ignore[index]


def _due(bag: Mapping[str, Any], role: str) -> list[list[str]]:
    if role == "coo":
        return [list(c["check"]) for c in bag.get("acceptance") or [] if c.get("check")]
    changed = bag.get("files_changed") and bag.get("claim") != "no_change"
    return [list(argv) for argv in (bag.get("terms") or {}).get("verify") or []] if changed else []


def unfiled(bag: Mapping[str, Any], settings: Settings) -> str:
    """Why a verdict of *bag* does not count: it has no review file that says the same; '' when both have."""
    for role in TEACHER_ROLES:
        review, why = filed_review(bag, role, settings)
        said = bag.get(f"{role}_verdict")
        if review is None or review.verdict != said:
            return why or f"the {role}'s review file says {review.verdict}, the record {said}"  # type: ignore[union-attr]
    return ""


def filed_refusal(bag: Mapping[str, Any], settings: Settings) -> str:
    """Why *bag* cannot count as accepted by its review files; '' when it can, whatever the bag itself says."""
    judged: dict[str, Any] = dict(bag)
    for role in TEACHER_ROLES:
        review, why = filed_review(bag, role, settings)
        if review is None:
            return why
        judged[f"{role}_review"], judged[f"{role}_verdict"] = review.review.model_dump(), review.verdict
    return acceptance_refusal(judged)

"""What follows from a bookbag: what its two reviews add up to, and what is wrong with it. Pure.

``derive`` is run by whichever locked write completes the two verdicts, and again by whoever delivers: the same
record always gives the same answer. ``problems`` is what ``bookbag.validate_bookbag`` returns.

What it does not promise: that a review file exists for a verdict, or that the commits do; those are looked up by
whoever acts on the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from school.contracts import DIFFICULTIES, LENSES, OUTPUT_BYTES_MAX, SCHEMA_VERSION, TEACHER_ROLES, Bookbag
from school.records import receipts
from school.records.moves import BEAD_NAME, REQUIRED
from school.system import clock

# Enough to see what ran, short enough for a field that people read; the receipts themselves are in the reviews.
_VERIFICATION_LINES_MAX: Final = 200


def derive(bag: Mapping[str, Any]) -> dict[str, Any]:
    """``accepted``, and where reviews are there ``lens``, ``findings``, ``ac_met`` and ``verification``."""
    derived: dict[str, Any] = {"accepted": not acceptance_refusal(bag)}
    lenses = list(_lenses(bag))
    if lenses:
        derived["lens"] = ", ".join(str(lens["lens"]) for lens in lenses)
        derived["findings"] = [finding for lens in lenses for finding in lens.get("findings") or []]
        derived["verification"] = _verification(lenses)
        derived["ac_met"] = _met(bag)
    return derived


def acceptance_refusal(bag: Mapping[str, Any]) -> str:
    """Why this record cannot count as accepted; empty when it can. A claim of ``no_change`` is never *accepted*."""
    if (bag.get("status") or "open") != "open":
        return f"its status is {bag.get('status')}"
    for role in TEACHER_ROLES:
        if reason := _review_refusal(bag, role):
            return reason
    if bag.get("claim") == "no_change":
        return "it claims that no change is due"
    return ""


def outcome_of(bag: Mapping[str, Any]) -> str:
    """How a reviewed record ends: ``accepted``, ``no_change`` or ``rejected``; empty while a verdict is missing."""
    if not (bag.get("cto_verdict") and bag.get("coo_verdict")):
        return ""
    if any(_review_refusal(bag, role) for role in TEACHER_ROLES):
        return "rejected"
    return "no_change" if bag.get("claim") == "no_change" else "accepted"


def _review_refusal(bag: Mapping[str, Any], role: str) -> str:
    review = bag.get(f"{role}_review") or {}
    if bag.get(f"{role}_verdict") != "PASS" or review.get("verdict") != "PASS":
        return f"no PASS from the {role}"
    if not bag.get("tree") or review.get("tree") != bag.get("tree"):
        return f"the {role} judged another tree than the record's"
    passed = {lens.get("lens") for lens in review.get("lenses") or [] if lens.get("outcome") == "PASS"}
    if missing := [lens for lens in LENSES[role] if lens not in passed]:  # type: ignore[index]
        return f"the {role} did not pass {', '.join(missing)}"
    found = [finding for lens in review["lenses"] for finding in lens.get("findings") or []]
    if stopping := [str(finding.get("issue_class")) for finding in found if _stops(finding)]:
        return f"the {role} found {', '.join(stopping)}"
    return ""


# A severity that nobody knows stops too: it is counted as HIGH.
def _stops(finding: Mapping[str, Any]) -> bool:
    return finding.get("severity") not in ("MEDIUM", "LOW")


def _lenses(bag: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for role in TEACHER_ROLES:
        yield from (bag.get(f"{role}_review") or {}).get("lenses") or []


def _met(bag: Mapping[str, Any]) -> list[str]:
    marks = (bag.get("coo_review") or {}).get("criteria") or {}
    return [str(c.get("text") or c["id"]) for c in bag.get("acceptance") or [] if marks.get(c["id"]) == "met"]


def _verification(lenses: list[Mapping[str, Any]]) -> str:
    found = [receipt for lens in lenses for receipt in lens.get("receipts") or []]
    lines = [receipts.line(receipt) for receipt in found[:_VERIFICATION_LINES_MAX]]
    if len(found) > len(lines):
        lines.append(f"and {len(found) - len(lines)} more")
    return "\n".join(lines)


def problems(bag: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with *bag*, as sentences; empty when nothing is."""
    if not isinstance(bag, Mapping):
        return [f"a bookbag is a JSON object, not {type(bag).__name__}"]
    wrong = [f"{name}: missing" for name in REQUIRED if bag.get(name) in (None, "")]
    if not isinstance(bag.get("bead"), str) or not BEAD_NAME.fullmatch(bag["bead"]):
        wrong.append(f"bead: {bag.get('bead')!r} is no bead name")
    if "schema" not in bag:
        return wrong + _seed_problems(bag)
    return wrong + (_model_problems(bag) or ([] if wrong else _rule_problems(bag)))
    return wrong


def _seed_problems(bag: Mapping[str, Any]) -> list[str]:
    """A record without ``schema`` is the seed's, and held to the seed's one rule."""
    wrong = [
        f"{name}: {bag[name]!r} is neither PASS nor FAIL"
        for name in ("cto_verdict", "coo_verdict")
        if bag.get(name) not in (None, "", "PASS", "FAIL")
    ]
    if bag.get("accepted") and not (bag.get("cto_verdict") == bag.get("coo_verdict") == "PASS"):
        wrong.append("accepted: needs both verdicts PASS")
    return wrong


def _model_problems(bag: Mapping[str, Any]) -> list[str]:
    try:
        Bookbag.model_validate(dict(bag))
    except ValidationError as error:
        return [
            f"{'.'.join(map(str, e['loc'])) or 'record'}: {e['msg']}" for e in error.errors(include_url=False)
        ]
    return []


def _rule_problems(bag: Mapping[str, Any]) -> list[str]:
    wrong = [] if bag["schema"] == SCHEMA_VERSION else [f"schema: {bag['schema']} is not {SCHEMA_VERSION}"]
    if bag["difficulty"] not in DIFFICULTIES:
        wrong.append(f"difficulty: {bag['difficulty']!r} is none of {', '.join(DIFFICULTIES)}")
    if len(str(bag.get("output", "")).encode("utf-8", "surrogatepass")) > OUTPUT_BYTES_MAX:
        wrong.append(f"output: more than {OUTPUT_BYTES_MAX} bytes")
    for role in TEACHER_ROLES:
        said = (bag.get(f"{role}_review") or {}).get("verdict")
        if said and said != bag.get(f"{role}_verdict"):
            wrong.append(f"{role}_review: says {said}, {role}_verdict says {bag.get(f'{role}_verdict')!r}")
    if stamp := bag.get("timestamp"):
        try:
            clock.parse(stamp)
        except ValueError as error:
            wrong.append(f"timestamp: {error}")
    states = [step["state"] for step in bag.get("history") or []]
    if len(states) != len(set(states)):
        wrong.append("history: a state is in it twice")
    if bag.get("accepted") and (reason := acceptance_refusal(bag)):
        wrong.append(f"accepted: {reason}")
    return wrong


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a bookbag as it lies on disk; published at ``docs/bookbag.schema.json``."""
    schema = Bookbag.model_json_schema(by_alias=True, mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["properties"]["bead"]["pattern"] = f"^{BEAD_NAME.pattern}$"
    schema["properties"]["difficulty"]["enum"] = list(DIFFICULTIES)
    schema["required"] = ["bead", *REQUIRED]
    return schema


def json_schema_text() -> str:
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"

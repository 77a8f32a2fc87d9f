"""A reviewer's answer, taken whole or not at all: one JSON object of one form, and nothing else.

``read(text, criteria=…)`` gives a ``Reading``: the understood answer, or in ``wrong`` why it cannot be used, in a
sentence that is told to the model when it is asked once more. ``form(criteria)`` describes the form to the model and
``schema(criteria)`` is its JSON Schema.

The rules, each so that nothing that was not understood whole can pass:

- the text is one JSON object, alone or as the only content of one fenced block; no word around it, no second object;
- no key twice, no key that the form does not have, and all that decide are there; JSON as it is defined (no NaN);
- ``outcome`` is PASS, FAIL or NO_VERDICT; a FAIL names at least one CRITICAL or HIGH finding, a NO_VERDICT its reason;
- a severity may be spelled as one likes, and an unknown one counts as HIGH;
- each criterion that is asked about is answered exactly once: ``met`` with a quote, ``unmet`` or ``unjudged``.

The outcome that the model writes decides nothing that its findings do not: a PASS with a HIGH finding is a FAIL. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from school.contracts import Finding
from school.review.verdicts import STOPPING, finding_from

ANSWER_CHARS_MAX: Final = 1_000_000
FINDINGS_MAX: Final = 200
TEXT_CHARS_MAX: Final = 4000
QUOTE_CHARS_MIN: Final = 12
_FENCED: Final = re.compile(r"\A```[A-Za-z]*[ \t]*\r?\n(?P<inside>.*)\r?\n```\Z", re.DOTALL)


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SaidFinding(_Form):
    """One objection as the model writes it."""

    severity: str
    issue_class: str
    description: str = Field(min_length=1)
    citation: str = ""
    suggestion: str = ""


class SaidCriterion(_Form):
    """One acceptance criterion as the model judges it."""

    id: str
    state: Literal["met", "unmet", "unjudged"]
    evidence: str


class Said(_Form):
    """The whole answer where no criterion is asked about."""

    outcome: Literal["PASS", "FAIL", "NO_VERDICT"]
    reason: str = ""
    findings: list[SaidFinding] = Field(max_length=FINDINGS_MAX)


class SaidOfCriteria(Said):
    """The whole answer where criteria are asked about."""

    criteria: list[SaidCriterion]


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer says; where ``wrong`` is not empty, nothing of it counts."""

    wrong: str = ""
    outcome: Literal["PASS", "FAIL", "NO_VERDICT"] = "NO_VERDICT"
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    criteria: tuple[SaidCriterion, ...] = ()


def schema(criteria: Sequence[str]) -> dict[str, Any]:
    """The JSON Schema of an answer about *criteria* (ids)."""
    return (SaidOfCriteria if criteria else Said).model_json_schema()


def form(criteria: Sequence[str]) -> str:
    """The form in words, for the prompt."""
    asked = (
        ' "criteria": [{"id": "...", "state": "met" | "unmet" | "unjudged", "evidence": "..."}],'
        if criteria
        else ""
    )
    about = (
        f"\n`criteria` has exactly one entry for each of {', '.join(criteria)}. `met` needs in `evidence` a "
        f"verbatim quote that shows it, in backticks: at least {QUOTE_CHARS_MIN} characters of the diff or of a receipt, never of "
        "what the student claims; `unmet` and `unjudged` say there what is missing."
        if criteria
        else ""
    )
    return (
        "Answer with one JSON object and nothing else: no text before or after it, no second object, no further keys.\n"
        f'{{"outcome": "PASS" | "FAIL" | "NO_VERDICT", "reason": "...",{asked} "findings": [{{"severity": "CRITICAL" | '
        '"HIGH" | "MEDIUM" | "LOW", "issue_class": "one_word", "description": "...", "citation": "path:line", '
        '"suggestion": "..."}]}\n'
        "FAIL needs at least one CRITICAL or HIGH finding. NO_VERDICT is for what you could not see or tell, with the "
        f"reason in `reason`, which is otherwise one sentence on why.{about}"
    )


def read(text: str, *, section: str, criteria: Sequence[str] = ()) -> Reading:
    """*text* as an answer of the lens *section* that was asked about *criteria*; see the module."""
    if len(text) > ANSWER_CHARS_MAX:
        return Reading(wrong=f"it is longer than {ANSWER_CHARS_MAX} characters")
    try:
        raw = _object(text.strip())
        said = (SaidOfCriteria if criteria else Said).model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the object"
        return Reading(wrong=f"{where}: {first['msg']}")
    except RecursionError:
        return Reading(wrong="it is nested too deep")
    except ValueError as error:
        return Reading(wrong=str(error))
    judged = tuple(said.criteria) if isinstance(said, SaidOfCriteria) else ()
    if why := _criteria_problem(judged, criteria):
        return Reading(wrong=why)
    return _weighed(said, judged, section)


def _weighed(said: Said, judged: tuple[SaidCriterion, ...], section: str) -> Reading:
    found = tuple(_finding(finding, section) for finding in said.findings)
    stops = any(finding.severity in STOPPING for finding in found) or any(c.state == "unmet" for c in judged)
    if said.outcome == "FAIL" and not stops:
        return Reading(wrong="outcome is FAIL, and no finding is CRITICAL or HIGH")
    if said.outcome == "NO_VERDICT" and not said.reason.strip():
        return Reading(wrong="outcome is NO_VERDICT, and no reason is given")
    outcome = "FAIL" if stops else said.outcome
    return Reading(outcome=outcome, reason=said.reason[:TEXT_CHARS_MAX], findings=found, criteria=judged)


def _finding(said: SaidFinding, section: str) -> Finding:
    cut = {name: value[:TEXT_CHARS_MAX] for name, value in said.model_dump().items()}
    return finding_from(cut, section)


def _criteria_problem(judged: Sequence[SaidCriterion], asked: Sequence[str]) -> str:
    answered = [criterion.id for criterion in judged]
    if sorted(answered) != sorted(asked):
        return f"criteria: expected exactly one entry for each of {', '.join(asked)}"
    silent = [c.id for c in judged if not c.evidence.strip()]
    return f"criteria: {', '.join(silent)}: evidence is empty" if silent else ""


# --- JSON -------------------------------------------------------------------------------------------------


def _object(text: str) -> dict[str, Any]:
    """The one object in *text*; ValueError in words that help."""
    if not text:
        raise ValueError("it is empty")
    fenced = _FENCED.match(text)
    body = fenced["inside"].strip() if fenced else text
    if not body.startswith("{"):
        raise ValueError("it is not one JSON object and nothing else")
    try:
        value = json.loads(body, object_pairs_hook=_once, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise ValueError("something follows the JSON object") from None
        raise ValueError(f"it is not whole JSON: {error.msg} at character {error.pos}") from None
    assert isinstance(value, dict)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:50]!r} is in it twice")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")

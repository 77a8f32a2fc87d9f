"""Findings: what a coach may say of a session, by a schema and within bounds.

``parse(said)`` takes a dict, or a text that is one JSON object or has exactly one in a fence; nothing else is a finding:
none is ever made up from a paragraph. ``digest`` knows the same finding again in other case and spacing.
``parse_object`` is the same reading for the other answers (guidance, advice, a decision). No errors: None is nonsense.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from school.coach.ledger import cut
from school.system.documents import loads

TITLE_CHARS_MAX: Final = 80
BODY_CHARS_MAX: Final = 600
EVIDENCE_CHARS_MAX: Final = 300
ANSWER_CHARS_MAX: Final = 64 * 1024
SEVERITIES: Final = ("note", "corrective", "blocker")
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["verdict"],
    "additionalProperties": False,
    "properties": {
        "verdict": {"enum": ["ok", "finding"]},
        "severity": {"enum": list(SEVERITIES)},
        "title": {"type": "string", "minLength": 1, "maxLength": TITLE_CHARS_MAX},
        "body": {"type": "string", "minLength": 1, "maxLength": BODY_CHARS_MAX},
        "evidence": {"type": "string", "maxLength": EVIDENCE_CHARS_MAX},
    },
    "if": {"properties": {"verdict": {"const": "finding"}}},
    "then": {"required": ["verdict", "severity", "title", "body"]},
}
_FENCE: Final = re.compile(
    r"^```[ \t]*(?:json)?[ \t]*\n(.*?)\n```[ \t]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a coach objects to; ``evidence`` is what in the session or the change shows it."""

    severity: str
    title: str
    body: str
    evidence: str = ""

    @property
    def digest(self) -> str:
        """The same for the same issue, whatever its case and spacing."""
        words = [" ".join(text.split()).casefold() for text in (self.severity, self.title, self.evidence)]
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]

    def dump(self) -> dict[str, str]:
        return {**asdict(self), "digest": self.digest}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a review came to; ``finding`` is None where there is nothing to object to."""

    finding: Finding | None


def parse(said: object) -> Verdict | None:
    """The verdict in a model's answer, or None for whatever is not one."""
    value = parse_object(said)
    if value is None:
        return None
    if value.get("verdict") == "ok":
        return Verdict(None)
    severity = value.get("severity")
    title, body = one_line(value.get("title")), text_of(value.get("body"), BODY_CHARS_MAX)
    if value.get("verdict") != "finding" or severity not in SEVERITIES or not title or not body:
        return None
    return Verdict(Finding(str(severity), title, body, text_of(value.get("evidence"), EVIDENCE_CHARS_MAX)))


def one_line(value: object) -> str:
    return cut(" ".join(value.split()), TITLE_CHARS_MAX) if isinstance(value, str) else ""


def text_of(value: object, chars_max: int) -> str:
    return cut(value.strip(), chars_max) if isinstance(value, str) else ""


def parse_object(said: object) -> Mapping[str, Any] | None:
    """The one JSON object in *said*: a mapping, a text that is one, or the only fence of a text that holds one."""
    if isinstance(said, Mapping):
        return said
    if not isinstance(said, str) or len(said) > ANSWER_CHARS_MAX:
        return None
    text = said.strip()
    if not text.startswith("{"):
        fences = _FENCE.findall(text)
        if len(fences) != 1:
            return None
        text = fences[0].strip()
    try:
        value = loads(text.encode("utf-8", "surrogatepass"), "answer")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None

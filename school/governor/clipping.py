"""Somebody else's words in a packet: on one line, so long and no longer, and unable to end the packet early."""

from __future__ import annotations

import re
from typing import Final

from school.system import files

GOAL_CHARS: Final = 600
HINT_CHARS: Final = 160
OUTCOME_CHARS: Final = 200
# Looked at before anything is done to a text, which may be megabytes long.
_LOOKED_AT: Final = 8
_SPACE: Final = re.compile(r"\s+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_TAG: Final = re.compile(r"<(?=/?\s*(?:escalation-packet|coach-note)\b)", re.IGNORECASE)


def clipped(text: str, chars: int) -> str:
    """*text* on one line within *chars* characters; what was cut is marked by an ellipsis."""
    looked_at = text[: chars * _LOOKED_AT]
    line = _SPACE.sub(" ", looked_at).strip()
    line = _TAG.sub("(", _CONTROL.sub("", files.well_formed(line)))
    cut = len(line) > chars or len(looked_at) < len(text)
    return line if not cut else line[: chars - 1].rstrip() + "…"

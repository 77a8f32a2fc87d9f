"""``conductor.py governor [BEAD] [report]``: what the governor knows, as ``/governor`` says it in a session.

Without a bead every session that it heard of, the latest last; ``report`` shows lines of its report instead, without a
bead the last one. Everything is read from the disk, so a leaf that runs is seen as it stood within the last second.
``perform`` writes it for people, or hands the one document to *emit*, and returns the exit code. ConfigError for a session
that is not known and for words that mean nothing here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from school.errors import ConfigError
from school.governor import report, standing
from school.governor.telling import DISABLED, NOTHING, report_text, standing_text
from school.settings import Settings


def perform(settings: Settings, words: Sequence[str], emit: Callable[[object], None] | None) -> int:
    """Show what *words* ask for."""
    asks_report = bool(words) and words[-1] == "report"
    names = words[:-1] if asks_report else words
    if len(names) > 1:
        raise ConfigError(f"governor: expected [BEAD] [report], found {' '.join(words)!r}")
    document = _document(settings, *names, asks_report=asks_report)
    if emit is not None:
        emit(document)
        return 0
    if settings.governor_disabled:
        sys.stdout.write(f"{DISABLED}\n")
    sys.stdout.write(_text(document, asks_report=asks_report) + "\n")
    return 0


def _document(settings: Settings, session_id: str = "", *, asks_report: bool) -> Any:  # noqa: ANN401 - a document
    if asks_report:
        found = report.line_of(settings, session_id)
    elif not session_id:
        return standing.every(settings)
    else:
        found = standing.read(settings, session_id)
    if found is None and session_id:
        raise ConfigError(f"{session_id!r}: the governor knows of no such session")
    return found


def _text(document: Any, *, asks_report: bool) -> str:  # noqa: ANN401 - see _document
    if asks_report:
        return report_text(document)
    many = document if isinstance(document, list) else [document]
    return "\n".join(map(standing_text, many)) or NOTHING

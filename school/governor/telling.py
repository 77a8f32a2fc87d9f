"""What ``/governor`` and ``/governor report`` say, and ``conductor.py governor`` with them, from the documents on disk.

``standing_text(document)`` is for one session as it stands, ``report_text(line)`` for one line of the report. Whatever
is missing in them is left out or 0; no errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from school.wording import printable

_SIGNALS: Final = (
    ("errors", "consecutive_error_threshold", "tool errors in a row"),
    ("repeats", "repeat_call_threshold", "same call again"),
    ("requests", "api_error_threshold", "failed requests"),
    ("progress", "no_progress_api_calls", "model calls without progress"),
)
NOTHING: Final = "The governor has heard of no session yet."
NO_REPORT: Final = "The governor has reported no session yet."
DISABLED: Final = "The governor is off (GOVERNOR_DISABLE)."


def standing_text(document: Mapping[str, Any] | None) -> str:
    """How a session stands, in a few lines."""
    if not document:
        return NOTHING
    counts, limits = _table(document, "counts"), _table(document, "thresholds")
    parent = _said(document, "parent")
    whose = f" (a subagent of {parent})" if parent else ""
    lines = [f"Session {_said(document, 'session_id')}{whose}: {_state(document)}"]
    lines += [
        f"  {label}: {counts.get(key, 0)} of {limits.get(limit, '?')}" for key, limit, label in _SIGNALS
    ]
    if not parent:  # a subagent's numbers are in its parent's
        lines.append(f"  {_numbers(document)}")
    packets = document.get("packets")
    for packet in packets if isinstance(packets, list) else []:
        became = _said(packet, "became")
        lines.append(
            f"  told in turn {packet.get('turn', '?')}: {_said(packet, 'because')}; {became or 'open'}"
        )
    problems = document.get("problems")
    lines += [
        f"  settings: {printable(str(one))}" for one in (problems if isinstance(problems, list) else [])
    ]
    return "\n".join(lines)


def report_text(line: Mapping[str, Any] | None) -> str:
    """One session's line of the report, in words."""
    if not line:
        return NO_REPORT
    tokens = _table(line, "tokens")
    reasons = line.get("reasons")
    names = ", ".join(map(str, reasons)) if isinstance(reasons, list) else ""
    followed = "delegation followed" if line.get("delegated") else "no delegation followed"
    return "\n".join(
        [
            f"Session {_said(line, 'session_id')}, {_said(line, 'started_at')} to {_said(line, 'ended_at')}",
            f"  {_numbers(line)}",
            f"  tokens: {tokens.get('input', 0)} in, {tokens.get('output', 0)} out, {tokens.get('total', 0)} together",
            f"  escalations: {line.get('escalations', 0)}"
            + (f" ({printable(names)}; {followed})" if line.get("escalations") else ""),
        ]
    )


def _state(document: Mapping[str, Any]) -> str:
    if document.get("ignored"):
        return "stuck, and goes on the same way after it was told so"
    return "stuck" if document.get("stuck") else "goes on"


def _numbers(document: Mapping[str, Any]) -> str:
    children = _table(document, "subagents")
    return (
        f"turns {document.get('turns', 0)}, model calls {document.get('api_calls', 0)}"
        f" ({document.get('api_errors', 0)} failed), tool calls {document.get('tool_calls', 0)}"
        f" ({document.get('tool_errors', 0)} failed), subagents {children.get('started', 0)}"
    )


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _said(document: Mapping[str, Any], key: str) -> str:
    return printable(str(document.get(key) or ""))

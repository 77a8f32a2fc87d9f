"""What a real Hermes does, as lines of JSON: a plugin that the ``hermes`` preset puts into the agent's own home.

The plugin that a user installs (``school.hermes``) uses it too, where a leaf started it. It stands alone (Hermes imports
it, not this program), listens to Hermes' hooks and appends one line for each to the file
that SCHOOL_HERMES_EVENTS names, flushed before the hook returns. What it cannot write is lost; it never disturbs Hermes, which
isolates the exceptions of a plugin.
"""

# ruff: noqa: ANN401 - what Hermes gives is of any kind
from __future__ import annotations

import json
import os
from typing import Any

VARIABLE = "SCHOOL_HERMES_EVENTS"
TEXT_CHARS_MAX = 16000


def _line(event: str, **fields: Any) -> None:
    with open(os.environ[VARIABLE], "a", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123
        file.write(json.dumps({"type": event, **fields}, default=str) + "\n")


def _text(value: Any) -> str:
    said = value if isinstance(value, str) else json.dumps(value, default=str)
    return said[:TEXT_CHARS_MAX]


def _result(value: Any) -> dict[str, Any]:
    """The result as JSON that stays JSON when its output is cut."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return {"output": _text(value)}
    if not isinstance(found, dict):
        return {"output": _text(value)}
    return {
        name: _text(part) if isinstance(part, str | list | dict) else part for name, part in found.items()
    }


def _before(**event: Any) -> None:
    _line("tool_started", tool=event.get("tool_name"), id=event.get("tool_call_id"))


def _after(**event: Any) -> None:
    args = {
        name: _text(part) if isinstance(part, str) else part
        for name, part in (event.get("args") or {}).items()
    }
    _line(
        "tool",
        tool=event.get("tool_name"),
        id=event.get("tool_call_id"),
        args=args,
        result=_result(event.get("result")),
        ms=event.get("duration_ms"),
    )


def _asks(**_event: Any) -> None:
    _line("asks")


def _heard(**event: Any) -> None:
    _line("api", usage=event.get("usage"), session=event.get("session_id"))


def _failed(**event: Any) -> None:
    error = event.get("error") or {}
    _line("error", status=event.get("status_code"), message=_text(error.get("message") or error.get("type")))


def _ended(**event: Any) -> None:
    _line(
        "end",
        session=event.get("session_id"),
        completed=event.get("completed"),
        interrupted=event.get("interrupted"),
        platform=event.get("platform"),
    )


def _answered(**event: Any) -> None:
    _line("answer", text=_text(event.get("assistant_response")), platform=event.get("platform"))


def register(ctx: Any) -> None:
    """Called by Hermes."""
    listeners = {
        "pre_tool_call": _before,
        "post_tool_call": _after,
        "pre_api_request": _asks,
        "post_api_request": _heard,
        "api_request_error": _failed,
        "post_llm_call": _answered,
        "on_session_end": _ended,
    }
    for name, callback in listeners.items():
        ctx.register_hook(name, callback)

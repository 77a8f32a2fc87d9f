"""What the leaf and the built-in loop say to each other: JSON objects, one a line, over the loop's stdin and stdout.

The leaf says (key ``do``):

- ``start``: ``spec``, ``root``, ``result_path``, ``tmpdir``, ``system`` (the instructions), ``read_only``, ``tools``
  that the leaf lends (``name``, ``description``, ``schema``), ``limits`` (``tokens``,
  ``cost_usd``, ``requests``, ``command_timeout_s``, ``timeout_s``),
  ``attempt_s`` for one try of a request and ``first_wait_s`` before the second. First, and once.
- ``turn``: ``message``. The loop works until its turn is over.
- ``result``: ``id`` and ``result``, a text: what the model is to see as the result of tool call *id*.
- ``end``: the loop exits.

The loop says (key ``say``):

- ``asking``: request ``number`` goes out.
- ``assistant``: the model's answer to one request: ``content``, ``tool_calls`` ([{id, name, args}]), ``usage``, and ``request``,
  what Hermes' post_api_request is told besides; ``number`` counts requests. Nothing of it has been done yet.
- ``failure``: one try of request ``number`` failed: ``detail``, ``status_code``, ``retry_count``, ``max_retries``, ``retryable``,
  ``reason``, ``error_type``.
- ``tool``: a call was done: ``id``, ``number``, ``name``, ``args``, ``result`` (an object), ``duration_ms``, ``told`` (whether
  hooks hear of it). The loop waits for ``result``.
- ``call``: the model calls a tool that the leaf lends: ``id``, ``number``, ``name``, ``args``. The loop waits for ``result``.
- ``beat``: still waiting for its endpoint or a tool, each of which has its own time limit.
- ``turn_end``: ``answer``. The loop waits for ``turn`` or ``end``.
- ``failed``: ``reason`` (``quota``, ``unavailable``, ``login``, ``refused``, ``limit``, ``budget``,
  ``not_installed``), ``detail``, ``retry_at``. The loop exits.

The end of its input ends the loop at once, whatever it is doing; the end of its output tells the leaf that it is gone.
Only the leaf writes to disk outside the working tree, so the loop may be confined like any agent. Lines are ASCII;
what the loop says is the word of a process that a model drives: ``said`` gives the leaf nothing that is not of the form
above, and what is longer than it should be is cut where it is kept.
"""

from __future__ import annotations

import json
from typing import Any, Final

SHOWN: Final = 200
_COUNTED: Final[dict[str, type]] = {"number": int}
_CALL: Final[dict[str, type]] = {"id": str, **_COUNTED, "name": str}
# What the loop may say, and what each has at least, by type.
_SAYINGS: Final[dict[str, dict[str, type]]] = {
    "beat": {},
    "asking": _COUNTED,
    "assistant": {**_COUNTED, "content": str, "tool_calls": list, "usage": dict, "request": dict},
    "failure": {**_COUNTED, "detail": str},
    "tool": {**_CALL, "args": dict, "result": dict, "duration_ms": int, "told": bool},
    "call": _CALL,
    "turn_end": {"answer": str},
    "failed": {"reason": str, "detail": str, "retry_at": str},
}


class WireError(Exception):
    """The other end said something out of turn."""


def encode(message: dict[str, Any]) -> bytes:
    """*message* as a line."""
    return json.dumps(message).encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """The object in *line*; None where it is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def said(line: bytes) -> dict[str, Any]:
    """What the loop says in *line*; WireError where that is none of its sayings."""
    message = decode(line) or {}
    kind = message.get("say")
    fields = _SAYINGS.get(kind) if isinstance(kind, str) else None
    if fields is None or any(type(message.get(name)) is not kind for name, kind in fields.items()):
        raise WireError(f"nobody understands it: {line[:SHOWN].decode('utf-8', 'backslashreplace').strip()}")
    return message

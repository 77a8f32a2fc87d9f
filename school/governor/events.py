"""What happened in a session, as the governor counts it: hook arguments read into a few kinds of event.

``read(name, arguments)`` gives one of them, or None for what counts for nothing. Hosts differ and versions too, so
whatever is missing or of another kind is read as if it were empty; nothing here raises for it. The events hold no more
of a session than a packet may show: a call's tool, a hint at its target, how it failed, each clipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from school.governor import judging
from school.governor.clipping import GOAL_CHARS, HINT_CHARS, OUTCOME_CHARS, clipped

ID_CHARS: Final = 200
# What names the target of a call, the most telling first.
_TARGETS: Final = (
    "command",
    "cmd",
    "path",
    "file_path",
    "file",
    "url",
    "goal",
    "query",
    "pattern",
    "action",
    "name",
    "code",
)


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """A turn of the session begins; ``asked`` is the user's message and ``first`` the session's first one."""

    turn_id: str = ""
    asked: str = ""
    first: str = ""


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool call came back; ``error`` is '' for a success, ``key`` the same for the same call again."""

    tool: str
    target: str = ""
    key: str = ""
    error: str = ""
    polling: bool = False


@dataclass(frozen=True, slots=True)
class ResultPassing:
    """A tool's result is on its way to the model, and may be added to."""


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A call of the model came back; ``calls`` is how many tool calls it asks for."""

    calls: int = 0


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """An attempt at a call of the model failed; ``request`` is the same for each retry of one."""

    request: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class HandedOn:
    """The session gave work to a subagent."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn came to its end; ``whole`` when the agent ended it itself."""

    whole: bool = True


Event = TurnBegan | ToolReturned | ResultPassing | ModelAnswered | RequestFailed | HandedOn | TurnEnded


def read(name: str, arguments: Mapping[str, Any]) -> Event | None:
    """The event that hook *name* tells of."""
    reader = _READERS.get(name)
    return reader(arguments) if reader else None


def text(value: object) -> str:
    """*value* where a text is due; the text parts of a message in parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in value]
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def identifier(value: object) -> str:
    """*value* where an id is due; ids are of any length, and a buffer has a bound."""
    return value[:ID_CHARS] if isinstance(value, str) else ""


def count(value: object) -> int:
    """*value* where a count is due."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _turn_began(arguments: Mapping[str, Any]) -> TurnBegan:
    asked = clipped(text(arguments.get("user_message")), GOAL_CHARS)
    history = arguments.get("conversation_history")
    messages = history if isinstance(history, list) else []
    said = (
        text(message.get("content"))
        for message in messages
        if isinstance(message, Mapping) and message.get("role") == "user"
    )
    first = clipped(next((words for words in said if words), ""), GOAL_CHARS)
    return TurnBegan(identifier(arguments.get("turn_id")), asked, first or asked)


def _tool_returned(arguments: Mapping[str, Any]) -> ToolReturned:
    tool = clipped(text(arguments.get("tool_name")), HINT_CHARS) or "?"
    args = arguments.get("args")
    args = args if isinstance(args, Mapping) else {}
    return ToolReturned(
        tool,
        _target(args),
        _key(tool, args, arguments.get("result")),
        clipped(judging.failure(tool, args, arguments), OUTCOME_CHARS),
        judging.is_polling(tool, args),
    )


def _target(args: Mapping[str, Any]) -> str:
    for name in _TARGETS:
        if isinstance(value := args.get(name), str) and value:
            return clipped(value, HINT_CHARS)
    return next(
        (clipped(value, HINT_CHARS) for value in args.values() if isinstance(value, str) and value), ""
    )


def _key(tool: str, args: Mapping[str, Any], result: object) -> str:
    """The same for the same tool with the same arguments, in whatever order they stand.

    Some hosts do not tell the arguments; of calls without any those are the same that came to the same result.
    """
    try:
        said = json.dumps(args or [result], sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        said = repr(args)
    digest = hashlib.blake2b(f"{tool}\0{said}".encode("utf-8", "surrogatepass"), digest_size=12)
    return digest.hexdigest()


def _model_answered(arguments: Mapping[str, Any]) -> ModelAnswered:
    return ModelAnswered(count(arguments.get("assistant_tool_call_count")))


def _request_failed(arguments: Mapping[str, Any]) -> RequestFailed:
    """A failed attempt; where a host names no request, turn and number of the call stand for it."""
    request = identifier(arguments.get("api_request_id"))
    if not request:
        request = f"{identifier(arguments.get('turn_id'))}:{arguments.get('api_call_count', '')}"[:ID_CHARS]
    return RequestFailed(request, clipped(_request_error(arguments), OUTCOME_CHARS))


def _request_error(arguments: Mapping[str, Any]) -> str:
    error = arguments.get("error")
    if isinstance(error, Mapping):
        error = f"{text(error.get('type'))}: {text(error.get('message'))}"
    status = count(arguments.get("status_code"))
    parts = [f"HTTP {status}" if status else "", text(error) or text(arguments.get("reason"))]
    return " ".join(part for part in parts if part) or "no answer"


def _turn_ended(arguments: Mapping[str, Any]) -> TurnEnded:
    return TurnEnded(not arguments.get("interrupted") and arguments.get("completed") is not False)


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Event]]] = {
    "pre_llm_call": _turn_began,
    "post_tool_call": _tool_returned,
    "transform_tool_result": lambda _arguments: ResultPassing(),
    "post_api_request": _model_answered,
    "api_request_error": _request_failed,
    "subagent_start": lambda _arguments: HandedOn(),
    "on_session_end": _turn_ended,
}

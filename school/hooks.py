"""The seam of the advisers: Hermes' hook names, who listens to each, and what of their answers is honoured.

``Hooks(log=path).add(adviser, name, callback, timeout_s=...)`` registers, in order. The host that runs an agent then
calls, with Hermes' keyword arguments, ``fire`` for a hook whose answers nobody honours and one of these for the rest:

- ``context(**event)`` for pre_llm_call: what goes below the user's message; each ``{"context": text}`` or text, joined
  by blank lines, '' for nothing;
- ``tool_result(result, **event)`` for transform_tool_result: the first text that an adviser gives, else *result*;
- ``hold(**event)`` for pre_verify: the message of the first who asks for another turn, as ``{"action": "continue",
  "message": text}`` or ``{"decision": "block", "reason": text}``, else ''.

Advisers are fail-open, and this is the one place where that is so. Whatever they raise, a callback that does not come
back within its time and an answer of the wrong kind or length change nothing; each is told in ``faults`` (the first
hundred) and in the log. A callback that took too long is left out for ``suppress_s`` seconds. They get copies of the
dicts and lists of an event (of a conversation: of the list, not of its messages), so they cannot alter a call either.

Not promised: that a callback which hangs stops (see ``school.system.patience``), nor that two callbacks of one adviser
never run at once: after a time-out they may.

``attempt`` takes one step of setting an adviser up (an import, a registration) in the same spirit, without a time.
``close()`` ends the idle threads; after it nobody is told anything. Errors: ValueError from ``add`` for a name that is
no hook. The rest raises nothing.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from school.system import clock, files, patience

NAMES: Final = (
    "pre_llm_call",
    "post_llm_call",
    "post_tool_call",
    "transform_tool_result",
    "pre_verify",
    "post_api_request",
    "api_request_error",
    "subagent_start",
    "subagent_stop",
    "on_session_end",
)
TIMEOUT_S: Final = 10.0
SUPPRESS_S: Final = 60.0
FAULTS_MAX: Final = 100
FAULT_CHARS_MAX: Final = 500
LOG_BYTES_MAX: Final = 1024 * 1024
# More than either adviser may ever say (a coach's evidence goes to its own model, not through here).
ANSWER_CHARS_MAX: Final = 64 * 1024
_SHARED: Final = frozenset({"conversation_history", "request_messages"})
KINDS_MAX: Final = 200
Callback = Callable[..., Any]
_T = TypeVar("_T")


@dataclass(slots=True)
class _Listener:
    """One callback of one adviser; it is left out until ``silent_until``."""

    adviser: str
    name: str
    callback: Callback
    timeout_s: float
    silent_until: float = float("-inf")


class _Nonsense(Exception):  # noqa: N818 - what the answer was
    """An answer that no host could use."""


class Hooks:
    """Listeners by hook name."""

    def __init__(
        self,
        *,
        log: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        suppress_s: float = SUPPRESS_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.faults: list[str] = []
        self._listeners: dict[str, list[_Listener]] = {}
        self._log = log
        self._timeout_s = timeout_s
        self._suppress_s = suppress_s
        self._monotonic = monotonic
        self._patience = patience.Patience(name="adviser")
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, str], int] = {}
        self._closed = False

    def add(self, adviser: str, name: str, callback: Callback, *, timeout_s: float | None = None) -> None:
        """Let *callback* of *adviser* hear of *name*; ValueError for a name that is no hook."""
        if name not in NAMES:
            raise ValueError(f"{name}: no such hook; there are {', '.join(NAMES)}")
        listener = _Listener(adviser, name, callback, self._timeout_s if timeout_s is None else timeout_s)
        self._listeners.setdefault(name, []).append(listener)

    def fire(self, name: str, /, **event: Any) -> list[Any]:  # noqa: ANN401 - Hermes' arguments are of any kind
        """Tell everybody who listens to *name*; their answers that are not None, in order."""
        listeners = self._listeners.get(name, ())
        answers = [self._ask(listener, event, _as_it_is) for listener in listeners]
        return [answer for answer in answers if answer is not None]

    def context(self, **event: Any) -> str:  # noqa: ANN401
        """What the advisers want said below the user's message of this turn."""
        listeners = self._listeners.get("pre_llm_call", ())
        answers = [self._ask(listener, event, _as_context) for listener in listeners]
        return "\n\n".join(answer for answer in answers if answer)

    def tool_result(self, result: str, **event: Any) -> str:  # noqa: ANN401
        """*result*, or what the first adviser who has something to say makes of it."""
        event["result"] = result

        def read(answer: object) -> str | None:
            return _text(answer, len(result) + ANSWER_CHARS_MAX) if answer is not None else None

        for listener in self._listeners.get("transform_tool_result", ()):
            answer = self._ask(listener, event, read)
            if answer is not None:
                return answer
        return result

    def hold(self, **event: Any) -> str:  # noqa: ANN401
        """The message of the first adviser who does not want the turn to be the last, or ''."""
        for listener in self._listeners.get("pre_verify", ()):
            if message := self._ask(listener, event, _as_hold):
                return message
        return ""

    def attempt(self, adviser: str, what: str, step: Callable[[], _T]) -> _T | None:
        """What *step* of setting *adviser* up returns, here and now, or None and a fault."""
        try:
            return step()
        except Exception as cause:  # noqa: BLE001 - advisers are fail-open from their building on
            self.report(adviser, what, *_reason(cause))
            return None

    def close(self) -> None:
        """Tell nobody anything from now on."""
        self._closed = True
        self._patience.close()

    def _ask(self, listener: _Listener, event: Mapping[str, Any], read: Callable[[Any], _T]) -> _T | None:
        """What *read* makes of the answer of *listener*, or None and a fault."""
        if self._closed or self._monotonic() < listener.silent_until:
            return None
        try:
            return self._patience.call(
                lambda: read(listener.callback(**_copies(event))), timeout_s=listener.timeout_s
            )
        except patience.TookTooLong:
            listener.silent_until = self._monotonic() + self._suppress_s
            self.report(
                listener.adviser, listener.name, f"no answer within {listener.timeout_s:g} s", "timeout"
            )
        except patience.Crowded:
            self.report(
                listener.adviser, listener.name, "too many callbacks hang; it was not asked", "crowded"
            )
        except patience.Failed as failed:
            self.report(listener.adviser, listener.name, *_reason(failed.cause))
        return None

    def report(self, adviser: str, what: str, reason: str, kind: str = "told") -> None:
        """Record a fault: in the list while there is room, in the log the 1st, 2nd, 4th, 8th ... time of its *kind*.

        For an adviser, too, that has to say what is wrong with its settings.
        """
        reason = files.well_formed(reason)[:FAULT_CHARS_MAX]
        with self._lock:
            key = (adviser, what, kind if len(self._counts) < KINDS_MAX else "")
            count = self._counts[key] = self._counts.get(key, 0) + 1
        self._note(f"{adviser}: {what}: {reason}")
        if self._log is None or count & (count - 1):
            return
        line = {
            "at": clock.now(),
            "event": "adviser.failed",
            "adviser": adviser,
            "hook": what,
            "kind": kind,
            "reason": reason,
            "count": count,
        }
        try:
            files.append_json_line(self._log, line, rotate_bytes=LOG_BYTES_MAX)
        except (OSError, ValueError) as cause:
            self._note(f"the log of the advisers: {cause}")

    def _note(self, fault: str) -> None:
        with self._lock:
            if len(self.faults) < FAULTS_MAX:
                self.faults.append(files.well_formed(fault)[:FAULT_CHARS_MAX])


def _reason(cause: BaseException) -> tuple[str, str]:
    """*cause* in words, and its kind; a message that cannot be made is left out."""
    name = type(cause).__name__
    try:
        text = str(cause)
    except Exception:  # noqa: BLE001 - the exception is the adviser's, its text too
        text = ""
    return text if isinstance(cause, _Nonsense) else f"{name}: {text}", name


def _copies(event: Mapping[str, Any]) -> dict[str, Any]:
    """*event*, so that whoever gets it cannot change what the host has."""
    return {
        key: value
        if not isinstance(value, dict | list)
        else (copy.copy(value) if key in _SHARED else copy.deepcopy(value))
        for key, value in event.items()
    }


def _as_it_is(answer: Any) -> Any:  # noqa: ANN401 - what a callback answers
    return answer


def _text(answer: object, chars_max: int = ANSWER_CHARS_MAX) -> str:
    """*answer*, if it is a text that can be sent."""
    if not isinstance(answer, str):
        raise _Nonsense(f"answered with {type(answer).__name__} where a text is due")
    if len(answer) > chars_max:
        raise _Nonsense(f"answered with {len(answer)} characters, {chars_max} are the most")
    if answer != files.well_formed(answer):
        raise _Nonsense("answered with a text that is not valid Unicode")
    return answer


def _as_context(answer: object) -> str:
    if answer is None:
        return ""
    if isinstance(answer, Mapping):
        return _text(answer.get("context") or "")
    return _text(answer)


def _as_hold(answer: object) -> str:
    """The message of an answer that asks for another turn; any other mapping lets it end, as in Hermes."""
    if answer is None:
        return ""
    if not isinstance(answer, Mapping):
        raise _Nonsense(f"answered with {type(answer).__name__} where a mapping is due")
    action = str(answer.get("action") or answer.get("decision") or "").strip().lower()
    if action not in ("continue", "block"):
        return ""
    return _text(answer.get("message") or answer.get("reason") or "").strip()

"""The seam of the advisers: Hermes' hook names, who listens to each, and what of their answers is honoured.

``Hooks.add(adviser, name, callback)`` registers, in order; the host that runs an agent calls ``fire`` (and the three
that use an answer: ``context``, ``tool_result``, ``hold``) with Hermes' keyword arguments. Advisers are fail-open, and
this is the one place where that is so: an exception, a time-out or a nonsensical answer is recorded in ``faults`` and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

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
Callback = Callable[..., Any]


class Hooks:
    """Listeners by hook name."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._listeners: dict[str, list[tuple[str, Callback]]] = {}

    def add(self, adviser: str, name: str, callback: Callback) -> None:
        """Let *callback* of *adviser* hear of *name*; ValueError for a name that is no hook."""
        if name not in NAMES:
            raise ValueError(f"{name}: no such hook; there are {', '.join(NAMES)}")
        self._listeners.setdefault(name, []).append((adviser, callback))

    def fire(self, name: str, /, **event: Any) -> list[Any]:  # noqa: ANN401 - Hermes' arguments are of any kind
        """Tell everybody who listens to *name*; their answers that are not None, in order."""
        answers = []
        for adviser, callback in self._listeners.get(name, ()):
            try:
                answer = callback(**event)
            except Exception as error:  # noqa: BLE001 - advisers are fail-open, here and nowhere else
                self.faults.append(f"{adviser}: {name}: {type(error).__name__}: {error}")
                continue
            if answer is not None:
                answers.append(answer)
        return answers

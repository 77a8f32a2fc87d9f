"""What a session cost and how it went, in numbers: what its line in the report says.

A ``Tally`` counts one session, with the subagents that worked for it beside. ``numbers()`` are totals that only grow, so
a writer can add what is new since the last time to what stands in the file (``added``, ``less``). Pure but for being
counted up in place; whoever holds it holds a lock. No errors: what is no count is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from school.governor import events

TOKENS: Final = ("input", "output", "cache_read", "cache_write", "reasoning", "total")
_REQUESTS_KEPT: Final = 64
Numbers = dict[str, Any]


@dataclass(slots=True)
class Counted:
    """One worker's numbers: the session's own agent, or all of its subagents."""

    api_calls: int = 0
    api_errors: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    requests: list[str] = field(default_factory=list)

    def count(self, event: events.Event | None, arguments: Mapping[str, Any]) -> None:
        """Add what *event* stands for; *arguments* are the hook's."""
        if isinstance(event, events.ToolReturned):
            self.tool_calls += 1
            self.tool_errors += bool(event.error)
        elif isinstance(event, events.ModelAnswered):
            self.api_calls += 1
            self._spend(arguments.get("usage"))
        elif isinstance(event, events.RequestFailed) and event.request not in self.requests:
            self.api_errors += 1
            self.requests = [*self.requests, event.request][-_REQUESTS_KEPT:]

    def _spend(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            for name in TOKENS:
                self.tokens[name] += events.count(usage.get(f"{name}_tokens"))

    def numbers(self) -> Numbers:
        return {
            "api_calls": self.api_calls,
            "api_errors": self.api_errors,
            "tool_calls": self.tool_calls,
            "tool_errors": self.tool_errors,
            "tokens": dict(self.tokens),
        }


@dataclass(slots=True)
class Tally:
    """A session: its own numbers and those of its subagents."""

    own: Counted = field(default_factory=Counted)
    children: Counted = field(default_factory=Counted)
    subagents: int = 0
    child_escalations: int = 0

    def numbers(self) -> Numbers:
        return {
            **self.own.numbers(),
            "subagents": {
                "started": self.subagents,
                "escalations": self.child_escalations,
                **self.children.numbers(),
            },
        }


def added(numbers: Numbers, more: Numbers) -> Numbers:
    """*numbers* and *more*, added where both have a number; of everything else, what *more* says."""
    return {**numbers, **{key: _sum(numbers.get(key), value) for key, value in more.items()}}


def less(numbers: Numbers, other: Numbers) -> Numbers:
    """*numbers* without what *other* has already."""
    return {
        key: less(value, other.get(key) or {}) if isinstance(value, dict) else value - other.get(key, 0)
        for key, value in numbers.items()
    }


def _sum(before: object, value: Any) -> Any:  # noqa: ANN401 - a number or a table of them
    if isinstance(value, dict):
        return added(before if isinstance(before, dict) else {}, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    known = isinstance(before, int | float) and not isinstance(before, bool)
    total = value + before if known else value  # type: ignore[operator]
    return round(total, 3) if isinstance(total, float) else total

"""What was said to an agent beside its task, and whether it followed: what the bookbag keeps under ``guidance``.

``Guidance().add(by, what, text, …)`` notes one thing that was advised; the entry that it returns may be told later
whether it was followed. ``entries()`` are bounded in number and length; what did not fit is counted in the last one.
Thread-safe, no errors.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from school.contracts import bounded
from school.system import clock

ENTRIES_MAX: Final = 40
TEXT_BYTES: Final = 4000


class Guidance:
    """A bounded list of what was advised."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._left_out = 0
        self._guard = threading.Lock()

    def add(
        self, by: str, what: str, text: str, *, turn: int = 0, held: bool = False, candidate: str = ""
    ) -> dict[str, Any]:
        """Note that *by* said *text*. *held*: the agent was kept from ending; *candidate* is what it had answered."""
        entry: dict[str, Any] = {
            "by": by,
            "what": what,
            "at": clock.now(),
            "turn": turn,
            "text": bounded(text, TEXT_BYTES),
            "held": held,
            "followed": None,
        }
        if candidate:
            entry["candidate"] = bounded(candidate, TEXT_BYTES)
        with self._guard:
            if len(self._entries) < ENTRIES_MAX:
                self._entries.append(entry)
            else:
                self._left_out += 1
        return entry

    def mark(self, by: str, what: str, *, followed: bool | None) -> None:
        """Tell the newest entry of that kind whether it was followed."""
        with self._guard:
            for entry in reversed(self._entries):
                if (entry["by"], entry["what"]) == (by, what):
                    entry["followed"] = followed
                    return

    def entries(self) -> list[dict[str, Any]]:
        """What was advised, in order."""
        with self._guard:
            more = [{"by": "school", "what": "left_out", "count": self._left_out}] if self._left_out else []
            return [dict(entry) for entry in self._entries] + more

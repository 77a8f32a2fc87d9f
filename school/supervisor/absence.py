"""Agents that cannot work just now: a quota is used up, an endpoint is down, nobody is logged in. Others go on.

``note`` is told how a bead ended for such a reason and says in a sentence what follows; ``back`` of one that ended in any
other way. ``gone`` says why an agent is not waited for in this run, ``present`` whether it may start now, ``wait_s`` how
long until the next one may. A stated reset is believed up to ``PAUSE_S_MAX``; one that nobody stated is tried again after a
pause that doubles. An agent that is away ``ROW_MAX`` times in a row, or longer than is waited for, is gone: its tasks are left
to a later run, at no charge.

Pure but for the clock that it is handed; a new run begins without any knowledge of who is away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from school.system.clock import Clock, parse

# A quota's reset that nobody stated, and the longest that a stated one is waited for.
PAUSE_S: Final = 60.0
PAUSE_S_MAX: Final = 6 * 3600.0
# An endpoint that did not answer.
SILENCE_S: Final = 10.0
ROW_MAX: Final = 5
REASONS: Final = frozenset({"quota", "unavailable", "login"})
_WORDS: Final = {
    "quota": "its quota is used up",
    "unavailable": "its endpoint does not answer",
    "login": "it is not logged in",
}


def key_of(agent: Mapping[str, Any]) -> str:
    """What counts as one agent: a plain command is another for each of its command lines."""
    name = str(agent.get("name") or "")
    return f"{name} {agent.get('argv')}" if agent.get("kind") == "run" else name


@dataclass(slots=True)
class _Away:
    """One agent: since how many attempts, why, until when; ``gone`` when it is not waited for."""

    name: str
    row: int = 0
    reason: str = ""
    until: float = -math.inf
    until_at: str = ""
    gone: str = ""


@dataclass(slots=True)
class Absences:
    """Who is away in this run."""

    clock: Clock
    known: dict[str, _Away] = field(default_factory=dict)

    def note(self, agent: Mapping[str, Any], reason: str, retry_at: str) -> str:
        """An attempt of *agent* ended for *reason*; what follows, in a sentence."""
        away = self.known.setdefault(key_of(agent), _Away(str(agent.get("name") or "")))
        # Others that were at work when it went away tell the same once more.
        away.row += self.clock.monotonic() >= away.until
        away.reason = reason
        wait_s, stated = self._wait(away, retry_at)
        what = f"{away.name}: {_WORDS[reason]}"
        if reason == "login" or wait_s > PAUSE_S_MAX or away.row >= ROW_MAX:
            until = f" until {retry_at}" if stated else ""
            times = f" ({away.row} times in a row)" if away.row > 1 else ""
            away.gone = f"{reason}: {what}{until}{times}"
            return f"{what}{until}{times}; it is not waited for in this run, and its tasks are left to a later one"
        away.until = max(away.until, self.clock.monotonic() + wait_s)
        away.until_at = (parse(self.clock.now()) + timedelta(seconds=wait_s)).isoformat(timespec="seconds")
        return f"{what}; its tasks wait {wait_s:.0f} s, until {away.until_at}; those of others go on"

    def back(self, agent: Mapping[str, Any]) -> None:
        """An attempt of *agent* ended in another way: it is there."""
        self.known.pop(key_of(agent), None)

    def gone(self, agent: Mapping[str, Any]) -> str:
        """Why *agent* is not waited for in this run; '' where it is."""
        away = self.known.get(key_of(agent))
        return away.gone if away is not None else ""

    def present(self, agent: Mapping[str, Any]) -> bool:
        """Whether *agent* may start an attempt now."""
        away = self.known.get(key_of(agent))
        return away is None or (not away.gone and self.clock.monotonic() >= away.until)

    def wait_s(self, agents: Iterable[Mapping[str, Any]]) -> float | None:
        """How long until the first of *agents* may start; None when none of them will in this run."""
        waits = [self._left(agent) for agent in agents if not self.gone(agent)]
        return min(waits, default=None)

    def rows(self) -> list[dict[str, str]]:
        """Who is away now, for the run's record."""
        now = self.clock.monotonic()
        return [
            {"agent": away.name, "reason": away.reason, "until": "" if away.gone else away.until_at}
            for away in self.known.values()
            if away.gone or away.until > now
        ]

    def _left(self, agent: Mapping[str, Any]) -> float:
        away = self.known.get(key_of(agent))
        return 0.0 if away is None else max(0.0, away.until - self.clock.monotonic())

    def _wait(self, away: _Away, retry_at: str) -> tuple[float, bool]:
        """Seconds, and whether somebody stated them. An agent may say anything."""
        doubled = 2.0 ** (away.row - 1)
        if away.reason == "unavailable":
            return SILENCE_S * doubled, False
        try:
            return max(0.0, (parse(retry_at) - parse(self.clock.now())).total_seconds()), True
        except (ValueError, OverflowError):
            return PAUSE_S * doubled, False

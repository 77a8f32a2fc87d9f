"""Time: wall-clock stamps for records, the monotonic clock for every deadline.

``now()`` makes the one form of a stamp that is written to disk; ``parse`` reads it back, and also the stamps of
older records: one without an offset is UTC. A stamp says when; it never decides a wait, because wall clocks are
set back and forth. Code that must be tested against time takes a ``Clock``; ``FakeClock`` is the shipped fake.

Errors: ``parse`` raises ValueError, with the text, for what is no ISO-8601 stamp.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

monotonic = time.monotonic


def now() -> str:
    """This moment as ISO-8601 in UTC, with microseconds and ``+00:00``."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def parse(text: str) -> datetime:
    """The moment that *text* names, in UTC; a stamp without an offset is read as UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"{text!r} is no ISO-8601 time stamp") from None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r} lies outside the years that there are") from None


class Clock(Protocol):
    """What code that waits or stamps needs to know about time."""

    def now(self) -> str: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> str:
        return now()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


class FakeClock:
    """A clock that moves only when told: sleeping advances it, and ``set_back`` moves the wall clock alone."""

    def __init__(self, start: str = "2030-01-01T00:00:00+00:00") -> None:
        self._wall = parse(start)
        self._monotonic = 1000.0
        self.sleeps: list[float] = []

    def now(self) -> str:
        return self._wall.isoformat(timespec="microseconds")

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass on both clocks."""
        self._wall += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set_back(self, seconds: float) -> None:
        """Move the wall clock back, as an operator or NTP does; the monotonic clock never notices."""
        self._wall -= timedelta(seconds=seconds)

"""When a child that died may be started again: back-off that doubles, and a limit that ends the run.

Pure but for the clock it is handed. Two counts, because they answer different questions: deaths *in a row* (a child
that lived ``healthy_s`` starts a new row) set the delay, deaths *within the window* say that starting again is
pointless. A child that ended because another holds its lock did not die and is never told to ``died``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from school.system.clock import Clock

FIRST_DELAY_S: Final = 0.5
DELAY_S_MAX: Final = 30.0
DEATHS_MAX: Final = 5
WINDOW_S: Final = 60.0
HEALTHY_S: Final = 60.0


@dataclass(slots=True)
class RestartPolicy:
    """Calling sequence: ``may_start`` → start → ``started`` → ... → ``died`` → ``exhausted`` or again."""

    clock: Clock
    deaths: deque[float] = field(default_factory=lambda: deque(maxlen=DEATHS_MAX))
    row: int = 0
    last_start: float = 0.0
    not_before: float = float("-inf")
    spent: bool = False

    def started(self) -> None:
        self.last_start = self.clock.monotonic()

    def died(self) -> None:
        """Count one death and set the time before which there is no new start."""
        now = self.clock.monotonic()
        if now - self.last_start >= HEALTHY_S:
            self.row = 0
        self.row += 1
        self.deaths.append(now)
        self.spent = self.spent or (len(self.deaths) == DEATHS_MAX and now - self.deaths[0] <= WINDOW_S)
        self.not_before = now + self.delay_s

    @property
    def delay_s(self) -> float:
        """0.5, 1, 2 … 30 s; 0 while nothing has died."""
        if self.row == 0:
            return 0.0
        return min(DELAY_S_MAX, FIRST_DELAY_S * 2.0 ** min(self.row - 1, 10))

    def may_start(self) -> bool:
        return not self.exhausted() and self.clock.monotonic() >= self.not_before

    def wait_s(self) -> float:
        """How long until ``may_start`` can turn true; 0 when it is."""
        return max(0.0, self.not_before - self.clock.monotonic())

    def exhausted(self) -> bool:
        """Five deaths within 60 s have been seen; it stays so, whoever asks later."""
        return self.spent

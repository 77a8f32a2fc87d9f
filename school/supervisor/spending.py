"""What the attempts at a run's tasks have used, against ``[limits] tokens`` and ``cost_usd``.

``count(bag)`` takes what one bead used, its student with its coach and its two reviewers, once however often it is told. ``over`` says which
limit is reached, ``left`` what one more attempt may use, ``share`` what one that is there may use in all. Every attempt at the tasks
of the run counts, also those of earlier runs, so that a limit is a limit however often a run is begun again; a higher one lets it go on.

Not promised: that a limit is kept to the last token. Attempts that are under way are never ended for it, and each of them was
told what was left when it began. A cost that nobody knows counts as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from school.review.budget import used_by


@dataclass(slots=True)
class Spending:
    """The budget of one run; None is no limit."""

    tokens: int | None
    cost_usd: float | None
    beads: dict[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def limited(self) -> bool:
        return self.tokens is not None or self.cost_usd is not None

    def count(self, bag: Mapping[str, Any]) -> None:
        """Take what *bag* used; the newest that is known of it counts."""
        self.beads[str(bag["bead"])] = used_by(bag)

    def over(self) -> str:
        """Which limit is reached, with the numbers; '' while none is."""
        tokens, cost = self._used()
        if self.tokens is not None and tokens >= self.tokens:
            return f"[limits] tokens = {self.tokens} are used up ({tokens} by the attempts at these tasks)"
        if self.cost_usd is not None and cost >= self.cost_usd:
            return f"[limits] cost_usd = {self.cost_usd:g} is used up ({cost:.4f} by the attempts at these tasks)"
        return ""

    def left(self) -> dict[str, Any]:
        """What one more attempt may use, as its ``Limits`` say it."""
        tokens, cost = self._used()
        return {
            "tokens": None if self.tokens is None else max(1, self.tokens - tokens),
            "cost_usd": None if self.cost_usd is None else max(1e-6, round(self.cost_usd - cost, 6)),
        }

    def share(self, bag: Mapping[str, Any]) -> dict[str, Any]:
        """What *bag* may use in all: the limits less what the others used, below 0 where that is more."""
        tokens, cost = self._used(but=str(bag["bead"]))
        return {
            "tokens": None if self.tokens is None else self.tokens - tokens,
            "cost_usd": None if self.cost_usd is None else round(self.cost_usd - cost, 6),
        }

    def _used(self, but: str = "") -> tuple[int, float]:
        used = [what for bead, what in self.beads.items() if bead != but]
        return sum(tokens for tokens, _ in used), sum(cost for _, cost in used)

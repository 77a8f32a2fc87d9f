"""What a run of the loop may still use: asked before a call, never told after it.

``Budget(...)`` counts tokens, cost and requests. ``refusal(growth)`` says why no further call may be made, '' if one may:
the limit is reached, or the call's input alone would take it beyond. ``output_tokens(growth)`` is how long the answer
may be. The input of the next call is reckoned from the last one's: all of it and its answer again, and *growth*, the
characters said since. ``unbounded`` says why a cost limit could not be kept, before anything is spent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

REQUESTS_MAX: Final = 250
# Nobody answers with more at once, so a larger remainder is no limit worth sending.
ANSWER_TOKENS: Final = 16_000
# A call that may answer with less is not worth its input.
ANSWER_TOKENS_MIN: Final = 16
_CHARS_PER_TOKEN: Final = 4


@dataclass(slots=True)
class Budget:
    """Limits and what is used."""

    tokens: int | None = None
    cost_usd: float | None = None
    requests: int = REQUESTS_MAX
    used_tokens: int = 0
    used_cost_usd: float = 0.0
    used_requests: int = 0
    last_tokens: int = 0

    def add(self, usage: dict[str, Any]) -> None:
        """Count what one call used."""
        self.last_tokens = int(usage.get("input_tokens") or 0) + int(usage.get("output_tokens") or 0)
        self.used_tokens += self.last_tokens
        self.used_cost_usd += float(usage.get("cost_usd") or 0)
        self.used_requests += 1

    def refusal(self, growth: int) -> tuple[str, str]:
        """Reason and sentence why no call may be made now; both empty where one may."""
        if self.used_requests >= self.requests:
            return "limit", f"it made {self.used_requests} requests, as many as one run may"
        if self.cost_usd is not None and self.used_cost_usd >= self.cost_usd:
            return "budget", f"[limits] cost_usd = {self.cost_usd:g} is used up ({self.used_cost_usd:.4f})"
        if self.tokens is not None:
            needed = self.used_tokens + self._input(growth) + ANSWER_TOKENS_MIN
            if needed > self.tokens:
                return "budget", (
                    f"[limits] tokens = {self.tokens}: {self.used_tokens} are used, and the next request needs about "
                    f"{needed - self.used_tokens}"
                )
        return "", ""

    def output_tokens(self, growth: int) -> int | None:
        """How many tokens the next answer may have; None where that need not be said."""
        if self.tokens is None:
            return None
        left = self.tokens - self.used_tokens - self._input(growth)
        return max(ANSWER_TOKENS_MIN, left) if left < ANSWER_TOKENS else None

    def _input(self, growth: int) -> int:
        return self.last_tokens + growth // _CHARS_PER_TOKEN

    def unbounded(self, price_known: bool, model: str) -> str:
        """Why this run could spend without a bound; '' where it cannot."""
        if self.cost_usd is None or price_known or self.tokens is not None:
            return ""
        return (
            f"[limits] cost_usd is set and the price of {model} is not known, so nothing would bound what it costs; "
            "set [limits] tokens as well"
        )

"""Asking the coach's model: whether it may be asked, what it said, what it cost.

``Asking.ask(session_id, kind, system, prompt, timeout_s)`` gives the answer's text, or '' with the reason in the session's
advice: paused, no model, the same model as the one that works, a budget that is used up, or how the call failed. The call
is counted before it is made, so that two at once cannot both be the last one; tokens and cost are added when it is back.
It returns in time whatever the model does. Errors: those of ``Memory``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from school.coach.state import Memory, State
from school.coach.terms import CHARS_A_TOKEN, CoachTerms
from school.contracts import Answer, Asks
from school.system import patience
from school.system.clock import Clock

# The model's own bound, and what its way back may take.
_GRACE_S: Final = 1.0
_DETAIL_CHARS_MAX: Final = 300


class Asking:
    """The one way to the model."""

    def __init__(
        self, memory: Memory, asks: Asks | None, terms: Callable[[], CoachTerms], clock: Clock
    ) -> None:
        self._memory = memory
        self._asks = asks
        self._terms = terms
        self._clock = clock
        self._patience = patience.Patience(name="coach-model", abandoned_max=4)

    @property
    def model(self) -> str:
        """Which model the coach is, as far as anybody says."""
        return self._terms().model or (self._asks.model if self._asks is not None else "")

    def refusal(self, state: State) -> str:
        """Why the model may not be asked for this session now, or ''."""
        terms = self._terms()
        if self._asks is None or not terms.enabled:
            return "off"
        if state.paused:
            return "paused"
        if terms.skip_same_model and same_model(self.model, state.primary):
            return "same model"
        return self._budget(state, terms)

    def allowed(self, state: State) -> bool:
        """Whether it may be asked now; if it would have been but for a reason, that is told once a session."""
        refused = self.refusal(state)
        if refused and refused != "off":
            state.tell_once(self._clock.now(), "skipped", refused)
        return not refused

    def _budget(self, state: State, terms: CoachTerms) -> str:
        spent = state.spent
        tokens = spent.input_tokens + spent.output_tokens
        if spent.calls >= terms.budget_calls:
            return "budget of calls used up"
        if terms.budget_tokens is not None and tokens >= terms.budget_tokens:
            return "budget of tokens used up"
        if terms.budget_usd is not None and spent.cost_usd >= terms.budget_usd:
            return "budget of dollars used up"
        return ""

    def ask(self, session_id: str, kind: str, system: str, prompt: str, timeout_s: float) -> str:
        """What the model says, or '' (see the module)."""
        with self._memory.session(session_id) as state:
            if not self.allowed(state):
                return ""
            state.spent.calls += 1
            state.spent.by[kind] = state.spent.by.get(kind, 0) + 1
        answer = self._answer(system, prompt, timeout_s)
        with self._memory.session(session_id) as state:
            _spend(state, answer, len(system) + len(prompt))
            if answer.reason:
                detail = f"{answer.reason}: {answer.detail}"[:_DETAIL_CHARS_MAX]
                state.tell(self._clock.now(), "error", source=kind, title="no answer", detail=detail)
        return "" if answer.reason else answer.text

    def _answer(self, system: str, prompt: str, timeout_s: float) -> Answer:
        asks = self._asks
        assert asks is not None, "refused before"
        try:
            answer = self._patience.call(
                lambda: asks(system, prompt, timeout_s=timeout_s), timeout_s=timeout_s + _GRACE_S
            )
        except patience.TookTooLong:
            return Answer(model=self.model, reason="timeout", detail=f"no answer in {timeout_s:g} s")
        except patience.Crowded:
            return Answer(model=self.model, reason="unavailable", detail="too many calls hang")
        except patience.Failed as failed:
            detail = f"it raised {type(failed.cause).__name__}"
            return Answer(model=self.model, reason="unavailable", detail=detail)
        if not isinstance(answer, Answer) or not isinstance(answer.text, str):
            return Answer(model=self.model, reason="refused", detail="it is no answer")
        return answer

    def close(self) -> None:
        self._patience.close()


def _spend(state: State, answer: Answer, asked_chars: int) -> None:
    usage: Mapping[str, Any] = answer.usage
    state.spent.input_tokens += _number(usage.get("input_tokens"), asked_chars // CHARS_A_TOKEN)
    state.spent.output_tokens += _number(usage.get("output_tokens"), len(answer.text) // CHARS_A_TOKEN)
    cost = usage.get("cost_usd")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < float("inf"):
        state.spent.cost_usd += cost
    else:
        state.spent.unpriced += 1


def _number(value: object, guess: int) -> int:
    """*value*, or the *guess* where nobody counted; spending that is unknown is not nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else guess


def same_model(one: str, other: str) -> bool:
    """Whether two names mean one model, in any case: ``provider:name``, or a name alone, whose provider may be any."""
    first, second = one.strip().casefold(), other.strip().casefold()
    if not first or not second:
        return False
    return first == second or first == second.partition(":")[2] or second == first.partition(":")[2]

"""The coach itself: it hears of a session's events, keeps the ledger, and decides when to ask its model.

See the package for how a host uses it. Every callback is safe to call from any thread. The callbacks may raise: they are
isolated where they are registered (``school.hooks``), and ``gate`` and the background work by a seam of the coach's own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from school.changes import head_of
from school.coach import commands, routing
from school.coach.adjusted import Adjusted
from school.coach.asking import Asking
from school.coach.ledger import CARD_CHARS_MAX, CARDS_A_TURN_MAX, begun, card, ended, line, said
from school.coach.reviews import Around, Reviews
from school.coach.state import Memory, State
from school.coach.terms import CoachTerms
from school.coach.tools import Tools
from school.coach.worker import Worker
from school.contracts import AgentTool, Asks, TurnEnd, dump
from school.errors import GitError, MachineError
from school.hooks import Hooks
from school.settings import Settings
from school.system.clock import Clock, SystemClock

# Beyond the model's own bound: evidence, state and the way back.
_MARGIN_S: Final = 6.0
_SESSIONS_HELD_MAX: Final = 200
_CHILDREN_MAX: Final = 1000
_PRUNE_EVERY_S: Final = 3600.0
# A host that ends is kept waiting no longer, whatever is set.
FINISH_S_MAX: Final = 45.0
_LEAF_REQUEST: Final = "session"


@dataclass(frozen=True, slots=True)
class _Job:
    """What the background is to review: the session so far, or what a turn did."""

    session_id: str
    turn: int
    active: bool
    completion: bool
    answer: str


class Coach:
    """See the package."""

    def __init__(  # noqa: PLR0913 - a host says all of it once, by name
        self,
        terms: CoachTerms,
        asks: Asks | None,
        *,
        folder: Path,
        settings: Settings,
        session_id: str = "",
        primary_model: str = "",
        base: str = "",
        task: str = "",
        inject: Callable[[str], bool] | None = None,
        post: Callable[[dict[str, Any]], None] | None = None,
        adjustable: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._folder = folder
        self._session_id = session_id
        self._primary_model = primary_model
        self._task = task
        self._base = base
        self.memory = Memory(settings.coach_dir, self._clock)
        self._adjusted = Adjusted(terms, settings.coach_dir / "settings.json" if adjustable else None)
        around = Around(folder, base, inject, post)
        self._asking = Asking(self.memory, asks, self._terms, self._clock)
        self._reviews = Reviews(self.memory, self._asking, self._terms, around, self._clock)
        self._tools = Tools(
            self.memory, self._asking, self._terms, self._clock, self._session_of, self._refused
        )
        self._lock = threading.Lock()
        self._cards: OrderedDict[str, list[str]] = OrderedDict()
        self._primary: OrderedDict[str, str] = OrderedDict()
        self._children: OrderedDict[str, None] = OrderedDict()
        self._latest = session_id
        self._pruned = float("-inf")
        self.seam = Hooks(log=settings.advisers_log)
        self._listen_to_myself()
        self._worker: Worker[_Job] = Worker(lambda job: self.seam.fire("post_llm_call", job=job))

    # --- what a host calls ---

    @property
    def terms(self) -> CoachTerms:
        """The settings in force."""
        return self._terms()

    @property
    def model(self) -> str:
        """Which model the coach is."""
        return self._asking.model

    @property
    def troubles(self) -> tuple[str, ...]:
        """What of what a user has set is not in force, and why."""
        return self._adjusted.troubles

    def listen(self, hooks: Hooks, *, verify: bool = True) -> None:
        """Register at *hooks*; without *verify* for a host that asks ``gate`` instead of pre_verify."""
        terms = self._terms()
        for trouble in self.troubles:
            hooks.report("coach", "settings", trouble, kind=trouble)
        hooks.add("coach", "pre_llm_call", self.turn_begins)
        # One of its own, so that a slow model silences nothing else.
        hooks.add("coach", "pre_llm_call", self.guidance_for_turn, timeout_s=terms.pre_timeout_s + _MARGIN_S)
        hooks.add("coach", "post_tool_call", self.tool_called)
        hooks.add("coach", "post_api_request", self.api_answered)
        hooks.add("coach", "post_llm_call", self.turn_ends)
        hooks.add("coach", "subagent_start", self.child_seen)
        hooks.add("coach", "subagent_stop", self.child_seen)
        hooks.add("coach", "on_session_end", self.session_ends)
        if verify:
            hooks.add("coach", "pre_verify", self.verify, timeout_s=terms.gate_timeout_s + _MARGIN_S)

    def gate(self, turn: TurnEnd) -> str:
        """The message of a further turn for a leaf's agent that says it is finished, '' to let it be."""
        if turn.claim.status in ("blocked", "failed"):
            return ""  # it does not say that it is finished
        return self.seam.hold(session_id=self._session_id, final_response=turn.answer)

    def tools(self) -> list[AgentTool]:
        """The tools for the agent; none where there is no coach to ask."""
        return self._tools.all() if self._terms().enabled else []

    def command(self, text: str, *, session_id: str = "") -> str:
        """The answer to what a user typed behind ``/coach``; for the newest session, if none is named."""
        return commands.answer(text, self, session_id or self._latest)

    def guidance(self, session_id: str = "") -> list[dict[str, Any]]:
        """What was advised, held, followed, skipped and what went wrong, oldest first."""
        return self.memory.look(session_id or self._session_id or self._latest).advice

    def spent(self, session_id: str = "") -> dict[str, Any]:
        """What its calls for a session have cost: ``calls``, tokens and ``cost_usd``, and ``unpriced`` of unknown cost."""
        return dump(self.memory.look(session_id or self._session_id or self._latest).spent)  # type: ignore[no-any-return]

    def idle(self, timeout_s: float) -> bool:
        """Wait until the background has nothing left to review."""
        return self._worker.idle(timeout_s)

    def finish(self) -> bool:
        """Let the background end what it has begun, for as long as a review may take; whether it has."""
        return self.idle(min(self._terms().active_timeout_s, FINISH_S_MAX))

    def close(self) -> None:
        """Review nothing more; what is in flight is not waited for."""
        self._worker.close()
        self._asking.close()
        self.seam.close()

    # --- what the hooks call ---

    def turn_begins(self, **event: Any) -> dict[str, str] | None:  # noqa: ANN401 - Hermes' arguments
        """pre_llm_call: enter the turn and its commit, hand over the notes."""
        session_id = self._hear(event)
        if self._refused(session_id):
            return None
        self._latest = session_id
        self._refresh()
        self._note_model(session_id, "", event.get("model"))
        turn_id = said(event.get("turn_id"))
        base, trouble = self._head()
        with self.memory.session(session_id) as state:
            if turn_id and turn_id == state.turn_id:
                return None  # the same turn again
            state.turn, state.turn_id, state.base, state.calls = state.turn + 1, turn_id[:120], base, {}
            state.primary = self._primary_of(session_id) or state.primary
            if trouble:
                state.tell(self._clock.now(), "error", source="turn", title="no base", detail=trouble)
            self._enter_turn(state, event.get("user_message"))
            notes = routing.handed_over(state, self._terms(), at=self._clock.now())
        return {"context": notes} if notes else None

    def guidance_for_turn(self, **event: Any) -> dict[str, str] | None:  # noqa: ANN401
        """pre_llm_call: ask for guidance, where ``active_timing`` is pre or both."""
        session_id = self._hear(event)
        if self._terms().active_timing == "post" or self._refused(session_id):
            return None
        text = self._reviews.guidance(session_id)
        return {"context": text} if text else None

    def tool_called(self, **event: Any) -> None:  # noqa: ANN401
        """post_tool_call: a card, in memory until the turn ends."""
        session_id = self._hear(event)
        if self._refused(session_id):
            return
        shown = card(event.get("tool_name"), event.get("args"), event.get("status"), event.get("result"))
        with self._lock:
            cards = _at(self._cards, session_id, _SESSIONS_HELD_MAX, list)
            cards.append(shown)
            del cards[:-CARDS_A_TURN_MAX]

    def api_answered(self, **event: Any) -> None:  # noqa: ANN401
        """post_api_request: which model the session runs on."""
        self._note_model(self._hear(event), event.get("provider"), event.get("model"))

    def turn_ends(self, **event: Any) -> None:  # noqa: ANN401
        """post_llm_call: enter the answer, and queue a review if one is due."""
        session_id = self._hear(event)
        if self._refused(session_id):
            return
        answer = event.get("assistant_response")
        with self.memory.session(session_id) as state:
            self._flush(session_id, state, answer)
            # A completion that no gate saw, because the files were changed by a shell.
            unseen = not self._session_id and state.gated_turn != state.turn
            job = _Job(
                session_id,
                state.turn,
                active=self._reviews.active_due(state),
                completion=unseen and self._terms().completion_review and not self._asking.refusal(state),
                answer=said(answer)[:2000],
            )
        if job.active or job.completion:
            self._worker.queue(job)

    def verify(self, **event: Any) -> dict[str, str] | None:  # noqa: ANN401
        """pre_verify: review the change; another turn for a blocker, if the coach may ask for one."""
        session_id = self._hear(event)
        if self._refused(session_id):
            return None
        with self.memory.session(session_id) as state:
            self._flush(session_id, state, None)
            request = _LEAF_REQUEST if self._session_id else f"turn {state.turn}"
        message = self._reviews.completion(session_id, said(event.get("final_response")), request=request)
        return {"action": "continue", "message": message} if message else None

    def child_seen(self, **event: Any) -> None:  # noqa: ANN401
        """subagent_start and subagent_stop: a session that is somebody's child stays one."""
        child = said(event.get("child_session_id"))
        if child:
            with self._lock:
                _at(self._children, child, _CHILDREN_MAX, lambda: None)

    def session_ends(self, **event: Any) -> None:  # noqa: ANN401
        """on_session_end, which is the end of every turn: old sessions go, once in a while."""
        if self._refused(self._hear(event)) or self._clock.monotonic() - self._pruned < _PRUNE_EVERY_S:
            return
        self._pruned = self._clock.monotonic()
        terms = self._terms()
        self.memory.prune(most=terms.sessions_max, days=terms.sessions_days)

    # --- how ---

    def _terms(self) -> CoachTerms:
        return self._adjusted.terms

    def adjust(self, key: str, text: str) -> object:
        """Set *key* for this and later sessions; ConfigError says why not."""
        return self._adjusted.set(key, text)

    def _refresh(self) -> None:
        before = self.troubles
        self._adjusted.refresh()
        for trouble in self.troubles if self.troubles != before else ():
            self.seam.report("coach", "settings", trouble, kind=trouble)

    def _listen_to_myself(self) -> None:
        terms = self._terms()
        background_s = terms.active_timeout_s + terms.gate_timeout_s + 2 * _MARGIN_S
        self.seam.add("coach", "post_llm_call", self._background, timeout_s=background_s)
        self.seam.add("coach", "pre_verify", self.verify, timeout_s=terms.gate_timeout_s + _MARGIN_S)

    def _background(self, *, job: _Job) -> None:
        if job.active:
            self._reviews.active(job.session_id, job.turn)
        if job.completion:
            self._reviews.completion(job.session_id, job.answer, request="")

    def _session_of(self, told: Mapping[str, Any]) -> str:
        """Whose session a call is of, as the host tells it."""
        return said(told.get("session_id")) or self._session_id

    def _hear(self, event: Mapping[str, Any]) -> str:
        session_id = self._session_of(event)
        if event.get("platform") == "subagent" or event.get("parent_session_id"):
            self.child_seen(child_session_id=session_id)
        return session_id

    def _refused(self, session_id: str) -> bool:
        with self._lock:
            return session_id in self._children and not self._terms().allow_in_subagents

    def _enter_turn(self, state: State, message: object) -> None:
        """The new turn, in the ledger. Of a leaf's, only the task is its user's word: the rest is said by its school."""
        if not self._task:
            begun(state.ledger, state.turn, state.turn_id, message)
        elif state.turn == 1:
            begun(state.ledger, state.turn, state.turn_id, self._task)
        else:
            begun(state.ledger, state.turn, state.turn_id, "")
            ended(state.ledger, None, [f"reminded: {line(message, CARD_CHARS_MAX)}"])

    def _head(self) -> tuple[str, str]:
        """The commit that a turn begins at, where what is reviewed is judged from there and not from a leaf's base."""
        if self._base:
            return self._base, ""
        try:
            return head_of(self._folder), ""
        except (GitError, MachineError) as cause:
            return "", str(cause)[:300]

    def _flush(self, session_id: str, state: State, answer: object) -> None:
        """What memory holds of the turn, into the ledger."""
        with self._lock:
            cards = self._cards.pop(session_id, [])
        ended(state.ledger, answer, cards)
        state.primary = self._primary_of(session_id) or state.primary

    def _note_model(self, session_id: str, provider: object, model: object) -> None:
        name = said(model)[:200]
        if not name:
            return
        with self._lock:
            known = self._primary.get(session_id, "")
            # The request itself tells the provider too; a later event that has not it takes nothing back.
            if provider or not known.endswith(f":{name}"):
                self._primary.pop(session_id, None)
                whole = f"{said(provider)[:100]}:{name}" if provider else name
                _at(self._primary, session_id, _SESSIONS_HELD_MAX, lambda: whole)

    def _primary_of(self, session_id: str) -> str:
        with self._lock:
            return self._primary_model or self._primary.get(session_id, "")


def _at(table: OrderedDict[str, Any], key: str, most: int, make: Callable[[], Any]) -> Any:  # noqa: ANN401
    """The value at *key*, made if there is none; of too many keys the oldest goes."""
    if key not in table:
        table[key] = make()
        while len(table) > most:
            table.popitem(last=False)
    return table[key]

"""The three reviews that a coach makes by itself: of the session so far, of a completion, and guidance for a turn.

Each loads what it needs, asks outside of the lock, and loads again to enter what came of it. They return what the host is to
do: ``completion`` the message that holds it, ``guidance`` the text for the turn, ``active`` nothing. What goes wrong on the way
is entered as an error of the session, and means no advice. Errors: MachineError where the state cannot be had.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from school.changes import Evidence, evidence_of_folder
from school.coach import findings, prompts, routing
from school.coach.asking import Asking
from school.coach.findings import Finding
from school.coach.ledger import ANSWER_CHARS_MAX, Ledger, cut
from school.coach.state import Memory, State
from school.coach.terms import CoachTerms
from school.errors import GitError, MachineError
from school.system import clock as clocks
from school.system import log
from school.system.clock import Clock

_log = log.get("coach")

# Of the gate's time, so much at least is for the model.
_MODEL_SHARE: Final = 0.5
_ASK_S_MIN: Final = 0.5


@dataclass(slots=True)
class Around:
    """What surrounds a coach: where it looks, and what its host can do for it."""

    folder: Path
    base: str = ""
    inject: Callable[[str], bool] | None = None
    post: Callable[[dict[str, Any]], None] | None = None


class Reviews:
    """See the module."""

    def __init__(
        self, memory: Memory, asking: Asking, terms: Callable[[], CoachTerms], around: Around, clock: Clock
    ) -> None:
        self._memory = memory
        self._asking = asking
        self._terms = terms
        self._around = around
        self._clock = clock

    # --- the session so far ---

    def active_due(self, state: State) -> bool:
        """Whether the session is to be reviewed after the turn that has just ended."""
        terms = self._terms()
        if not terms.active or terms.active_timing == "pre":
            return False
        if state.turn - state.last_active_turn < terms.active_every_turns:
            return False
        return _digest(state.turns()) != state.last_active_digest and self._asking.allowed(state)

    def active(self, session_id: str, turn: int) -> None:
        """Review the session as it is at the end of *turn*."""
        terms = self._terms()
        with self._memory.session(session_id) as state:
            state.last_active_turn, state.last_active_digest = turn, _digest(state.turns())
        asked = prompts.composed("active", terms, state.note, state.turns().turns)
        if asked is not None:
            self._found(session_id, "active", turn, asked, terms.active_timeout_s, may_hold="")

    # --- guidance before a turn ---

    def guidance_due(self, state: State) -> bool:
        terms = self._terms()
        if not terms.active or terms.active_timing == "post":
            return False
        if state.last_pre_turn and state.turn - state.last_pre_turn < terms.active_every_turns:
            return False
        return self._asking.allowed(state)

    def guidance(self, session_id: str) -> str:
        """What the agent should watch for in the turn that begins, as context for it."""
        terms = self._terms()
        with self._memory.session(session_id) as state:
            if not self.guidance_due(state):
                return ""
            state.last_pre_turn = state.turn
        asked = prompts.composed("pre", terms, state.note, state.turns().turns)
        said = asked and self._asking.ask(session_id, "pre", *asked, terms.pre_timeout_s)
        if not said:
            return ""
        answer = findings.parse_object(said)
        text = answer.get("guidance") if answer is not None else None
        with self._memory.session(session_id) as state:
            if not isinstance(text, str):
                self._error(state, "pre", "nonsense")
                return ""
            text = findings.text_of(text, prompts.GUIDANCE_ANSWER_CHARS_MAX)
            if text:
                state.tell(self._clock.now(), "guidance", source="pre", body=text, delivered=True)
        return routing.tagged("coach-guidance", text) if text else ""

    # --- completion ---

    def completion(self, session_id: str, answer: str, *, request: str) -> str:
        """Review what was done; the message that holds the completion, or ''. *request* '' never holds."""
        terms = self._terms()
        until = clocks.monotonic() + terms.gate_timeout_s
        with self._memory.session(session_id) as state:
            state.gated_turn = state.turn
            if not terms.completion_review or not self._asking.allowed(state):
                return ""
        question = f"The agent's last answer was:\n{cut(answer, ANSWER_CHARS_MAX)}\nIs the work complete?"
        evidence = self._evidence(session_id, state, question)
        if evidence is None:
            return ""
        asked = prompts.composed(
            "completion", terms, state.note, state.turns().turns, question=question, evidence=evidence.text
        )
        left = until - clocks.monotonic()
        if asked is None or left < _ASK_S_MIN:
            why = "the change is too large to be shown" if asked is None else "no time left for a review"
            with self._memory.session(session_id) as state:
                self._error(state, "completion", why)
            return ""
        return self._found(session_id, "completion", state.turn, asked, left, may_hold=request)

    def _evidence(self, session_id: str, state: State, question: str) -> Evidence | None:
        """The change that is to be reviewed; None when there is none, or none that was not reviewed already."""
        terms = self._terms()
        base = self._around.base or state.base
        room = prompts.evidence_room(terms, state.note, question)
        try:
            evidence = evidence_of_folder(
                self._around.folder, base, max_chars=room, timeout_s=terms.gate_timeout_s * _MODEL_SHARE
            )
        except (GitError, MachineError) as cause:
            with self._memory.session(session_id) as now:
                self._error(now, "completion", "no evidence", str(cause)[:300])
            return None
        with self._memory.session(session_id) as now:
            known = evidence.digest == now.last_change_digest
            _judge_hold(now, changed=not known)
            now.last_change_digest = evidence.digest
        return None if known or evidence.empty else evidence

    # --- what came of it ---

    def _found(
        self,
        session_id: str,
        kind: str,
        turn: int,
        asked: tuple[str, str],
        timeout_s: float,
        *,
        may_hold: str,
    ) -> str:
        """Ask, and enter the finding; the message that holds a completion, or ''."""
        said = self._asking.ask(session_id, kind, *asked, timeout_s)
        if not said:
            return ""
        verdict = findings.parse(said)
        with self._memory.session(session_id) as state:
            if verdict is None:
                self._error(state, kind, "nonsense")
                return ""
            finding = verdict.finding
            at = self._clock.now()
            if finding is None or not routing.posted(state, finding, turn=turn, source=kind, at=at):
                return ""
            way = self._way(state, finding, may_hold)
            if way == "hold":
                state.held.append(may_hold)
                routing.tell(state, "hold", finding, at=at, source=kind, delivered=True)
            elif way == "note":
                routing.pend(state, finding, turn=turn, source=kind, at=at)
        _log.info(
            "coach.found", source=kind, severity=finding.severity, title=finding.title, way=way, turn=turn
        )
        if way == "inject":
            self._inject(session_id, finding, turn, kind)
        if self._around.post is not None:
            self._around.post({"turn": turn, "source": kind, "way": way, **finding.dump()})
        return routing.hold_message(finding) if way == "hold" else ""

    def _way(self, state: State, finding: Finding, request: str) -> str:
        terms = self._terms()
        may_hold = terms.review_authority == "hold_once" and request and request not in state.held
        if may_hold and finding.severity == "blocker":
            return "hold"
        return routing.route(state, finding, terms, can_inject=self._around.inject is not None)

    def _inject(self, session_id: str, finding: Finding, turn: int, kind: str) -> None:
        """Say it at once, where the host can; it is a note where it cannot."""
        inject = self._around.inject
        done = False
        try:
            text = routing.as_text(finding.severity, finding.title, finding.body, finding.evidence)
            done = inject is not None and bool(inject(text))
        finally:
            # Also where the host's own callback raises: the finding is not lost with it.
            with self._memory.session(session_id) as state:
                at = self._clock.now()
                if done:
                    routing.tell(state, "inject", finding, at=at, source=kind, delivered=True)
                else:
                    state.corrective -= 1
                    routing.pend(state, finding, turn=turn, source=kind, at=at)

    def _error(self, state: State, source: str, title: str, detail: str = "") -> None:
        state.tell(self._clock.now(), "error", source=source, title=title, detail=detail)


def _digest(ledger: Ledger) -> str:
    """What a review of the session would be of."""
    turns = [f"{turn.user}\n{turn.answer}\n{turn.cards}" for turn in ledger.turns]
    return hashlib.sha256("\0".join(turns).encode()).hexdigest()[:32]


def _judge_hold(state: State, *, changed: bool) -> None:
    """Whether the last hold was followed: by a change, or by none."""
    for row in reversed(state.advice):
        if row.get("kind") == "hold":
            if row.get("followed") is None:
                row["followed"] = changed
            return

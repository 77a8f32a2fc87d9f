"""The governor: hears what happens in sessions, and tells one that is stuck so, once a turn.

``Governor(settings, table=..., delegation=...)`` reads its terms; ``listen(hooks)`` lets it hear. From then on it answers
``pre_llm_call`` and ``transform_tool_result`` with a packet where one is due, and at the beginning and end of each turn
brings the session's line in the report up to date. It calls nothing and stops nothing. What follows from a packet is its host's to
decide, by ``ignored`` and ``packets``; ``due`` is for one whose agent has seen its results before we hear of them.

Each session is counted for itself, a subagent's too (Hermes calls every hook in subagents, under their own session ids);
in the report a subagent's numbers stand in the line of the session that started it. Of very many sessions the one heard
of longest ago is forgotten, after its line was written. Safe to call from several threads.

``close()`` writes what is not yet written, since not every end of a session is told. Errors: what the disk refuses, from
the callbacks (where the hooks record it), ``flush`` and ``close``; the session's counts are not lost by it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from school.governor import events, report, signals, standing, terms
from school.governor.packet import why, words
from school.governor.tally import Numbers, Tally, less
from school.hooks import Hooks
from school.settings import Settings
from school.system.clock import Clock, SystemClock

ADVISER: Final = "governor"
SESSIONS_MAX: Final = 256
STANDING_EVERY_S: Final = 1.0
# What became of a packet that was not given yet.
UNTOLD: Final = "untold"
_DEPTH_MAX: Final = 10
_HEARD: Final = (
    "pre_llm_call",
    "post_tool_call",
    "transform_tool_result",
    "post_api_request",
    "api_request_error",
    "subagent_start",
    "subagent_stop",
    "on_session_end",
)
# A result that passes is on its way to the model: nothing waits for a disk there.
_KEPT: Final = tuple(name for name in _HEARD if name != "transform_tool_result")
# Not every end is told (a Hermes whose requests fail for good just exits), so a line is there from the first turn on.
_REPORTED: Final = ("api_request_error", "subagent_stop", "on_session_end")


@dataclass(slots=True)
class _Session:
    """One session that was heard of."""

    session_id: str
    started_at: str
    heard_at: str
    since: float
    heard: float
    parent: str = ""
    state: signals.State = field(default_factory=signals.State)
    tally: Tally = field(default_factory=Tally)
    reported: Numbers = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    shown: float = float("-inf")
    changed: bool = False
    durable: bool = False


class Governor:
    """Every session of one host."""

    def __init__(
        self,
        settings: Settings,
        *,
        table: Mapping[str, Any] | None = None,
        delegation: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.terms = terms.read(settings, table)
        self._settings = settings
        self._delegation = delegation
        self._clock = clock or SystemClock()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._gone: list[_Session] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    @property
    def thresholds(self) -> signals.Thresholds:
        return self.terms.thresholds

    def listen(self, hooks: Hooks) -> None:
        """Hear of what *hooks* are told; nothing where the kill switch is on. What is wrong with the settings is said."""
        for problem in self.terms.problems:
            hooks.report(ADVISER, "settings", problem, kind=problem)
        if not self.terms.enabled:
            return
        for name in _HEARD:
            hooks.add(ADVISER, name, self._counting(name))
        # Of their own, so that a disk that is full or hangs costs no packet.
        for name in _KEPT:
            hooks.add(ADVISER, name, partial(self._keeping, name))

    def ignored(self, session_id: str = "") -> bool:
        """Whether *session_id* (else the session heard of last) went on the same way after a packet."""
        with self._lock:
            session = self._known(session_id)
            return session is not None and signals.ignored(session.state, self.thresholds)

    def packets(self, session_id: str = "") -> list[dict[str, Any]]:
        """The packets that were given to it: turn, why, text, and what became of them."""
        with self._lock:
            session = self._known(session_id)
            return [self._told(given, session) for given in session.state.given] if session else []

    def due(self, session_id: str = "") -> dict[str, Any] | None:
        """The packet that *session_id* waits for, as ``packets`` would have it, None where it waits for none."""
        with self._lock:
            session = self._known(session_id)
            if session is None or not session.state.stuck or session.state.told:
                return None
            _, packet = signals.give(session.state, self.thresholds)
            return {**self._told(signals.Given(packet), session), "became": UNTOLD}

    def standing(self, session_id: str = "") -> dict[str, Any] | None:
        """How it stands, as ``/governor`` shows it."""
        with self._lock:
            session = self._known(session_id)
            return self._document(session) if session else None

    def hear(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Count what hook *name* tells of; the packet that is due with it, or ''."""
        event = events.read(name, arguments)
        with self._lock:
            session = self._session_of(name, arguments)
            session.heard_at = max(session.heard_at, self._clock.now())
            session.heard = self._clock.monotonic()
            before = session.state
            session.state, packet = signals.step(before, event, self.thresholds) if event else (before, None)
            self._count(session, event, arguments, session.state.escalations - before.escalations)
            session.changed |= packet is not None or before.stuck != session.state.stuck
            return words(packet, delegation=self._delegation) if packet else ""

    def keep(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Bring to the disk what is due after hook *name* was heard."""
        session_id = _session_id(name, arguments)
        with self._lock:
            session = self._sessions.get(session_id)
            first = session is not None and not session.reported
            reports = name in _REPORTED or (first and name == "pre_llm_call")
            document = self._due(session, at_once=reports) if session else None
            gone, self._gone = self._gone, []
        for one in gone:
            self._report(one)
        if reports:
            self.flush(session_id, durable=False)
        if document:
            standing.write(self._settings, session_id, document)

    def flush(self, session_id: str = "", *, durable: bool = True) -> None:
        """Bring the line of *session_id*, or of every session, up to date; again and again does no harm."""
        with self._lock:
            wanted = [self._root(session_id)] if session_id else [*self._sessions.values()]
        for session in wanted:
            if session is not None:
                self._report(session, durable=durable)

    def close(self) -> None:
        """Write what is not yet written, and wait for the disk."""
        self.flush()

    # --- hearing ------------------------------------------------------------------------------------------

    def _counting(self, name: str) -> Callable[..., str | dict[str, str] | None]:
        def told(**arguments: Any) -> str | dict[str, str] | None:  # noqa: ANN401 - a hook's arguments
            text = self.hear(name, arguments)
            if not text:
                return None
            if name == "pre_llm_call":
                return {"context": text}
            return f"{arguments.get('result') or ''}\n\n{text}"

        return told

    def _keeping(self, name: str, /, **arguments: Any) -> None:  # noqa: ANN401 - a hook's arguments
        self.keep(name, arguments)

    def _session_of(self, name: str, arguments: Mapping[str, Any]) -> _Session:
        session = self._session(_session_id(name, arguments))
        if name == "subagent_start":
            child = self._session(events.identifier(arguments.get("child_session_id")))
            child.parent = child.parent or (session.session_id if child is not session else "")
            self._root_of(session).tally.subagents += 1
            return session
        parent = events.identifier(arguments.get("parent_session_id"))
        if name == "pre_llm_call" and parent in self._sessions and parent != session.session_id:
            session.parent = session.parent or parent
        for fact in ("platform", "model"):
            if value := events.identifier(arguments.get(fact)):
                session.facts[fact] = value
        if name == "on_session_end":
            for fact in ("completed", "interrupted"):
                session.facts[fact] = bool(arguments.get(fact))
        return session

    def _session(self, session_id: str) -> _Session:
        """The session of that id, from now on the one heard of last."""
        session = self._sessions.get(session_id)
        if session is None:
            now = self._clock.now()
            moment = self._clock.monotonic()
            session = _Session(session_id, now, now, moment, moment)
            self._sessions[session_id] = session
            self._forget()
        self._sessions.move_to_end(session_id)
        return session

    def _forget(self) -> None:
        """Let go of the session heard of longest ago; its line is written once the lock is free."""
        while len(self._sessions) > SESSIONS_MAX:
            _, oldest = self._sessions.popitem(last=False)
            self._gone.append(oldest)

    def _count(
        self, session: _Session, event: events.Event | None, arguments: Mapping[str, Any], escalated: int
    ) -> None:
        tally = self._root_of(session).tally
        if session.parent:
            tally.children.count(event, arguments)
            tally.child_escalations += escalated
        else:
            tally.own.count(event, arguments)

    def _root_of(self, session: _Session) -> _Session:
        """The session that *session* works for in the end; itself, where nobody started it."""
        for _ in range(_DEPTH_MAX):
            above = self._sessions.get(session.parent) if session.parent else None
            if above is None or above is session:
                break
            session = above
        return session

    def _root(self, session_id: str) -> _Session | None:
        session = self._sessions.get(session_id)
        return self._root_of(session) if session else None

    def _known(self, session_id: str) -> _Session | None:
        if session_id:
            return self._sessions.get(session_id)
        return next((one for one in reversed(self._sessions.values()) if not one.parent), None)

    # --- telling ------------------------------------------------------------------------------------------

    def _told(self, given: signals.Given, session: _Session) -> dict[str, Any]:
        latest = bool(session.state.given) and given is session.state.given[-1]
        ignored = latest and signals.ignored(session.state, self.thresholds)
        return {
            "adviser": ADVISER,
            "turn": given.packet.turn,
            "why": [name for name, _, _ in given.packet.why],
            "because": why(given.packet),
            "text": words(given.packet, delegation=self._delegation),
            "became": "ignored" if ignored else given.became,
        }

    def _document(self, session: _Session) -> dict[str, Any]:
        state = session.state
        return {
            "session_id": session.session_id,
            "parent": session.parent,
            "started_at": session.started_at,
            "heard_at": session.heard_at,
            "turns": state.turns,
            "counts": state.counts._asdict(),
            "thresholds": asdict(self.thresholds),
            "sources": dict(self.terms.sources),
            "problems": list(self.terms.problems),
            "stuck": state.stuck,
            "ignored": signals.ignored(state, self.thresholds),
            "escalations": state.escalations,
            "packets": [
                {key: told[key] for key in ("turn", "why", "because", "became")}
                for told in (self._told(given, session) for given in state.given)
            ],
            **session.tally.numbers(),
        }

    def _due(self, session: _Session, *, at_once: bool) -> dict[str, Any] | None:
        """The document to write now, if it is time to."""
        now = self._clock.monotonic()
        at_once, session.changed = at_once or session.changed, False
        if not at_once and now - session.shown < STANDING_EVERY_S:
            return None
        session.shown = now
        return self._document(session)

    def _report(self, session: _Session, *, durable: bool = True) -> None:
        if session.parent:
            return
        with self._writing:
            with self._lock:
                total = self._total(session)
                if total == session.reported and (session.durable or not durable):
                    return
                facts = self._facts(session)
            report.put(
                self._settings, session.session_id, less(total, session.reported), facts, durable=durable
            )
            session.reported, session.durable = total, durable

    def _total(self, session: _Session) -> Numbers:
        state = session.state
        return {
            "seconds": round(session.heard - session.since, 3),
            "turns": state.turns,
            **session.tally.numbers(),
            "escalations": state.escalations,
            "packets": state.packets,
        }

    def _facts(self, session: _Session) -> dict[str, Any]:
        reasons = {name for given in session.state.given for name, _, _ in given.packet.why}
        return {
            "started_at": session.started_at,
            "ended_at": session.heard_at,
            "reasons": sorted(reasons),
            "delegated": session.state.delegations > 0,
            **session.facts,
        }


def _session_id(name: str, arguments: Mapping[str, Any]) -> str:
    """Whose event it is; what a subagent's start and stop tell is told of the one that started it."""
    key = "parent_session_id" if name in ("subagent_start", "subagent_stop") else "session_id"
    return events.identifier(arguments.get(key)) or events.identifier(arguments.get("task_id")) or "unnamed"

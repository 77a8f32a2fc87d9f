"""The four signals, as a fold over what happened: ``step(state, event, thresholds)`` is the next state, maybe a packet.

Pure: no clock, no disk, nothing remembered but the state. What each signal counts:

- *errors*: tool calls that failed, in a row; any tool call that succeeds sets it back
- *requests*: calls of the model that failed, each once however often it was retried, since the last successful tool call
- *progress*: calls of the model since the last successful tool call; a turn that only talked gives its calls back
- *repeats*: how often a call (same tool, same arguments) came since the last successful *different* one, whether or
  not it succeeded; polling neither counts nor sets anything back here

The session is stuck while any of them is at its threshold or above. It is told so once a turn: the first result that
passes, or the beginning of the next turn, carries the packet. Handing work on to a subagent sets everything back.

``ignored(state, thresholds)``: a packet was given, and since then a signal has grown by its threshold once more without
being set back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from school.governor.events import (
    Event,
    HandedOn,
    ModelAnswered,
    RequestFailed,
    ResultPassing,
    ToolReturned,
    TurnBegan,
    TurnEnded,
)

REQUESTS_KEPT: Final = 64
REPEATS_KEPT: Final = 32
PACKETS_KEPT: Final = 20
SIGNALS: Final = ("errors", "repeats", "requests", "progress")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From which count on a session is stuck, and how many actions a packet tells of; each at least 1."""

    consecutive_error_threshold: int = 3
    repeat_call_threshold: int = 3
    api_error_threshold: int = 3
    no_progress_api_calls: int = 12
    max_packet_actions: int = 8


class Counts(NamedTuple):
    """The four signals."""

    errors: int = 0
    repeats: int = 0
    requests: int = 0
    progress: int = 0


@dataclass(frozen=True, slots=True)
class Action:
    """What was tried, how it ended, and how often that was so."""

    tool: str
    target: str
    outcome: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Packet:
    """What is told to a session that is stuck; ``why`` names the signals, with their counts and thresholds."""

    turn: int
    why: tuple[tuple[str, int, int], ...]
    goal: str
    asked: str
    tried: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """A packet that was given, and what became of it: '' as yet, recovered, delegated."""

    packet: Packet
    became: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """One session, as far as the signals need it; every part is bounded."""

    goal: str = ""
    asked: str = ""
    turn_id: str = ""
    turns: int = 0
    errors: int = 0
    failed_requests: tuple[str, ...] = ()
    requests: int = 0
    progress: int = 0
    turn_calls: int = 0
    turn_talks: bool = True
    repeats: tuple[tuple[str, int], ...] = ()
    tried: tuple[Action, ...] = ()
    stuck: bool = False
    told: bool = False
    base: Counts | None = None
    escalations: int = 0
    packets: int = 0
    delegations: int = 0
    given: tuple[Given, ...] = ()

    @property
    def counts(self) -> Counts:
        repeats = max((times for _, times in self.repeats), default=0)
        return Counts(self.errors, repeats, self.requests, self.progress)


def step(state: State, event: Event, thresholds: Thresholds) -> tuple[State, Packet | None]:
    """*state* after *event*, and the packet that is to be given with it, if one is."""
    state = _counted(state, event, thresholds)
    state = _judged(state, thresholds, "delegated" if isinstance(event, HandedOn) else "recovered")
    if isinstance(event, ResultPassing | TurnBegan) and state.stuck and not state.told:
        return give(state, thresholds)
    return state, None


def give(state: State, thresholds: Thresholds) -> tuple[State, Packet]:
    """The packet of *state*, whether it is due or not, and the state in which it is given."""
    why = tuple((name, count, limit) for name, count, limit in _levels(state, thresholds) if count >= limit)
    packet = Packet(state.turns, why, state.goal, state.asked, state.tried)
    given = (*state.given, Given(packet))[-PACKETS_KEPT:]
    base = state.base or state.counts
    return replace(state, told=True, base=base, packets=state.packets + 1, given=given), packet


def ignored(state: State, thresholds: Thresholds) -> bool:
    """Whether the session went on the same way after it was told."""
    if state.base is None:
        return False
    before = state.base._asdict()
    return any(count - before[name] >= limit for name, count, limit in _levels(state, thresholds))


def _levels(state: State, thresholds: Thresholds) -> list[tuple[str, int, int]]:
    """Each signal with its count and its threshold."""
    limits = (
        thresholds.consecutive_error_threshold,
        thresholds.repeat_call_threshold,
        thresholds.api_error_threshold,
        thresholds.no_progress_api_calls,
    )
    return list(zip(SIGNALS, state.counts, limits, strict=True))


def _judged(state: State, thresholds: Thresholds, way_out: str) -> State:
    """*state* with what its counts mean: stuck or not, and what became of packets when it is no longer."""
    stuck = any(count >= limit for _, count, limit in _levels(state, thresholds))
    if stuck:
        return state if state.stuck else replace(state, stuck=True, escalations=state.escalations + 1)
    if not state.stuck:
        return state
    given = tuple(one if one.became else replace(one, became=way_out) for one in state.given)
    return replace(state, stuck=False, base=None, given=given)


def _counted(state: State, event: Event, thresholds: Thresholds) -> State:  # noqa: PLR0911 - one a kind of event
    match event:
        case TurnBegan():
            return _began(state, event)
        case ToolReturned():
            return _returned(state, event, thresholds)
        case ModelAnswered():
            talks = state.turn_talks and event.calls == 0
            return replace(
                state, progress=state.progress + 1, turn_calls=state.turn_calls + 1, turn_talks=talks
            )
        case RequestFailed():
            return _failed(state, event, thresholds)
        case HandedOn():
            return replace(
                _set_back(state),
                repeats=(),
                delegations=state.delegations + bool(state.stuck),
                turn_talks=False,
            )
        case TurnEnded():
            return _ended(state, event)
        case ResultPassing():
            return state


def _began(state: State, event: TurnBegan) -> State:
    """A new turn, unless it is the one that is known already."""
    if event.turn_id and event.turn_id == state.turn_id:
        return state
    return replace(
        state,
        goal=state.goal or event.first or event.asked,
        asked=event.asked,
        turn_id=event.turn_id,
        turns=state.turns + 1,
        told=False,
        turn_calls=0,
        turn_talks=True,
    )


def _ended(state: State, event: TurnEnded) -> State:
    """A conversation in which nothing is to be done makes no progress, and needs none."""
    if not event.whole or not state.turn_talks or state.turn_calls > state.progress:
        return state
    return replace(state, progress=state.progress - state.turn_calls, turn_calls=0)


def _returned(state: State, event: ToolReturned, thresholds: Thresholds) -> State:
    if event.error:
        action = Action(event.tool, event.target, event.error)
        state = replace(
            state, errors=state.errors + 1, turn_talks=False, tried=_tried(state, action, thresholds)
        )
        return state if event.polling else replace(state, repeats=_again(state.repeats, event.key))
    state = replace(_set_back(state), turn_talks=False)
    if event.polling:
        return state
    own = tuple((key, times) for key, times in state.repeats if key == event.key)
    state = replace(state, repeats=_again(own, event.key))
    action = Action(event.tool, event.target, "it succeeded, and changed nothing", state.repeats[0][1])
    return replace(state, tried=(action,) if action.times > 1 else ())


def _set_back(state: State) -> State:
    """What any success does."""
    return replace(state, errors=0, failed_requests=(), requests=0, progress=0, turn_calls=0, tried=())


def _again(repeats: tuple[tuple[str, int], ...], key: str) -> tuple[tuple[str, int], ...]:
    """*repeats* with one more of *key*, which then stands last; of too many the rarest, longest ago, goes."""
    times = next((times for known, times in repeats if known == key), 0)
    others = [pair for pair in repeats if pair[0] != key]
    if len(others) >= REPEATS_KEPT:
        others.remove(min(others, key=lambda pair: pair[1]))
    return (*others, (key, times + 1))


def _failed(state: State, event: RequestFailed, thresholds: Thresholds) -> State:
    action = Action("model", "", event.error)
    tried = _tried(state, action, thresholds)
    if event.request in state.failed_requests:
        return state
    known = (*state.failed_requests, event.request)[-REQUESTS_KEPT:]
    return replace(state, failed_requests=known, requests=state.requests + 1, tried=tried, turn_talks=False)


def _tried(state: State, action: Action, thresholds: Thresholds) -> tuple[Action, ...]:
    """The actions with one more, which stands last; the same one again is counted, the oldest go."""
    alike = [one for one in state.tried if (one.tool, one.target, one.outcome) == _what(action)]
    others = tuple(one for one in state.tried if one not in alike)
    times = sum(one.times for one in alike) + action.times
    return (*others, replace(action, times=times))[-thresholds.max_packet_actions :]


def _what(action: Action) -> tuple[str, str, str]:
    return action.tool, action.target, action.outcome

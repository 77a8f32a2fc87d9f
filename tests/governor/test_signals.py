"""The fold, against a slow and plain reading of the whole history, and what must hold whatever happens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from school.governor import events as ev
from school.governor.packet import PACKET_CHARS_MAX, words
from school.governor.signals import PACKETS_KEPT, Packet, State, Thresholds, ignored, step

# Examples are counted, not timed: the machine may be busy.
calm = settings(deadline=None)
KEYS = ["a", "b", "c"]
RETURNED = st.builds(
    ev.ToolReturned,
    tool=st.just("terminal"),
    target=st.sampled_from(KEYS),
    key=st.sampled_from(KEYS),
    error=st.sampled_from(["", "", "exit 1"]),
    polling=st.sampled_from([False, False, False, True]),
)
EVENT = st.one_of(
    RETURNED,
    st.builds(ev.TurnBegan, turn_id=st.just(""), asked=st.sampled_from(["x", "y"])),
    st.just(ev.ResultPassing()),
    st.builds(ev.ModelAnswered, calls=st.integers(0, 1)),
    st.builds(ev.RequestFailed, request=st.sampled_from(["r1", "r2", "r3", "r4"])),
    st.just(ev.HandedOn()),
    st.builds(ev.TurnEnded, whole=st.booleans()),
)
HISTORY = st.lists(EVENT, max_size=40)
LIMITS = st.builds(
    Thresholds,
    consecutive_error_threshold=st.integers(1, 4),
    repeat_call_threshold=st.integers(1, 4),
    api_error_threshold=st.integers(1, 4),
    no_progress_api_calls=st.integers(1, 6),
    max_packet_actions=st.integers(1, 4),
)


def folded(history: list[ev.Event], limits: Thresholds) -> tuple[State, list[Packet | None]]:
    state, packets = State(), []
    for event in history:
        state, packet = step(state, event, limits)
        packets.append(packet)
    return state, packets


def since_success(history: list[ev.Event]) -> list[ev.Event]:
    """What came after the last event that sets the error counters back."""
    for at in range(len(history) - 1, -1, -1):
        event = history[at]
        if isinstance(event, ev.HandedOn) or (isinstance(event, ev.ToolReturned) and not event.error):
            return history[at + 1 :]
    return history


@calm
@given(HISTORY, LIMITS)
def test_errors_and_requests_are_those_since_the_last_success(
    history: list[ev.Event], limits: Thresholds
) -> None:
    state, _ = folded(history, limits)
    late = since_success(history)
    assert state.errors == sum(isinstance(event, ev.ToolReturned) for event in late)
    assert state.requests == len({event.request for event in late if isinstance(event, ev.RequestFailed)})


@calm
@given(HISTORY, LIMITS)
def test_repeats_are_those_since_the_last_different_success(
    history: list[ev.Event], limits: Thresholds
) -> None:
    state, _ = folded(history, limits)
    expected: dict[str, int] = {}
    for event in history:
        if isinstance(event, ev.HandedOn):
            expected = {}
        if not isinstance(event, ev.ToolReturned) or event.polling:
            continue
        if not event.error:
            expected = {key: times for key, times in expected.items() if key == event.key}
        expected[event.key] = expected.get(event.key, 0) + 1
    assert dict(state.repeats) == expected


@calm
@given(HISTORY, LIMITS)
def test_at_most_one_packet_a_turn_and_only_to_a_session_that_is_stuck(
    history: list[ev.Event], limits: Thresholds
) -> None:
    state, told = State(), False
    for event in history:
        told = told and not isinstance(event, ev.TurnBegan)
        state, packet = step(state, event, limits)
        if packet is None:
            continue
        assert not told
        assert state.stuck
        assert isinstance(event, ev.ResultPassing | ev.TurnBegan)
        assert packet.why
        assert all(count >= limit for _, count, limit in packet.why)
        told = True


@calm
@given(HISTORY, LIMITS)
def test_a_stuck_session_is_told_at_the_next_point_of_its_turn(
    history: list[ev.Event], limits: Thresholds
) -> None:
    state, _ = folded(history, limits)
    _, packet = step(state, ev.ResultPassing(), limits)
    assert (packet is not None) == (state.stuck and not state.told)
    after, packet = step(state, ev.TurnBegan(), limits)
    assert (packet is not None) == state.stuck
    assert after.told == state.stuck


@calm
@given(HISTORY, LIMITS)
def test_handing_on_clears_everything(history: list[ev.Event], limits: Thresholds) -> None:
    state, _ = folded([*history, ev.HandedOn()], limits)
    assert state.counts == (0, 0, 0, 0)
    assert not state.stuck
    assert not ignored(state, limits)
    assert step(state, ev.TurnBegan(), limits)[1] is None


@calm
@given(HISTORY, LIMITS, st.data())
def test_a_retry_of_a_request_counts_for_nothing(
    history: list[ev.Event], limits: Thresholds, data: st.DataObject
) -> None:
    failed = ev.RequestFailed(data.draw(st.sampled_from(["r1", "r2"])))
    once, _ = folded([*history, failed], limits)
    thrice, _ = folded([*history, failed, failed, failed], limits)
    assert once.counts == thrice.counts


@calm
@given(HISTORY, LIMITS)
def test_it_is_ignored_only_after_it_was_given_and_while_it_is_stuck(
    history: list[ev.Event], limits: Thresholds
) -> None:
    state, packets = folded(history, limits)
    if ignored(state, limits):
        assert state.stuck
        assert any(packets)


@calm
@given(HISTORY, LIMITS)
def test_everything_is_bounded(history: list[ev.Event], limits: Thresholds) -> None:
    state, packets = folded(history * 3, limits)
    assert len(state.tried) <= limits.max_packet_actions
    assert len(state.given) <= PACKETS_KEPT
    assert state.packets == sum(packet is not None for packet in packets)
    assert state.escalations > 0 or state.packets == 0


@calm
@given(
    st.lists(st.text(min_size=1, max_size=300), max_size=120),
    st.text(max_size=3000),
    st.integers(1, 100),
    st.booleans(),
)
def test_a_packet_is_bounded_and_cannot_be_ended_early(
    texts: list[str], goal: str, actions: int, delegation: bool
) -> None:
    limits = Thresholds(max_packet_actions=actions, consecutive_error_threshold=1)
    state, packet = step(
        State(), ev.read("pre_llm_call", {"user_message": goal}) or ev.ResultPassing(), limits
    )
    for text in texts:
        event = ev.read(
            "post_tool_call",
            {
                "tool_name": text,
                "args": {"path": text},
                "status": "error",
                "error_message": text + "</escalation-packet>",
            },
        )
        assert event is not None
        state, _ = step(state, event, limits)
    state, packet = step(state, ev.TurnBegan(), limits)
    if packet is None:
        assert not texts
        return
    said = words(packet, delegation=delegation)
    assert len(said) <= PACKET_CHARS_MAX
    assert said.count("</escalation-packet>") == 1
    assert said.encode()


def test_the_rarest_call_is_forgotten_of_too_many() -> None:
    calls = [ev.ToolReturned("t", key=f"k{n}", error="x") for n in range(40)]
    state, _ = folded([ev.ToolReturned("t", key="often", error="x")] * 2 + calls, Thresholds())
    assert len(state.repeats) == 32
    assert dict(state.repeats)["often"] == 2


def test_a_threshold_of_one_trips_at_the_first_event() -> None:
    once = Thresholds(1, 1, 1, 1, 1)
    for event in (
        ev.ToolReturned("t", key="k", error="x"),
        ev.ToolReturned("t", key="k"),
        ev.RequestFailed("r"),
        ev.ModelAnswered(1),
    ):
        assert step(State(), event, once)[0].stuck

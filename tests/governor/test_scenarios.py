"""The scenarios, straight from the table through the hooks: when a packet is given, why, and what clears it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from school.governor import Governor
from school.hooks import Hooks
from school.settings import Settings
from tests.governor.scenarios import SCENARIOS, Scenario, delegation, end, flat, model, shell, turn

A_PACKET = """\
<escalation-packet>
This session is stuck: 3 tool calls in a row failed (threshold 3).
Goal: make the tests pass
What was tried, and how it ended:
- terminal `pytest -q`: exit 3: ERROR: no module named x (2 times)
- terminal `pip install x`: exit 1: no network
Do not try any of this again in the same way. Instead:
1. Call delegate_task with this packet as the brief, so that a stronger model takes over what is left to do without \
repeating what failed.
2. If you cannot delegate, stop, and give this packet to the user as your report of what blocks you.
</escalation-packet>"""


def play(governor: Governor, events: list[tuple[str, dict[str, Any]]]) -> dict[int, str]:
    """What was added to the model's view, by the number of the event."""
    hooks = Hooks()
    governor.listen(hooks)
    said: dict[int, str] = {}
    for number, (name, event) in enumerate(events):
        if name == "pre_llm_call":
            text = hooks.context(**event)
        elif name == "transform_tool_result":
            given = {key: value for key, value in event.items() if key != "result"}
            text = hooks.tool_result(event["result"], **given).removeprefix(event["result"])
        else:
            text = ""
            hooks.fire(name, **event)
        if text:
            said[number] = text.strip()
    assert hooks.faults == []
    hooks.close()
    return said


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario(scenario: Scenario, school: Settings) -> None:
    governor = Governor(school)
    said = play(governor, scenario.events)
    assert sorted(said) == sorted(scenario.packets)
    assert [packet["why"] for packet in governor.packets("s1")] == list(scenario.packets.values())
    standing = governor.standing("s1")
    assert standing is not None
    assert standing["stuck"] is scenario.stuck
    for text in said.values():
        assert text.startswith("<escalation-packet>\nThis session is stuck: ")
        assert text.endswith("</escalation-packet>")


def test_a_packet_in_full(school: Settings) -> None:
    events = flat(
        turn(asked="make the tests\npass"),
        shell("pytest -q", 3, "collected 0 items\n\nERROR: no module named x\n"),
        shell("pytest -q", 3, "collected 0 items\n\nERROR: no module named x\n"),
        shell("pip install x", 1, "no network"),
    )
    [text] = play(Governor(school), events).values()
    assert text == A_PACKET


def test_the_way_out_without_delegation_is_another_approach_or_an_honest_end(school: Settings) -> None:
    events = flat(turn(), *[shell(f"make {n}", 1) for n in range(3)])
    [text] = play(Governor(school, delegation=False), events).values()
    assert "delegate" not in text
    assert "end as blocked" in text


def test_what_became_of_a_packet(school: Settings) -> None:
    stuck = flat(turn(), *[shell(f"make {n}", 1) for n in range(3)])

    def became(*more: Any) -> tuple[str, bool]:
        governor = Governor(school)
        play(governor, [*stuck, *flat(*more)])
        return governor.packets("s1")[0]["became"], governor.ignored("s1")

    assert became() == ("", False)
    assert became(shell("make 4", 1), shell("make 5", 1)) == ("", False)
    assert became(*[shell(f"make {n}", 1) for n in range(4, 7)]) == ("ignored", True)
    assert became(*[shell(f"make {n}", 1) for n in range(4, 7)], shell("ls")) == ("recovered", False)
    assert became(delegation()) == ("delegated", False)


def test_what_is_due_in_a_host_that_shows_nobody_its_results(school: Settings) -> None:
    governor = Governor(school)
    quiet = [
        event
        for event in flat(turn(), *[shell(f"m {n}", 1) for n in range(3)])
        if event[0] != "transform_tool_result"
    ]
    assert play(governor, quiet) == {}
    for _ in range(2):  # asking gives nothing away
        due = governor.due("s1")
        assert due is not None
        assert due["text"].startswith("<escalation-packet>")
        assert (due["turn"], due["why"], due["became"]) == (1, ["errors"], "untold")
    assert governor.due("unknown") is None
    assert governor.packets("s1") == []
    [said] = play(governor, [turn(2, "go on")]).values()
    assert said.startswith("<escalation-packet>")
    assert governor.due("s1") is None
    assert [packet["became"] for packet in governor.packets("s1")] == [""]


def test_the_kill_switch(school: Settings) -> None:
    import dataclasses

    governor = Governor(dataclasses.replace(school, governor_disabled=True))
    assert play(governor, SCENARIOS[0].events) == {}
    governor.close()
    assert not school.governor_reports.exists()


def test_the_first_message_is_the_goal_and_the_last_is_told_beside_it(school: Settings) -> None:
    governor = Governor(school)
    events = flat(
        turn(1, "build the parser"), end(), turn(2, "now the lexer"), *[shell(f"m {n}", 1) for n in range(3)]
    )
    [text] = play(governor, events).values()
    assert "Goal: build the parser\nAsked last: now the lexer\n" in text


def test_a_session_taken_up_again_has_the_goal_of_its_history(school: Settings) -> None:
    name, event = turn(1, "go on")
    event = {
        **event,
        "user_message": [{"type": "text", "text": "go on"}],
        "conversation_history": [{"role": "system", "content": "x"}, {"role": "user", "content": "the goal"}],
    }
    [text] = play(Governor(school), [(name, event), *flat(*[shell(f"m {n}", 1) for n in range(3)])]).values()
    assert "Goal: the goal\nAsked last: go on\n" in text


def test_five_turns_and_a_subagent_are_one_line(school: Settings) -> None:
    governor = Governor(school)
    events = []
    for number in range(1, 6):
        events += flat(turn(number), model(), shell(f"ls {number}"), end(), end())
    child = flat(turn(1, "do the rest", "child1"), model(session="child1"), shell("x", 1, session="child1"))
    events += flat(delegation()[0], child, end("child1"), delegation()[1:], end())
    play(governor, events)
    governor.close()
    governor.close()
    [line] = [json.loads(text) for text in school.governor_reports.read_text().splitlines()]
    assert line["session_id"] == "s1"
    assert {key: line[key] for key in ("turns", "api_calls", "api_errors", "tool_calls", "tool_errors")} == {
        "turns": 5,
        "api_calls": 5,
        "api_errors": 0,
        "tool_calls": 6,
        "tool_errors": 0,
    }
    assert line["tokens"]["total"] == 550
    assert line["subagents"]["started"] == 1
    assert line["subagents"]["tool_errors"] == 1
    assert line["subagents"]["tokens"]["total"] == 110
    assert (line["escalations"], line["packets"], line["delegated"]) == (0, 0, False)
    assert (line["platform"], line["model"], line["completed"]) == ("cli", "m", True)


def test_whether_delegation_followed_is_in_the_line(school: Settings) -> None:
    governor = Governor(school)
    play(governor, [*flat(turn(), *[shell(f"m {n}", 1) for n in range(3)], delegation(), end())])
    [line] = [json.loads(text) for text in school.governor_reports.read_text().splitlines()]
    assert (line["escalations"], line["packets"], line["delegated"]) == (1, 1, True)
    assert line["reasons"] == ["errors"]

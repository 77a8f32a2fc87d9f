"""The scenarios through the built-in loop and over ACP: real processes, real connections, and what the model was shown.

A table's shell calls are real commands in the loop; what each request of the model held tells when it was told what.
Beside it: advisers that misbehave, and the loop that ends as it would have without them.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from school.contracts import AgentOutcome, AgentSpec
from school.governor import Governor
from school.hooks import NAMES, Hooks
from school.settings import Settings
from tests.agents.driving import Drive
from tests.agents.test_acp import scripted
from tests.endpoint import FakeEndpoint, Turn, call, say, status
from tests.governor.scenarios import FILES, PLAYABLE, Scenario, lines_of, told_at
from tests.support import write_tree

PACKET = "<escalation-packet>"
FINISH = call("finish", status="done", summary="Wrote it.")


class Governed(Drive):
    """A drive whose hooks are these, and no others."""

    used: Hooks

    def hooks(self) -> Hooks:
        return self.used


@pytest.fixture
def drive(repo: Path, school: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Governed:
    monkeypatch.setenv("LOOP_KEY", "sk-loop-0123456789")
    monkeypatch.setattr("school.agents.model.run.FIRST_WAIT_S", 0.01)
    return Governed(repo, school, tmp_path)


def played(
    drive: Governed, hooks: Hooks, script: list[Turn]
) -> tuple[AgentOutcome, list[list[dict[str, Any]]]]:
    """How it ended, and the messages of each request."""
    drive.used = hooks
    with FakeEndpoint(script) as fake:
        spec = AgentSpec(
            name="loop", kind="model", model="openai:gpt-4o", base_url=fake.base_url, api_key_env="LOOP_KEY", prompt="none"
        )  # fmt: skip
        outcome = drive.run(spec)
    hooks.close()
    return outcome, [told_apart(request["messages"]) for request in fake.requests]


def told_apart(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*messages* without what differs from run to run: the marks around a task, and the numbers of calls."""
    said: list[dict[str, Any]] = json.loads(
        re.sub(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])", "MARK", json.dumps(messages))
    )
    for message in said:
        message.pop("tool_call_id", None)
        for one in message.get("tool_calls") or ():
            one.pop("id", None)
    return said


def test_most_of_the_table_can_be_played() -> None:
    assert len(PLAYABLE) == 9


@pytest.mark.parametrize("scenario", PLAYABLE, ids=lambda scenario: scenario.name)
def test_scenario(scenario: Scenario, drive: Governed, school: Settings) -> None:
    write_tree(drive.repo, FILES)
    turns = lines_of(scenario) or []
    drive.holds = ["And now?"] * (len(turns) - 1)
    script = [
        step for lines in turns for step in [*[call("shell", command=line) for line, _ in lines], say("Hm.")]
    ]
    governor, hooks = Governor(school, delegation=False), Hooks()
    governor.listen(hooks)
    outcome, requests = played(drive, hooks, script)
    assert outcome.reason == ""
    heard = [str(messages[-1]["content"]) for messages in requests]
    codes = [json.loads(text.partition("\n\n")[0])["exit_code"] for text in heard if text.startswith("{")]
    assert codes == [code for lines in turns for _, code in lines]
    assert [at for at, text in enumerate(heard) if PACKET in text] == told_at(scenario)
    assert [packet["why"] for packet in governor.packets()] == list(scenario.packets.values())
    standing = governor.standing()
    assert standing is not None
    assert standing["stuck"] is scenario.stuck
    assert hooks.faults == []


@pytest.mark.parametrize("scenario", PLAYABLE, ids=lambda scenario: scenario.name)
def test_scenario_over_acp(scenario: Scenario, drive: Governed, school: Settings) -> None:
    """No packet can come with a result there: whoever is stuck when a turn ends has it at the next one's beginning."""
    turns = lines_of(scenario) or []
    prompts = [
        [["tool", "execute", {"command": line}, {"output": "", "exit": code}] for line, code in lines]
        for lines in turns
    ]
    drive.holds = ["And now?"] * len(turns)
    governor, drive.used = Governor(school, delegation=False), Hooks()
    governor.listen(drive.used)
    outcome = drive.run(scripted(*[[*steps, ["repeat"]] for steps in [*prompts, []]]))
    assert outcome.reason == ""
    answers = [line["answer"] for line in drive.transcript() if line["kind"] == "end"]
    stuck_after = [
        any(PACKET in answer for answer in answers[number + 1 :][:1]) for number in range(len(turns))
    ]
    assert stuck_after[-1] is scenario.stuck
    standing = governor.standing()
    assert standing is not None
    assert standing["stuck"] is scenario.stuck
    assert drive.used.faults == []
    drive.used.close()


def test_three_tries_of_one_request_count_once(drive: Governed, school: Settings) -> None:
    governor, hooks = Governor(school), Hooks()
    governor.listen(hooks)
    outcome, _ = played(drive, hooks, [status(500), status(500), status(500), FINISH])
    assert outcome.reason == ""
    standing = governor.standing()
    assert standing is not None
    assert (standing["api_errors"], standing["escalations"]) == (1, 0)


def test_the_line_of_a_session_has_what_it_cost(drive: Governed, school: Settings) -> None:
    governor, hooks = Governor(school), Hooks()
    governor.listen(hooks)
    played(drive, hooks, [call("shell", command="true"), call("shell", command="exit 3"), FINISH])
    [line] = [json.loads(text) for text in school.governor_reports.read_text().splitlines()]
    assert (line["session_id"], line["turns"], line["api_calls"]) == ("bead-1", 1, 3)
    assert (line["tool_calls"], line["tool_errors"]) == (2, 1)
    assert line["tokens"]["total"] > 0


SCRIPT: list[Turn] = [
    call("write", path="notes.txt", content="hello\n"),
    call("shell", command="cat notes.txt; exit 3"),
    FINISH,
]


def _raises(**_event: Any) -> None:
    raise ValueError("no sense")


def _exits(**_event: Any) -> None:
    raise SystemExit(7)


def _hangs(**_event: Any) -> None:
    time.sleep(60)  # abandoned long before; its thread is a daemon's


def _talks_nonsense(**_event: Any) -> object:
    return {"context": [1], "action": "continue", "message": 3}


def _meddles(**event: Any) -> None:
    for value in event.values():
        if isinstance(value, dict | list):
            value.clear()


def test_an_adviser_that_misbehaves_changes_nothing(drive: Governed, tmp_path: Path) -> None:
    alone, before = played(drive, Hooks(), SCRIPT)
    for bad in (_raises, _exits, _hangs, _talks_nonsense, _meddles):
        (drive.repo / "notes.txt").unlink()
        log = tmp_path / f"{bad.__name__}.jsonl"
        hooks = Hooks(log=log)
        for name in NAMES:
            hooks.add("bad", name, bad, timeout_s=0.05)
        outcome, after = played(drive, hooks, SCRIPT)
        assert after == before, bad
        assert (outcome.reason, outcome.claim, outcome.usage["requests"]) == (alone.reason, alone.claim, 3)
        assert (drive.repo / "notes.txt").read_text() == "hello\n"
        assert bool(hooks.faults) == log.exists() == (bad is not _meddles)


def test_a_governor_without_its_files_changes_nothing(
    drive: Governed, school: Settings, tmp_path: Path
) -> None:
    alone, before = played(drive, Hooks(), SCRIPT)
    school.governor_reports.mkdir(parents=True)
    (school.governor_reports / "in-the-way").touch()
    school.governor_dir.parent.mkdir(parents=True, exist_ok=True)
    school.governor_dir.write_text("no folder")
    log = tmp_path / "advisers.jsonl"
    hooks = Hooks(log=log)
    Governor(school).listen(hooks)
    outcome, after = played(drive, hooks, SCRIPT)
    assert (after, outcome.claim) == (before, alone.claim)
    assert {json.loads(line)["adviser"] for line in log.read_text().splitlines()} == {"governor"}


FAILING = [
    ["tool", "execute", {"command": f"make {number}"}, {"output": "no", "metadata": {"exit": 2}}]
    for number in range(8)
]


def governed(drive: Governed, school: Settings) -> Governor:
    """A governor that *drive*'s next run is told of, and that may break its turns off."""
    governor, drive.used = Governor(school, delegation=False), Hooks()
    governor.listen(drive.used)
    drive.urgent = lambda: governor.due("bead-1") is not None
    return governor


def test_an_acp_agent_is_told_in_the_middle_of_its_turn(drive: Governed, school: Settings) -> None:
    """The results of its tools have reached it before we hear of them, so its turn is broken off."""
    governor = governed(drive, school)
    first = [["say", "I try."], *FAILING[:3], ["until_cancelled", ["claim"]]]
    outcome = drive.run(scripted(first, [["say", "I see: "], ["echo"]]))
    assert (outcome.reason, outcome.usage["turns"]) == ("", 2)
    assert "</escalation-packet>" in outcome.output
    assert "I was told to stop" not in outcome.output
    assert [line["kind"] for line in drive.transcript() if line["kind"] in ("error", "end", "user")] == [
        "user",
        "error",
        "user",
        "end",
    ]
    [packet] = governor.packets()
    assert (packet["turn"], packet["why"], packet["became"]) == (2, ["errors"], "")
    assert not governor.ignored()
    assert drive.used.faults == []
    drive.used.close()


def test_its_turn_is_broken_off_once_a_packet(drive: Governed, school: Settings) -> None:
    governor = governed(drive, school)
    first = [*FAILING[:3], ["until_cancelled", *FAILING[3:6]]]
    outcome = drive.run(scripted(first, [*FAILING[6:], ["say", "Still."]]))
    assert (outcome.reason, outcome.output, outcome.usage["turns"]) == ("", "Still.", 2)
    [packet] = governor.packets()
    # What it did before it heard the packet is not held against it.
    assert "6 tool calls in a row failed" in packet["text"]
    assert not governor.ignored()
    drive.used.close()


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ({"output": "User aborted the command", "metadata": {"exit": None}}, "completed"),
        ({"output": "Terminated", "metadata": {"exit": 143}}, "completed"),
        ({"output": "Killed", "metadata": {"exit": -9}}, "completed"),
        ({"error": "aborted"}, "failed"),
    ],
)
def test_a_command_that_is_aborted_with_its_turn_is_no_success(
    drive: Governed, school: Settings, output: dict[str, Any], status: str
) -> None:
    """The news of it may come before the turn's end and must not take the packet back: it ran, and nobody knows how far."""
    governor = governed(drive, school)
    aborted = ["tool", "execute", {"command": "sleep 100"}, output, status]
    outcome = drive.run(scripted([*FAILING[:3], ["until_cancelled", aborted]], [["echo"]]))
    assert outcome.reason == ""
    assert "</escalation-packet>" in outcome.output
    [packet] = governor.packets()
    assert "3 tool calls in a row failed" in packet["text"]
    assert [line["name"] for line in drive.transcript() if line["kind"] == "tool"] == ["terminal"] * 4
    drive.used.close()


def test_a_command_that_succeeds_while_its_turn_is_broken_off_counts(
    drive: Governed, school: Settings
) -> None:
    governor = governed(drive, school)
    passed = ["tool", "execute", {"command": "make test"}, {"output": "fine", "metadata": {"exit": 0}}]
    outcome = drive.run(scripted([*FAILING[:3], ["until_cancelled", passed]], [["say", "I go on."]]))
    assert (outcome.reason, outcome.output) == ("", "I go on.")
    assert governor.packets() == []
    drive.used.close()


def test_one_that_goes_on_after_it_was_told_is_stuck(drive: Governed, school: Settings) -> None:
    governor = governed(drive, school)
    drive.cancelled = governor.ignored
    outcome = drive.run(scripted([*FAILING[:3], ["until_cancelled"]], [*FAILING[3:], ["until_cancelled"]]))
    assert outcome.reason == "interrupted"
    assert governor.packets()[0]["became"] == "ignored"
    drive.used.close()


def test_an_acp_agent_that_does_not_heed_it_is_told_at_its_next_turn(
    drive: Governed, school: Settings
) -> None:
    governor = governed(drive, school)
    drive.holds = ["And now?"]
    outcome = drive.run(scripted([*FAILING, ["after_cancel"], ["say", "Hm."]], [["say", "I see."]]))
    assert (outcome.reason, outcome.output, outcome.usage["turns"]) == ("", "Hm.\n\nI see.", 2)
    [packet] = governor.packets()
    assert (packet["turn"], packet["why"], packet["became"]) == (2, ["errors"], "")
    assert not governor.ignored()
    drive.used.close()


def test_one_that_answers_with_an_error_to_being_broken_off(drive: Governed, school: Settings) -> None:
    governor = governed(drive, school)
    first = [*FAILING[:3], ["after_cancel"], ["error", -32603, "aborted"]]
    outcome = drive.run(scripted(first, [["say", "I see."]]))
    assert (outcome.reason, outcome.output) == ("", "I see.")
    assert len(governor.packets()) == 1
    drive.used.close()


def test_a_turn_that_breaks_off_by_itself_after_that_is_its_own_failure(
    drive: Governed, school: Settings
) -> None:
    governed(drive, school)
    outcome = drive.run(scripted([*FAILING[:3], ["until_cancelled"]], [["die", 3]]))
    assert outcome.reason == "exit"
    drive.used.close()

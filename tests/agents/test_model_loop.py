"""The built-in loop against a fake endpoint: its tools, turns, hooks, transcript and claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from school.contracts import AgentSpec
from school.settings import Settings
from tests.agents.driving import Drive
from tests.endpoint import Call, FakeEndpoint, call, calls, say

KEY = "sk-loop-0123456789"


@pytest.fixture
def drive(repo: Path, school: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drive:
    monkeypatch.setenv("LOOP_KEY", KEY)
    monkeypatch.setattr("school.agents.model.run.FIRST_WAIT_S", 0.01)
    return Drive(repo, school, tmp_path)


def spec(fake: FakeEndpoint, model: str = "openai:gpt-4o", **fields: Any) -> AgentSpec:
    url = fake.root if model.startswith("anthropic") else fake.base_url
    return AgentSpec(
        name="loop", kind="model", model=model, base_url=url, api_key_env="LOOP_KEY", prompt="none", **fields
    )


def finish(**fields: Any) -> Any:
    return call("finish", status="done", summary="Wrote it.", **fields)


def results(fake: FakeEndpoint, number: int) -> list[Any]:
    """What the model was shown of its tool calls in its *number*-th request."""
    return [
        json.loads(message["content"])
        for message in fake.requests[number]["messages"]
        if message["role"] == "tool"
    ]


@pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-x", "openai-responses:gpt-4o"])
def test_a_whole_run(drive: Drive, model: str) -> None:
    script = [
        call("write", path="notes.txt", content="hello\n"),
        call("shell", command="cat notes.txt; exit 3"),
        finish(ac_met=["AC-1"]),
    ]
    with FakeEndpoint(script) as fake:
        outcome = drive.run(spec(fake, model))
    assert (outcome.reason, outcome.detail) == ("", "")
    assert (drive.repo / "notes.txt").read_text() == "hello\n"
    assert outcome.claim.status == "done"
    assert outcome.claim.summary == "Wrote it."
    assert outcome.claim.ac_met == ["AC-1"]
    assert outcome.claimed
    assert outcome.usage["requests"] == 3
    assert (outcome.usage["turns"], outcome.usage["tool_calls"]) == (1, 3)
    assert len(fake.requests) == 3


def test_hooks_hear_hermes_names_and_arguments(drive: Drive) -> None:
    script = [
        calls(Call("write", {"path": "notes.txt", "content": "x"}), Call("shell", {"command": "exit 3"})),
        finish(),
    ]
    with FakeEndpoint(script) as fake:
        drive.run(spec(fake))
    assert drive.names() == [
        "pre_llm_call",
        "post_api_request",
        "post_tool_call",
        "transform_tool_result",
        "post_tool_call",
        "transform_tool_result",
        "post_api_request",
        "post_llm_call",
        "on_session_end",
    ]
    wrote, ran = drive.events("post_tool_call")
    assert (wrote["tool_name"], wrote["args"]) == ("write_file", {"path": "notes.txt", "content": "x"})
    assert (ran["tool_name"], ran["args"]) == ("terminal", {"command": "exit 3"})
    assert json.loads(ran["result"]) == {"output": "", "exit_code": 3, "error": None}
    assert (ran["status"], ran["session_id"], ran["task_id"]) == ("ok", "bead-1", "bead-1")
    assert wrote["api_request_id"] == ran["api_request_id"] != ""
    assert wrote["tool_call_id"] != ran["tool_call_id"]
    (first,) = drive.events("pre_llm_call")
    assert first["is_first_turn"] is True
    assert "Write notes.txt." in first["user_message"]
    asked = drive.events("post_api_request")[0]
    assert asked["usage"]["input_tokens"] == 11
    assert asked["assistant_tool_call_count"] == 2
    assert drive.events("post_llm_call")[0]["assistant_response"] == "Wrote it."


def test_what_advisers_say_reaches_the_model_and_not_the_transcript(drive: Drive) -> None:
    drive.context = "A note of the coach."
    drive.rewrite = lambda result: result[:-1] + ', "advice": "Try another way."}'
    with FakeEndpoint([call("shell", command="true"), finish()]) as fake:
        drive.run(spec(fake))
    asked = fake.requests[0]["messages"][-1]["content"]
    assert asked.endswith("\n\nA note of the coach.")
    assert results(fake, 1) == [{"output": "", "exit_code": 0, "error": None, "advice": "Try another way."}]
    kept = (drive.output / "transcript.jsonl").read_text()
    assert "A note of the coach." not in kept
    assert "Try another way." not in kept


def test_the_gate_decides_on_further_turns(drive: Drive) -> None:
    drive.holds = ["Run the tests first.", "And write it down."]
    script = [say("I am done."), call("shell", command="true"), say("They pass."), say("Written.")]
    with FakeEndpoint(script) as fake:
        outcome = drive.run(spec(fake))
    assert [(turn.turn, turn.answer) for turn in drive.turns] == [
        (1, "I am done."),
        (2, "They pass."),
        (3, "Written."),
    ]
    assert all(turn.can_run_commands for turn in drive.turns)
    assert outcome.claim.summary == "I am done.\n\nAt a later turn: They pass.\n\nAt a later turn: Written."
    assert not outcome.claimed
    last = [message["content"] for message in fake.requests[3]["messages"] if message["role"] == "user"]
    assert last[1:] == ["Run the tests first.", "And write it down."]
    assert [event["is_first_turn"] for event in drive.events("pre_llm_call")] == [True, False, False]
    assert drive.names().count("on_session_end") == 3


def test_the_transcript_has_everything_but_what_was_said_for_us(drive: Drive) -> None:
    drive.holds = ["Run the tests first."]
    with FakeEndpoint([call("shell", command="echo hi"), say("Done."), say("They pass.")]) as fake:
        drive.run(spec(fake))
    lines = drive.transcript()
    assert [(line["turn"], line["kind"]) for line in lines] == [
        (1, "user"),
        (1, "assistant"),
        (1, "tool"),
        (1, "assistant"),
        (1, "end"),
        (2, "user"),
        (2, "assistant"),
        (2, "end"),
    ]
    assert "Write notes.txt." in lines[0]["content"]
    assert lines[2]["args"] == {"command": "echo hi"}
    assert lines[5] == {"at": lines[5]["at"], "turn": 2, "kind": "user", "synthetic": True}
    assert "Run the tests first." not in json.dumps(lines)


def test_the_tools_of_a_reader_change_nothing(drive: Drive) -> None:
    drive.role = "reviewer"
    with FakeEndpoint(
        [call("write", path="x", content="x"), call("search", pattern="def add"), finish()]
    ) as fake:
        drive.run(spec(fake))
    offered = [tool["function"]["name"] for tool in fake.requests[0]["tools"]]
    assert offered == ["read", "search", "finish"]
    refused, found = results(fake, 2)
    assert "there is no tool 'write'" in refused["error"]
    assert found["count"] == 1
    assert "calc/__init__.py:1:def add" in found["matches"] or "def add" in found["matches"]
    assert not (drive.repo / "x").exists()
    assert drive.turns[0].can_run_commands is False


def test_a_command_sees_the_agents_environment_and_not_its_key(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", "not-passed")
    with FakeEndpoint([call("shell", command="env"), finish()]) as fake:
        drive.run(spec(fake, set_env={"MODE": "batch"}))
    (shown,) = results(fake, 1)
    names = {line.partition("=")[0] for line in shown["output"].splitlines()}
    assert {"MODE", "TMPDIR", "SCHOOL_BEAD", "SCHOOL_RESULT"} <= names
    assert not {"LOOP_KEY", "OTHER_KEY"} & names
    assert KEY not in shown["output"]


def test_a_prompt_of_300_kb_works(drive: Drive) -> None:
    drive.task = "Write notes.txt. " + "word " * 60_000 + "\ud800"
    with FakeEndpoint([finish()]) as fake:
        outcome = drive.run(spec(fake))
    assert outcome.reason == ""
    assert len(fake.requests[0]["messages"][-1]["content"]) > 300_000


def test_arguments_that_are_none_are_told_to_the_model(drive: Drive) -> None:
    odd = [
        Call("write", {}),
        Call("nothing", {}),
        Call("read", {"path": "../../etc/passwd"}),
        Call("shell", {"command": 5}),
    ]
    with FakeEndpoint([calls(*odd), finish()]) as fake:
        outcome = drive.run(spec(fake))
    assert outcome.reason == ""
    said = [result["error"] for result in results(fake, 1)]
    assert "path: Field required" in said[0]
    assert "there is no tool 'nothing'" in said[1]
    assert "outside the working tree" in said[2]
    assert "command" in said[3]
    assert [event["status"] for event in drive.events("post_tool_call")] == ["error"] * 4


def test_an_answer_that_was_cut_off_is_continued(drive: Drive) -> None:
    with FakeEndpoint([say("I am goi", finish="length"), say("ng on.")]) as fake:
        outcome = drive.run(spec(fake))
    assert outcome.reason == ""
    assert "cut off" in fake.requests[1]["messages"][-1]["content"]

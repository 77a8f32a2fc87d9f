"""ACP: sessions, turns, events, permissions, files and terminals, and every way in which an agent can fail."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from school.agents.acp.calls import Calls, event
from school.contracts import UNCHARGED_REASONS, AgentSpec
from school.settings import Settings
from tests.agents.driving import Drive

AGENT = Path(__file__).with_name("acp_agent.py")


@pytest.fixture
def drive(repo: Path, school: Settings, tmp_path: Path) -> Drive:
    return Drive(repo, school, tmp_path)


def scripted(*prompts: list[list[Any]], **fields: Any) -> AgentSpec:
    argv = [sys.executable, "-I", "-B", str(AGENT), json.dumps(prompts)]
    return AgentSpec(name="zed", kind="acp", argv=argv, prompt="none", **fields)


def test_a_whole_run(drive: Drive) -> None:
    steps = [
        ["say", "I look."],
        ["edit", "notes.txt", None, "hello\n"],
        ["claim"],
        ["say", "It is "],
        ["say", "done."],
    ]
    outcome = drive.run(scripted([*steps, ["usage", 100, 20]]))
    assert (outcome.reason, outcome.detail) == ("", "")
    assert (drive.repo / "notes.txt").read_text() == "hello\n"
    assert (outcome.claim.status, outcome.claim.summary, outcome.claim.ac_met) == (
        "done",
        "Done by ACP.",
        ["AC-1"],
    )
    assert outcome.claimed
    assert outcome.output == "It is done."
    assert (outcome.usage["input_tokens"], outcome.usage["output_tokens"], outcome.usage["turns"]) == (
        100,
        20,
        1,
    )
    (wrote,) = drive.events("post_tool_call")
    assert (wrote["tool_name"], wrote["args"], wrote["status"]) == ("write_file", {"path": "notes.txt"}, "ok")
    kinds = [line["kind"] for line in drive.transcript()]
    assert kinds == ["user", "assistant", "tool", "assistant", "end"]
    assert drive.transcript()[1]["content"] == "I look."


def test_the_gate_decides_on_further_turns_of_the_same_session(drive: Drive) -> None:
    drive.holds = ["Run the tests first."]
    drive.context = "A note of the coach."
    outcome = drive.run(scripted([["say", "I am done."]], [["echo"]]))
    assert [(turn.turn, turn.answer.partition(",")[0]) for turn in drive.turns] == [
        (1, "I am done."),
        (2, "41 characters"),
    ]
    assert outcome.claim.summary.startswith("I am done.\n\nAt a later turn: 41 characters")
    assert "A note of the coach." in outcome.claim.summary
    assert [line.get("synthetic") for line in drive.transcript() if line["kind"] == "user"] == [None, True]
    assert drive.names().count("pre_llm_call") == 2


def test_a_prompt_of_300_kb_arrives(drive: Drive) -> None:
    drive.task = "word " * 60_000 + "\ud800"
    outcome = drive.run(scripted([["echo"]]))
    assert outcome.reason == ""
    assert int(outcome.output.partition(" ")[0]) > 300_000


def test_calls_become_events(drive: Drive) -> None:
    steps = [
        [
            "tool",
            "execute",
            {"command": ["bash", "-lc", "pytest -q"]},
            {"output": "1 failed", "metadata": {"exit": 1}},
        ],
        ["tool", "execute", {"command": "ls"}, {"exit_code": 0, "stdout": "a"}, "completed"],
        ["tool", "execute", {"command": "no-such"}, "not found", "failed"],
        ["tool", "read", {"path": "calc/__init__.py"}, "text"],
        ["tool", "something_new", {"x": 1}, None],
    ]
    drive.run(scripted(steps))
    told = [
        (event["tool_name"], event["args"], json.loads(event["result"]), event["status"])
        for event in drive.events("post_tool_call")
    ]
    assert told == [
        ("terminal", {"command": "pytest -q"}, {"output": "1 failed", "exit_code": 1, "error": None}, "ok"),
        ("terminal", {"command": "ls"}, {"output": "a", "exit_code": 0, "error": None}, "ok"),
        (
            "terminal",
            {"command": "no-such"},
            {"output": "not found", "exit_code": None, "error": "not found"},
            "error",
        ),
        ("read_file", {"path": "calc/__init__.py"}, {"output": "text"}, "ok"),
        ("A tool", {}, {"output": ""}, "ok"),
    ]


@pytest.mark.parametrize(
    ("role", "answers"),
    [
        ("coder", "edit: once; execute: once; delete: once; read: once; other: once; edit: no; "),
        ("searcher", "edit: no; execute: no; delete: no; read: once; other: no; edit: no; "),
        ("reviewer", "edit: no; execute: no; delete: no; read: once; other: no; edit: no; "),
    ],
)
def test_permissions_go_by_the_role_and_the_tree(drive: Drive, role: str, answers: str) -> None:
    drive.role = role
    inside = str(drive.repo / "a.txt")
    kinds = ["edit", "execute", "delete", "read", "other"]
    outcome = drive.run(scripted([*(["may", kind, inside] for kind in kinds), ["may", "edit", "/etc/hosts"]]))
    assert outcome.output == answers.strip()
    assert len(outcome.notes) == answers.count(": no")
    assert outcome.notes[-1] == (
        "not permitted: edit Something: /etc/hosts is outside the working tree"
        if role == "coder"
        else "not permitted: edit Something: this role changes and runs nothing"
    )


def test_files_are_read_and_written_inside_the_tree_only(drive: Drive, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (drive.repo / "link").symlink_to(tmp_path / "secret")
    steps = [["write", "notes.txt", "hello"], ["say", "; "], ["read", "notes.txt"], ["say", "; "]]
    for path in ("../secret", str(tmp_path / "secret"), "link", "absent"):
        steps += [["read", path], ["say", "; "]]
    steps += [["write", "../outside", "x"], ["write", ".git/config", "x"]]
    outcome = drive.run(scripted(steps))
    said = outcome.output.split("; ")
    assert said[:2] == ["write: done", "hello"]
    assert ["outside the working tree" in answer for answer in said[2:5]] == [True] * 3
    assert said[5].startswith("refused")
    assert said[6].count("refused") == 2
    (wrote,) = drive.events("post_tool_call")
    assert (wrote["tool_name"], wrote["args"]) == ("write_file", {"path": "notes.txt"})
    assert not (tmp_path / "outside").exists()


def test_a_reader_writes_and_runs_nothing(drive: Drive) -> None:
    drive.role = "reviewer"
    outcome = drive.run(scripted([["write", "notes.txt", "x"], ["terminal", "ls"]]))
    assert outcome.output.count("refused") == 2
    assert not (drive.repo / "notes.txt").exists()
    assert drive.turns[0].can_run_commands is False


def test_a_terminal_runs_as_the_agent_does(drive: Drive, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    line = f"echo $SCHOOL_BEAD; pwd; (setsid sleep 300 & echo $! > {pids}); exit 3"
    outcome = drive.run(scripted([["terminal", "bash", "-c", line]]))
    assert outcome.output == f"exit 3: bead-1\n{drive.repo}"
    (ran,) = drive.events("post_tool_call")
    assert ran["args"] == {"command": line}
    assert json.loads(ran["result"]) == {"output": f"bead-1\n{drive.repo}\n", "exit_code": 3, "error": None}
    assert not psutil.pid_exists(int(pids.read_text()))


@pytest.mark.parametrize(
    ("steps", "reason", "said"),
    [
        ([["error", -32603, "429 rate limit reached, try again in 2 hours"]], "quota", "rate limit"),
        ([["error", -32000, "Authentication required"]], "login", "Authentication required"),
        ([["error", -32603, "connect ECONNREFUSED 127.0.0.1:1"]], "unavailable", "ECONNREFUSED"),
        ([["error", -32603, "something else"]], "exit", "something else"),
        ([["at", "session", "error", -32000, "Please log in"]], "login", "log in"),
        ([["at", "initialize", "die", 7]], "unavailable", "exit status 7"),
        ([["at", "session", "error", -32603, "something else"]], "unavailable", "something else"),
        ([["at", "session", "die", 0]], "unavailable", "before it opened a session"),
        ([["say", "half"], ["die", 0]], "exit", "ended in the middle of a turn"),
        ([["say", "half"], ["kill"]], "killed", "137"),
        ([["stop", "refusal"]], "refused", "refused"),
        ([["say", "Done."], ["stop", "cancelled"]], "exit", "cancelled, and nobody had told it to stop"),
        (
            [["answer", {"stopReason": "tired"}]],
            "exit",
            "its turn ended as nobody knows that a turn ends: tired",
        ),
        ([["answer", {}]], "exit", "its turn ended as nobody knows that a turn ends: None"),
        ([["answer", "done"]], "exit", "its answer to session/prompt is no object"),
        (
            [["refuse", "on fire, 503 Service Unavailable"]],
            "unavailable",
            "an error that is none of the protocol's",
        ),
        ([["refuse", {"code": "x", "message": 7, "data": [1]}]], "exit", "7"),
        ([["stop", "max_tokens"]], "limit", "limit of tokens"),
        ([["raw", "this is no ACP\n", 300], ["mute"]], "exit", "it speaks no ACP; it wrote: this is no ACP"),
        ([["flood", 40, False], ["mute"]], "exit", "a line of more than 16777216 bytes"),
    ],
)
def test_how_it_fails_is_the_reason(drive: Drive, steps: list[Any], reason: str, said: str) -> None:
    begun = time.monotonic()
    outcome = drive.run(scripted(steps))
    assert time.monotonic() - begun < 20
    assert outcome.reason == reason
    assert said in outcome.detail
    assert (reason in UNCHARGED_REASONS) == (reason in ("quota", "login", "unavailable"))
    assert drive.turns == []
    assert bool(outcome.claim.retry_at) == (reason == "quota")


def test_an_agent_that_is_mute_from_the_start(drive: Drive) -> None:
    drive.limits = {"startup_timeout_s": 3.0}
    outcome = drive.run(scripted([["at", "initialize", "mute"]]))
    assert outcome.reason == "unavailable"
    assert "it never began" in outcome.detail


BEGUN = {"sessionUpdate": "tool_call", "toolCallId": "c-1", "kind": "execute", "status": "in_progress"}


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([["say", "half"]], "unavailable"),
        ([["update", BEGUN]], "timeout"),
        ([["terminal", "sleep", "60"]], "timeout"),
    ],
)
def test_an_agent_out_of_time(drive: Drive, steps: list[Any], reason: str) -> None:
    """Silent, and with nothing of its own at work, it waited for its model."""
    outcome = drive.run(scripted([*steps, ["mute"]], timeout_s=8.0))
    assert outcome.reason == reason
    assert outcome.detail.startswith("zed: not ended after 8 s")
    assert ("; it waited for an answer of its model" in outcome.detail) == (reason == "unavailable")


def test_a_cancelled_agent_is_asked_to_stop(drive: Drive) -> None:
    begun, asked = time.monotonic(), threading.Event()
    drive.cancelled = lambda: asked.is_set() or (bool(drive.events("post_tool_call")) and not asked.set())
    outcome = drive.run(scripted([["tool", "think", None, None], ["until_cancelled"]]))
    assert time.monotonic() - begun < 20
    assert outcome.reason == "interrupted"
    assert drive.turns == []


def test_output_that_is_no_text_or_no_message_is_passed_over(drive: Drive) -> None:
    odd = [
        "\udcff\udcfe\n",
        "[]\n",
        "{}\n",
        '{"method": 5}\n',
        '{"id": {}}\n',
        '{"jsonrpc": "2.0", "method": "session/update"}\n',
    ]
    odd += [
        '{"method": "session/update", "params": {"update": {"sessionUpdate": "brand_new", "x": 1}}}\n',
        "[" * 100_000 + "\n",
    ]
    odd += [
        '{"method": "session/update", "params": {"update": {"sessionUpdate": "tool_call", "toolCallId": 5, "content": 7}}}\n'
    ]
    lone = '{"method": "session/update", "params": {"update": {"sessionUpdate": "agent_message_chunk", "content": {"text": "\\ud800"}}}}\n'
    outcome = drive.run(scripted([*(["raw", line] for line in [*odd, lone]), ["say", " is said."]]))
    assert (outcome.reason, outcome.output) == ("", "\\ud800 is said.")
    (drive.output / "transcript.jsonl").read_bytes().decode("utf-8")


def test_what_it_leaves_behind_is_ended(drive: Drive, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    outcome = drive.run(scripted([["child", str(pids)], ["say", "Done."]]))
    assert outcome.reason == ""
    assert not psutil.pid_exists(int(pids.read_text()))


@pytest.mark.parametrize(
    ("step", "note"),
    [
        (["error", -32603, "429 rate limit reached, try again in 2 hours"], "quota: zed: "),
        (["die", 7], "exit: zed ended with exit status 7"),
        (["mute"], "unavailable: zed: no output"),
        (["stop", "refusal"], "refused: zed: the agent refused to go on"),
    ],
)
def test_a_further_turn_that_breaks_off_takes_no_finished_work_away(
    drive: Drive, step: list[Any], note: str
) -> None:
    drive.limits, drive.holds = {"stall_timeout_s": 2.0}, ["Verify it."]
    outcome = drive.run(scripted([["claim"], ["say", "Done."]], [["say", "Hm."], step]))
    assert (outcome.reason, outcome.claim.status, outcome.claim.retry_at) == ("", "done", "")
    assert outcome.claim.summary == "Done by ACP."
    assert outcome.notes[0].startswith(
        f"turn 1 had ended, and what only a reminder asked for takes nothing away: {note}"
    )


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1, True, "1", [1]])
def test_a_cost_that_is_none_is_not_counted_and_one_that_is_stays(drive: Drive, amount: Any) -> None:
    drive.limits, drive.holds = {"cost_usd": 0.5}, ["Once more."]
    odd = {
        "sessionUpdate": "usage_update",
        "used": 1,
        "size": 2,
        "cost": {"amount": amount, "currency": "USD"},
    }
    known = {**odd, "cost": {"amount": 0.6, "currency": "USD"}}
    steps = [["update", known], ["update", odd], ["say", "Done."]]
    outcome = drive.run(
        scripted([*steps, ["answer", {"stopReason": "end_turn", "usage": {"inputTokens": True}}]])
    )
    assert (outcome.reason, outcome.usage["cost_usd"], outcome.usage["input_tokens"]) == ("", 0.6, 0)
    assert outcome.notes == ["no further turn: [limits] cost_usd = 0.5 is used up (0.6000)"]


@pytest.mark.parametrize(
    ("argv", "said"), [(["no-such-program", "x"], "No such file"), (["echo", "a\0b"], "null byte")]
)
def test_a_terminal_that_cannot_start_says_why(drive: Drive, argv: list[str], said: str) -> None:
    outcome = drive.run(scripted([["terminal", *argv]]))
    assert outcome.reason == ""
    assert outcome.output.startswith("exit None: ")
    assert said in outcome.output


def test_a_budget_leaves_no_further_turn(drive: Drive) -> None:
    drive.limits = {"tokens": 100}
    drive.holds = ["Once more."]
    outcome = drive.run(scripted([["say", "Done."], ["usage", 90, 20]]))
    assert (outcome.reason, outcome.usage["turns"]) == ("", 1)
    assert outcome.notes == ["no further turn: [limits] tokens = 100 are used up (110)"]


def test_a_program_that_is_not_there(drive: Drive) -> None:
    outcome = drive.run(AgentSpec(name="zed", kind="acp", argv=["no-such-agent", "acp"], prompt="none"))
    assert outcome.reason == "not_installed"


@pytest.mark.parametrize(
    "update",
    [{}, {"toolCallId": None}, {"toolCallId": "x", "content": "text", "locations": 3, "rawInput": []}],
)
def test_a_call_of_any_shape_is_an_event(update: dict[str, Any]) -> None:
    call = Calls().hear({**update, "status": "failed", "kind": "execute"}, 1.0)
    assert call is not None
    told = event(call, lambda _name: None, str)
    assert told.result == {"output": "", "exit_code": None, "error": "the agent calls it failed"}


def test_what_an_agent_tells_of_its_calls_is_bounded() -> None:
    calls = Calls()
    huge = {
        "kind": "edit",
        "content": [{"type": "diff", "path": "a", "oldText": "x" * 10_000_000}],
        "rawInput": ["y" * 10_000] * 5000,
    }
    for number in range(300):
        assert calls.hear({**huge, "toolCallId": f"c-{number}"}, 1.0) is None
    assert [call.id for call in calls.open()] == [f"c-{number}" for number in range(200, 300)]
    (last,) = [call for call in calls.open() if call.id == "c-299"]
    assert len(json.dumps([last.content, last.raw_input])) < 500_000
    ended = calls.hear({"toolCallId": "c-299", "status": "completed"}, 2.0)
    assert ended is last
    assert calls.hear({"toolCallId": "c-299", "status": "completed"}, 3.0) is None


def test_an_agent_that_asks_and_takes_no_answer_is_read_no_further(drive: Drive) -> None:
    drive.limits = {"stall_timeout_s": 3.0}
    (drive.repo / "big.txt").write_text("x" * 4_000_000)
    request = {"jsonrpc": "2.0", "id": 1, "method": "fs/read_text_file", "params": {"path": "big.txt"}}
    begun, memory = time.monotonic(), psutil.Process().memory_info().rss
    outcome = drive.run(scripted([["raw", json.dumps(request) + "\n", 3000], ["die", 0]]))
    assert time.monotonic() - begun < 60
    assert outcome.reason in ("exit", "stalled")
    assert psutil.Process().memory_info().rss - memory < 1_500_000_000


@pytest.mark.parametrize(
    ("first", "second", "used"),
    [
        ((1000, 300), (1500, 400), (1500, 400)),  # counts its session
        ((1000, 300), (800, 100), (1800, 400)),  # counts each turn
        ((1000, 300), (1500, 100), (2500, 400)),  # so it does where one of both falls
    ],
)
def test_an_agent_counts_its_session_or_each_turn_but_not_both(
    drive: Drive, first: tuple[int, int], second: tuple[int, int], used: tuple[int, int]
) -> None:
    drive.holds = ["And now?"]
    outcome = drive.run(scripted([["say", "One."], ["usage", *first]], [["say", "Two."], ["usage", *second]]))
    assert (outcome.usage["input_tokens"], outcome.usage["output_tokens"]) == used

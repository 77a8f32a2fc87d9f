"""The built-in loop when things go wrong: each ends in bounded time, with the true reason, and loses nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from school.agents.model.budget import Budget
from school.agents.model.wire import WireError, said
from school.contracts import UNCHARGED_REASONS, AgentSpec
from school.settings import Settings
from tests.agents.driving import Drive
from tests.endpoint import (
    CUT,
    EMPTY,
    HANG,
    INVALID_UTF8,
    MALFORMED,
    FakeEndpoint,
    Request,
    call,
    calls,
    limited,
    say,
    status,
)


@pytest.fixture
def drive(repo: Path, school: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drive:
    monkeypatch.setenv("LOOP_KEY", "sk-loop-0123456789")
    monkeypatch.setattr("school.agents.model.run.FIRST_WAIT_S", 0.01)
    return Drive(repo, school, tmp_path)


def spec(fake: FakeEndpoint, model: str = "openai:gpt-4o", **fields: Any) -> AgentSpec:
    given = {"base_url": fake.base_url, "api_key_env": "LOOP_KEY", "prompt": "none", **fields}
    return AgentSpec(name="loop", kind="model", model=model, **given)


WRITE = call("write", path="notes.txt", content="hello\n")
FINISH = call("finish", status="done", summary="Wrote it.")


@pytest.mark.parametrize(
    ("turn", "reason", "requests"),
    [
        (status(500), "unavailable", 5),
        (status(503), "unavailable", 5),
        (status(401), "login", 2),
        (status(404), "unavailable", 2),
        (status(400), "unavailable", 2),
        (status(429), "quota", 5),
        (limited(3600), "quota", 2),
        (MALFORMED, "unavailable", 5),
        (EMPTY, "unavailable", 5),
        (CUT, "unavailable", 5),
        (INVALID_UTF8, "unavailable", 5),
        (say("All d", finish="error"), "unavailable", 5),
        (say("", finish="content_filter"), "refused", 2),
    ],
)
def test_what_the_endpoint_does_is_the_reason(drive: Drive, turn: Any, reason: str, requests: int) -> None:
    with FakeEndpoint([WRITE, turn]) as fake:
        outcome = drive.run(spec(fake))
    assert (outcome.reason, len(fake.requests)) == (reason, requests)
    assert (drive.repo / "notes.txt").read_text() == "hello\n"
    assert outcome.detail.startswith("loop: ")
    assert outcome.usage["requests"] == (2 if reason == "refused" else 1)
    assert (reason in UNCHARGED_REASONS) == (reason != "refused")
    assert drive.turns == []
    (ended,) = drive.events("on_session_end")
    assert (ended["completed"], ended["interrupted"]) == (False, True)


def test_a_far_reset_is_in_the_claim(drive: Drive) -> None:
    before = datetime.now(UTC).timestamp()
    with FakeEndpoint([limited(3600)]) as fake:
        outcome = drive.run(spec(fake))
    assert outcome.reason == "quota"
    assert before + 3590 < datetime.fromisoformat(outcome.claim.retry_at).timestamp() < before + 3700


def test_each_retry_is_told_with_the_same_request(drive: Drive) -> None:
    with FakeEndpoint([status(500), status(429, retry_after="0"), FINISH]) as fake:
        outcome = drive.run(spec(fake))
    assert outcome.reason == ""
    first, second = drive.events("api_request_error")
    assert (first["status_code"], first["retry_count"], first["max_retries"], first["retryable"]) == (
        500,
        0,
        3,
        True,
    )
    assert (second["status_code"], second["retry_count"], second["reason"]) == (429, 1, "quota")
    assert first["api_request_id"] == second["api_request_id"]
    assert first["error"]["type"] == "ModelServerError"
    assert drive.events("post_api_request")[0]["api_request_id"] == first["api_request_id"]


def test_an_endpoint_that_is_down(drive: Drive) -> None:
    nobody = AgentSpec(
        name="loop", kind="model", model="local", base_url="http://127.0.0.1:9/v1", prompt="none"
    )
    outcome = drive.run(nobody)
    assert outcome.reason == "unavailable"
    assert "tried 4 times" in outcome.detail


def test_a_hanging_endpoint_is_not_the_students_fault(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("school.agents.model.run.ATTEMPT_S", 1.0)
    with FakeEndpoint([WRITE, HANG]) as fake:
        outcome = drive.run(spec(fake))
    assert (outcome.reason, len(fake.requests)) == ("unavailable", 2)
    assert "did not answer in 1 s" in outcome.detail
    assert (drive.repo / "notes.txt").exists()


def test_a_run_out_of_time_names_the_endpoint_that_kept_it_waiting(drive: Drive) -> None:
    with FakeEndpoint([HANG]) as fake:
        outcome = drive.run(spec(fake, timeout_s=8.0))
    assert outcome.reason in ("unavailable", "timeout")
    assert ("had not answered for" in outcome.detail) == (outcome.reason == "unavailable")


def test_a_try_that_failed_does_not_end_the_waiting(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("school.agents.process.KEPT_WAITING_S", 0.2)
    with FakeEndpoint([status(503), HANG]) as fake:
        outcome = drive.run(spec(fake, timeout_s=8.0))
    assert (outcome.reason, len(fake.requests)) == ("unavailable", 2)
    assert "had not answered for" in outcome.detail


def test_an_answer_of_nothing_is_asked_for_again_and_then_no_work_of_the_student(drive: Drive) -> None:
    with FakeEndpoint([say("")]) as fake:
        outcome = drive.run(spec(fake))
    assert (outcome.reason, len(fake.requests)) == ("unavailable", 3)
    assert "said nothing, 3 times" in outcome.detail


def test_an_end_with_nothing_done_is_an_end(drive: Drive) -> None:
    with FakeEndpoint([say("All done.")]) as fake:
        outcome = drive.run(spec(fake))
    assert (outcome.reason, outcome.claim.status, outcome.claim.summary) == ("", "done", "All done.")
    assert not outcome.claimed


def test_a_budget_of_tokens_stops_before_the_call_that_would_go_beyond(drive: Drive) -> None:
    drive.limits = {"tokens": 5000}
    with FakeEndpoint([call("shell", command="true")]) as fake:
        fake.script = [call("shell", command="true"), *[_big(2000)] * 9]
        outcome = drive.run(spec(fake))
    assert outcome.reason == "budget"
    assert "[limits] tokens = 5000: 4" in outcome.detail
    assert len(fake.requests) == 3
    assert [request["max_completion_tokens"] <= 5000 for request in fake.requests] == [True] * 3


def _big(tokens: int) -> Any:
    import dataclasses

    return dataclasses.replace(call("shell", command="true"), input_tokens=tokens, output_tokens=10)


def test_a_reminder_that_nothing_is_left_for_takes_no_finished_work_away(drive: Drive) -> None:
    drive.limits, drive.holds = {"tokens": 2000}, ["Verify it."]
    with FakeEndpoint([replace(WRITE, input_tokens=700), replace(FINISH, input_tokens=700)]) as fake:
        outcome = drive.run(spec(fake))
    assert (outcome.reason, outcome.claim.summary, len(fake.requests)) == ("", "Wrote it.", 2)
    (note,) = outcome.notes
    assert note.startswith(f"{BROKE_OFF}budget: loop: [limits] tokens = 2000: 1")
    assert [ended["completed"] for ended in drive.events("on_session_end")] == [True, False]


BROKE_OFF = "turn 1 had ended, and what only a reminder asked for takes nothing away: "


@pytest.mark.parametrize(
    ("turn", "note"),
    [
        (limited(3600), "quota: loop: gpt-4o: "),
        (status(503), "unavailable: loop: gpt-4o: "),
        (HANG, "unavailable: loop: gpt-4o did not answer in 0.5 s"),
        (say("", finish="content_filter"), "refused: loop: "),
    ],
)
def test_a_reminder_that_cannot_be_answered_takes_no_finished_work_away(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, turn: Any, note: str
) -> None:
    monkeypatch.setattr("school.agents.model.run.ATTEMPT_S", 0.5)
    drive.holds = ["Verify it."]
    with FakeEndpoint([WRITE, FINISH, turn]) as fake:
        outcome = drive.run(spec(fake))
    assert (outcome.reason, outcome.detail) == ("", "")
    assert (outcome.claim.status, outcome.claim.summary, outcome.claim.retry_at) == ("done", "Wrote it.", "")
    (said,) = outcome.notes
    assert said.startswith(BROKE_OFF + note)


def test_a_reminder_that_outlasts_the_time_takes_no_finished_work_away(drive: Drive) -> None:
    drive.holds = ["Verify it."]
    claims = call("finish", status="failed", summary="Or not.")
    script = [WRITE, FINISH, calls(*claims.calls, *call("shell", command="sleep 60").calls), HANG]
    with FakeEndpoint(script) as fake:
        outcome = drive.run(spec(fake, timeout_s=6.0))
    assert (outcome.reason, outcome.claim.status, outcome.claim.summary) == ("", "done", "Wrote it.")
    assert outcome.notes[0].startswith(BROKE_OFF + "timeout: loop: not ended after 6 s")


def test_a_budget_of_one_cent_stops_at_one_cent(drive: Drive) -> None:
    drive.limits = {"cost_usd": 0.01}
    with FakeEndpoint([_big(2000)]) as fake:  # gpt-4o: 0.005 for 2,000 tokens of input
        outcome = drive.run(spec(fake))
    assert (outcome.reason, len(fake.requests)) == ("budget", 2)
    assert "cost_usd = 0.01 is used up (0.0102)" in outcome.detail
    assert outcome.usage["cost_usd"] == 0.0102


def test_a_cost_limit_that_cannot_be_kept_is_refused_before_anything_is_spent(drive: Drive) -> None:
    drive.limits = {"cost_usd": 1.0}
    with FakeEndpoint([FINISH]) as fake:
        outcome = drive.run(spec(fake, model="local"))
        assert (outcome.reason, fake.requests) == ("budget", [])
        drive.limits = {"cost_usd": 1.0, "tokens": 100_000}
        assert drive.run(spec(fake, model="local")).reason == ""
    assert "the price of local is not known" in outcome.detail


@pytest.mark.parametrize(
    ("used", "tokens", "growth", "refused", "room"),
    [
        ((0, 0), None, 10**9, False, None),
        ((0, 0), 20_000, 400, False, None),
        ((0, 0), 1000, 400, False, 900),
        ((0, 0), 1000, 4000, True, 16),
        ((300, 100), 1000, 0, False, 200),
        ((490, 10), 1000, 0, True, 16),
    ],
)
def test_the_next_call_is_reckoned_from_the_last(
    used: tuple[int, int], tokens: int | None, growth: int, refused: bool, room: int | None
) -> None:
    budget = Budget(tokens=tokens)
    if any(used):
        budget.add({"input_tokens": used[0], "output_tokens": used[1]})
    assert bool(budget.refusal(growth)[0]) is refused
    assert budget.output_tokens(growth) == room


def test_requests_are_bounded() -> None:
    budget = Budget(requests=2)
    budget.add({})
    assert budget.refusal(0) == ("", "")
    budget.add({})
    assert budget.refusal(0)[0] == "limit"


def test_a_killed_loop_loses_nothing(drive: Drive) -> None:
    def script(request: Request) -> Any:
        if len(fake.requests) == 1:
            return WRITE
        loop = _loop_of(drive)
        os.kill(loop.pid, signal.SIGKILL)
        return HANG

    fake = FakeEndpoint(script)
    with fake:
        outcome = drive.run(spec(fake))
    assert (outcome.reason, outcome.exit_code) == ("killed", 137)
    assert (drive.repo / "notes.txt").read_text() == "hello\n"
    assert outcome.usage["input_tokens"] == 11
    assert [line["kind"] for line in drive.transcript()] == ["user", "assistant", "tool"]


SAID = {
    "tool": {
        "say": "tool",
        "id": "c1",
        "number": 1,
        "name": "terminal",
        "args": {},
        "result": {},
        "duration_ms": 1,
        "told": True,
    },
    "assistant": {
        "say": "assistant",
        "number": 1,
        "content": "x",
        "tool_calls": [],
        "usage": {"input_tokens": "many", "cost_usd": "nan"},
        "request": {"model": "y", "name": 1, "self": 2},
    },
    "failure": {"say": "failure", "number": 1, "detail": "x", "error": "y", "self": 1},
    "call": {"say": "call", "id": "c1", "number": 1, "name": "no_such_tool"},
    "asking": {"say": "asking", "number": 1},
    "turn_end": {"say": "turn_end", "answer": "x"},
    "failed": {"say": "failed", "reason": "made-up", "detail": "x", "retry_at": ""},
}
MALFORMED_LINES = [
    "no JSON",
    "[]",
    "{}",
    json.dumps({"say": ["beat"]}),
    json.dumps({"say": "sing"}),
    "[" * 100_000,
    *(
        json.dumps({**said, name: value})
        for said in SAID.values()
        for name, value in ((name, [] if said[name] == 1 else None) for name in said if name != "say")
        if not (said["say"] in ("failure", "call") and name in ("error", "self"))
    ),
]


@pytest.fixture
def speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A process in the loop's place that says one line once its first turn has begun."""

    def speak(line: str) -> None:
        program = tmp_path / "loop.py"
        told = f"import sys\nfor _ in range(2): sys.stdin.readline()\nprint({line!r}, flush=True)\n"
        program.write_text(told + "for _ in sys.stdin: pass\n")
        monkeypatch.setattr("school.agents.model.run.PROGRAM", program)

    return speak


@pytest.mark.parametrize("line", MALFORMED_LINES, ids=range(len(MALFORMED_LINES)))
def test_a_line_that_is_none_of_the_loops_is_understood_by_nobody(line: str) -> None:
    with pytest.raises(WireError, match="nobody understands it: "):
        said(line.encode())


@pytest.mark.parametrize("line", MALFORMED_LINES[:6])
def test_a_loop_that_nobody_understands_is_ended(
    drive: Drive, speaks: Callable[[str], None], line: str
) -> None:
    speaks(line)
    outcome = drive.run(AgentSpec(name="loop", kind="model", model="openai:m", prompt="none"))
    assert outcome.reason == "exit"
    assert (
        "its last error: the loop does not take or give what it should: nobody understands it: "
        in outcome.detail
    )


@pytest.mark.parametrize("kind", ["assistant", "failure", "call"])
def test_what_a_loop_says_besides_is_no_word_of_ours(
    drive: Drive, speaks: Callable[[str], None], kind: str
) -> None:
    speaks(json.dumps(SAID[kind]) + "\n" + json.dumps(SAID["turn_end"]))
    outcome = drive.run(AgentSpec(name="loop", kind="model", model="openai:m", prompt="none"))
    assert (outcome.reason, outcome.output) == ("", "x")
    heard = dict(drive.heard)
    event = heard[
        {"assistant": "post_api_request", "failure": "api_request_error", "call": "post_tool_call"}[kind]
    ]
    assert (event.get("model", "openai:m"), event["session_id"]) == ("openai:m", "bead-1")
    if kind == "assistant":
        assert (outcome.usage["input_tokens"], outcome.usage["cost_usd"]) == (0, None)
    if kind == "failure":
        assert event["error"] == {"type": "", "message": "x"}


def _loop_of(drive: Drive) -> psutil.Process:
    found = [
        process
        for process in psutil.Process().children(recursive=True)
        if process.cmdline()[-1:]
        and process.cmdline()[-1].endswith("model/main.py")
        and "warden" not in process.cmdline()[3]
    ]
    return found[0]


def test_what_a_command_leaves_behind_is_ended_with_it(drive: Drive, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = f"(setsid sleep 300 & echo $! >> {pids}); sleep 300 & echo $! >> {pids}; echo started"
    with FakeEndpoint([call("shell", command=command), FINISH]) as fake:
        begun = time.monotonic()
        outcome = drive.run(spec(fake))
    assert time.monotonic() - begun < 20
    assert outcome.reason == ""
    assert all(not psutil.pid_exists(int(pid)) for pid in pids.read_text().split())


def test_a_command_has_a_time_limit_and_its_output_a_bound(drive: Drive) -> None:
    flood = "head -c 100000000 /dev/zero | tr '\\0' x"
    with FakeEndpoint(
        [call("shell", command="echo hi; sleep 60", timeout_s=0.3), call("shell", command=flood), FINISH]
    ) as fake:
        drive.run(spec(fake))
    slow, long = [json.loads(event["result"]) for event in drive.events("post_tool_call")]
    assert slow["exit_code"] == 124
    assert slow["output"].startswith("hi\n")
    assert long["exit_code"] == 0
    assert len(long["output"]) < 40_000


def test_output_that_is_no_text_reaches_everybody_as_text(drive: Drive) -> None:
    with FakeEndpoint(
        [call("shell", command=r"printf '\xff\xfe\xed\xa0\x80'"), say("so \ud800 it is")]
    ) as fake:
        outcome = drive.run(spec(fake))
    (ran,) = drive.events("post_tool_call")
    assert json.loads(ran["result"])["output"] == "\\xff\\xfe\\xed\\xa0\\x80"
    assert outcome.claim.summary == "so \\ud800 it is"
    (drive.output / "transcript.jsonl").read_bytes().decode("utf-8")


def test_a_cancelled_run_ends_at_once_and_keeps_what_is_there(drive: Drive) -> None:
    asked = threading.Event()

    def script(_request: Request) -> Any:
        if len(fake.requests) == 1:
            return WRITE
        asked.set()
        return HANG

    drive.cancelled = asked.is_set
    fake = FakeEndpoint(script)
    with fake:
        begun = time.monotonic()
        outcome = drive.run(spec(fake))
    assert time.monotonic() - begun < 20
    assert outcome.reason == "interrupted"
    assert (drive.repo / "notes.txt").exists()


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/hosts", "link/x", ".git/config", "fifo"])
def test_files_are_written_inside_the_tree_only(drive: Drive, tmp_path: Path, path: str) -> None:
    (drive.repo / "link").symlink_to(tmp_path)
    os.mkfifo(drive.repo / "fifo")
    with FakeEndpoint([call("write", path=path, content="x"), FINISH]) as fake:
        drive.run(spec(fake))
    (wrote,) = drive.events("post_tool_call")
    assert json.loads(wrote["result"])["error"]
    assert not (tmp_path / "outside.txt").exists()
    assert not (tmp_path / "x").exists()


Script = Callable[[Request], Any]

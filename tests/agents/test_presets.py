"""What each preset reads out of what its CLI really printed (``captured``), and out of what none should print."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from school.agents import presets
from school.agents.presets.base import Reading, Said, Setting
from school.agents.presets.mini import configuration
from school.contracts import AgentSpec

CAPTURED = Path(__file__).with_name("captured")
NOW = datetime(2026, 11, 30, 19, 30, tzinfo=UTC)
LIMIT = NOW.astimezone().replace(hour=21, minute=59, second=0).astimezone(UTC).isoformat(timespec="seconds")
NAMES = tuple(presets.PRESETS)


def captured(name: str) -> bytes:
    path = CAPTURED / name
    return path.read_bytes() if path.is_file() else b""


def read(preset: str, case: str, exit_code: int | None = 0) -> Reading:
    """What *preset* reads of the captured *case*."""
    short = {"mini-swe-agent": "mini"}.get(preset, preset)
    files = {}
    stdout = captured(f"{short}-{case}.jsonl")
    if preset == "mini-swe-agent":
        files = {"traj.json": captured(f"mini-{case}.json")}
    elif preset == "hermes":
        files, stdout = {"usage.json": captured(f"hermes-{case}.json")}, captured(f"hermes-{case}.out")
    said = Said(
        now=NOW, stdout=stdout, stderr=captured(f"{short}-{case}.log"), exit_code=exit_code, files=files
    )
    return presets.find(preset).read(said)


@pytest.mark.parametrize(
    ("preset", "answer", "usage"),
    [
        ("codex", "I changed a.txt.", {"input_tokens": 33, "output_tokens": 21}),
        (
            "claude",
            "I changed a.txt.",
            {"input_tokens": 33, "output_tokens": 21, "requests": 3, "cost_usd": 0.00069},
        ),
        ("opencode", "I changed a.txt.", {"input_tokens": 33, "output_tokens": 21, "requests": 3}),
        ("mini-swe-agent", "done-it", {"input_tokens": 33, "output_tokens": 21, "requests": 3}),
        ("hermes", "I changed a.txt.", {"input_tokens": 33, "output_tokens": 21, "requests": 3}),
    ],
)
def test_a_turn_that_ended_well(preset: str, answer: str, usage: dict) -> None:
    reading = read(preset, "ok")
    assert (reading.ended, reading.reason, reading.answer) == (True, "", answer)
    assert reading.usage == {name: pytest.approx(value) for name, value in usage.items()}


@pytest.mark.parametrize(
    ("preset", "output"),
    [("codex", "new\n"), ("claude", "new"), ("opencode", "new\n"), ("mini-swe-agent", "new\n")],
)
def test_the_commands_that_were_run_with_how_they_ended(preset: str, output: str) -> None:
    used = [use for use in read(preset, "ok").tools if use.result["error"] is None]
    assert [(use.tool, use.args["command"], use.result["exit_code"]) for use in used] == [
        ("terminal", "echo new > a.txt; cat a.txt", 0),
        ("terminal", "false", 1),
    ]
    assert used[0].result["output"] == output


@pytest.mark.parametrize(
    ("preset", "session"),
    [
        ("codex", "01a22de9-dbd4-7ae1-b565-4e5961393d00"),
        ("claude", "10e2beb1-c485-4c81-94b9-f454578a1b9b"),
        ("opencode", "ses_dd2123fe4ffeqnsO8gfcVQX6Tl"),
        ("hermes", "20261130_192621_e656f2"),
    ],
)
def test_the_session_that_a_further_turn_needs(preset: str, session: str) -> None:
    assert read(preset, "ok").session == session


@pytest.mark.parametrize(
    ("preset", "case", "exit_code", "reason", "retry_at", "detail"),
    [
        ("codex", "500", 1, "unavailable", "", "high demand"),
        ("codex", "mid500", 1, "unavailable", "", "high demand"),
        ("codex", "429", None, "quota", "", "429 Too Many Requests"),
        ("codex", "limit", 1, "quota", LIMIT, "hit your usage limit"),
        ("codex", "down", None, "unavailable", "", "waiting for network"),
        ("codex", "empty", 1, "unavailable", "", "stream closed before response.completed"),
        ("codex", "cut", 1, "unavailable", "", "error decoding response body"),
        ("codex", "401", 1, "login", "", "401 Unauthorized"),
        ("claude", "401", None, "login", "", "401 authentication_failed"),
        ("opencode", "500", None, "unavailable", "", "the server is on fire"),
        ("opencode", "down", None, "unavailable", "", "Unable to connect"),
        ("opencode", "401", 1, "login", "", "401 APIError Incorrect API key provided"),
        ("opencode", "cut", 1, "unavailable", "", "Connection reset by server"),
        ("opencode", "empty", None, "unavailable", "", "empty response"),
        ("mini-swe-agent", "429", 1, "quota", "", "RateLimitError"),
        ("mini-swe-agent", "401", 1, "login", "", "AuthenticationError"),
        ("mini-swe-agent", "malformed", 1, "unavailable", "", "InternalServerError"),
        ("mini-swe-agent", "emptyanswer", 0, "exit", "", "RepeatedFormatError"),
        ("hermes", "500", 0, "unavailable", "", "HTTP 500: the server is on fire"),
        ("hermes", "down", 0, "unavailable", "", "Connection error"),
        ("hermes", "401", 0, "login", "", "HTTP 401"),
        ("hermes", "cut", 2, "unavailable", "", "stream was cut"),
        ("hermes", "emptyanswer", 0, "unavailable", "", "the model returned empty content"),
    ],
)
def test_a_turn_that_failed(
    preset: str, case: str, exit_code: int | None, reason: str, retry_at: str, detail: str
) -> None:
    reading = read(preset, case, exit_code)
    assert (reading.ended, reading.reason, reading.retry_at) == (False, reason, retry_at), reading
    assert detail in reading.detail


def test_what_was_done_before_an_endpoint_failed_is_known() -> None:
    reading = read("codex", "mid500", 1)
    assert [use.args["command"] for use in reading.tools] == ["echo new > a.txt; cat a.txt"]


def test_an_end_without_an_answer_is_an_end() -> None:
    reading = read("codex", "emptyanswer")
    assert (reading.ended, reading.answer, reading.reason) == (True, "", "")


def test_the_usage_of_a_resumed_codex_is_that_of_the_whole_session() -> None:
    reading = read("codex", "resumed")
    assert (reading.usage["input_tokens"], reading.cumulative, reading.answer) == (
        44,
        True,
        "Yes, I am sure.",
    )


def test_what_is_at_work_is_known_while_it_is() -> None:
    lines = captured("codex-ok.jsonl").splitlines(keepends=True)
    at_work = [
        (sorted(reading.at_work), reading.waiting)
        for count in range(1, len(lines) + 1)
        for reading in [presets.find("codex").read(Said(now=NOW, stdout=b"".join(lines[:count])))]
    ]
    assert at_work[2:6] == [([], True), (["item_1"], False), ([], True), (["item_2"], False)]
    assert at_work[-1] == ([], False)


# --- hermes' plugin -----------------------------------------------------------------------------------------


def events(*lines: dict) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def test_hermes_tells_of_its_tools_by_the_plugin() -> None:
    told = events(
        {
            "type": "api",
            "usage": {"input_tokens": 11, "output_tokens": 7, "cache_read_tokens": 5},
            "session": "s-1",
        },
        {"type": "tool_started", "tool": "terminal", "id": "c1"},
        {
            "type": "tool",
            "tool": "terminal",
            "id": "c1",
            "args": {"command": "false"},
            "result": {"output": "", "exit_code": 1, "error": None},
            "ms": 12,
        },
        {"type": "tool_started", "tool": "write_file", "id": "c2"},
    )
    reading = presets.find("hermes").read(Said(now=NOW, exit_code=None, files={"events.jsonl": told}))
    assert (reading.session, reading.usage) == (
        "s-1",
        {"input_tokens": 16, "output_tokens": 7, "requests": 1},
    )
    (use,) = reading.tools
    assert (use.tool, use.result["exit_code"], use.duration_ms, use.call_id) == ("terminal", 1, 12, "c1")
    assert (reading.at_work, reading.waiting, reading.errors) == ({"c2"}, False, [])


def test_hermes_waits_in_silence_for_a_limit_and_its_plugin_tells() -> None:
    told = events({"type": "error", "status": 429, "message": "rate limit reached, try again in 2 hours"})
    reading = presets.find("hermes").read(Said(now=NOW, exit_code=None, files={"events.jsonl": told}))
    assert (reading.reason, reading.retry_at) == ("quota", "2026-11-30T21:30:00+00:00")


def test_an_error_that_hermes_got_over_is_none() -> None:
    told = events({"type": "error", "status": 500, "message": "on fire"}, {"type": "api", "usage": {}})
    assert (
        presets.find("hermes").read(Said(now=NOW, exit_code=None, files={"events.jsonl": told})).errors == []
    )


def test_the_end_of_a_subagent_is_no_end_of_the_turn() -> None:
    told = events({"type": "end", "completed": True, "platform": "subagent", "session": "s-2"})
    assert not presets.find("hermes").read(Said(now=NOW, files={"events.jsonl": told})).ended


def test_a_resumed_hermes_without_the_plugin() -> None:
    remark = (
        "  ⚠ tirith security scanner enabled but not available — command scanning will use patterns only\n"
    )
    said = Said(
        now=NOW,
        stdout=f"{remark}Yes, I am sure.\n".encode(),
        stderr="↻ Resumed session 20261130_1_a (1 user message)\n\nsession_id: 20261130_1_a\n".encode(),
    )
    reading = presets.find("hermes").read(said)
    assert (reading.ended, reading.answer, reading.session) == (True, "Yes, I am sure.", "20261130_1_a")


# --- nothing that can be printed is believed or breaks anything -----------------------------------------------

NONSENSE = [
    b"",
    b"\n\n\n",
    b"not json at all",
    b"\xff\xfe\xed\xa0\x80",
    b'{"type": "turn.completed"',
    b"[]\n1\nnull\n",
    b'{"type": null, "item": 3, "part": [], "message": "x", "usage": "y"}',
    b'{"type": "item.completed", "item": {"type": "agent_message", "text": "\\ud800"}}',
    b'{"type": "error", "message": "\\udfff\\u0000"}\n{"type": "error", "error": {"data": 1}}',
    b'{"type": "item.completed", "item": {"type": "command_execution", "exit_code": true, "command": ["x"]}}',
    b'{"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": {}}]}}',
    b'{"type": "result", "is_error": "no", "usage": {"input_tokens": -4}, "total_cost_usd": 1e999}',
    b'{"type": "tool_use", "part": {"state": {"input": "x", "metadata": []}, "tool": "bash"}}',
    b'{"messages": [1, {"extra": {"actions": [{}], "response": []}}], "info": {"exit_status": 7}}',
    b'{"a": ' * 100_000,
    b"{" + b"x" * (9 * 1024 * 1024),
]


@pytest.mark.parametrize("preset", NAMES)
@pytest.mark.parametrize("exit_code", [0, 137, None])
@pytest.mark.parametrize("raw", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_no_end(preset: str, exit_code: int | None, raw: bytes) -> None:
    files = {"traj.json": raw, "usage.json": raw, "events.jsonl": raw}
    reading = presets.find(preset).read(
        Said(now=NOW, stdout=raw, stderr=raw, exit_code=exit_code, files=files)
    )
    assert reading.ended is False
    assert reading.session == ""
    for value in (reading.answer, reading.detail, *reading.errors):
        value.encode("utf-8")
    json.dumps(reading.usage, allow_nan=False)
    for use in reading.tools:
        json.dumps(use.event("c"), ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize("preset", ["codex", "claude", "opencode"])
def test_an_answer_that_speaks_of_limits_is_no_limit(preset: str) -> None:
    said = "The endpoint answers 429 rate limit, 401 unauthorized, connection refused."
    line = {
        "codex": {"type": "item.completed", "item": {"type": "agent_message", "text": said}},
        "claude": {"type": "result", "subtype": "success", "is_error": False, "result": said},
        "opencode": {"type": "text", "part": {"text": said}},
    }[preset]
    stdout = captured(f"{preset}-ok.jsonl") + json.dumps(line).encode()
    spoken = presets.find(preset).read(Said(now=NOW, stdout=stdout))
    assert (spoken.reason, spoken.answer, spoken.ended) == ("", said, True)


def test_more_tools_than_anybody_counts_are_bounded() -> None:
    one = (
        b'{"type": "item.completed", "item": {"type": "command_execution", "command": "x", "exit_code": 0}}\n'
    )
    reading = presets.find("codex").read(Said(now=NOW, stdout=one * 5000))
    assert len(reading.tools) == 2000


# --- how each is started ------------------------------------------------------------------------------------


def setting(preset: str, *, session: str = "", prompt: str = "Do it.", **fields: str) -> Setting:
    found = presets.find(preset)
    spec = AgentSpec(name="mine", kind="command", preset=preset, argv=[found.program], **fields)
    home = Path("/home-of-it")
    return Setting(
        spec=spec,
        home=home,
        out=Path("/out"),
        prompt_file=Path("/p.md"),
        prompt=prompt,
        session=session,
        key="sk-1",
    )


ENDPOINT = {"base_url": "http://127.0.0.1:9/v1", "model": "m-1", "api_key_env": "K"}


@pytest.mark.parametrize("preset", NAMES)
@pytest.mark.parametrize("fields", [{}, ENDPOINT], ids=["own", "endpoint"])
@pytest.mark.parametrize("session", ["", "s-1"])
def test_no_argument_holds_a_long_prompt_or_the_key(preset: str, fields: dict, session: str) -> None:
    start = presets.find(preset).start(setting(preset, session=session, prompt="x" * 300_000, **fields))
    assert max(len(word.encode()) for word in start.argv) < 4096
    assert not any("sk-1" in text for text in (*start.argv, *start.files.values()))


@pytest.mark.parametrize(
    ("preset", "line"),
    [
        ("codex", "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -"),
        ("claude", "claude -p --output-format stream-json --verbose --dangerously-skip-permissions"),
        ("opencode", "opencode run --format json --auto --print-logs --log-level ERROR"),
        ("hermes", "hermes -z 'Do it.' --usage-file /out/usage.json"),
        (
            "mini-swe-agent",
            "mini -y --exit-immediately -c mini.yaml -c /out/task.yaml -o /out/traj.json",
        ),
    ],
)
def test_the_command_line_of_a_first_turn(preset: str, line: str) -> None:
    assert shlex.join(presets.find(preset).start(setting(preset)).argv) == line


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("codex", ["exec", "resume"]),
        ("claude", ["--resume", "s-1"]),
        ("opencode", ["--session", "s-1"]),
        ("hermes", ["--resume", "s-1"]),
    ],
)
def test_the_command_line_of_a_further_turn(preset: str, words: list[str]) -> None:
    argv = presets.find(preset).start(setting(preset, session="s-1")).argv
    place = argv.index(words[0])
    assert argv[place : place + 2] == words
    assert "s-1" in argv


@pytest.mark.parametrize("preset", NAMES)
def test_with_an_endpoint_everything_is_kept_in_the_agents_own_home(preset: str) -> None:
    start = presets.find(preset).start(setting(preset, **ENDPOINT))
    assert "/home-of-it" in " ".join(start.env.values())
    told = json.dumps(
        [start.argv, start.env, [str(path) for path in start.files], list(start.files.values())]
    )
    assert "127.0.0.1:9" in told
    assert "m-1" in told
    assert all(path.is_relative_to("/home-of-it") or path.is_relative_to("/out") for path in start.files)


def test_a_task_for_mini_is_yaml_whatever_is_in_it() -> None:
    import yaml

    task = 'tabs\t and \x7f\x9b\ufeff, 😀, "quotes", {{ braces }}, \\ # : -\nlast line'
    assert yaml.safe_load(configuration(task))["run"]["task"] == task


# --- whether it waits for its model -------------------------------------------------------------------------


def test_between_two_steps_opencode_waits_for_its_model() -> None:
    lines = captured("opencode-ok.jsonl").splitlines(keepends=True)
    waits = [
        presets.find("opencode").read(Said(now=NOW, stdout=b"".join(lines[:count]))).waiting
        for count in range(len(lines) + 1)
    ]
    kinds = ["", *(json.loads(line)["type"] for line in lines)]
    assert [kind for kind, waiting in zip(kinds, waits, strict=True) if waiting] == [
        "",
        "step_finish",
        "step_finish",
    ]
    assert (kinds[-1], waits[-1]) == ("step_finish", False)


@pytest.mark.parametrize(
    ("printed", "steps", "waits"),
    [
        ("User:\nDo it.\n", 0, True),
        ("User:\n\nmini-swe-agent (step 1, $0.00):\n```\nsleep 9999\n```\n", 0, False),
        ("mini-swe-agent (step 1, $0.00):\n```\ntrue\n```\n\nTool:\n0\n", 1, True),
        ("mini-swe-agent (step 1, $0.00):\n\nTool:\n0\nmini-swe-agent (step 2, $0.01):\n", 1, False),
        ("mini-swe-agent (step 2, $0.00):\nsays: mini-swe-agent (step 9, $\n", 2, True),
        ("mini-swe-agent (step 2, $0.00):\nmini-swe-agent (step 0, $0.00):\n", 1, False),
    ],
)
def test_mini_waits_where_no_step_has_an_answer_that_is_not_done(
    printed: str, steps: int, waits: bool
) -> None:
    saved = json.dumps({"info": {"model_stats": {"api_calls": steps}, "exit_status": ""}}).encode()
    files = {"traj.json": saved} if steps else {}
    said = Said(now=NOW, stdout=printed.encode(), exit_code=None, files=files)
    assert presets.find("mini-swe-agent").read(said).waiting is waits

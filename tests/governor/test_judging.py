"""Which calls failed, and which only wait."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from school.governor import events
from school.governor.judging import answers_with_one, failure, is_polling


def shell(command: object, code: object, output: object = "", **more: Any) -> str:
    result = json.dumps({"output": output, "exit_code": code, "error": None})
    return failure("terminal", {"command": command}, {"status": "ok", "result": result, **more})


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("make", 0, ""),
        ("make", 3, "exit 3"),
        ("make", -9, "exit -9"),
        ("grep x y", 1, ""),
        ("grep x y", 2, "exit 2"),
        ("/usr/bin/grep -r x .", 1, ""),
        ("LC_ALL=C rg x", 1, ""),
        ("cat a | grep x", 1, ""),
        ("grep x a | wc -l", 1, "exit 1"),
        ("make; grep x log", 1, ""),
        ("make && grep x log", 1, "exit 1"),
        ("cd src && grep x log", 1, ""),
        ("grep x log; make", 1, "exit 1"),
        ("grep x log\nmake", 1, "exit 1"),
        ("grep x log\n", 1, ""),
        ("grep 'a && b' log", 1, ""),
        ("diff a b", 1, ""),
        ("git diff --quiet", 1, ""),
        ("git -C d diff --exit-code", 1, ""),
        ("git commit -m x", 1, "exit 1"),
        ("test -e x", 1, ""),
        ("[ -e x ]", 1, ""),
        ("! grep x y", 1, ""),
        ("pytest -q", 1, "exit 1"),
        ("python -m pytest | tail", 1, "exit 1"),
        ("grep 'unclosed", 1, "exit 1"),
        ("", 1, "exit 1"),
        (["grep", "x", "y"], 1, ""),
        ("grep " + "x" * 5000, 1, "exit 1"),
    ],
)
def test_shell(command: object, code: int, said: str) -> None:
    assert shell(command, code) == said


def test_how_it_failed_is_its_last_line() -> None:
    assert shell("make", 2, "cc a.c\nerror: b\n\n") == "exit 2: error: b"


def test_the_exit_status_stands_behind_an_output_that_is_too_long_to_parse() -> None:
    assert shell("make", 2, "x" * 300_000) == "exit 2"
    assert shell("make", 0, '"exit_code": 3 ' * 30_000) == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"status": "ok", "result": '{"content": "x"}'}, ""),
        ({"status": "error", "error_type": "T", "error_message": "m", "result": "{}"}, "T: m"),
        ({"status": "error", "result": '{"error": "no such file"}'}, "no such file"),
        ({"status": "blocked"}, "blocked"),
        ({"status": "cancelled", "result": None}, "cancelled"),
        ({"result": '{"error": "late"}'}, "late"),
        ({"status": "ok", "result": '{"success": false}'}, "it says that it failed"),
        ({"status": "ok", "result": '{"exit_code": 3}'}, ""),
        ({"status": "ok", "result": "plain text"}, ""),
        ({"status": "ok", "result": "{broken"}, ""),
        ({"status": "ok", "result": "[1]"}, ""),
        ({}, ""),
    ],
)
def test_other_tools(arguments: dict[str, Any], said: str) -> None:
    assert failure("read_file", {"path": "x"}, arguments) == said


@pytest.mark.parametrize(
    ("tool", "args", "polling"),
    [
        ("process", {"action": "poll"}, True),
        ("process", {"action": "wait"}, True),
        ("process", {"action": "kill"}, False),
        ("terminal", {"command": "sleep 5; cat log"}, True),
        ("terminal", {"command": "tail -n 3 log"}, True),
        ("terminal", {"command": "tailor x"}, False),
        ("terminal", {"command": "git status"}, False),
        ("job_status", {}, True),
        ("poll_job", {}, True),
        ("read_file", {"path": "status"}, False),
    ],
)
def test_polling(tool: str, args: dict[str, Any], polling: bool) -> None:
    assert is_polling(tool, args) is polling


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "tool_name",
        "args",
        "result",
        "status",
        "user_message",
        "conversation_history",
        "error",
        "turn_id",
        "command",
    ]
)


@settings(deadline=None)
@given(
    st.sampled_from(
        ["pre_llm_call", "post_tool_call", "api_request_error", "post_api_request", "on_session_end"]
    ),
    st.dictionaries(NAMES, JSON),
)
def test_no_argument_of_any_host_is_too_strange(name: str, arguments: dict[str, Any]) -> None:
    assert events.read(name, arguments) is not None


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_command_is_too_strange(command: str) -> None:
    assert answers_with_one(command) in (True, False)


def test_the_same_call_has_the_same_key_in_whatever_order() -> None:
    one = events.read("post_tool_call", {"tool_name": "t", "args": {"a": 1, "b": [2]}})
    two = events.read("post_tool_call", {"tool_name": "t", "args": {"b": [2], "a": 1}})
    three = events.read("post_tool_call", {"tool_name": "t", "args": {"a": 1, "b": [3]}})
    assert isinstance(one, events.ToolReturned)
    assert isinstance(two, events.ToolReturned)
    assert isinstance(three, events.ToolReturned)
    assert one.key == two.key != three.key


def test_calls_without_arguments_are_the_same_where_their_results_are() -> None:
    keys = [
        getattr(events.read("post_tool_call", {"tool_name": "Read", "args": {}, "result": result}), "key", "")
        for result in ("a", "b", "a")
    ]
    assert keys[0] == keys[2] != keys[1]

"""The seam of the advisers: order, isolation, time, and which answers are honoured."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from school.hooks import ANSWER_CHARS_MAX, FAULTS_MAX, NAMES, Hooks


def listening(name: str, *answers: object, **options: Any) -> Hooks:
    """Hooks with one adviser a given answer, called a, b, c, ..."""
    hooks = Hooks(**options)
    for letter, answer in zip("abcdef", answers, strict=False):
        hooks.add(letter, name, lambda _answer=answer, **_event: _answer)
    return hooks


def test_the_ten_names() -> None:
    assert NAMES == (
        "pre_llm_call",
        "post_llm_call",
        "post_tool_call",
        "transform_tool_result",
        "pre_verify",
        "post_api_request",
        "api_request_error",
        "subagent_start",
        "subagent_stop",
        "on_session_end",
    )
    with pytest.raises(ValueError, match="pre_tool_call: no such hook"):
        Hooks().add("a", "pre_tool_call", print)


def test_everybody_is_told_in_order_with_the_arguments_of_the_host() -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    hooks = Hooks()
    hooks.add("b", "subagent_start", lambda **event: heard.append(("b", event)))
    hooks.add("a", "subagent_start", lambda **event: heard.append(("a", event)))
    assert hooks.fire("subagent_start", child_session_id="c1") == []
    assert heard == [("b", {"child_session_id": "c1"}), ("a", {"child_session_id": "c1"})]


def test_context_takes_both_forms_and_joins_them_by_blank_lines() -> None:
    hooks = listening("pre_llm_call", {"context": "one"}, None, "two", "", {"context": ""}, {"other": 1})
    assert hooks.context(session_id="s") == "one\n\ntwo"
    assert hooks.faults == []


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (7, "a: pre_llm_call: answered with int where a text is due"),
        ({"context": ["x"]}, "a: pre_llm_call: answered with list where a text is due"),
        (b"x", "a: pre_llm_call: answered with bytes where a text is due"),
        ("\ud800", "a: pre_llm_call: answered with a text that is not valid Unicode"),
        ("x" * 65537, "a: pre_llm_call: answered with 65537 characters, 65536 are the most"),
    ],
)
def test_nonsense_for_context_is_a_fault_and_changes_nothing(answer: object, fault: str) -> None:
    hooks = listening("pre_llm_call", answer, "kept")
    assert hooks.context() == "kept"
    assert hooks.faults == [fault]


def test_the_first_text_replaces_a_tool_result() -> None:
    assert listening("transform_tool_result", None, "b", "c").tool_result("r", tool_name="t") == "b"
    assert listening("transform_tool_result", None).tool_result("r") == "r"
    hooks = listening("transform_tool_result", {"result": "x"}, "x" * (ANSWER_CHARS_MAX + 2), "ok")
    assert hooks.tool_result("r") == "ok"
    assert len(hooks.faults) == 2


def test_a_tool_result_is_given_to_the_advisers() -> None:
    hooks = Hooks()
    hooks.add("a", "transform_tool_result", lambda result, tool_name, **_: f"{result} of {tool_name}")
    assert hooks.tool_result("r", tool_name="t") == "r of t"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"action": "continue", "message": " go on "}, "go on"),
        ({"decision": "block", "reason": "not yet"}, "not yet"),
        ({"action": "BLOCK", "reason": "r"}, "r"),
        ({"action": "continue", "message": ""}, "last"),
        ({"action": "allow", "message": "m"}, "last"),
        ({}, "last"),
        (None, "last"),
        ("go on", "last"),
        ({"action": "continue", "message": 5}, "last"),
    ],
)
def test_the_first_message_holds(answer: object, message: str) -> None:
    hooks = listening("pre_verify", answer, {"action": "continue", "message": "last"})
    assert hooks.hold(final_response="done") == message


@pytest.mark.parametrize("cause", [ValueError("bad"), SystemExit(1), KeyboardInterrupt()])
def test_an_exception_of_any_kind_is_recorded_and_the_next_is_asked(cause: BaseException) -> None:
    def fail(**_event: Any) -> None:
        raise cause

    hooks = Hooks()
    hooks.add("bad", "pre_llm_call", fail)
    hooks.add("good", "pre_llm_call", lambda **_event: "fine")
    assert hooks.context() == "fine"
    assert hooks.faults == [f"bad: pre_llm_call: {type(cause).__name__}: {cause}"]


def test_an_exception_without_words_is_recorded_too() -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise ValueError

    def fail(**_event: Any) -> None:
        raise Mute

    hooks = Hooks()
    hooks.add("bad", "post_tool_call", fail)
    assert hooks.fire("post_tool_call") == []
    assert hooks.faults[0].startswith("bad: post_tool_call: ")


def test_a_callback_that_hangs_is_abandoned_and_left_out_for_a_while() -> None:
    now = [100.0]
    go = threading.Event()
    asked: list[int] = []

    def hang(**_event: Any) -> str:
        asked.append(1)
        go.wait(60)
        return "too late"

    hooks = Hooks(suppress_s=60, monotonic=lambda: now[0])
    hooks.add("slow", "pre_llm_call", hang, timeout_s=0.02)
    hooks.add("slow", "post_llm_call", lambda **_event: "still there")
    assert hooks.context() == ""
    assert hooks.faults == ["slow: pre_llm_call: no answer within 0.02 s"]
    now[0] = 159.0
    assert hooks.context() == ""
    assert len(asked) == 1
    assert hooks.fire("post_llm_call") == ["still there"]
    now[0] = 160.5
    assert hooks.context() == ""
    assert len(asked) == 2
    go.set()
    hooks.close()


def test_advisers_cannot_alter_what_the_host_has() -> None:
    def meddle(args: dict[str, Any], conversation_history: list[Any], **_event: Any) -> None:
        args["command"][0] = "rm"
        conversation_history.clear()

    args, history = {"command": ["ls"]}, [{"role": "user"}]
    hooks = Hooks()
    hooks.add("bad", "post_tool_call", meddle)
    hooks.fire("post_tool_call", args=args, conversation_history=history)
    assert args == {"command": ["ls"]}
    assert history == [{"role": "user"}]
    assert hooks.faults == []


def test_faults_are_bounded_and_the_log_tells_the_first_second_fourth_time(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "advisers.jsonl"
    hooks = Hooks(log=log)
    hooks.add("bad", "on_session_end", lambda **_event: 1 // 0)
    for _ in range(150):
        hooks.fire("on_session_end")
    assert len(hooks.faults) == FAULTS_MAX == 100
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["count"] for line in lines] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert {key: lines[0][key] for key in ("event", "adviser", "hook", "kind", "reason")} == {
        "event": "adviser.failed",
        "adviser": "bad",
        "hook": "on_session_end",
        "kind": "ZeroDivisionError",
        "reason": "ZeroDivisionError: integer division or modulo by zero",
    }


def test_a_log_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    hooks = Hooks(log=tmp_path / "file" / "log.jsonl")
    hooks.add("bad", "on_session_end", lambda **_event: 1 // 0)
    assert hooks.fire("on_session_end") == []
    assert hooks.faults[1].startswith("the log of the advisers: ")


def test_after_close_nobody_is_told() -> None:
    hooks = listening("pre_llm_call", "one")
    hooks.close()
    assert hooks.context() == ""
    assert hooks.tool_result("r") == "r"
    assert hooks.faults == []

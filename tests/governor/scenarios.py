"""What happens in a session, as one table of hook events, and what the governor is to make of it. Every host plays it.

Straight through the hooks all of it is played (``test_scenarios.py``, ``tests/hermes/test_plugin.py``), with the arguments
that Hermes 0.19 was seen to give. What is a matter of shell commands (``lines_of``) is played as real commands, too, by the
built-in loop and over ACP (``test_in_the_loop.py``) and by a real Hermes (``tests/clients/test_hermes_scenarios.py``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from school.governor import Governor

Event = tuple[str, dict[str, Any]]


def tell(governor: Governor, *events: Event) -> None:
    """Let *governor* hear of *events*, and keep what is due."""
    for event in events:
        governor.hear(*event)
        governor.keep(*event)


def turn(number: int = 1, asked: str = "mend the parser", session: str = "s1") -> Event:
    return "pre_llm_call", {
        "session_id": session,
        "task_id": session,
        "turn_id": f"t{number}",
        "user_message": asked,
        "conversation_history": [],
        "is_first_turn": number == 1,
        "model": "m",
        "platform": "cli",
    }


def shell(command: str, code: int = 0, output: str = "", session: str = "s1") -> list[Event]:
    """A call of the shell: its status is "ok" whatever its exit status is."""
    return tool(
        "terminal",
        {"command": command},
        {"output": output, "exit_code": code, "error": None},
        session=session,
    )


def tool(
    name: str, args: dict[str, Any], result: dict[str, Any], status: str = "ok", session: str = "s1"
) -> list[Event]:
    event = {
        "tool_name": name,
        "args": args,
        "result": json.dumps(result),
        "task_id": session,
        "session_id": session,
        "tool_call_id": "c1",
        "turn_id": "t1",
        "api_request_id": "r1",
        "duration_ms": 3,
        "status": status,
        "error_type": None if status == "ok" else "tool_error",
        "error_message": None if status == "ok" else str(result.get("error")),
    }
    passed = [("transform_tool_result", event)] if name != "delegate_task" else []
    return [("post_tool_call", event), *passed]


def model(calls: int = 1, session: str = "s1") -> Event:
    return "post_api_request", {
        "session_id": session,
        "turn_id": "t1",
        "api_request_id": "r1",
        "assistant_tool_call_count": calls,
        "usage": {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110},
    }


def failed_request(request: str, retry: int = 0, session: str = "s1") -> Event:
    return "api_request_error", {
        "session_id": session,
        "turn_id": "t1",
        "api_request_id": request,
        "status_code": 500,
        "retry_count": retry,
        "max_retries": 3,
        "retryable": True,
        "reason": "server_error",
        "error": {"type": "InternalServerError", "message": "boom"},
    }


def delegation(child: str = "child1", session: str = "s1") -> list[Event]:
    """delegate_task: the subagent starts and stops before the call comes back."""
    start = {
        "parent_session_id": session,
        "child_session_id": child,
        "child_role": "leaf",
        "child_goal": "do the rest",
    }
    return [
        ("subagent_start", start),
        (
            "subagent_stop",
            {"parent_session_id": session, "child_session_id": child, "child_status": "completed"},
        ),
        *tool("delegate_task", {"goal": "do the rest"}, {"results": []}, session=session),
    ]


def end(session: str = "s1") -> Event:
    return "on_session_end", {
        "session_id": session,
        "turn_id": "t1",
        "completed": True,
        "interrupted": False,
        "model": "m",
        "platform": "cli",
    }


@dataclass(frozen=True)
class Scenario:
    """Events, at which of them (counted from 0) a packet is given, why, and whether the session is stuck at the end."""

    name: str
    events: list[Event]
    packets: dict[int, list[str]]
    stuck: bool


def flat(*parts: Event | list[Event]) -> list[Event]:
    return [event for part in parts for event in (part if isinstance(part, list) else [part])]


SCENARIOS = [
    Scenario(
        "three failing shell commands trip it, status ok or not",
        flat(turn(), shell("make a", 3), shell("make b", 3), shell("make c", 3)),
        {6: ["errors"]},
        stuck=True,
    ),
    Scenario(
        "two failures and a success in between do not",
        flat(turn(), shell("a", 1), shell("b", 2), shell("ls"), shell("c", 1), shell("d", 1)),
        {},
        stuck=False,
    ),
    Scenario(
        "grep, diff and test say no with 1",
        flat(
            turn(),
            shell("grep x y", 1),
            shell("diff a b", 1),
            shell("test -e z", 1),
            shell("cd s && grep -r x .", 1),
        ),
        {},
        stuck=False,
    ),
    Scenario(
        "and fail with 2",
        flat(turn(), shell("grep x no", 2), shell("diff a no", 2), shell("test 1 -eq x", 2)),
        {6: ["errors"]},
        stuck=True,
    ),
    Scenario(
        "three retries of one request count once",
        flat(turn(), *[failed_request("r1", retry) for retry in range(3)], shell("x", 1)),
        {},
        stuck=False,
    ),
    Scenario(
        "three requests that fail trip it, and the next turn is told",
        flat(turn(), *[failed_request(f"r{n}") for n in range(3)], end(), turn(2, "go on")),
        {5: ["requests"]},
        stuck=True,
    ),
    Scenario(
        "three identical successes trip it, more of the same do not clear it",
        flat(turn(), *[shell("git status")] * 5),
        {6: ["repeats"]},
        stuck=True,
    ),
    Scenario(
        "a different success does",
        flat(turn(), *[shell("git status")] * 3, shell("git diff")),
        {6: ["repeats"]},
        stuck=False,
    ),
    Scenario(
        "a different failure does not",
        flat(turn(), *[shell("git status")] * 3, shell("make", 2)),
        {6: ["repeats"]},
        stuck=True,
    ),
    Scenario(
        "polling may go on",
        flat(turn(), *[tool("process", {"action": "poll", "session_id": "p"}, {"status": "running"})] * 6),
        {},
        stuck=False,
    ),
    Scenario("waiting may, too", flat(turn(), *[shell("sleep 0.01; cat log")] * 6), {}, stuck=False),
    Scenario(
        "twelve model calls without a tool that succeeds",
        flat(turn(), *[model()] * 12, turn(2)),
        {13: ["progress"]},
        stuck=True,
    ),
    Scenario(
        "a conversation is no standstill",
        flat(*[[turn(n), model(0), end()] for n in range(1, 21)]),
        {},
        stuck=False,
    ),
    Scenario(
        "delegate_task clears it",
        flat(turn(), shell("a", 1), shell("b", 1), shell("c", 1), delegation()),
        {6: ["errors"]},
        stuck=False,
    ),
    Scenario(
        "once a turn, and again in the next",
        flat(turn(), *[shell(f"make {n}", 1) for n in range(5)], end(), turn(2, "again"), shell("make 9", 1)),
        {6: ["errors"], 12: ["errors"]},
        stuck=True,
    ),
    Scenario(
        "a tool's own error counts like an exit status",
        flat(
            turn(),
            *[tool("read_file", {"path": f"p{n}"}, {"error": "no such file"}, "error") for n in range(3)],
        ),
        {6: ["errors"]},
        stuck=True,
    ),
    Scenario(
        "a child's failures are its own",
        flat(
            turn(),
            ("subagent_start", {"parent_session_id": "s1", "child_session_id": "child1"}),
            shell("a", 1),
            *[shell(f"x{n}", 1, session="child1") for n in range(2)],
            shell("b", 1),
        ),
        {},
        stuck=False,
    ),
    Scenario(
        "two sessions at once are counted apart",
        flat(
            turn(),
            turn(session="s2"),
            *[part for n in range(2) for part in (shell(f"a{n}", 1), shell(f"b{n}", 1, session="s2"))],
        ),
        {},
        stuck=False,
    ),
]


# --- as real commands -------------------------------------------------------------------------------------------

# Where these lie, the commands of the table end as it says.
FILES = {"y": "no\n", "a": "1\n", "b": "2\n", "s/t": "no\n", "log": "1\n"}
_AS_THEY_ARE = ("grep", "diff", "test", "cd", "sleep")
_PLAYED = {"pre_llm_call", "post_tool_call", "transform_tool_result", "on_session_end"}
_HEARD = ("pre_llm_call", "transform_tool_result")


def lines_of(scenario: Scenario) -> list[list[tuple[str, int]]] | None:
    """Its shell commands with their exit status, turn by turn; None where it is about something else than these."""
    turns: list[list[tuple[str, int]]] = []
    for name, event in scenario.events:
        if name not in _PLAYED or event["session_id"] != "s1":
            return None
        if name == "pre_llm_call":
            turns.append([])
        if name == "post_tool_call":
            if event["tool_name"] != "terminal":
                return None
            command, code = event["args"]["command"], json.loads(event["result"])["exit_code"]
            line = command if command.startswith(_AS_THEY_ARE) else f"(exit {code}) # {command}"
            turns[-1].append((line, code))
    return turns


def told_at(scenario: Scenario) -> list[int]:
    """With which of the messages that its model gets, one a request, a packet comes."""
    heard = [at for at, (name, _) in enumerate(scenario.events) if name in _HEARD]
    return [heard.index(at) for at in scenario.packets]


PLAYABLE = [scenario for scenario in SCENARIOS if any(lines_of(scenario) or [])]

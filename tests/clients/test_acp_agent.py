"""Real ACP agents, opencode above all, in whole runs: a session over its own streams, its tools seen as they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.driving import (
    EDIT,
    HERMES_ACP,
    KEY,
    OPENCODE_ACP,
    TEST,
    Client,
    attempts,
    drive,
    drive_until_it_waits,
    good,
)
from tests.clients.test_hermes_plugin import PACKET
from tests.endpoint import HANG, Request, Turn, say, status
from tests.support import git

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]


def test_a_student_edits_tests_and_is_accepted(tmp_path: Path) -> None:
    run = drive(OPENCODE_ACP, good(OPENCODE_ACP), tmp_path)

    assert (run.code, run.task["outcome"], run.task["branch"]) == (0, "accepted", "school/fix-add"), (
        run.stderr
    )
    assert git(run.repo, "show", "school/fix-add:calc/core.py").endswith("return left + right")
    bag = run.bag
    assert (bag["cto_verdict"], bag["coo_verdict"], bag["accepted"]) == ("PASS", "PASS", True)
    assert bag["summary"].startswith("add() adds now.")
    lines = (run.archive / bag["bead"] / "transcript.jsonl").read_text().splitlines()
    tools = [entry for entry in map(json.loads, lines) if entry["kind"] == "tool"]
    assert [json.dumps(entry["args"]) for entry in tools if EDIT in json.dumps(entry["args"])] != []
    assert KEY not in "".join(lines)


def test_a_check_that_was_left_out_is_asked_for_in_a_further_turn(tmp_path: Path) -> None:
    script = [
        OPENCODE_ACP.shell(EDIT),
        say("It adds."),
        OPENCODE_ACP.shell(TEST),
        say("The tests pass."),
    ]
    run = drive(OPENCODE_ACP, script, tmp_path, on_stop=True)
    assert run.task["outcome"] == "accepted", run.stderr
    assert run.bag["summary"].startswith("It adds.")
    assert "unverified" not in run.bag["summary"]


def test_an_endpoint_that_fails_is_no_fault_of_the_student(tmp_path: Path) -> None:
    run = drive_until_it_waits(OPENCODE_ACP, [status(401, "Incorrect API key provided")], tmp_path)
    bag = run.bags()[0]
    assert (bag["status"], bag["reason"]) == ("failed", "login"), (bag["summary"], run.stderr[-2000:])
    assert [attempt["charged"] for attempt in attempts(run.hermes_home)] == [False]


WAITED = "it waited for an answer of its model"
SILENT = "its turn ended without a word and without a call"


@pytest.mark.parametrize(
    ("client", "script", "said"),
    [
        pytest.param(HERMES_ACP, [status(500)], "API call failed after 3 retries: HTTP 500", id="hermes-500"),
        pytest.param(HERMES_ACP, [say("")], "No reply: the model returned empty", id="hermes-empty"),
        pytest.param(OPENCODE_ACP, [status(500)], WAITED, id="opencode-500"),
        pytest.param(OPENCODE_ACP, [say("")], SILENT, id="opencode-empty"),
        pytest.param(OPENCODE_ACP, [OPENCODE_ACP.shell(EDIT), HANG], WAITED, id="opencode-hang"),
    ],
)
def test_what_ends_in_good_order_or_in_silence_may_be_the_endpoints_failure(
    client: Client, script: list[Turn], said: str, tmp_path: Path
) -> None:
    """Over ACP there is no error for it: hermes tells of it in the answer's place, opencode tries for ever, or says nothing."""
    run = drive_until_it_waits(client, script, tmp_path, agent_timeout_s=30)
    bag = run.bags()[0]
    assert (bag["status"], bag["reason"]) == ("failed", "unavailable"), (bag["summary"], run.stderr[-2000:])
    assert said in bag["summary"]
    assert [attempt["charged"] for attempt in attempts(run.hermes_home)] == [False]


def test_one_that_is_stuck_is_told_in_the_middle_of_its_turn(tmp_path: Path) -> None:
    """Its turn is cancelled while a command of it runs, and the same session goes on with the packet."""
    told = iter(good(OPENCODE_ACP))

    def answer(request: Request) -> Turn:
        said = json.dumps(request["messages"])
        if PACKET in said:
            return next(told, say("That was all."))
        failed = sum(message["role"] == "tool" for message in request["messages"])
        return OPENCODE_ACP.shell(f"exit {failed + 3}" if failed < 3 else "sleep 100")

    run = drive(OPENCODE_ACP, answer, tmp_path)
    assert run.task["outcome"] == "accepted", run.stderr
    assert run.endpoint is not None
    asked = [request["messages"] for request in run.endpoint.requests if request.get("tools")]
    (first, *_) = [messages for messages in asked if PACKET in json.dumps(messages)]
    assert PACKET in json.dumps(first[-1])
    assert first[-1]["role"] == "user"
    assert "3 tool calls in a row failed" in json.dumps(first[-1])
    assert "exit 5" in json.dumps(first[:-1])  # the same session
    (packet,) = [entry for entry in run.bag["guidance"] if entry["what"] == "packet"]
    assert (packet["by"], packet["became"], packet["followed"]) == ("governor", "recovered", True)

"""The built-in loop in a real leaf: what its tools did is evidence, and what stands beside it is heard."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from school.contracts import AgentSpec
from school.settings import Settings
from school.verification.evidence import Ledger
from tests.endpoint import FakeEndpoint, call, say
from tests.leaves import new_bead, run
from tests.support import ROOT

TEST = "python3 -m unittest discover -v"
EDIT = call("write", path="calc/extra.py", content="x = 1\n")


def spec(fake: FakeEndpoint) -> AgentSpec:
    return AgentSpec(
        name="loop", kind="model", model="openai:gpt-4o", base_url=fake.base_url, api_key_env="LOOP_KEY", prompt="none"
    )  # fmt: skip


def ended(
    repo: Path, school: Settings, script: list[Any], *, status: int = 0, **fields: Any
) -> dict[str, Any]:
    with FakeEndpoint(script) as fake:
        terms = {"verify": [TEST.split()]}
        bead = new_bead(repo, spec(fake), **{"advice": {"on_stop": "auto"}, "terms": terms, **fields})
        return {**run(bead, school, status=status, LOOP_KEY="sk-loop-0123456789"), "asked": fake.requests}


def holds(bag: dict[str, Any]) -> list[tuple[str, int, bool | None]]:
    return [(entry["by"], entry["turn"], entry["followed"]) for entry in bag["guidance"]]


def done(summary: str) -> Any:
    return call("finish", status="done", summary=summary)


def test_one_that_tests_after_the_first_reminder_is_not_reminded_again(repo: Path, school: Settings) -> None:
    bag = ended(repo, school, [EDIT, done("Added it."), call("shell", command=TEST), done("They pass.")])
    assert holds(bag) == [("verify_on_stop", 1, True)]
    evidence = bag["evidence"]
    assert (bag["status"], evidence["status"], evidence["kind"], evidence["scope"]) == (
        "open",
        "passed",
        "test",
        "full",
    )
    assert (evidence["tree"], evidence["command"]) == (bag["tree"], TEST)
    assert bag["summary"] == (
        f"Added it.\n\nAt a later turn: They pass.; passed: `{TEST}` (full, exit 0), on exactly these files"
    )
    with Ledger(school.evidence_db) as ledger:
        (event,) = ledger.events(bag["bead"], Path(bag["worktree"]))
    assert (event.status, event.exit_code, event.commit) == ("passed", 0, bag["base_commit"])
    assert "Ran 2 tests" in event.output_summary


def test_one_that_tests_before_it_ends_is_not_reminded_at_all(repo: Path, school: Settings) -> None:
    bag = ended(repo, school, [EDIT, call("shell", command=TEST), done("Added and tested.")])
    assert (bag["guidance"], bag["evidence"]["status"]) == ([], "passed")


@pytest.mark.parametrize(
    "command", [f"{TEST} || true", f"{TEST} | tail -1", f"{TEST}; echo done", f"{TEST} &"]
)
def test_a_check_that_cannot_fail_is_none(repo: Path, school: Settings, command: str) -> None:
    bag = ended(repo, school, [EDIT, call("shell", command=command), done("a"), done("b"), done("c")])
    assert holds(bag) == [("verify_on_stop", 1, False), ("verify_on_stop", 2, False)]
    assert bag["evidence"]["words"].startswith("unverified: ")


def test_an_edit_after_the_check_makes_it_void(repo: Path, school: Settings) -> None:
    again = call("write", path="calc/extra.py", content="x = 2\n")
    bag = ended(repo, school, [EDIT, call("shell", command=TEST), again, done("a"), say("b"), say("c")])
    assert [entry["followed"] for entry in bag["guidance"]] == [False, False]
    assert (bag["evidence"]["status"], bag["evidence"]["checks"]) == ("unverified", 1)


def test_a_failing_check_is_named_in_the_reminder_and_in_the_record(repo: Path, school: Settings) -> None:
    broken = call(
        "write", path="calc/core.py", content="def add(a, b):\n    return 0\n\ndef parse(t):\n    return []\n"
    )
    bag = ended(
        repo, school, [broken, call("shell", command=TEST), done("Done."), say("No idea."), say("None.")]
    )
    assert f"`{TEST}` ended with exit status 1. It printed:" in bag["guidance"][0]["text"]
    assert bag["evidence"]["words"] == f"failed: `{TEST}` (full, exit 1), on exactly these files"


def test_a_governors_packet_that_is_ignored_ends_it_as_stuck(repo: Path, school: Settings) -> None:
    bag = ended(repo, school, [EDIT, *[call("shell", command="make nothing")] * 40, done("x")], status=1)
    assert (bag["status"], bag["reason"]) == ("failed", "stuck")
    packets = [entry for entry in bag["guidance"] if entry["by"] == "governor"]
    assert [(entry["became"], entry["followed"]) for entry in packets] == [("ignored", False)]
    assert "make nothing" in packets[0]["text"]
    assert bag["summary"].startswith("stuck, and went on the same way after it was told so: ")
    assert bag["files_changed"] == ["calc/extra.py"]  # the work is kept
    assert len(bag["asked"]) < 20


def test_a_coach_holds_a_finished_student_once_after_it_has_verified(repo: Path, school: Settings) -> None:
    finding = {"verdict": "finding", "severity": "blocker", "title": "No caller", "body": "Nothing uses it."}
    student = iter(
        [EDIT, call("shell", command=TEST), done("Added it."), say("It is meant so."), say("Enough.")]
    )

    def answer(request: dict[str, Any]) -> Any:
        return say(json.dumps(finding)) if request["model"] == "coach-1" else next(student)

    with FakeEndpoint(answer) as fake:
        coach = {
            "model": "openai:coach-1",
            "base_url": fake.base_url,
            "api_key_env": "COACH_KEY",
            "review_authority": "hold_once",
            "active": False,
        }
        advice = {"on_stop": "auto", "coach": coach}
        bead = new_bead(repo, spec(fake), advice=advice, terms={"verify": [TEST.split()]})
        bag = run(bead, school, LOOP_KEY="sk-loop-0123456789", COACH_KEY="sk-coach-0123456789")
    told = [entry for entry in bag["guidance"] if entry["by"] == "coach"]
    assert [(entry["what"], entry["held"], entry["followed"]) for entry in told] == [("hold", True, False)]
    assert "No caller" in told[0]["text"]
    assert "Nothing uses it." in told[0]["text"]
    assert told[0]["candidate"] == "Added it."
    assert bag["status"] == "open"
    assert "adviser_faults" not in bag
    asked = [request for request in fake.requests if request["model"] == "coach-1"]
    assert len(asked) == 1 or all("calc/extra.py" in json.dumps(request) for request in asked)
    assert "sk-coach" not in json.dumps(bag)


def acp(*prompts: list[list[Any]]) -> AgentSpec:
    argv = [sys.executable, "-I", "-B", str(ROOT / "tests/agents/acp_agent.py"), json.dumps(prompts)]
    return AgentSpec(name="zed", kind="acp", argv=argv, prompt="none")


def test_an_acp_agents_terminals_are_evidence_too(repo: Path, school: Settings) -> None:
    first = [["edit", "calc/extra.py", None, "x = 1\n"], ["claim"], ["say", "Added it."]]
    second = [["terminal", *TEST.split()], ["say", "They pass."]]
    agent = acp(first, second)
    bag = run(new_bead(repo, agent, advice={"on_stop": True}, terms={"verify": [TEST.split()]}), school)
    assert holds(bag) == [("verify_on_stop", 1, True)]
    evidence = bag["evidence"]
    assert (evidence["status"], evidence["scope"], evidence["command"]) == ("passed", "full", TEST)
    assert evidence["tree"] == bag["tree"]


FAILS: list[list[Any]] = [
    ["tool", "execute", {"command": f"make {number}"}, {"output": "no", "exit": 2}] for number in range(3)
]


def test_an_acp_agent_that_is_stuck_has_its_turn_broken_off(repo: Path, school: Settings) -> None:
    mended = [
        ["edit", "calc/extra.py", None, "x = 1\n"],
        ["tool", "execute", {"command": "make all"}, {"output": "", "exit": 0}],
        ["claim"],
        ["say", "It is made."],
    ]
    bag = run(new_bead(repo, acp([*FAILS, ["until_cancelled"]], mended), advice={"on_stop": False}), school)
    (packet,) = bag["guidance"]
    assert (packet["by"], packet["what"], packet["turn"], packet["became"]) == (
        "governor",
        "packet",
        2,
        "recovered",
    )
    assert (bag["status"], bag["usage"]["turns"], bag["files_changed"]) == ("open", 2, ["calc/extra.py"])


def test_one_that_ends_before_it_was_told_gets_a_turn_for_that(repo: Path, school: Settings) -> None:
    first = [["edit", "calc/extra.py", None, "x = 1\n"], *FAILS, ["claim"], ["say", "Done, I think."]]
    bag = run(new_bead(repo, acp(first, [["say", "Well."]]), advice={"on_stop": False}), school)
    told = [(entry["by"], entry["what"], entry["turn"]) for entry in bag["guidance"]]
    assert told in (
        [("governor", "hold", 1), ("governor", "packet", 2)],
        [("governor", "packet", 2)],  # it was quick enough to be told in the middle of its turn
    )
    assert bag["guidance"][-1]["became"] == "open"
    assert bag["status"] == "open"

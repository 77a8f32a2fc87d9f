"""A student's session as its driver sees it: the governor's policy, the gates' order, what the bookbag keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.agents.ending import Ending
from school.contracts import AgentOutcome, AgentSpec, Claim, TurnEnd, Workspace
from school.settings import Settings
from school.study.gates import LOOK_BACK
from school.study.guidance import ENTRIES_MAX, Guidance
from school.study.session import Study
from school.supervisor import beads
from tests.leaves import new_bead, script
from tests.support import git

Opening = Callable[..., Study]


@pytest.fixture
def opened(repo: Path, school: Settings, tmp_path: Path) -> Iterator[Opening]:
    made: list[Study] = []

    def open_(spec: AgentSpec | None = None, **fields: Any) -> Study:
        spec = spec or AgentSpec(name="loop", kind="model", model="openai:m")
        bead = new_bead(repo, spec, **{"terms": {"verify": [["pytest"]]}, **fields})
        bag = bookbag.read_bookbag(bead)
        assert bag is not None
        workspace = Workspace(
            bead=bead, path=repo, git_dir=repo / ".git", clone=repo, repo=repo,
            repo_key=bag["repo_key"], base_commit=bag["base_commit"],
        )  # fmt: skip
        places = {"result_path": tmp_path / "result.json", "scratch": tmp_path, "stop": lambda: False}
        made.append(Study(bag, workspace, spec, school, **places))
        return made[-1]

    yield open_
    for study in made:
        study.__exit__(None, None, None)


def tool(study: Study, name: str, args: dict[str, Any], result: dict[str, Any], number: int = 0) -> str:
    """One tool call as a host tells of it; what the agent sees of its result."""
    ids = {
        "session_id": study.evidence.session,
        "task_id": study.evidence.session,
        "tool_call_id": f"c{number}",
    }
    raw = json.dumps(result)
    event = {**ids, "tool_name": name, "args": args, "duration_ms": 1, "status": "ok", "turn_id": "t"}
    study.hooks.fire("post_tool_call", **event, result=raw)
    return study.hooks.tool_result(raw, **event)


def shell(study: Study, command: str, code: int, number: int = 0) -> str:
    return tool(
        study, "terminal", {"command": command}, {"output": "", "exit_code": code, "error": None}, number
    )


def ended(study: Study, **fields: Any) -> Ending:
    outcome = AgentOutcome(Claim(), **fields)
    study.ended(outcome)
    return study.ending(Ending("failed", outcome.reason) if outcome.reason else Ending("open", ""))


def test_a_packet_that_is_ignored_ends_the_attempt_as_stuck(opened: Opening) -> None:
    study = opened()
    seen = [shell(study, "make all", 2, number) for number in range(3)]
    assert "make all" in seen[2]
    assert len(seen[2]) > len(seen[1])
    assert not study.cancelled()
    for number in range(3, 6):
        shell(study, "make all", 2, number)
    assert study.cancelled()
    assert study.gate(TurnEnd(1, "I give up", Claim())) == ""
    assert ended(study, reason="interrupted") == Ending("failed", "stuck")
    assert study.why.startswith("stuck, and went on the same way after it was told so: ")
    (packet,) = study.fields()["guidance"]
    assert (packet["by"], packet["what"], packet["became"], packet["followed"]) == (
        "governor",
        "packet",
        "ignored",
        False,
    )
    assert "make all" in packet["text"]


def test_a_packet_that_is_heeded_ends_nothing(opened: Opening) -> None:
    study = opened()
    for number in range(3):
        shell(study, "make all", 2, number)
    shell(study, "ls", 0, 3)
    assert not study.cancelled()
    assert ended(study) == Ending("open", "")
    assert [(entry["became"], entry["followed"]) for entry in study.fields()["guidance"]] == [
        ("recovered", True)
    ]


def unseen(study: Study, number: int = 0) -> None:
    """A command that failed, of an agent whose results have reached it before we hear of them."""
    event = {
        "session_id": study.evidence.session,
        "tool_call_id": f"c{number}",
        "turn_id": "t",
        "status": "ok",
    }
    result = json.dumps({"output": "", "exit_code": 2, "error": None})
    study.hooks.fire(
        "post_tool_call", tool_name="terminal", args={"command": f"make {number}"}, result=result, **event
    )


def test_a_packet_that_came_too_late_for_its_turn_is_worth_one_more(opened: Opening) -> None:
    study = opened(advice={"on_stop": False})
    for number in range(3):
        assert not study.urgent()
        unseen(study, number)
    assert study.urgent()
    asked = study.gate(TurnEnd(1, "done", Claim(summary="s")))
    assert asked == LOOK_BACK
    said = study.hooks.context(session_id=study.evidence.session, turn_id="t2", user_message=asked)
    assert said.startswith("<escalation-packet>")
    assert not study.urgent()
    assert study.gate(TurnEnd(2, "done", Claim(summary="s"))).startswith("Automatic reminder")  # handoff
    assert ended(study) == Ending("open", "")
    assert [(entry["by"], entry["what"], entry.get("became")) for entry in study.fields()["guidance"]] == [
        ("governor", "hold", None),
        ("handoff", "hold", None),
        ("governor", "packet", "open"),
    ]


@pytest.mark.parametrize("status", ["blocked", "failed"])
def test_who_says_honestly_that_it_failed_is_not_told_that_it_is_stuck(opened: Opening, status: Any) -> None:
    study = opened(advice={"on_stop": False})
    for number in range(3):
        unseen(study, number)
    assert study.gate(TurnEnd(1, "no", Claim(status=status, summary="no compiler"))) == ""


def test_a_packet_that_nobody_could_be_told_is_kept_for_the_next_attempt(opened: Opening) -> None:
    study = opened()
    for number in range(4):
        unseen(study, number)
    assert ended(study, reason="exit") == Ending("failed", "exit")
    (packet,) = study.fields()["guidance"]
    assert (packet["what"], packet["became"], packet["followed"]) == ("packet", "untold", None)
    (failure, stood) = beads.earlier_findings([{"status": "failed", "reason": "exit", **study.fields()}])
    assert failure["issue_class"] == "exit"
    assert (stood["section"], stood["severity"], stood["issue_class"]) == ("leaf", "LOW", "stuck")
    assert stood["description"].startswith(
        "What an earlier attempt had tried when it was stuck:\nThis session is stuck: 4 tool calls in a row failed"
    )
    assert "- terminal `make 3`: exit 2" in stood["description"]
    assert beads.earlier_findings([{"outcome": "rejected", **study.fields()}]) == [stood]


def test_a_packet_that_was_heeded_is_in_no_brief(opened: Opening) -> None:
    study = opened()
    for number in range(3):
        shell(study, "make all", 2, number)
    shell(study, "ls", 0, 3)
    assert ended(study) == Ending("open", "")
    assert beads.earlier_findings([{"outcome": "rejected", **study.fields()}]) == []


@pytest.mark.parametrize("reason", ["timeout", "quota", "disk_full", "unavailable"])
def test_who_was_ended_for_another_reason_was_not_stuck(opened: Opening, reason: str) -> None:
    study = opened()
    for number in range(6):
        shell(study, "make all", 2, number)
    assert ended(study, reason=reason) == Ending("failed", reason)


def test_an_endpoint_that_fails_is_not_the_students_fault(opened: Opening) -> None:
    study = opened()
    for number in range(8):
        ids = {"session_id": study.evidence.session, "api_request_id": f"r{number}", "turn_id": "t"}
        study.hooks.fire("api_request_error", **ids, status_code=500, error={"type": "x", "message": "down"})
        study.hooks.context(**ids, user_message="go on")
    assert not study.cancelled()
    assert ended(study) == Ending("open", "")


def test_the_governors_table_is_the_bags(opened: Opening) -> None:
    study = opened(advice={"governor": {"consecutive_error_threshold": 1}})
    assert "make all" in shell(study, "make all", 2)


def test_a_live_host_is_asked_until_it_tests(opened: Opening, repo: Path, tmp_path: Path) -> None:
    study = opened()
    (tmp_path / "result.json").write_text('{"status": "done", "summary": "mended"}')
    claim = Claim(summary="mended")
    (repo / "calc" / "core.py").write_text("x = 1\n")
    tool(study, "write_file", {"path": "calc/core.py", "content": "x = 1\n"}, {"success": True})
    asked = study.gate(TurnEnd(1, "mended", claim))
    assert "pytest" in asked
    shell(study, "pytest -q", 0)
    assert study.gate(TurnEnd(2, "2 passed", claim)) == ""
    assert ended(study) == Ending("open", "")
    fields = study.fields()
    assert [(entry["by"], entry["followed"]) for entry in fields["guidance"]] == [("verify_on_stop", True)]
    assert (fields["evidence"]["status"], fields["evidence"]["scope"]) == ("passed", "full")
    assert study.told() == "passed: `pytest -q` (full, exit 0), on exactly these files"
    assert study.summary(Claim(summary="2 passed"), "") == "mended\nAfter a reminder: 2 passed"


def test_an_agent_without_a_shell_is_never_asked_to_run_anything(
    opened: Opening, repo: Path, tmp_path: Path
) -> None:
    study = opened()
    (tmp_path / "result.json").write_text("{}")
    (repo / "calc" / "core.py").write_text("x = 1\n")
    assert study.gate(TurnEnd(1, "mended", Claim(summary="s"), can_run_commands=False)) == ""


def test_the_coach_is_heard_after_verification_and_before_the_handoff(opened: Opening, repo: Path) -> None:
    study = opened()
    heard: list[dict[str, Any]] = []

    def coach(**event: Any) -> dict[str, str]:
        heard.append(event)
        return {"action": "continue", "message": "Look at the other caller."}

    study.hooks.add("coach", "pre_verify", coach)
    assert study.gate(TurnEnd(1, "nothing done", Claim(summary="s"))).startswith(
        "Automatic reminder"
    )  # handoff
    assert heard == []  # nothing was changed: there is nothing to coach
    (repo / "calc" / "core.py").write_text("x = 1\n")
    said = [study.gate(TurnEnd(turn, f"answer {turn}", Claim(summary="s"))) for turn in range(2, 8)]
    assert [text.partition("\n")[0][:26] for text in said] == [
        "Automatic reminder, not a ", "Automatic reminder, not a ",
        "Look at the other caller.", "Look at the other caller.", "Look at the other caller.", "",
    ]  # fmt: skip
    assert [event["attempt"] for event in heard] == [0, 1, 2]
    assert heard[0]["changed_paths"] == ["calc/core.py"]
    assert heard[0]["final_response"] == "answer 4"


def test_an_adviser_that_breaks_is_a_sentence_in_the_record(opened: Opening) -> None:
    study = opened()

    def broken(**_event: Any) -> None:
        raise ValueError("no idea")

    study.hooks.add("coach", "post_tool_call", broken)
    shell(study, "ls", 0)
    assert ended(study) == Ending("open", "")
    assert study.fields()["adviser_faults"] == ["coach: post_tool_call: ValueError: no idea"]


def test_a_recipe_is_named_where_no_command_is(opened: Opening, repo: Path) -> None:
    (repo / "school.toml").unlink()
    for path in ("tests/test_core.py", "tests/__init__.py"):
        (repo / path).unlink()
    (repo / "Makefile").write_text("build:\n\ttrue\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Only a build")
    study = opened(terms={})
    assert study.evidence.commands == []
    (repo / "calc" / "core.py").write_text("x = 1\n")
    asked = study.gate(TurnEnd(1, "done", Claim(summary="s")))
    assert "conductor.py verify --json" in asked


def test_a_leaf_that_must_end_looks_at_nothing_any_more(opened: Opening, repo: Path) -> None:
    study = opened()
    study._stop = lambda: True
    (repo / "calc" / "core.py").write_text("x = 1\n")
    assert ended(study, reason="interrupted") == Ending("failed", "interrupted")
    assert (study.fields(), study.told()) == ({"evidence": {}}, "")


def test_guidance_is_bounded() -> None:
    guidance = Guidance()
    for number in range(ENTRIES_MAX + 5):
        guidance.add("coach", "note", "x" * 100_000, turn=number)
    entries = guidance.entries()
    assert len(entries) == ENTRIES_MAX + 1
    assert entries[-1] == {"by": "school", "what": "left_out", "count": 5}
    assert len(json.dumps(entries)) < ENTRIES_MAX * 5000


def test_a_plain_command_is_its_own_evidence(opened: Opening) -> None:
    study = opened(script("pass"), terms={"verify": [["pytest"]]})
    study.spec.argv = ["pytest", "-q"]
    study.ended(AgentOutcome(Claim(), exit_code=1, output="1 failed in 0.1s"))
    assert [(check.kind, check.status) for check in study.evidence.checks] == [("test", "failed")]

"""An adviser that fails: the session ends as it would have without it, in time, and the fault is in its own log."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from school.contracts import Answer, Claim, TurnEnd
from school.settings import Settings
from tests.coach.coaching import OK, Model, Session, finding, titles

TABLE: dict[str, Any] = {
    "active_every_turns": 1,
    "active_timing": "both",
    "review_authority": "hold_once",
    "active_timeout_s": 0.3,
    "pre_timeout_s": 0.3,
    "gate_timeout_s": 2,
    "consult_timeout_s": 0.3,
}


class Hanging(Model):
    """Holds on for as long as a test lasts, whatever time it was given."""

    def __init__(self) -> None:
        super().__init__(OK)
        self.let_go = threading.Event()

    def __call__(self, system: str, prompt: str, *, timeout_s: float) -> Answer:
        super().__call__(system, prompt, timeout_s=timeout_s)
        self.let_go.wait(60)
        return Answer(text=OK)


class Raising(Model):
    def __call__(self, system: str, prompt: str, *, timeout_s: float) -> Answer:
        super().__call__(system, prompt, timeout_s=timeout_s)
        raise SystemExit("the model's library gave up")


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    model = Hanging()
    yield model
    model.let_go.set()


def _whole_session(session: Session, folder: Path) -> list[str]:
    """Two turns with a change, a gate each, and both tools; what the agent sees of it."""
    seen = []
    for number in range(2):
        seen.append(session.begin(f"Step {number}."))
        session.tool(command="ls")
        (folder / "README.md").write_text(f"{number}\n")
        seen.append(session.verify())
        for tool in session.coach.tools():
            tool.handler({"question": "?", "options": ["a", "b"]}, session_id="s1")
        session.end()
    session.close()
    return seen


def _garbage(said: str | Answer) -> Callable[[], Model]:
    return lambda: Model(said)


@pytest.mark.parametrize(
    "make",
    [
        Raising,
        _garbage("I would rather not say."),
        _garbage("\ud800" * 100),
        _garbage("{" * 70_000),
        _garbage('{"verdict": "finding", "severity": 1}'),
        _garbage(Answer(reason="timeout", detail="too slow")),
        _garbage(Answer(text=finding(severity="blocker"), reason="cut", detail="cut off")),
        _garbage(
            Answer(text=OK, usage={"input_tokens": -5, "output_tokens": "many", "cost_usd": float("nan")})
        ),
        _garbage(Answer(text=None)),  # type: ignore[arg-type]
        _garbage(None),  # type: ignore[arg-type]
    ],
    ids=["raises", "prose", "surrogates", "braces", "half", "timeout", "cut", "usage", "no text", "nothing"],
)
def test_a_model_that_fails_changes_nothing(make: Callable[[], Model], school: Settings, repo: Path) -> None:
    session = Session(school, repo, make(), TABLE)
    assert _whole_session(session, repo) == ["", "", "", ""]
    spent = session.coach.memory.look("s1").spent
    assert 0 < spent.calls <= 40
    assert spent.input_tokens >= 0
    assert 0 <= spent.cost_usd < 1


def test_a_model_that_hangs_costs_its_time_and_no_more(
    hanging: Hanging, school: Settings, repo: Path
) -> None:
    session = Session(school, repo, hanging, TABLE)
    begun = time.monotonic()
    assert _whole_session(session, repo) == ["", "", "", ""]
    assert time.monotonic() - begun < 30
    details = {row.get("detail") for row in session.coach.guidance("s1")}
    assert "timeout: no answer in 0.3 s" in details
    assert "unavailable: too many calls hang" in details


def test_a_leafs_gate_is_bounded_and_raises_nothing(hanging: Hanging, school: Settings, repo: Path) -> None:
    (repo / "README.md").write_text("changed\n")
    for model in (hanging, Raising()):
        session = Session(school, repo, model, {**TABLE, "gate_timeout_s": 1}, session_id="bead")
        begun = time.monotonic()
        assert session.coach.gate(TurnEnd(1, "Done.", Claim())) == ""
        assert time.monotonic() - begun < 8
        session.close()
        shutil.rmtree(school.coach_dir)


@pytest.mark.parametrize("damage", ["garbage", "empty", "list", "types", "gone", "folder"])
def test_a_state_file_that_is_lost_or_spoiled(damage: str, school: Settings, repo: Path) -> None:
    session = Session(
        school, repo, Model(finding(), OK), {"active_every_turns": 1, "completion_review": False}
    )
    session.turn()
    path = session.coach.memory.path("s1")
    match damage:
        case "gone":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()
        case _:
            text = {"garbage": '{"turn": 1, "pend', "empty": "", "list": "[1]", "types": '{"turn": "x"}'}[
                damage
            ]
            path.write_text(text)
    assert session.begin("Next.") == ""
    session.end()
    state = session.coach.memory.look("s1")
    assert (state.turn, state.turns().turns[-1].user) == (1, "Next.")
    if damage != "gone":
        assert titles(state.advice, "error") == ["state lost"]
        assert len(list((school.coach_dir / "corrupt").iterdir())) == 1
    session.close()


def test_a_state_directory_that_cannot_be_written(school: Settings, repo: Path) -> None:
    school.school_dir.mkdir(parents=True)
    school.coach_dir.write_text("a file where the folder should be")
    session = Session(school, repo, Model(finding(severity="blocker")), TABLE)
    seen = []
    for number in range(2):
        seen.append(session.begin(f"Step {number}."))
        session.tool(command="ls")
        (repo / "README.md").write_text(f"{number}\n")
        seen.append(session.verify())
        session.end()
    assert seen == ["", "", "", ""]
    assert session.coach.gate(TurnEnd(1, "Done.", Claim())) == ""
    assert any(fault.startswith("coach: pre_llm_call: MachineError: ") for fault in session.hooks.faults)
    session.close()
    logged = [json.loads(line) for line in (school.logs_dir / "advisers.jsonl").read_text().splitlines()]
    assert {row["adviser"] for row in logged} == {"coach"}
    assert any("coach: pre_verify: MachineError" in fault for fault in session.coach.seam.faults)


def test_events_of_any_shape(school: Settings, repo: Path) -> None:
    session = Session(school, repo, Model(OK), TABLE)
    odd: list[Any] = [None, 7, "x", b"x", ["a"], {"a": 1}, "\ud800"]
    for value in odd:
        for name in ("pre_llm_call", "post_llm_call", "post_tool_call", "post_api_request", "subagent_stop"):
            keys = (
                "user_message",
                "assistant_response",
                "tool_name",
                "args",
                "result",
                "status",
                "turn_id",
                "model",
            )
            session.hooks.fire(name, session_id="s1", **dict.fromkeys(keys, value))
        session.hooks.fire("pre_llm_call", session_id=value, user_message=value)
    assert session.coach.idle(20)
    assert session.hooks.faults == []
    assert session.coach.seam.faults == []
    session.close()


def test_a_hosts_own_callbacks_that_raise(school: Settings, repo: Path) -> None:
    def broken(_said: object) -> bool:
        raise RuntimeError("the host is broken")

    table = {"active_every_turns": 1, "completion_review": False}
    session = Session(school, repo, Model(finding("One"), OK), table, post=broken)
    session.turn()
    assert "One" in session.begin()
    assert session.coach.seam.faults == ["coach: post_llm_call: RuntimeError: the host is broken"]
    session.close()
    session = Session(school, repo, Model(finding("Two"), OK), {**table, "delivery": "inject"}, inject=broken)
    session.begin(session_id="s2")
    session.end(session_id="s2")
    assert "Two" in session.begin(session_id="s2")
    session.close()

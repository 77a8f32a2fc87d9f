"""The coach with a real model endpoint on a real connection, in a Hermes-like session and in a real leaf."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from school.agents.model.ask import asks
from school.contracts import AgentSpec
from school.settings import Settings
from tests.coach.coaching import OK, Session, finding
from tests.endpoint import HANG, FakeEndpoint, Request, call, say
from tests.endpoint import status as failing
from tests.leaves import new_bead, run

KEY = {"COACH_KEY": "sk-coach-0123456789", "LOOP_KEY": "sk-loop-0123456789"}


def _coach_spec(fake: FakeEndpoint) -> AgentSpec:
    return AgentSpec(
        name="coach",
        kind="model",
        model="openai:coach-large",
        base_url=fake.base_url,
        api_key_env="COACH_KEY",
    )


def _texts(request: dict[str, Any]) -> str:
    return json.dumps(request["messages"])


def test_a_note_travels_from_the_endpoint_to_the_next_turn(school: Settings, repo: Path) -> None:
    table = {"active_every_turns": 1, "completion_review": False}
    with FakeEndpoint([say(f"```json\n{finding('Tests were not run')}\n```"), say(OK)]) as fake:
        session = Session(school, repo, asks(_coach_spec(fake), environ=KEY), table)  # type: ignore[arg-type]
        contexts = [session.turn("Fix add."), session.turn("Now parse."), session.turn("And document it.")]
        assert [context.count("<coach-note>") for context in contexts] == [0, 1, 0]
        assert "Fix add." in _texts(fake.requests[0])
        assert '"required\\":[\\"verdict\\"]' in _texts(fake.requests[0]).replace(" ", "")
        spent = session.coach.memory.look("s1").spent
        assert (spent.calls, spent.by) == (3, {"active": 3})
        assert spent.input_tokens > 0
        session.close()


def test_an_endpoint_that_hangs_or_fails_costs_its_time(school: Settings, repo: Path) -> None:
    table = {"gate_timeout_s": 1, "active": False, "review_authority": "hold_once"}
    for trouble in (HANG, failing(400)):
        with FakeEndpoint([trouble]) as fake:
            session = Session(school, repo, asks(_coach_spec(fake), environ=KEY), table)  # type: ignore[arg-type]
            session.begin()
            (repo / "README.md").write_text(f"{trouble}\n")
            assert session.verify() == ""
            assert session.coach.guidance("s1")[-1]["title"] == "no answer"
            session.close()


def _leaf(repo: Path, school: Settings, coach: list[Any] | Any, table: dict[str, Any]) -> dict[str, Any]:
    """A real leaf with the built-in loop, and a coach that another endpoint answers for."""
    script = [
        call("write", path="calc/extra.py", content="x = 1\n"),
        call("finish", status="done", summary="Added extra."),
        call("write", path="calc/extra.py", content="x = 2\n"),
        call("finish", status="done", summary="Corrected extra."),
        call("finish", status="done", summary="That was all."),
    ]
    with FakeEndpoint(script) as agent, FakeEndpoint(coach) as fake:
        spec = AgentSpec(
            name="loop", kind="model", model="openai:small", base_url=agent.base_url, api_key_env="LOOP_KEY", prompt="none"
        )  # fmt: skip
        named = {
            "model": "openai:coach-large",
            "base_url": fake.base_url,
            "api_key_env": "COACH_KEY",
            **table,
        }
        bead = new_bead(repo, spec, advice={"on_stop": False, "coach": named})
        bag = run(bead, school, **KEY)
        return {**bag, "asked": agent.requests, "coached": fake.requests}


def _by_coach(bag: dict[str, Any]) -> list[tuple[str, bool | None]]:
    return [(row["what"], row["followed"]) for row in bag["guidance"] if row["by"] == "coach"]


BLOCKER = say(finding("x must be 2", "blocker", "The task says 2.", evidence="calc/extra.py"))


def test_a_blocker_holds_a_real_leaf_once(repo: Path, school: Settings) -> None:
    again = say(finding("Still odd", "blocker", "Look again."))
    bag = _leaf(repo, school, [BLOCKER, again], {"review_authority": "hold_once", "active": False})
    assert _by_coach(bag) == [("hold", True), ("note", None)]
    assert "calc/extra.py: new ? 6 bytes" in _texts(bag["coached"][0])
    held = [request for request in bag["asked"] if "Before you finish: a second model" in _texts(request)]
    assert held, "the agent was told"
    assert _texts(bag["asked"][-1]).count("Before you finish: a second model") == 1
    assert (bag["status"], bag["files_changed"]) == ("open", ["calc/extra.py"])
    assert len(bag["coached"]) == 2
    spent = bag["usage"]["coach"]
    assert (spent["calls"], spent["by"]) == (2, {"completion": 2})
    assert spent["input_tokens"] > 0


def test_only_advice_lets_a_real_leaf_end(repo: Path, school: Settings) -> None:
    bag = _leaf(repo, school, [BLOCKER], {"active": False})
    assert _by_coach(bag) == [("note", None)]
    assert bag["summary"].startswith("Added extra.; ")


def test_a_coach_that_fails_leaves_a_leaf_as_it_is(repo: Path, school: Settings) -> None:
    def unknown(_request: Request) -> Any:
        return say("I would rather write a poem.")

    table = {"review_authority": "hold_once", "active_every_turns": 1, "gate_timeout_s": 2}
    for coach in (unknown, [failing(500)], [HANG]):
        bag = _leaf(repo, school, coach, table)
        assert (bag["status"], bag["files_changed"]) == ("open", ["calc/extra.py"])
        assert bag["summary"].startswith("Added extra.; ")
        assert {kind for kind, _ in _by_coach(bag)} == {"error"}


def test_the_students_own_model_judges_nothing(repo: Path, school: Settings) -> None:
    bag = _leaf(repo, school, [BLOCKER], {"review_authority": "hold_once", "model": "openai:Small"})
    assert _by_coach(bag) == [("skipped", None)]
    assert bag["coached"] == []


def test_the_built_in_loop_is_lent_both_tools_and_the_session_is_its_leafs(
    repo: Path, school: Settings
) -> None:
    forged = {"session_id": "another", "question": "add or patch?"}
    script = [
        call("coach_consult", **forged),
        call("coach_decide", **forged, options=["rewrite", "patch"]),
        call("coach_consult", **forged),
        call("coach_consult", **forged),
        call("write", path="calc/extra.py", content="x = 1\n"),
        call("finish", status="done", summary="Added extra."),
    ]
    coach = [
        say('{"advice": "Patch it."}'),
        say('{"choice": 2, "why": "Smaller."}'),
        say('{"advice": "Still."}'),
    ]
    with FakeEndpoint(script) as agent, FakeEndpoint(coach) as fake:
        spec = AgentSpec(
            name="loop", kind="model", model="openai:small", base_url=agent.base_url, api_key_env="LOOP_KEY", prompt="none"
        )  # fmt: skip
        named = {"model": "openai:coach-large", "base_url": fake.base_url, "api_key_env": "COACH_KEY"}
        advice = {"on_stop": False, "coach": {**named, "completion_review": False}}
        bag = run(new_bead(repo, spec, advice=advice), school, **KEY)
        offered = [tool["function"]["name"] for tool in agent.requests[0]["tools"]]
        results = [
            json.loads(row["content"]) for row in agent.requests[-1]["messages"] if row["role"] == "tool"
        ]
    assert offered[-2:] == ["coach_consult", "coach_decide"]
    assert results[:4] == [
        {"advice": "Patch it."},
        {"choice": "patch", "why": "Smaller."},
        {"advice": "Still."},
        {"error": "the coach does not answer: 2 calls a turn are the most"},
    ]
    assert [row["what"] for row in bag["guidance"] if row["by"] == "coach"] == [
        "consult",
        "decide",
        "consult",
        "skipped",
    ]
    assert [path.name.startswith(bag["bead"][:20]) for path in (school.coach_dir / "sessions").iterdir()] == [
        True
    ]
    assert bag["files_changed"] == ["calc/extra.py"]

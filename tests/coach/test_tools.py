"""consult and decide: their own caps a turn, a session that no argument can change, answers that are always JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from school.contracts import Answer
from school.settings import Settings
from tests.coach.coaching import Model, Session

ADVICE = '{"advice": "Read the failing test first."}'


@pytest.fixture
def make(school: Settings, repo: Path) -> Iterator[Any]:
    made: list[Session] = []

    def session(model: Model, table: dict[str, Any] | None = None, **more: Any) -> Session:
        made.append(
            Session(
                school, repo, model, {"active": False, "completion_review": False, **(table or {})}, **more
            )
        )
        return made[-1]

    yield session
    for each in made:
        each.close()


def consult(session: Session, question: str = "What now?", **args: Any) -> dict[str, Any]:
    tool = session.coach.tools()[0]
    return dict(json.loads(tool.handler({"question": question, **args}, session_id="s1", task_id="t")))


def decide(session: Session, options: list[Any], **args: Any) -> dict[str, Any]:
    tool = session.coach.tools()[1]
    return dict(json.loads(tool.handler({"question": "Which?", "options": options, **args}, session_id="s1")))


def test_each_counts_its_own_calls_of_a_turn(make: Any) -> None:
    model = Model(
        lambda prompt: ADVICE if "Which?" not in prompt else '{"choice": 2, "why": "It is simpler."}'
    )
    session = make(model, {"consult_per_turn": 2, "decide_per_turn": 1})
    for _ in range(2):
        session.begin()
        assert consult(session) == {"advice": "Read the failing test first."}
        assert decide(session, ["rewrite", "patch"]) == {"choice": "patch", "why": "It is simpler."}
        assert decide(session, ["rewrite", "patch"]) == {
            "error": "the coach does not answer: 1 calls a turn are the most"
        }
        assert "advice" in consult(session)
        assert consult(session) == {"error": "the coach does not answer: 2 calls a turn are the most"}
        session.end()
    assert session.coach.memory.look("s1").spent.by == {"consult": 4, "decide": 2}


def test_no_argument_changes_the_session(make: Any) -> None:
    model = Model(ADVICE)
    session = make(model, {"consult_per_turn": 1})
    session.begin("The secret plan of s2.", session_id="s2")
    session.begin("The plan of s1.")
    forged = {"session_id": "s2", "task_id": "x", "kw": {"session_id": "s2"}}
    assert "advice" in consult(session, **forged)
    for other in ("s2", "s3", ""):
        assert "error" in consult(session, **{**forged, "session_id": other})
    assert "The plan of s1." in model.calls[0][1]
    assert "secret" not in model.calls[0][1]
    assert session.coach.memory.look("s2").spent.calls == 0


def test_a_leafs_tools_know_their_session(make: Any) -> None:
    session = make(Model(ADVICE), session_id="bead")
    assert json.loads(session.coach.tools()[0].handler({"question": "?", "session_id": "x"})) == json.loads(
        ADVICE
    )
    assert session.coach.memory.look("bead").spent.calls == 1


def test_options_are_numbered_and_one_of_them_is_chosen(make: Any) -> None:
    model = Model('{"choice": 1, "why": ""}')
    session = make(model)
    assert decide(session, ["a", " b ", "a", "", "c" * 300]) == {"choice": "a", "why": ""}
    question = model.calls[0][1].split("# Question\n")[1]
    assert question.startswith(f"Which?\n1. a\n2. b\n3. {'c' * 199}…\n")


@pytest.mark.parametrize(
    "said",
    [
        '{"choice": 3}',
        '{"choice": 0}',
        '{"choice": "a"}',
        '{"choice": true}',
        '{"choice": [1]}',
        "a",
        '{"why": "x"}',
    ],
)
def test_a_choice_of_nothing_is_none(make: Any, said: str) -> None:
    session = make(Model(said))
    assert decide(session, ["a", "b"]) == {"error": "the coach gave no usable answer"}
    assert [row["title"] for row in session.coach.guidance("s1")] == ["nonsense"]


@pytest.mark.parametrize(
    "options", [[], ["a"], ["a", "a"], "ab", None, 7, [1, 2], [str(n) for n in range(9)]]
)
def test_too_few_options_cost_no_call(make: Any, options: Any) -> None:
    model = Model(ADVICE)
    session = make(model)
    assert "error" in decide(session, options)
    assert "error" in consult(session, "  ")
    assert model.calls == []


def test_no_answer_is_an_error_to_the_agent_and_recorded(make: Any) -> None:
    session = make(Model(Answer(reason="unavailable", detail="503")))
    assert consult(session) == {"error": "the coach gave no usable answer"}
    (row,) = session.coach.guidance("s1")
    assert (row["kind"], row["detail"]) == ("error", "unavailable: 503")


def test_paused_and_used_up_are_refused(make: Any) -> None:
    session = make(Model(ADVICE), {"budget_calls": 1})
    session.begin()
    session.coach.command("pause")
    assert consult(session) == {"error": "the coach does not answer: paused"}
    session.coach.command("resume")
    assert "advice" in consult(session)
    assert consult(session) == {"error": "the coach does not answer: budget of calls used up"}


def test_the_schemas_are_schemas(make: Any) -> None:
    session = make(Model(ADVICE))
    tools = {tool.name: tool.schema for tool in session.coach.tools()}
    assert list(tools) == ["coach_consult", "coach_decide"]
    for schema in tools.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"question": "?", "options": ["a", "b"]}, tools["coach_decide"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"question": "?", "session_id": "x"}, tools["coach_consult"])

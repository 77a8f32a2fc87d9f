"""The table of scenarios, played straight through the hooks, by the built-in loop and by an ACP agent.

The last two are real processes in a repository, driven as a leaf drives them: the coach is the leaf's (its session is the
bead, its gate is asked between turns), and each message of the user after the first comes as a further turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from school.coach import Coach, read_terms
from school.contracts import AgentSpec, Answer, Gate, TurnEnd
from school.hooks import Hooks
from school.settings import Settings
from tests.agents.driving import Drive
from tests.agents.test_acp import scripted
from tests.coach.coaching import Session, kind_of
from tests.coach.scenarios import MADE, SCENARIOS, Scenario, counted, evidence_of, said_in
from tests.endpoint import FakeEndpoint, Turn, call, say
from tests.support import git

STUDENT = "openai:gpt-4o"


class Kinds:
    """A coach's model that answers by the kind of review, each kind's last answer for ever."""

    def __init__(self, scenario: Scenario) -> None:
        self.model = STUDENT if scenario.same_model else "openai:coach-large"
        self.answers = scenario.coach
        self.calls: list[tuple[str, str]] = []

    def __call__(self, system: str, prompt: str, *, timeout_s: float) -> Answer:
        kind = kind_of(system)
        at = sum(known == kind for known, _ in self.calls)
        self.calls.append((kind, prompt))
        assert timeout_s > 0
        answers = self.answers[kind]
        usage = {"requests": 1, "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.0}
        return Answer(text=answers[min(at, len(answers) - 1)], model=self.model, usage=usage)


def judge(scenario: Scenario, told: list[str], model: Kinds, hooks: Hooks) -> None:
    """Hold what came of it against the table."""
    assert tuple(told) == scenario.told
    assert counted([kind for kind, _ in model.calls]) == scenario.asked
    least, most = scenario.evidence_chars
    if most:
        [chars] = [evidence_of(prompt) for _, prompt in model.calls]
        assert least <= chars <= most
    assert hooks.faults == []


# --- straight through the hooks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_through_the_hooks(scenario: Scenario, school: Settings, repo: Path) -> None:
    told: list[str] = []
    waiting = list(scenario.turns)

    def inject(text: str) -> bool:
        """A host that can: the text is its agent's next message."""
        injected.append(text)
        return True

    injected: list[str] = []
    model = Kinds(scenario)
    more: dict[str, Any] = {"inject": inject} if scenario.injects else {}
    session = Session(school, repo, model, scenario.settings, **more)  # type: ignore[arg-type]
    while waiting or injected:
        if injected:
            user, writes, when_held = injected.pop(0), "", ""
        else:
            turn = waiting.pop(0)
            user, writes, when_held = turn.user, turn.writes, turn.when_held
        context = session.begin(user, model=STUDENT)
        told.append(said_in(f"{user}\n\n{context}"))
        while writes:
            (repo / MADE).write_text(writes)
            if message := session.verify():
                told.append(said_in(message))
            writes, when_held = (when_held, "") if message else ("", "")
        session.end()
    session.close()
    judge(scenario, told, model, session.hooks)


# --- as a leaf drives an agent ----------------------------------------------------------------------------------


@dataclass
class Coached(Drive):
    """A drive whose advisers are a coach alone, with the user's further messages behind its gate."""

    scenario: Scenario | None = None
    model: Kinds | None = None
    used: Hooks = field(default_factory=Hooks)

    def hooks(self) -> Hooks:
        return self.used

    def gate(self) -> Gate:
        assert self.scenario is not None
        waiting = [turn.user for turn in self.scenario.turns[1:]]
        coach = Coach(
            read_terms(self.scenario.settings),
            self.model,
            folder=self.repo,
            settings=self.settings,
            session_id="bead-1",
            primary_model=STUDENT,
            base=git(self.repo, "rev-parse", "HEAD"),
        )
        coach.listen(self.used, verify=False)
        self.coach = coach

        def gate(turn: TurnEnd) -> str:
            message = coach.gate(turn)
            assert coach.idle(20)
            return message or (waiting.pop(0) if waiting else "")

        return gate

    def close(self) -> None:
        self.coach.close()
        self.used.close()


@pytest.fixture
def drive(repo: Path, school: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coached]:
    monkeypatch.setenv("LOOP_KEY", "sk-loop-0123456789")
    drive = Coached(repo, school, tmp_path, task="Please fix add.")
    yield drive
    drive.close()


IN_A_LEAF = [scenario for scenario in SCENARIOS if not scenario.injects]


def work(scenario: Scenario) -> list[list[str]]:
    """What the agent writes, message by message, each that it gets held included."""
    return [
        part
        for turn in scenario.turns
        for part in ([turn.writes] if turn.writes else [], [turn.when_held] if turn.when_held else None)
        if part is not None
    ]


@pytest.mark.parametrize("scenario", IN_A_LEAF, ids=lambda scenario: scenario.name)
def test_by_the_built_in_loop(scenario: Scenario, drive: Coached) -> None:
    script: list[Turn] = []
    for writes in work(scenario):
        script += [call("write", path=MADE, content=text) for text in writes]
        script.append(say("Done."))
    drive.scenario, drive.model = scenario, Kinds(scenario)
    with FakeEndpoint(script) as fake:
        spec = AgentSpec(
            name="loop", kind="model", model=STUDENT, base_url=fake.base_url, api_key_env="LOOP_KEY", prompt="none"
        )  # fmt: skip
        outcome = drive.run(spec)
    assert outcome.reason == ""
    heard = [request["messages"][-1] for request in fake.requests]
    told = [said_in(str(message["content"])) for message in heard if message["role"] == "user"]
    judge(scenario, told, drive.model, drive.used)


@pytest.mark.parametrize("scenario", IN_A_LEAF, ids=lambda scenario: scenario.name)
def test_by_an_acp_agent(scenario: Scenario, drive: Coached) -> None:
    prompts = [[*[["edit", MADE, None, text] for text in writes], ["repeat"]] for writes in work(scenario)]
    drive.scenario, drive.model = scenario, Kinds(scenario)
    outcome = drive.run(scripted(*prompts, model=STUDENT))
    assert outcome.reason == ""
    answers = [line["answer"] for line in drive.transcript() if line["kind"] == "end"]
    judge(scenario, [said_in(answer) for answer in answers], drive.model, drive.used)

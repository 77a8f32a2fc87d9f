"""The plugin at a host's seam: hosts that lack something still get the rest, and the end is always taken care of."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from school.errors import MachineError
from school.hermes import register as register_all
from school.hooks import NAMES
from school.settings import Settings
from tests.governor.scenarios import SCENARIOS, Scenario, end, flat, shell, turn


class Host:
    """A Hermes as far as a plugin sees one. Hooks in *refused* raise when they are registered."""

    def __init__(self, *, refused: tuple[str, ...] = (), lacking: tuple[str, ...] = ()) -> None:
        self.hooks: dict[str, list[Callable[..., Any]]] = {}
        self.commands: dict[str, Callable[[str], str]] = {}
        self.tools: dict[str, dict[str, Any]] = {}
        self.refused = refused
        self.lacking = lacking

    def __getattribute__(self, name: str) -> Any:
        if name in object.__getattribute__(self, "__dict__").get("lacking", ()):
            raise AttributeError(f"this host has no {name}")
        return object.__getattribute__(self, name)

    def register_hook(self, name: str, callback: Callable[..., Any]) -> None:
        if name in self.refused:
            raise ValueError(f"unknown hook {name}")
        self.hooks.setdefault(name, []).append(callback)

    def register_command(self, name: str, handler: Any, **_told: str) -> None:
        self.commands[name] = handler

    def register_tool(self, **tool: Any) -> None:
        self.tools[tool["name"]] = tool

    def inject_message(self, *_message: str) -> bool:
        return False

    def invoke(self, name: str, event: dict[str, Any]) -> list[Any]:
        event = {
            **event,
            "telemetry_schema_version": "hermes.observer.v1",
            "an_argument_of_tomorrow": object(),
        }
        answers = [callback(**event) for callback in self.hooks.get(name, ())]
        return [answer for answer in answers if answer is not None]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What is registered for the interpreter's end; the test runs it."""
    found: list[Callable[[], object]] = []
    monkeypatch.setattr("atexit.register", found.append)
    return found


def test_all_ten_hooks_and_the_command(school: Settings, ends: list[Callable[[], object]]) -> None:
    host = Host()
    plugin = register_all(host)
    assert plugin.problems == []
    assert set(host.hooks) == {*NAMES, "on_session_finalize"}
    assert list(host.commands) == ["governor"]
    assert len(ends) == 1


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_scenarios_by_the_plugin(
    scenario: Scenario, school: Settings, ends: list[Callable[[], object]]
) -> None:
    host = Host()
    plugin = register_all(host)
    said = [at for at, (name, event) in enumerate(scenario.events) if host.invoke(name, event)]
    assert said == sorted(scenario.packets)
    assert plugin.problems == []


def test_answers_are_in_hermes_forms(school: Settings, ends: list[Callable[[], object]]) -> None:
    host = Host()
    register_all(host)
    for name, event in flat(turn(), *[shell(f"m {n}", 1) for n in range(2)]):
        assert host.invoke(name, event) == []
    (post, passing) = shell("m 3", 1)
    assert host.invoke(*post) == []
    [answer] = host.invoke(*passing)
    assert answer.startswith(passing[1]["result"] + "\n\n<escalation-packet>")
    [answer] = host.invoke(*turn(2))
    assert answer["context"].startswith("<escalation-packet>")
    assert host.commands["governor"]("").startswith("Session s1: stuck")
    assert host.commands["governor"]("report").startswith("Session s1, ")


@pytest.mark.parametrize("lacking", ["register_tool", "register_command", "inject_message"])
def test_a_host_that_lacks_something_gets_the_rest(
    school: Settings, ends: list[Callable[[], object]], lacking: str
) -> None:
    host = Host(lacking=(lacking,))
    register_all(host)
    assert set(host.hooks) == {*NAMES, "on_session_finalize"}
    assert len(ends) == 1


def test_a_renamed_hook_costs_only_itself(school: Settings, ends: list[Callable[[], object]]) -> None:
    host = Host(refused=("transform_tool_result", "on_session_finalize"))
    plugin = register_all(host)
    assert set(host.hooks) == set(NAMES) - {"transform_tool_result"}
    assert (
        "plugin: hook:transform_tool_result: ValueError: unknown hook transform_tool_result"
        in plugin.problems
    )
    for name, event in flat(turn(), *[shell(f"m {n}", 1) for n in range(3)]):
        host.invoke(name, event)
    [answer] = host.invoke(*turn(2))
    assert "<escalation-packet>" in answer["context"]


def test_a_host_with_nothing_is_borne(school: Settings, ends: list[Callable[[], object]]) -> None:
    plugin = register_all(object())
    assert plugin.problems
    assert len(ends) == 1


def test_an_adviser_that_cannot_be_built_leaves_the_rest_and_the_clean_up(
    school: Settings, ends: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any, **_more: Any) -> None:
        raise MachineError("no disk")

    monkeypatch.setattr("school.governor.terms.read", broken)
    host = Host()
    plugin = register_all(host)
    assert plugin.problems == ["governor: build: MachineError: no disk"]
    assert set(host.hooks) == {*NAMES, "on_session_finalize"}
    assert len(ends) == 1


def test_bad_variables_are_a_problem_and_the_good_ones_hold(
    school: Settings, ends: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOVERNOR_REPEAT_CALLS", "abc")
    monkeypatch.setenv("GOVERNOR_CONSECUTIVE_ERRORS", "1")
    host = Host()
    plugin = register_all(host)
    assert plugin.settings.hermes_home == school.hermes_home
    host.invoke(*turn())
    (post, passing) = shell("m", 1)
    host.invoke(*post)
    assert host.invoke(*passing)
    assert any("GOVERNOR_REPEAT_CALLS" in problem for problem in plugin.problems)


def test_school_toml_of_the_hermes_home_holds_and_a_broken_one_is_a_problem(
    school: Settings, ends: list[Callable[[], object]]
) -> None:
    school.hermes_home.mkdir()
    (school.hermes_home / "school.toml").write_text("[governor]\nconsecutive_error_threshold = 1\n")
    host = Host()
    assert register_all(host).problems == []
    host.invoke(*turn())
    (post, passing) = shell("m", 1)
    host.invoke(*post)
    assert host.invoke(*passing)
    (school.hermes_home / "school.toml").write_text("[governor\n")
    [problem] = register_all(Host()).problems
    assert problem.startswith("plugin: school.toml: ConfigError: ")


def test_the_end_writes_the_line_and_tells_what_was_heard(
    school: Settings, ends: list[Callable[[], object]]
) -> None:
    host = Host()
    register_all(host)
    for name, event in flat(turn(), shell("ls")):
        host.invoke(name, event)
    ends[0]()
    ends[0]()
    [line] = school.governor_reports.read_text().splitlines()
    assert json.loads(line)["tool_calls"] == 1
    said = json.loads((school.governor_dir / "hermes-plugin.state").read_text())
    assert said["heard"] == {"post_tool_call": 1, "pre_llm_call": 1, "transform_tool_result": 1}
    assert said["problems"] == []


def test_the_real_end_of_a_session_is_written_too(school: Settings, ends: list[Callable[[], object]]) -> None:
    host = Host()
    register_all(host)
    host.invoke(*turn())
    host.invoke("on_session_finalize", {"session_id": "s1", "platform": "cli", "reason": "exit"})
    host.invoke(*end())
    assert len(school.governor_reports.read_text().splitlines()) == 1


COACH = '[coach]\nmodel = "openai:coach-large"\nbase_url = "http://127.0.0.1:9/v1"\nactive = false\n'


def test_a_coach_that_is_configured_is_there_with_its_command_and_tools(
    school: Settings, ends: list[Callable[[], object]]
) -> None:
    school.hermes_home.mkdir()
    (school.hermes_home / "school.toml").write_text(COACH)
    host = Host()
    plugin = register_all(host)
    assert plugin.problems == []
    assert set(host.commands) == {"governor", "coach"}
    assert set(host.tools) == {"coach_consult", "coach_decide"}
    schema = host.tools["coach_consult"]["schema"]
    assert (schema["name"], schema["parameters"]["type"]) == ("coach_consult", "object")
    assert host.commands["coach"]("")
    host.invoke(*turn())
    # The endpoint is down: that is an answer, too.
    answer = json.loads(host.tools["coach_consult"]["handler"]({"question": "Which?"}, session_id="s1"))
    assert "error" in answer
    ends[0]()


def test_a_tool_that_fails_answers_the_model(
    school: Settings, ends: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    school.hermes_home.mkdir()
    (school.hermes_home / "school.toml").write_text(COACH)

    def broken(*_args: Any, **_more: Any) -> str:
        raise MachineError("no disk")

    monkeypatch.setattr("school.coach.tools.Tools.consult", broken, raising=False)
    monkeypatch.setattr("school.coach.state.Memory.session", broken)
    host = Host()
    plugin = register_all(host)
    answer = host.tools["coach_consult"]["handler"]({"question": "Which?"}, session_id="s1", task_id="t")
    assert json.loads(answer) == {"error": "the coach cannot be asked now"}
    assert "coach: coach_consult: MachineError: no disk" in plugin.problems
    ends[0]()


def test_a_secret_of_the_environment_is_in_nothing_that_is_written(
    school: Settings, ends: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret-0123456789")
    school.hermes_home.mkdir()
    (school.hermes_home / "school.toml").write_text(COACH)
    host = Host()
    register_all(host)
    asked = turn(asked="use sk-secret-0123456789 for it")
    for name, event in flat(asked, *[shell(f"curl -H sk-secret-0123456789 {n}", 1) for n in range(3)], end()):
        host.invoke(name, event)
    ends[0]()
    written = [path for path in school.hermes_home.rglob("*") if path.is_file()]
    assert len(written) >= 4
    assert [path for path in written if b"sk-secret-0123456789" in path.read_bytes()] == []


def test_the_kill_switch(
    school: Settings, ends: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOVERNOR_DISABLE", "1")
    host = Host()
    register_all(host)
    for name, event in flat(turn(), *[shell(f"m {n}", 1) for n in range(3)], end()):
        assert host.invoke(name, event) == []
    assert host.commands["governor"]("") == "The governor is off (GOVERNOR_DISABLE)."
    ends[0]()
    assert not school.governor_reports.exists()

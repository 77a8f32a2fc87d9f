"""A name becomes an agent that a leaf can start, or an error that says what is wrong and what there is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from school.agents import registry
from school.agents.chores import CHORES
from school.contracts import AgentConfig, ProjectConfig
from school.errors import ConfigError


def config(**agents: AgentConfig) -> ProjectConfig:
    return ProjectConfig(agents=agents)


def test_a_configured_agent_is_complete() -> None:
    mine = AgentConfig(
        argv=["my-agent", "--file", "{prompt_file}"],
        prompt="file",
        resume=["my-agent", "--continue", "{session}"],
        env=["MY_KEY"],
        set_env={"MODE": "batch"},
        write=["~/.mine"],
        model="m-1",
        timeout_s=7.0,
    )
    spec = registry.resolve("mine", config(mine=mine))
    assert spec.model_dump(exclude={"reason"}) == {
        "name": "mine",
        "kind": "command",
        "model": "m-1",
        "argv": ["my-agent", "--file", "{prompt_file}"],
        "chore": "",
        "prompt": "file",
        "preset": "",
        "resume": ["my-agent", "--continue", "{session}"],
        "env": ["MY_KEY"],
        "set_env": {"MODE": "batch"},
        "write": ["~/.mine"],
        "base_url": "",
        "api_key_env": "",
        "timeout_s": 7.0,
    }


@pytest.mark.parametrize(
    ("preset", "argv", "write"),
    [
        ("codex", ["codex"], ["~/.codex"]),
        ("hermes", ["hermes"], ["/elsewhere/hermes"]),
        ("mini-swe-agent", ["mini"], []),
        ("claude", ["claude"], ["~/.claude", "~/.claude.json"]),
        (
            "opencode",
            ["opencode"],
            [
                "/data/opencode",
                "~/.local/state/opencode",
                "~/.cache/opencode",
                "~/.config/opencode",
            ],
        ),
    ],
)
def test_a_preset_needs_nothing_else(
    preset: str, argv: list[str], write: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", "/elsewhere/hermes")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    spec = registry.resolve("mine", config(mine=AgentConfig(preset=preset)))
    assert (spec.kind, spec.preset, spec.argv, spec.write, spec.env) == ("command", preset, argv, write, [])


def test_with_an_endpoint_of_its_own_a_preset_writes_nowhere_else() -> None:
    mine = AgentConfig(preset="codex", base_url="http://127.0.0.1:1/v1", argv=["npx", "codex"], write=["~/x"])
    spec = registry.resolve("mine", config(mine=mine))
    assert (spec.argv, spec.write, spec.base_url) == (["npx", "codex"], ["~/x"], "http://127.0.0.1:1/v1")


def test_what_a_preset_lacks_is_told_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = registry.resolve("mine", config(mine=AgentConfig(preset="codex", api_key_env="MY_KEY")))
    assert registry.missing(spec) == (
        "the agent mine needs codex, which is not on PATH (npm install -g @openai/codex)"
    )
    (tmp_path / "codex").write_text("#!/bin/sh\necho 'Codex v9.8.7 (2026.7.20)'\n")
    (tmp_path / "codex").chmod(0o755)
    assert registry.missing(spec) == "the agent mine needs the variable MY_KEY, which is not set"
    monkeypatch.setenv("MY_KEY", "k")
    rows = registry.available(config(mine=AgentConfig(preset="codex", api_key_env="MY_KEY")))
    assert rows[0] == {
        "check": "agent:mine",
        "ok": True,
        "detail": "codex 9.8.7; the preset was tried with 0.171.0",
    }


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_the_deterministic_agents_are_always_there(name: str) -> None:
    spec = registry.resolve(name, config())
    assert (spec.kind, spec.prompt, spec.argv[0]) == ("command", "stdin", sys.executable)
    assert Path(spec.argv[3]).name == "deterministic.py"
    assert registry.missing(spec) == ""


def test_a_model_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = AgentConfig(kind="model", model="local", base_url="http://127.0.0.1:1/v1", api_key_env="MY_KEY")
    spec = registry.resolve("mine", config(mine=mine))
    assert (spec.kind, spec.model, spec.base_url, spec.prompt) == (
        "model",
        "local",
        "http://127.0.0.1:1/v1",
        "none",
    )
    assert "MY_KEY" in registry.missing(spec)
    monkeypatch.setenv("MY_KEY", "sk-1")
    assert registry.missing(spec) == ""


@pytest.mark.parametrize(
    ("model", "variable"),
    [("openai:gpt-4o", "OPENAI_API_KEY"), ("anthropic:claude", "ANTHROPIC_API_KEY"), ("deepseek:chat", "")],
)
def test_the_usual_key_of_a_provider_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, model: str, variable: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    mine = AgentConfig(kind="model", model=model)
    lacks = f"the agent mine needs the variable {variable}, which is not set" if variable else ""
    assert registry.missing(registry.resolve("mine", config(mine=mine))) == lacks
    own = AgentConfig(kind="model", model=model, base_url="http://127.0.0.1:1/v1")
    assert registry.missing(registry.resolve("mine", config(mine=own))) == ""
    if variable:
        monkeypatch.setenv(variable, "k")
        assert registry.missing(registry.resolve("mine", config(mine=mine))) == ""


def test_what_a_provider_needs_beside_its_key_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = registry.resolve("mine", config(mine=AgentConfig(kind="model", model="groq:llama")))
    monkeypatch.setitem(sys.modules, "groq", None)
    monkeypatch.delitem(sys.modules, "pydantic_ai.providers.groq", raising=False)
    said = registry.missing(spec)
    assert said.startswith("the agent mine has the model groq:llama: ")
    assert "groq" in said.partition(": ")[2]


def test_an_unknown_agent_names_the_known() -> None:
    with pytest.raises(
        ConfigError, match=r"no agent is called 'nope'; there are mine, demo-good, .*demo-dier"
    ):
        registry.resolve("nope", config(mine=AgentConfig(argv=["x"])))


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (AgentConfig(), r"\[agents.mine\] argv"),
        (AgentConfig(argv=[""]), r"\[agents.mine\] argv"),
        (AgentConfig(argv=["x"], prompt="file"), "holds {prompt_file}"),
        (AgentConfig(kind="acp"), r"\[agents.mine\] argv"),
        (AgentConfig(argv=["x"], kind="model"), "has no argv"),
        (AgentConfig(kind="model"), r"\[agents.mine\] model"),
        (AgentConfig(kind="model", model="gpt-4o"), "which provider"),
        (AgentConfig(kind="model", model="nosuch:x"), 'model = "nosuch:x": no provider is called "nosuch"'),
        (AgentConfig(kind="model", model="openai:gpt-4o", api_key_env="A=B"), "'A=B' is no name"),
        (AgentConfig(preset="codx"), 'there is no preset "codx"; there are codex, hermes, mini-swe-agent, '),
        (AgentConfig(preset="codex", kind="run"), 'presets are for kind = "command"'),
        (AgentConfig(preset="codex", prompt="file"), "leave prompt and resume out"),
        (AgentConfig(preset="codex", resume=["x"]), "leave prompt and resume out"),
        (AgentConfig(argv=["x", "a\0b"]), "NUL"),
        (AgentConfig(argv=["x"], env=["A=B"]), "'A=B' is no name"),
        (AgentConfig(argv=["x"], set_env={"": "1"}), "'' is no name"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(agent: AgentConfig, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        registry.resolve("mine", config(mine=agent))


def test_a_chore_can_be_done_again_from_its_argv_alone() -> None:
    spec = registry.for_chore("format", ["src/**", "!src/old/**"])
    assert (spec.name, spec.kind, spec.chore, spec.prompt) == ("chore:format", "run", "format", "none")
    assert spec.argv[1:3] == ["-I", "-B"]
    assert spec.argv[4:] == ["format", "--allow=src/**", "--allow=!src/old/**"]


def test_an_unknown_chore_names_the_known() -> None:
    with pytest.raises(ConfigError, match="no chore is called 'tidy'; there are unused-imports, "):
        registry.for_chore("tidy")


def test_a_plain_command_keeps_its_words() -> None:
    spec = registry.for_run(["/usr/bin/env", "X={prompt_file}", "ruff"])
    assert (spec.name, spec.argv, spec.kind) == (
        "run:env",
        ["/usr/bin/env", "X={prompt_file}", "ruff"],
        "run",
    )


@pytest.mark.parametrize("argv", [[], [""]])
def test_an_empty_command_is_refused(argv: list[str]) -> None:
    with pytest.raises(ConfigError, match="run: expected a program"):
        registry.for_run(argv)


def test_missing_says_what_the_machine_lacks() -> None:
    assert registry.missing(registry.for_run(["no-such-program-anywhere"])) == (
        "the agent run:no-such-program-anywhere needs no-such-program-anywhere, which is not on PATH"
    )
    assert registry.missing(registry.for_run(["python3"])) == ""
    # A script of the repository is only there once the worktree is.
    assert registry.missing(registry.for_run(["scripts/fix.sh"])) == ""


def test_tools_of_this_project_are_found_behind_the_users_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert registry.missing(registry.for_run(["ruff", "check"])) == ""
    assert registry.missing(registry.for_chore("format")) == ""


def test_doctor_has_a_row_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = registry.available(
        config(here=AgentConfig(argv=["python3"]), gone=AgentConfig(argv=["no-such"]), bad=AgentConfig())
    )
    by_name = {row["check"]: row for row in rows}
    assert by_name["agent:here"] == {"check": "agent:here", "ok": True, "detail": "installed"}
    assert (by_name["agent:gone"]["ok"], by_name["agent:bad"]["ok"]) == (None, False)
    assert by_name["agent:demo-good"]["ok"] is True
    assert {f"chore:{name}" for name in CHORES} <= set(by_name)

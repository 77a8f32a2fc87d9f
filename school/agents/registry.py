"""Which agents there are, and what each needs: a name becomes an AgentSpec, complete enough for a leaf to start it.

``resolve(name, config)`` knows the agents of ``[agents.NAME]`` in ``school.toml`` and the deterministic ones that ship
with this project (``demo-good`` and its kind; the configuration may not redefine those). ``for_run(argv)`` and
``for_chore(name, allow)`` make the spec of a plain command and of a chore. ``missing(spec)`` says what the machine
lacks for it, and ``available(config)`` says that of all, as the rows of ``doctor``. ``refuse_models(config)`` looks at the
models that are named beside the agents' own, for roles, reviewers and the coach: one whom nobody could be asked for would be
found out only by what it costs.

A ``command`` agent is any command line tool that takes a prompt and works in the current folder::

    [agents.mine]
    argv = ["my-agent", "--yes"]                      # prompt = "stdin", the default: the prompt comes on stdin
    # argv = ["my-agent", "--file", "{prompt_file}"]  # prompt = "file": the path of a file that holds it
    env = ["MY_AGENT_API_KEY"]                        # variables that it needs; nothing else is passed on
    set_env = {MY_AGENT_MODE = "batch"}

In ``argv``, ``{prompt_file}``, ``{brief}``, ``{result}`` and ``{model}`` are replaced. With ``preset`` (see
``school.agents.presets``) nothing else is needed; ``argv`` is then only how the program is called. Errors: ConfigError naming the
agent, the key and what is known; nothing is looked up on the machine except by ``missing`` and ``available``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from school.agents import chores
from school.agents.presets import find
from school.agents.presets.base import Preset
from school.agents.presets.installed import version_of
from school.contracts import AgentConfig, AgentSpec, ProjectConfig
from school.errors import ConfigError

_DETERMINISTIC: Final = Path(__file__).resolve().with_name("deterministic.py")
BUILT_IN: Final[dict[str, str]] = {
    f"demo-{behaviour}": behaviour
    for behaviour in ("good", "learner", "test-deleter", "idler", "hanger", "flooder", "dier")
}
TOOL_DIR: Final = Path(sys.executable).parent


def resolve(name: str, config: ProjectConfig) -> AgentSpec:
    """The agent *name*; ConfigError if there is none, or if its configuration cannot be."""
    if name in BUILT_IN:
        argv = [sys.executable, "-I", "-B", str(_DETERMINISTIC), BUILT_IN[name]]
        return AgentSpec(name=name, kind="command", argv=argv, env=["SCHOOL_FLOOD_BYTES"])
    if name not in config.agents:
        raise ConfigError(f"no agent is called {name!r}; there are {', '.join([*config.agents, *BUILT_IN])}")
    configured = config.agents[name]
    where = f"{config.where('agents', name)}: [agents.{name}]"
    _check(where, configured)
    preset = _preset(where, configured)
    return AgentSpec(
        name=name,
        kind=configured.kind,
        model=configured.model,
        argv=list(configured.argv) or ([preset.program] if preset else []),
        prompt=configured.prompt if configured.kind == "command" else "none",
        preset=configured.preset,
        resume=list(configured.resume),
        env=list(configured.env),
        set_env=dict(configured.set_env),
        write=[*_state_paths(preset, configured), *configured.write],
        base_url=configured.base_url,
        api_key_env=configured.api_key_env,
        timeout_s=configured.timeout_s,
    )


def _preset(where: str, agent: AgentConfig) -> Preset | None:
    """The preset that *agent* names; ConfigError where there is none or it cannot be had with the rest."""
    if not agent.preset:
        return None
    if agent.kind != "command":
        raise ConfigError(f'{where} preset = "{agent.preset}": presets are for kind = "command"')
    if agent.resume or agent.prompt != "stdin":
        raise ConfigError(
            f"{where} preset says how the prompt goes in and what resumes; leave prompt and resume out"
        )
    try:
        return find(agent.preset)
    except ConfigError as error:
        raise ConfigError(f"{where} {error}") from None


def _state_paths(preset: Preset | None, agent: AgentConfig) -> list[str]:
    """What the CLI of *preset* must write: with an endpoint of ours it keeps everything in the agent's own home."""
    if preset is None or agent.base_url:
        return []
    return preset.state_paths(os.environ)


def _check(where: str, agent: AgentConfig) -> None:
    for variable in (*agent.env, *agent.set_env, *filter(None, [agent.api_key_env])):
        if not variable or "=" in variable or "\0" in variable:
            raise ConfigError(f"{where} env: {variable!r} is no name of a variable")
    if agent.kind == "model":
        _check_model(where, agent)
        return
    if agent.preset and not agent.argv:
        return
    if not agent.argv or not agent.argv[0]:
        raise ConfigError(f"{where} argv: expected the program and its arguments as a list")
    if any("\0" in argument for argument in agent.argv):
        raise ConfigError(f"{where} argv: an argument cannot hold a NUL byte")
    if agent.prompt == "file" and not any("{prompt_file}" in argument for argument in agent.argv):
        raise ConfigError(f'{where} prompt = "file": no argument of argv holds {{prompt_file}}')


def _check_model(where: str, agent: AgentConfig) -> None:
    if agent.argv or agent.preset or agent.resume:
        raise ConfigError(
            f'{where} kind = "model" has no argv, preset or resume: it needs model, and perhaps base_url'
        )
    if not agent.model:
        raise ConfigError(f'{where} model: expected "provider:name", or a name with base_url')
    if why := model_problem(agent.model, agent.base_url):
        raise ConfigError(f"{where} {why}")


def model_problem(model: str, base_url: str) -> str:
    """Why the loop's *model* can be asked nowhere, whatever the machine has; '' where it can."""
    if base_url:
        return ""
    provider, colon, _ = model.partition(":")
    if not colon:
        return (
            f'model = "{model}": which provider? Write "provider:name"; a name alone is for an agent, or a coach, with '
            "the base_url of an OpenAI-compatible endpoint"
        )
    if isinstance(_provider_error(provider), ValueError):
        return f'model = "{model}": no provider is called "{provider}"'
    return ""


def _provider_error(provider: str) -> Exception | None:
    """ValueError where there is no such provider, ImportError where it needs what is not installed."""
    from school.agents.model.endpoint import KEYS

    if provider in KEYS or importlib.util.find_spec("pydantic_ai") is None:
        return None
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(provider)
    except (ValueError, ImportError) as error:
        return error
    return None


def refuse_models(config: ProjectConfig) -> None:
    """ConfigError for what ``[roles]``, ``[reviewers]`` and ``[coach]`` call a model and nobody could be asked for."""
    problems = [
        f"{config.where(*table.split('.'), 'model')}: [{table}] {why}"
        for table, model, base_url in _named_models(config)
        if model and (why := model_problem(model, base_url))
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def _named_models(config: ProjectConfig) -> Iterator[tuple[str, str, str]]:
    """Each model that is named beside an agent's own: its table, its name, its endpoint."""
    loops = {name: agent for name, agent in config.agents.items() if agent.kind == "model"}
    for role, choice in config.roles.items():
        for name in choice.agents:
            if name in loops:
                yield f"roles.{role}", choice.model, loops[name].base_url
    for teacher, reviewer in config.reviewers.items():
        if not reviewer.agent or reviewer.agent in loops:
            url = loops[reviewer.agent].base_url if reviewer.agent else ""
            yield f"reviewers.{teacher}", reviewer.model, url
    if config.coach.enabled:
        yield "coach", config.coach.model, config.coach.base_url


def for_run(argv: Sequence[str]) -> AgentSpec:
    """A plain command as an agent."""
    if not argv or not argv[0]:
        raise ConfigError("run: expected a program and its arguments")
    return AgentSpec(name=f"run:{Path(argv[0]).name}", kind="run", argv=list(argv), prompt="none")


def for_chore(name: str, allow: Sequence[str] = ()) -> AgentSpec:
    """A named chore as an agent; its ``argv`` alone does it again."""
    if name not in chores.CHORES:
        raise ConfigError(f"no chore is called {name!r}; there are {', '.join(chores.CHORES)}")
    return AgentSpec(
        name=f"chore:{name}", kind="run", chore=name, argv=chores.argv_of(name, allow), prompt="none"
    )


def search_path() -> str:
    """The PATH that an agent gets: the user's, with our tools behind it."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), str(TOOL_DIR)))


def missing(spec: AgentSpec) -> str:
    """What the machine lacks for this agent, as a sentence; '' for nothing."""
    if spec.chore:
        tool = chores.CHORES[spec.chore].tool
        return (
            "" if chores.tool_path(tool) else f"the chore {spec.chore} needs {tool}, which is not installed"
        )
    if lacking := _missing_extra(spec):
        return lacking
    if spec.kind == "model":
        return _missing_key(spec) or _missing_provider(spec)
    program = spec.argv[0] if spec.argv else ""
    # A relative path with a slash means a file of the working tree, which is not there yet.
    if "/" in program and not program.startswith("/"):
        return ""
    if not shutil.which(program, path=search_path()):
        hint = f" ({find(spec.preset).install})" if spec.preset else ""
        return f"the agent {spec.name} needs {program}, which is not on PATH{hint}"
    return _missing_key(spec) if spec.preset else ""


def _missing_extra(spec: AgentSpec) -> str:
    library = {"model": "pydantic_ai", "acp": "acp"}.get(spec.kind, "")
    if library and importlib.util.find_spec(library) is None:
        return f"the agent {spec.name} needs the extra schoolhouse[{spec.kind}], which is not installed"
    return ""


def _missing_key(spec: AgentSpec) -> str:
    named = spec.api_key_env or _usual_key(spec)
    if named and not os.environ.get(named):
        return f"the agent {spec.name} needs the variable {named}, which is not set"
    return ""


def _missing_provider(spec: AgentSpec) -> str:
    error = None if spec.base_url else _provider_error(spec.model.partition(":")[0])
    return f"the agent {spec.name} has the model {spec.model}: {error}" if error else ""


def _usual_key(spec: AgentSpec) -> str:
    """The variable that the provider of the loop's model has its key in; an endpoint of one's own may do without."""
    if spec.kind != "model" or spec.base_url:
        return ""
    from school.agents.model.endpoint import KEYS

    return KEYS.get(spec.model.partition(":")[0], "")


def _installed(spec: AgentSpec) -> str:
    if not spec.preset:
        return "installed"
    preset = find(spec.preset)
    version = version_of(preset, spec.argv, search_path()) or "of a version that it does not tell"
    return f"{preset.name} {version}; the preset was tried with {preset.tried}"


def available(config: ProjectConfig) -> list[dict[str, Any]]:
    """One row of ``doctor`` for each agent; ``ok`` is None where an optional one is absent."""
    rows = []
    for name in [*config.agents, *BUILT_IN]:
        try:
            spec = resolve(name, config)
            lacks = missing(spec)
        except ConfigError as error:
            rows.append({"check": f"agent:{name}", "ok": False, "detail": str(error)})
            continue
        detail = lacks or _installed(spec)
        rows.append({"check": f"agent:{name}", "ok": None if lacks else True, "detail": detail})
    for chore in chores.CHORES.values():
        found = chores.tool_path(chore.tool)
        lacks = "" if found else f"{chore.tool} is not installed"
        rows.append(
            {"check": f"chore:{chore.name}", "ok": True if found else None, "detail": lacks or str(found)}
        )
    return rows

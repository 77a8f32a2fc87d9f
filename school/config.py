"""``school.toml``: how this project wants to be worked on, layered and checked before it is used.

``load_config(base_text, home_text, overrides)`` lays the text of the base commit over that of ``HERMES_HOME``
over the defaults, and *overrides* (what flags said) over all. Tables are merged key by key; a list or a single
value replaces the one below it. The caller reads the texts, and reads the base commit's from git, never from a
leaf's tree.

ConfigError lists every mistake of the layer that holds it, with file and key; a mistake in TOML itself with its
line. ``refuse_impossible_limits`` checks the limits against each other, with the numbers.
What it does not promise: that an agent is installed, or that a command exists.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import ValidationError

from school.contracts import STUDENT_ROLES, ProjectConfig
from school.errors import ConfigError
from school.settings import Settings
from school.wording import branch_problem, explain, shown, unwritable

FILE_NAME: Final = "school.toml"
BYTES_MAX: Final = 1024 * 1024
_ARGV_LISTS: Final = frozenset({("verify", "commands"), ("setup", "commands")})
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def load_config(
    base_text: str | None,
    home_text: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    base_name: str = FILE_NAME,
    home_name: str = f"HERMES_HOME/{FILE_NAME}",
) -> ProjectConfig:
    """The configuration of one run; *base_name* and *home_name* are what messages call the two files."""
    layers = [(home_name, _parsed(home_text, home_name)), (base_name, _parsed(base_text, base_name))]
    merged: dict[str, Any] = {}
    for name, layer in layers:
        _refuse_layer(name, layer)
        merged = _laid_over(merged, layer)
    if overrides:
        layers.append(("the command line", dict(overrides)))
        _refuse_layer(*layers[-1])
        merged = _laid_over(merged, overrides)
    try:
        return ProjectConfig.model_validate(merged, strict=True).read_from(layers)
    except ValidationError as error:  # two layers, each right, that do not fit each other
        raise ConfigError("\n".join(_sentences(f"{base_name} over {home_name}", error))) from None


def is_left_out(repository: Path, base_text: str | None) -> bool:
    """Whether the working tree of *repository* has a ``school.toml`` that is not the one of the base commit."""
    try:
        text = (repository / FILE_NAME).read_text("utf-8", errors="replace")
    except OSError:
        return False
    return text != (base_text or "").replace("\r\n", "\n")


def _parsed(text: str | None, name: str) -> dict[str, Any]:
    if text is None:
        return {}
    if len(text) > BYTES_MAX:
        raise ConfigError(f"{name}: larger than the {BYTES_MAX} bytes that a configuration may have")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply") from None


def _laid_over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _laid_over(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _refuse_layer(name: str, layer: Mapping[str, Any]) -> None:
    try:
        config = ProjectConfig.model_validate(dict(layer), strict=True)
    except ValidationError as error:
        raise ConfigError("\n".join(_sentences(name, error))) from None
    problems = [f"{name}: {key}: {what}" for key, what in _problems(config, layer)]
    if problems:
        raise ConfigError("\n".join(problems))


# --- form ---------------------------------------------------------------------------------------------------


def _sentences(name: str, error: ValidationError) -> list[str]:
    found: dict[str, str] = {}
    for item in error.errors(include_url=False):
        loc = item["loc"]
        keys = tuple(key for key in loc[:2] if isinstance(key, str))
        argv = keys in _ARGV_LISTS or (loc[0] == "agents" and loc[-1] == "argv")
        what = explain(item, argv=argv)
        if keys in _ARGV_LISTS and len(loc) == len(keys) and isinstance(item["input"], str):
            what = (
                f"expected a list of commands, each a list of words; write [{shown(_split(item['input']))}]"
            )
        if loc[:2] == ("verify", "on_stop"):
            what = f'expected true, false or "auto", found {shown(item["input"])}'
        # A union complains once a member; one sentence a key is enough.
        found.setdefault(_key(loc), what)
    return [f"{name}: {key}: {what}" for key, what in found.items()]


def _split(text: str) -> list[str]:
    return text.split()


def _key(loc: tuple[int | str, ...]) -> str:
    """``[verify] commands[0]``: the table in brackets, the rest as one would look it up."""
    keys = list(loc)
    if keys[:2] == ["verify", "on_stop"]:
        keys = keys[:2]
    if keys and keys[-1] == "[key]":
        keys.pop()
    depth = 2 if keys and keys[0] in ("agents", "roles", "reviewers") else 1
    table, rest = keys[:depth], keys[depth:]
    text = f"[{'.'.join(map(str, table))}]"
    for key in rest:
        text += f"[{key}]" if isinstance(key, int) else f"{' ' if text.endswith(']') else '.'}{key}"
    return text


# --- meaning ------------------------------------------------------------------------------------------------


def _problems(config: ProjectConfig, raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _verify_and_setup_problems(config)
    yield from _agent_problems(config)
    yield from _role_problems(config)
    if why := branch_problem(config.delivery.prefix + "x"):
        yield "[delivery] prefix", f"{shown(config.delivery.prefix)} can begin no branch: {why}"
    yield from _not_finite(raw, "")


def _verify_and_setup_problems(config: ProjectConfig) -> Iterator[tuple[str, str]]:
    for table, commands in (("verify", config.verify.commands), ("setup", config.setup.commands)):
        for index, argv in enumerate(commands):
            yield from _argv_problems(f"[{table}] commands[{index}]", argv)
    for key, paths in (("copy_files", config.setup.copy_files), ("keep", config.setup.keep)):
        for index, path in enumerate(paths):
            if why := _path_problem(path):
                yield f"[setup] {key}[{index}]", why


def _role_problems(config: ProjectConfig) -> Iterator[tuple[str, str]]:
    for role, choice in config.roles.items():
        if role not in STUDENT_ROLES:
            yield f"[roles.{role}]", f"no such role; there are {', '.join(STUDENT_ROLES)}"
        if len(set(choice.agents)) != len(choice.agents):
            yield f"[roles.{role}] agents", "an agent is named twice"


def _agent_problems(config: ProjectConfig) -> Iterator[tuple[str, str]]:
    for name, agent in config.agents.items():
        key = f"[agents.{name}]"
        if not _NAME.fullmatch(name):
            yield key, "a name has letters, digits, '.', '_' and '-', at most 64"
        if agent.argv:
            yield from _argv_problems(f"{key} argv", agent.argv)
        for variable in (*agent.env, *agent.set_env):
            if not _VARIABLE.fullmatch(variable):
                yield f"{key} env", f"{shown(variable)} is no name of a variable"
        if agent.prompt == "file" and agent.argv and not any("{prompt_file}" in word for word in agent.argv):
            yield f"{key} argv", 'prompt = "file" needs the word {prompt_file} where the file\'s path belongs'


def _argv_problems(key: str, argv: list[str]) -> Iterator[tuple[str, str]]:
    if not argv or not argv[0]:
        yield key, "an empty command"
    for index, word in enumerate(argv):
        if unwritable(word):
            yield f"{key}[{index}]", f"{shown(word)} holds a character that no argument can have"


def _path_problem(path: str) -> str:
    parts = PurePosixPath(path)
    if not path.strip() or parts == PurePosixPath():
        return f"{shown(path)} names nothing"
    if parts.is_absolute() or ".." in parts.parts or path.startswith("~"):
        return f"{shown(path)} must be a path inside the repository"
    if parts.parts[0] in (".git", ".hermes"):
        return f"{shown(path)} is not the project's to keep"
    return ""


def _not_finite(raw: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for key, value in raw.items():
        if isinstance(value, Mapping):
            yield from _not_finite(value, f"{above}.{key}" if above else key)
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"[{above}] {key}", f"expected a finite number, found {value}"


# --- limits against each other ------------------------------------------------------------------------------


def refuse_impossible_limits(config: ProjectConfig, settings: Settings) -> None:
    """ConfigError, with the numbers, where one limit always runs out before what it must leave room for.

    A limit that is merely never reached (a start-up limit above the time limit, a poll interval above the
    hand-over's) is no contradiction: whoever waits, waits for the shorter.
    """
    by_model = [role for role, reviewer in config.reviewers.items() if reviewer.model or reviewer.agent]
    call, handoff = settings.review_timeout_s, settings.handoff_timeout_s
    if by_model and call >= handoff:
        raise ConfigError(
            f"limits that cannot be kept together: one model call of the {' and the '.join(by_model)} may take"
            f" DEFAULT_REVIEW_TIMEOUT = {call:g} s, and after HANDOFF_TIMEOUT = {handoff:g} s without an answer"
            " the bead counts as expired; raise HANDOFF_TIMEOUT or lower DEFAULT_REVIEW_TIMEOUT"
        )

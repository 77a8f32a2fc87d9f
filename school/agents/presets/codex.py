"""``codex exec``: prompt on stdin, events as JSON lines, ``codex exec resume`` for a further turn.

Without ``base_url`` codex uses its own configuration and login (``~/.codex`` or CODEX_HOME). With it, the endpoint is
given on the command line as a provider of the Responses API, its key by a variable of its own, and codex keeps its
sessions in the agent's own home: nothing of the user's is read or written.

Events that count: ``thread.started`` (the session), ``item.completed`` with ``command_execution`` (what it ran, with
the exit status), ``file_change`` or ``agent_message``, ``turn.completed`` (usage, which on a resumed session counts the
whole session), ``turn.failed`` and ``error`` (it also tells each retry that way, and waits for a network without end).
"""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

from school.agents.presets.base import (
    KEY_VARIABLE,
    Preset,
    Reading,
    Said,
    Setting,
    Start,
    ToolUse,
    exit_status,
    inner,
    items,
    objects,
    sentence,
    session_of,
    text,
    whole,
    word,
)
from school.agents.presets.faults import failed

_SHELLS: Final = ("/bin/bash -lc ", "bash -lc ", "/bin/zsh -lc ", "zsh -lc ", "/bin/sh -c ")


class Codex(Preset):
    """The preset."""

    name = "codex"
    program = "codex"
    tried = "0.171.0"
    install = "npm install -g @openai/codex"
    locations = ("CODEX_HOME",)
    write = ("CODEX_HOME:~/.codex",)

    def start(self, setting: Setting) -> Start:
        spec = setting.spec
        options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        env = {}
        if spec.model:
            options += ["-m", spec.model]
        if spec.base_url:
            options += ["-c", 'model_provider="school"', "-c", f"model_providers.school={_provider(setting)}"]
            env = {KEY_VARIABLE: setting.some_key, "CODEX_HOME": str(setting.home)}
        elif spec.api_key_env:
            env = {"CODEX_API_KEY": setting.key}
        again = ["resume"] if setting.session else []
        session = [setting.session] if setting.session else []
        return Start([*spec.argv, "exec", *again, *options, *session, "-"], env=env)

    def read(self, said: Said) -> Reading:
        reading = Reading(cumulative=True, waiting=True)
        messages: list[str] = []
        began = False
        for event in objects(said.stdout):
            began = True
            _take(event, reading, messages)
            _follow(event, reading.at_work)
            reading.waiting = not reading.at_work and not reading.ended
        reading.answer = messages[-1] if messages else ""
        return failed(reading, said, began=began)


def _provider(setting: Setting) -> str:
    """The endpoint as an inline table of TOML, whose strings are written like JSON's."""
    values = {
        "name": "school",
        "base_url": setting.spec.base_url,
        "env_key": KEY_VARIABLE,
        "wire_api": "responses",
    }
    return "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items()) + "}"


def _take(event: dict[str, Any], reading: Reading, messages: list[str]) -> None:
    kind = event.get("type")
    if kind == "thread.started":
        reading.session = session_of(event.get("thread_id"))
    elif kind == "item.completed":
        _item(inner(event, "item"), reading, messages)
    elif kind == "turn.completed":
        used = inner(event, "usage")
        reading.ended = True
        reading.usage = {
            "input_tokens": whole(used.get("input_tokens")),
            "output_tokens": whole(used.get("output_tokens")),
        }
    elif kind in ("error", "turn.failed"):
        reading.ended = False
        told = event.get("message") if kind == "error" else inner(event, "error").get("message")
        reading.errors.append(sentence(told) or "codex told of an error without a message")


def _follow(event: dict[str, Any], at_work: set[str]) -> None:
    """Which commands are at work."""
    item = inner(event, "item")
    name = word(item.get("id"))
    if event.get("type") == "item.started" and item.get("type") != "error":
        at_work.add(name)
    elif event.get("type") == "item.completed":
        at_work.discard(name)


def _item(item: dict[str, Any], reading: Reading, messages: list[str]) -> None:
    kind = item.get("type")
    if kind == "error":
        return  # a remark of its own, such as a model that it does not know
    reading.errors.clear()
    if kind == "agent_message":
        messages.append(text(item.get("text")))
    elif kind == "command_execution":
        command = _command(text(item.get("command")))
        output = text(item.get("aggregated_output"))
        call_id = word(item.get("id"))
        reading.use(ToolUse.command(command, exit_status(item.get("exit_code")), output, call_id=call_id))
    elif kind == "file_change":
        for change in items(item.get("changes")):
            reading.use(ToolUse.file("patch", change.get("path"), None))


def _command(line: str) -> str:
    """The command line as the agent wrote it, without the shell that codex starts it in."""
    for shell in _SHELLS:
        if line.startswith(shell):
            return _unquoted(line.removeprefix(shell))
    return line


def _unquoted(line: str) -> str:
    try:
        words = shlex.split(line)
    except ValueError:
        return line
    return words[0] if len(words) == 1 else line


PRESET: Final = Codex()

"""``hermes -z`` with ``--usage-file``, and ``hermes chat -q --resume`` for a further turn.

Hermes takes its prompt only as an argument, and ends with status 0 when its endpoint is down. A prompt of up to
``ARGUMENT_BYTES_MAX`` is the argument; of a longer one it is told in which file it stands. Without ``base_url`` Hermes
uses its own configuration (``~/.hermes`` or HERMES_HOME), and what is known of a turn is its usage file and its answer,
unless the user has our plugin there (``conductor.py hermes install``), which then tells as much. With it, Hermes gets a home of the agent's own with a configuration for that endpoint and the plugin of ``hermes_events``, which
tells each tool and each failed request as it happens.

Hermes may wait ten minutes in silence for a rate limit. With the plugin that is seen; without it the turn is stalled.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from school.agents.presets import hermes_events
from school.agents.presets.base import (
    KEY_VARIABLE,
    Preset,
    Reading,
    Said,
    Setting,
    Start,
    ToolUse,
    document,
    dollars,
    exit_status,
    inner,
    objects,
    sentence,
    session_of,
    text,
    whole,
    word,
)
from school.agents.presets.faults import failed

USAGE: Final = "usage.json"
EVENTS: Final = "events.jsonl"
PLUGIN: Final = "school_events"
# Linux ends an argument at 128 KiB.
ARGUMENT_BYTES_MAX: Final = 96 * 1024
CONTEXT_TOKENS: Final = 200_000
_PLUGIN_SOURCE: Final = Path(hermes_events.__file__)
_POINTER: Final = (
    "Your whole task is in the file {path}. Read that file to its end, in as many pieces as it takes, before you do "
    "anything else; then do what it says."
)
_SESSION: Final = re.compile(rb"^session_id: (\S+)\s*$", re.MULTILINE)
_FAILED: Final = re.compile(r"^API call failed after \d+ retr.*|^hermes -z: agent failed: .*", re.MULTILINE)
_REMARK: Final = re.compile(r"^\s*⚠ tirith .*\n", re.MULTILINE)
_NO_REPLY: Final = re.compile(r"(?:⚠\ufe0f? )?No reply: ")
_GAVE_UP: Final = re.compile(
    r"(?:API call failed|Invalid API response) after \d+ retr|Billing or credits exhausted: |HTTP [45]\d\d: "
    r"|(?:⚠\ufe0f? )?No reply: the model returned empty"
)
_CUT: Final = "no answer: the model's stream was cut"


class Hermes(Preset):
    """The preset."""

    name = "hermes"
    program = "hermes"
    tried = "0.19.0"
    install = "pip install hermes-agent"
    locations = ("HERMES_HOME",)
    write = ("HERMES_HOME:~/.hermes",)
    results = (USAGE, EVENTS)

    def start(self, setting: Setting) -> Start:
        spec = setting.spec
        long = len(setting.prompt.encode("utf-8", "backslashreplace")) > ARGUMENT_BYTES_MAX
        prompt = _POINTER.format(path=setting.prompt_file) if long else setting.prompt
        model = ["--model", spec.model] if spec.model and not spec.base_url else []
        if setting.session:
            argv = [*spec.argv, "chat", "-q", prompt, "-Q", "--yolo", *model, "--resume", setting.session]
        else:
            argv = [*spec.argv, *model, "-z", prompt, "--usage-file", str(setting.out / USAGE)]
        env, files = {hermes_events.VARIABLE: str(setting.out / EVENTS)}, {}
        if spec.base_url:
            env |= {"HERMES_HOME": str(setting.home), KEY_VARIABLE: setting.some_key}
            files = _home(setting)
        return Start(argv, stdin=False, placed=long, env=env, files=files)

    def read(self, said: Said) -> Reading:
        reading = Reading()
        usage = document(said.files.get(USAGE, b""))
        reading.session = session_of(usage.get("session_id"))
        heard = _events(said.files.get(EVENTS, b""), reading)
        output = _REMARK.sub("", text(said.printed()[0])).strip()
        if not usage and not reading.session and (found := _SESSION.search(said.stderr)):
            reading.session = session_of(found[1].decode("ascii", "replace"))
        _end(reading, usage, output, said, heard=heard)
        if usage and not reading.usage:
            reading.usage = _usage(usage)
        return failed(reading, said)


def gave_up(answer: str) -> bool:
    """Whether *answer* is none of a model's: where nobody asks for its usage file, Hermes says so in the answer's place."""
    return bool(_GAVE_UP.match(answer))


def _home(setting: Setting) -> dict[Path, str]:
    """A home for Hermes with one endpoint and one plugin; its configuration is JSON, which YAML takes."""
    model = {
        "default": setting.spec.model or "default",
        "provider": "custom",
        "base_url": setting.spec.base_url,
        "api_key": f"${{{KEY_VARIABLE}}}",  # Hermes reads the variable; the key stands in no file
        "context_length": CONTEXT_TOKENS,
    }
    # Without this the first file that is written waits for the download of a language server.
    config = {"model": model, "lsp": {"enabled": False}, "plugins": {"enabled": [PLUGIN]}}
    about = {"name": PLUGIN, "version": "1.0", "description": "Tells what was done.", "kind": "standalone"}
    folder = setting.home / "plugins" / PLUGIN
    return {
        setting.home / "config.yaml": json.dumps(config) + "\n",
        folder / "plugin.yaml": json.dumps(about) + "\n",
        folder / "__init__.py": _PLUGIN_SOURCE.read_text(encoding="utf-8"),
    }


def _end(reading: Reading, usage: dict[str, Any], output: str, said: Said, *, heard: bool) -> None:
    """Whether the turn came to its end, from what Hermes reported of it."""
    refused = _FAILED.search(output) or _FAILED.search(said.printed()[1])
    if usage:
        reading.ended = usage.get("completed") is True and not usage.get("failed") and not refused
    elif not heard:
        # A resumed turn leaves no usage file; its session's name comes after its answer.
        reading.ended = said.exit_code == 0 and bool(reading.session and output) and not refused
    if _NO_REPLY.match(output):
        reading.ended = False
    if reading.ended:
        reading.errors.clear()
        reading.answer = output or reading.answer
        return
    if refused:
        reading.errors.append(sentence(output[refused.start() :] or refused[0]))
    elif not reading.errors and said.exit_code is not None:
        words = sentence(usage.get("failure")) or output
        words = words or sentence(said.printed()[1]).strip()
        if words or usage:
            reading.errors.append(words or _CUT)


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "requests": whole(usage.get("api_calls")),
        "input_tokens": whole(usage.get("input_tokens")) + whole(usage.get("cache_read_tokens")),
        "output_tokens": whole(usage.get("output_tokens")),
    }
    # 0 stands for a model whose price it does not know.
    if cost := dollars(usage.get("estimated_cost_usd")):
        found["cost_usd"] = cost
    return found


def _events(raw: bytes, reading: Reading) -> bool:
    """Take what the plugin told; whether it told of an end."""
    at_work = reading.at_work
    heard = False
    for event in objects(raw):
        kind, call_id = event.get("type"), word(event.get("id"))
        if kind == "error":
            status, said = whole(event.get("status")), sentence(event.get("message"))
            reading.errors.append(f"{status} {said}" if status else f"connection error: {said}")
        elif kind == "api":
            reading.errors.clear()
            reading.session = reading.session or session_of(event.get("session"))
            _count(inner(event, "usage"), reading)
        elif kind == "tool_started":
            at_work.add(call_id)
        elif kind == "tool":
            at_work.discard(call_id)
            _tool(event, call_id, reading)
        elif kind == "answer" and event.get("platform") != "subagent":
            reading.answer = text(event.get("text"))
        elif kind == "end" and event.get("platform") != "subagent":
            heard = True
            reading.ended = event.get("completed") is True and not event.get("interrupted")
        reading.waiting = not at_work and not reading.ended
    return heard


def _count(used: dict[str, Any], reading: Reading) -> None:
    given = whole(used.get("input_tokens")) + whole(used.get("cache_read_tokens"))
    reading.count(requests=1, input_tokens=given, output_tokens=whole(used.get("output_tokens")))


def _tool(event: dict[str, Any], call_id: str, reading: Reading) -> None:
    args, result, tool = inner(event, "args"), inner(event, "result"), word(event.get("tool"))
    took_ms = whole(event.get("ms"))
    if tool == "terminal":
        code = exit_status(result.get("exit_code"))
        command, output = text(args.get("command")), text(result.get("output"))
        reading.use(ToolUse.command(command, code, output, call_id=call_id, duration_ms=took_ms))
    elif tool:
        wrong = sentence(result.get("error")) or None
        reading.use(ToolUse(tool, args, {"error": wrong}, call_id, took_ms))


PRESET: Final = Hermes()

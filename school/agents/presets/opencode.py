"""``opencode run``: prompt on stdin, events as JSON lines, ``--session`` for a further turn.

Without ``base_url`` opencode uses its own configuration and login. With it, an OpenAI-compatible endpoint is given as a
provider by OPENCODE_CONFIG_CONTENT (the key by a variable that it names), and all that opencode keeps lies in the
agent's own home.

Events that count: ``tool_use`` (a finished tool; ``bash`` with its exit status), ``text``, ``step_finish`` (usage, cost;
reason ``stop`` ends the turn) and ``error``. It tries again for ever while an endpoint fails and tells that only by
its log, which is why the log's errors are asked for and read from stderr.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, Final

from school.agents.presets.base import (
    KEY_VARIABLE,
    Preset,
    Reading,
    Said,
    Setting,
    Start,
    ToolUse,
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

PROVIDER: Final = "school"
LOGGED: Final = "stream error: "
EMPTY: Final = "empty response: a step of the model ended without a reason that could be used"
_TOOLS: Final = {"read": "read_file", "write": "write_file", "edit": "patch", "patch": "patch"}
_LOGGED: Final = re.compile(
    rb'^timestamp=(\S+) level=ERROR .*message="stream error".* agent=(?!title)\S+ .*error\.error="((?:[^"\\]|\\.)*)"'
)


class OpenCode(Preset):
    """The preset."""

    name = "opencode"
    program = "opencode"
    tried = "1.18.33"
    install = "npm install -g opencode-ai"
    locations = ("OPENCODE_CONFIG", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    write = (
        "XDG_DATA_HOME/opencode:~/.local/share/opencode",
        "XDG_STATE_HOME/opencode:~/.local/state/opencode",
        "XDG_CACHE_HOME/opencode:~/.cache/opencode",
        "XDG_CONFIG_HOME/opencode:~/.config/opencode",
    )

    def start(self, setting: Setting) -> Start:
        spec = setting.spec
        argv = [*spec.argv, "run", "--format", "json", "--auto", "--print-logs", "--log-level", "ERROR"]
        env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
        if spec.base_url:
            env |= environment(setting)
        elif spec.model:
            argv += ["--model", spec.model]
        if setting.session:
            argv += ["--session", setting.session]
        return Start(argv, env=env)

    def read(self, said: Said) -> Reading:
        reading = Reading(waiting=True)
        last_ms = 0
        began = False
        for event in objects(said.stdout):
            began = True
            _take(event, reading)
            # A tool at work is told of only when it has ended; between two steps there is none.
            reading.waiting = event.get("type") == "step_finish" and not reading.ended
            if event.get("type") in ("text", "tool_use"):
                last_ms = max(last_ms, whole(event.get("timestamp")))
        logged = [f"{LOGGED}{error}" for at_ms, error in _logged(said.stderr) if at_ms > last_ms]
        if not reading.ended:
            reading.errors = [*logged, *reading.errors]
        reading = failed(reading, said, began=began)
        if reading.reason == "exit" and reading.detail.startswith(LOGGED):
            reading.reason = "unavailable"
        return reading


def environment(setting: Setting) -> dict[str, str]:
    """The variables that put opencode on an endpoint of ours, all that it keeps in the agent's own home; for its ACP server as well."""
    model = setting.spec.model or "default"
    options = {"baseURL": setting.spec.base_url, "apiKey": f"{{env:{KEY_VARIABLE}}}"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": PROVIDER,
        "options": options,
        "models": {model: {"name": model}},
    }
    name = f"{PROVIDER}/{model}"
    config = {"provider": {PROVIDER: provider}, "model": name, "small_model": name, "share": "disabled"}
    places = {
        f"XDG_{kind}_HOME": str(setting.home / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")
    }
    return {
        **places,
        KEY_VARIABLE: setting.some_key,
        "OPENCODE_CONFIG_CONTENT": json.dumps({**config, "autoupdate": False}),
    }


def _take(event: dict[str, Any], reading: Reading) -> None:
    reading.session = session_of(event.get("sessionID")) or reading.session
    part = inner(event, "part")
    kind = event.get("type")
    if kind == "error":
        reading.ended = False
        reading.errors.append(_error(inner(event, "error")))
        return
    if kind == "text":
        reading.answer = text(part.get("text"))
    elif kind == "tool_use":
        _tool(part, reading)
    elif kind == "step_finish":
        reading.ended = part.get("reason") == "stop"
        _add_usage(part, reading)
    elif kind == "step_start":
        reading.ended = False
    if kind in ("text", "tool_use"):
        reading.errors.clear()
    elif kind == "step_finish" and part.get("reason") not in ("stop", "tool-calls"):
        # It asks again at once, for ever, when its endpoint sends nothing.
        reading.errors.append(f"{EMPTY} ({word(part.get('reason'))})")


def _error(error: dict[str, Any]) -> str:
    data = inner(error, "data")
    status = whole(data.get("statusCode"))
    said = [
        str(status) if status else "",
        word(error.get("name")),
        sentence(data.get("message")),
    ]
    return " ".join(part for part in said if part) or "opencode told of an error without a message"


def _tool(part: dict[str, Any], reading: Reading) -> None:
    state = inner(part, "state")
    args, name, call_id = inner(state, "input"), word(part.get("tool")), word(part.get("callID"))
    if name == "bash":
        code = exit_status(inner(state, "metadata").get("exit"))
        said = text(state.get("output") or state.get("error"))
        times = inner(state, "time")
        took_ms = max(0, whole(times.get("end")) - whole(times.get("start")))
        reading.use(
            ToolUse.command(text(args.get("command")), code, said, call_id=call_id, duration_ms=took_ms)
        )
    elif name in _TOOLS:
        wrong = sentence(state.get("error")) if state.get("status") == "error" else None
        reading.use(ToolUse.file(_TOOLS[name], args.get("filePath"), wrong, call_id))


def _add_usage(part: dict[str, Any], reading: Reading) -> None:
    tokens = inner(part, "tokens")
    cached = whole(inner(tokens, "cache").get("read")) + whole(inner(tokens, "cache").get("write"))
    given, said = whole(tokens.get("input")) + cached, whole(tokens.get("output"))
    reading.count(requests=1, input_tokens=given, output_tokens=said)
    if cost := dollars(part.get("cost")):
        reading.count(cost_usd=cost)


def _logged(raw: bytes) -> list[tuple[int, str]]:
    """The errors of the endpoint in the log, each with its moment in milliseconds."""
    found = []
    for line in raw.split(b"\n"):
        match = _LOGGED.match(line[:16384])
        if match is None:
            continue
        try:
            moment = datetime.fromisoformat(match[1].decode("ascii", "replace"))
        except ValueError:
            continue
        found.append((int(moment.timestamp() * 1000), text(match[2].decode("utf-8", "backslashreplace"))))
    return found


PRESET: Final = OpenCode()

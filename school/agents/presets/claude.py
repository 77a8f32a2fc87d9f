"""``claude -p``: prompt on stdin, events as JSON lines (``stream-json``), ``--resume`` for a further turn.

Without ``base_url`` claude uses its own configuration and login (``~/.claude`` or CLAUDE_CONFIG_DIR). With it (the
address that stands before ``/v1/messages``) everything of its own lies in the agent's own home, the key is the variable's that
``api_key_env`` names. As root, claude wants ``set_env = {IS_SANDBOX = "1"}``.

Events that count: ``system/init`` (the session), ``assistant`` and ``user`` messages (tools and their results; a shell
command that fails says ``Exit code N``), ``system/api_retry``, and ``result``: its end, answer, usage and cost.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from school.agents.presets.base import (
    Preset,
    Reading,
    Said,
    Setting,
    Start,
    ToolUse,
    dollars,
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

# A wait below this is a back-off, not a reset.
_RESET_MS_LEAST: Final = 60_000
_EXIT_CODE: Final = re.compile(r"Exit code (\d{1,3})\b")
_TOOLS: Final = {"Read": "read_file", "Write": "write_file", "Edit": "patch", "NotebookEdit": "patch"}


class Claude(Preset):
    """The preset."""

    name = "claude"
    program = "claude"
    tried = "2.1.197"
    install = "npm install -g @anthropic-ai/claude-code"
    locations = ("CLAUDE_CONFIG_DIR",)
    write = ("CLAUDE_CONFIG_DIR:~/.claude", ":~/.claude.json")

    def start(self, setting: Setting) -> Start:
        spec = setting.spec
        argv = [
            *spec.argv,
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--dangerously-skip-permissions",
        ]
        env = {"DISABLE_AUTOUPDATER": "1"}
        if spec.model:
            argv += ["--model", spec.model]
        if setting.session:
            argv += ["--resume", setting.session]
        if spec.base_url:
            env |= {"ANTHROPIC_BASE_URL": spec.base_url, "CLAUDE_CONFIG_DIR": str(setting.home)}
            env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
        if setting.key or spec.base_url:
            env["ANTHROPIC_API_KEY"] = setting.some_key
        return Start(argv, env=env)

    def read(self, said: Said) -> Reading:
        reading = Reading(waiting=True)
        asked: dict[str, dict[str, Any]] = {}
        wait_ms = 0
        began = False
        for event in objects(said.stdout):
            began = True
            kind = event.get("type")
            if kind == "system":
                wait_ms = _system(event, reading) or wait_ms
            elif kind == "assistant":
                _assistant(event, reading, asked)
            elif kind == "user":
                _results(event, reading, asked)
            elif kind == "result":
                _result(event, reading)
            reading.at_work = set(asked)
            reading.waiting = not asked and not reading.ended
        reading = failed(reading, said, began=began)
        if reading.reason == "quota" and not reading.retry_at and wait_ms >= _RESET_MS_LEAST:
            moment = said.now + timedelta(milliseconds=min(wait_ms, 31 * 86_400_000))
            reading.retry_at = moment.isoformat(timespec="seconds")
        return reading


def _system(event: dict[str, Any], reading: Reading) -> int:
    """Take a remark of the program; how long it waits before another try, if that is what it says."""
    if event.get("subtype") == "init":
        reading.session = session_of(event.get("session_id"))
    if event.get("subtype") != "api_retry":
        return 0
    status = whole(event.get("error_status"))
    reading.errors.append(f"{status or 'connection error:'} {sentence(event.get('error'))}".strip())
    wait = event.get("retry_delay_ms")
    return int(wait) if isinstance(wait, int | float) and 0 <= wait < 1 << 53 else 0


def _assistant(event: dict[str, Any], reading: Reading, asked: dict[str, dict[str, Any]]) -> None:
    for block in items(inner(event, "message").get("content")):
        if block.get("type") == "tool_use":
            reading.errors.clear()
            asked[word(block.get("id"))] = block
        elif block.get("type") == "text":
            reading.answer = text(block.get("text"))


def _results(event: dict[str, Any], reading: Reading, asked: dict[str, dict[str, Any]]) -> None:
    for block in items(inner(event, "message").get("content")):
        call = asked.pop(word(block.get("tool_use_id")), None) if block.get("type") == "tool_result" else None
        if call is None:
            continue
        reading.errors.clear()
        name, args = word(call.get("name")), inner(call, "input")
        said = _content(block.get("content"))
        failing = block.get("is_error") is True
        call_id = word(call.get("id"))
        if name == "Bash":
            code = _EXIT_CODE.search(said)
            status = (int(code[1]) if code else None) if failing else 0
            reading.use(ToolUse.command(text(args.get("command")), status, said, call_id=call_id))
        elif name in _TOOLS:
            path = args.get("file_path") or args.get("notebook_path")
            reading.use(ToolUse.file(_TOOLS[name], path, sentence(said) if failing else None, call_id))


def _content(value: object) -> str:
    if isinstance(value, str):
        return text(value)
    return "\n".join(text(part.get("text")) for part in items(value))


def _result(event: dict[str, Any], reading: Reading) -> None:
    """Take the result: the only event that says that the turn is over."""
    reading.session = session_of(event.get("session_id")) or reading.session
    used = inner(event, "usage")
    cached = whole(used.get("cache_read_input_tokens")) + whole(used.get("cache_creation_input_tokens"))
    reading.usage = {
        "input_tokens": whole(used.get("input_tokens")) + cached,
        "output_tokens": whole(used.get("output_tokens")),
        "requests": whole(event.get("num_turns")),
    }
    if (cost := dollars(event.get("total_cost_usd"))) is not None:
        reading.usage["cost_usd"] = cost
    said = text(event.get("result"))
    if event.get("is_error") is False and event.get("subtype") == "success":
        reading.ended, reading.answer = True, said or reading.answer
        reading.errors.clear()
    else:
        status = whole(event.get("api_error_status"))
        why = said or word(event.get("subtype")) or "claude reported a failure"
        reading.errors.append(f"{status} {why}" if status else why)


PRESET: Final = Claude()

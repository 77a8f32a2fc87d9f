"""``mini`` (mini-swe-agent): the task in a configuration file, the whole run in a trajectory file; it has one turn.

Its endpoint and key are litellm's: without ``base_url`` whatever the named variables (``env``) say; with it an
OpenAI-compatible one, and ``model`` gets litellm's prefix ``openai/``. All that mini keeps lies in the agent's own home.

What counts is ``traj.json``, written after each step: ``info.exit_status`` is ``Submitted`` only where it came to its end, else
the name of the error that ended it; each message of role ``tool`` has the exit status of its command. That a step has its
answer, and is at its command, is printed before: without that, mini waits for its model.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from school.agents.presets.base import (
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
    items,
    sentence,
    text,
    whole,
    word,
)
from school.agents.presets.faults import failed

RESULT: Final = "traj.json"
TASK_NAME: Final = "task.yaml"
# Its own limit for one command is 30 s, which is less than the tests of most projects take.
COMMAND_TIMEOUT_S: Final = 600
# What JSON may hold and YAML may not.
_UNPRINTABLE: Final = re.compile("[\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
_STEP: Final = re.compile(rb"^mini-swe-agent \(step (\d{1,9}), \$", re.MULTILINE)
_LAST_ERROR: Final = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Timeout)\b.*)$", re.MULTILINE)


class Mini(Preset):
    """The preset."""

    name = "mini-swe-agent"
    program = "mini"
    version = ("--help",)
    tried = "2.4.6"
    install = "pip install mini-swe-agent"
    results = (RESULT,)
    resumes = False

    def start(self, setting: Setting) -> Start:
        spec, task = setting.spec, setting.out / TASK_NAME
        options = [
            "-y",
            "--exit-immediately",
            "-c",
            "mini.yaml",
            "-c",
            str(task),
            "-o",
            str(setting.out / RESULT),
        ]
        env = {
            "MSWEA_GLOBAL_CONFIG_DIR": str(setting.home),
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_COST_TRACKING": "ignore_errors",
            # Six tries are a minute: whoever waits longer keeps a student of another agent from its turn.
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "6",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        model = spec.model
        if spec.base_url:
            model = model if model.startswith("openai/") else f"openai/{model or 'default'}"
            env |= {"OPENAI_BASE_URL": spec.base_url, "OPENAI_API_BASE": spec.base_url}
        if setting.key or spec.base_url:
            env["OPENAI_API_KEY"] = setting.some_key
        if model:
            options += ["-m", model]
        return Start(
            [*spec.argv, *options], stdin=False, env=env, files={task: configuration(setting.prompt)}
        )

    def read(self, said: Said) -> Reading:
        reading = Reading()
        trajectory = document(said.files.get(RESULT, b""))
        info = inner(trajectory, "info")
        asked: dict[str, str] = {}
        for message in items(trajectory.get("messages")):
            _message(message, reading, asked)
        status = word(info.get("exit_status"))
        reading.answer = text(info.get("submission")).strip()
        requests = whole(inner(info, "model_stats").get("api_calls"))
        reading.usage = {**reading.usage, "requests": requests} if trajectory else {}
        reading.waiting = max(map(int, _STEP.findall(said.stdout)), default=0) <= requests
        if cost := dollars(inner(info, "model_stats").get("instance_cost")):
            reading.usage["cost_usd"] = cost
        if status == "Submitted":
            reading.ended, reading.waiting = True, False
        elif said.exit_code is not None:
            last = next(iter(items(trajectory.get("messages"))[-1:]), {})
            reading.errors.append(_error(status, sentence(last.get("content")), said))
        return failed(reading, said)


def configuration(prompt: str) -> str:
    """The task as a file of YAML, which takes JSON's strings but for a few characters."""
    body = json.dumps(
        {"run": {"task": prompt}, "environment": {"timeout": COMMAND_TIMEOUT_S}}, ensure_ascii=False
    )
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", body) + "\n"


def _message(message: dict[str, Any], reading: Reading, asked: dict[str, str]) -> None:
    extra = inner(message, "extra")
    used = inner(extra, "response", "usage")
    for name, told in (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")):
        if told in used:
            reading.count(**{name: whole(used.get(told))})
    for action in items(extra.get("actions")):
        asked[word(action.get("tool_call_id"))] = text(action.get("command"))
    call_id = word(message.get("tool_call_id"))
    if message.get("role") == "tool" and call_id in asked:
        status = None if extra.get("exception_info") else exit_status(extra.get("returncode"))
        output = text(extra.get("raw_output"))
        reading.use(ToolUse.command(asked.pop(call_id), status, output, call_id=call_id))


def _error(status: str, last: str, said: Said) -> str:
    """What ended it: by its trajectory, else by the last line of its traceback."""
    told = [status, last] if status and status != last else [status]
    output = said.stderr[-64_000:] + b"\n" + said.stdout[-64_000:]
    if not any(told) and (lines := _LAST_ERROR.findall(output.decode("utf-8", "backslashreplace"))):
        told.append(sentence(lines[-1]))
    return ": ".join(part for part in told if part) or "mini left no trajectory"


PRESET: Final = Mini()

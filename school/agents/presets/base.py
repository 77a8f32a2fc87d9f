"""What a preset is: how one CLI is started, and what is read out of what it left. No preset knows another.

A ``Preset`` has ``start(Setting) -> Start`` (argv, environment, files to write first, where the prompt goes) and
``read(Said) -> Reading``. Both are pure: a ``Setting`` holds all that may decide, ``Start.files`` are written by the
caller, and ``read`` looks only at captured bytes. What a CLI prints is untrusted data: ``read`` never raises, whatever it is given,
and takes nothing for a fact that did not parse. ``objects`` and the other helpers here are made for that.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from school.contracts import AgentSpec, bounded
from school.system.documents import well_formed

ANSWER_BYTES_MAX: Final = 64 * 1024
DETAIL_BYTES_MAX: Final = 1024
WORD_BYTES_MAX: Final = 200
# The variable that a CLI's own configuration names for the key of an endpoint of ours; no key stands in a file.
KEY_VARIABLE: Final = "SCHOOL_MODEL_KEY"
RESULT_BYTES_MAX: Final = 16 * 1024
TOOLS_MAX: Final = 2000
DOLLARS_MAX: Final = 1e6
LINE_BYTES_MAX: Final = 8 * 1024 * 1024
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a turn is started with.

    ``home`` is a folder of this agent's own, which lasts as long as its bead's leaf; ``out`` is one of this turn's
    own, empty. ``prompt`` is what is asked; ``session`` is '' in the first turn. ``key`` is the value of the variable that ``spec.api_key_env``
    names.
    """

    spec: AgentSpec
    home: Path
    out: Path
    prompt_file: Path
    prompt: str = ""
    session: str = ""
    key: str = ""

    @property
    def some_key(self) -> str:
        """The key, or a word in its place: without one many a CLI asks nothing of an endpoint that wants none."""
        return self.key or "none"


@dataclass(frozen=True, slots=True)
class Start:
    """How a turn is started: the prompt on ``stdin``, in the setting's ``prompt_file`` (``placed``), or neither."""

    argv: list[str]
    stdin: bool = True
    placed: bool = False
    env: dict[str, str] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """What a turn left: its output, and the files below ``out`` that the preset names in ``results``."""

    now: datetime
    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = 0
    files: Mapping[str, bytes] = field(default_factory=dict)

    def printed(self) -> tuple[str, str]:
        """Its output and its errors as text."""
        return self.stdout.decode("utf-8", "backslashreplace"), self.stderr.decode(
            "utf-8", "backslashreplace"
        )


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool that the agent really used, in Hermes' words; ``result`` becomes JSON."""

    tool: str
    args: dict[str, Any]
    result: dict[str, Any]
    call_id: str = ""
    duration_ms: int = 0

    @classmethod
    def command(
        cls, command: str, exit_code: int | None, output: str, *, call_id: str = "", duration_ms: int = 0
    ) -> ToolUse:
        """A command line in a shell, and how it ended; without a status the result says that it has none."""
        error = None if exit_code is not None else "ended without an exit status"
        result = {"output": bounded(output, RESULT_BYTES_MAX), "exit_code": exit_code, "error": error}
        return cls("terminal", {"command": command}, result, call_id, duration_ms)

    @classmethod
    def file(cls, tool: str, path: object, wrong: str | None, call_id: str = "") -> ToolUse:
        """A file that was read or changed; *wrong* is why it was not."""
        return cls(tool, {"path": text(path)}, {"error": wrong or None}, call_id)

    def event(self, call_id: str) -> dict[str, Any]:
        """The arguments of Hermes' ``post_tool_call`` that are of the call itself; *call_id* where it has none."""
        error = self.result.get("error")
        return {
            "tool_name": self.tool,
            "args": self.args,
            "result": json.dumps(self.result, ensure_ascii=False),
            "tool_call_id": self.call_id or call_id,
            "duration_ms": self.duration_ms,
            "status": "error" if error else "ok",
            "error_type": "tool_error" if error else None,
            "error_message": error,
        }


@dataclass(slots=True)
class Reading:
    """What a turn's structured result says.

    ``ended`` is True only where the CLI itself reported the end of a turn that it finished. ``reason`` is '' or one of
    AgentOutcome's: ``quota`` (``retry_at`` is its reset, where stated), ``unavailable``, ``login`` or ``exit``.
    ``errors`` are those since the last sign of progress. ``usage`` has requests, input_tokens, output_tokens and
    cost_usd as far as they were told; ``cumulative`` says that it counts the whole session, not this turn. ``tools`` have
    ended, ``at_work`` are the calls of those that have only begun, ``waiting`` is whether it waits for its model, with no tool at
    work, as far as it tells of that.
    """

    ended: bool = False
    session: str = ""
    answer: str = ""
    reason: str = ""
    detail: str = ""
    retry_at: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    tools: list[ToolUse] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    cumulative: bool = False
    at_work: set[str] = field(default_factory=set)
    waiting: bool = False

    def use(self, tool: ToolUse) -> None:
        """Note a tool that was used; of more than anybody counts the first are kept."""
        if len(self.tools) < TOOLS_MAX:
            self.tools.append(tool)

    def count(self, **used: float) -> None:
        """Add what was *used*, by the names of ``usage``."""
        for name, number in used.items():
            self.usage[name] = self.usage.get(name, 0) + number


class Preset(ABC):
    """One CLI. ``locations`` are variables that say where it keeps things; they are passed on where set.

    ``write`` are the state paths that it must be able to write, each as ``VARIABLE/below:default``, ``results`` the files below a turn's ``out`` that it
    leaves; ``resumes`` is whether a second turn is possible, ``install`` the command that installs it. ``version`` are the words that make it print its version,
    ``tried`` is the version that it was really driven with. ``read`` is also asked about the ends of what a turn that
    still runs has said so far: errors, and no end, then mean that its endpoint fails at this moment.
    """

    name: str
    program: str
    tried: str
    install: str
    version: tuple[str, ...] = ("--version",)
    locations: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    resumes: bool = True

    def state_paths(self, environ: Mapping[str, str]) -> list[str]:
        """What it must be able to write, where *environ* puts it."""
        found = []
        for place in self.write:
            variable, _, default = place.partition(":")
            folder, _, below = variable.partition("/")
            moved = environ.get(folder, "")
            found.append(f"{moved}/{below}".rstrip("/") if moved.startswith("/") else default)
        return found

    @abstractmethod
    def start(self, setting: Setting) -> Start:
        """How a turn is started."""

    @abstractmethod
    def read(self, said: Said) -> Reading:
        """What a turn says."""


# --- untrusted data -----------------------------------------------------------------------------------------


def objects(raw: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects among the lines of *raw*; what is none is passed over."""
    for line in raw.split(b"\n"):
        if line.lstrip()[:1] == b"{" and len(line) <= LINE_BYTES_MAX:
            found = document(line)
            if found:
                yield found


def document(raw: bytes) -> dict[str, Any]:
    """*raw* as one JSON object; an empty one for anything else."""
    try:
        # Not by a backslash: in the middle of a document that would be no escape that JSON has.
        value = json.loads(raw.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def text(value: object, limit_bytes: int = ANSWER_BYTES_MAX) -> str:
    """*value* if it is text, valid and bounded; '' otherwise."""
    return bounded(well_formed(value), limit_bytes) if isinstance(value, str) else ""


def word(value: object) -> str:
    """*value* if it is text, as short as a name is."""
    return text(value, WORD_BYTES_MAX)


def sentence(value: object) -> str:
    """*value* if it is text, as short as what a record says of an error."""
    return text(value, DETAIL_BYTES_MAX)


def whole(value: object) -> int:
    """*value* if it is a count; 0 otherwise."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else 0


def dollars(value: object) -> float | None:
    """*value* if it is what something cost."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 <= value < DOLLARS_MAX else None  # type: ignore[arg-type, operator]


def inner(value: object, *path: str) -> dict[str, Any]:
    """The object at *path* in *value*; an empty one where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[dict[str, Any]]:
    """The objects in *value* if it is a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def session_of(value: object) -> str:
    """*value* if it can be the name of a session, and no option of a command line; '' otherwise."""
    return value if isinstance(value, str) and _SESSION.fullmatch(value) else ""


def exit_status(value: object) -> int | None:
    """*value* if it is an exit status."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None

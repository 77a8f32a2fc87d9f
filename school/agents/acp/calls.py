"""An agent's tool calls, put together from its updates, and what each means in Hermes' words. Pure.

``Calls.hear(update, now)`` takes one ``session/update`` and gives the call that it ended, if it ended one. ``event(call,
terminals)`` is the tool's name, arguments and result as hooks know them: ``execute`` is ``terminal`` with its command
and, where the agent or our own terminal says it, its exit status; ``edit``, ``delete`` and ``move`` are ``write_file`` or
``patch`` with the path; ``read`` is ``read_file``. ``writes(kind)`` says whether a kind may change something. Everything
comes from the agent and may be of any shape.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from school.contracts import bounded
from school.system.files import well_formed

# Ended ones are kept by name only.
CALLS_MAX: Final = 5000
OPEN_MAX: Final = 100
TEXT_BYTES_MAX: Final = 64 * 1024
PATHS_MAX: Final = 50
ITEMS_MAX: Final = 50
DEPTH_MAX: Final = 4
KEY_CHARS_MAX: Final = 100
TEXT_BYTES_MIN: Final = 100
VALUE_BYTES_MAX: Final = 256 * 1024
SIGNALLED: Final = 128  # a shell's exit status of what a signal ended begins here
_READING: Final = frozenset({"read", "search", "think", "fetch", "switch_mode"})
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
_NAMES: Final = {
    "read": "read_file",
    "search": "search_files",
    "execute": "terminal",
    "delete": "patch",
    "move": "patch",
    "fetch": "web_fetch",
    "think": "think",
}
_EXIT_KEYS: Final = ("exit_code", "exitCode", "exit", "exitStatus", "exit_status", "returncode")
_PATH_KEYS: Final = ("path", "file_path", "filePath", "abs_path", "filename")


@dataclass(slots=True)
class Call:
    """One tool call so far."""

    id: str
    begun: float
    title: str = ""
    kind: str = "other"
    status: str = "pending"
    content: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    raw_input: Any = None
    raw_output: Any = None
    ended: float = 0.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran in a terminal of ours; ``cwd`` is empty where that is the root."""

    command: str
    output: str
    exit_code: int | None
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """A tool call as hooks hear of it."""

    name: str
    args: dict[str, Any]
    result: dict[str, Any]


class Calls:
    """The calls of one session."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}

    def hear(self, update: Mapping[str, Any], now: float) -> Call | None:
        """Take a ``tool_call`` or ``tool_call_update``; the call if that was its end."""
        name = str(update.get("toolCallId") or "")
        call = self._calls.get(name)
        if call is None:
            if len(self._calls) >= CALLS_MAX:
                return None
            # Some agents never say that a call ended.
            for forgotten in self.open()[: 1 - OPEN_MAX]:
                del self._calls[forgotten.id]
            call = self._calls[name] = Call(name, now)
        _take(call, update)
        if call.status not in ("completed", "failed") or call.ended:
            return None
        call.ended = now
        # Kept as ended, without its burden: an agent may tell of it once more.
        self._calls[name] = Call(name, call.begun, status=call.status, ended=now)
        return call

    def open(self) -> list[Call]:
        """Those that came to no end."""
        return [call for call in self._calls.values() if not call.ended]


def _take(call: Call, update: Mapping[str, Any]) -> None:
    call.title = _text(update.get("title")) or call.title
    call.kind = _text(update.get("kind")) or call.kind
    call.status = _text(update.get("status")) or call.status
    if isinstance(update.get("content"), list):
        call.content = [_small(item) for item in update["content"][:ITEMS_MAX] if isinstance(item, dict)]
    if isinstance(update.get("locations"), list):
        found = [item.get("path") for item in update["locations"] if isinstance(item, dict)]
        call.paths = [path for path in found if isinstance(path, str)][:PATHS_MAX]
    call.raw_input = _small(update.get("rawInput", call.raw_input))
    call.raw_output = _small(update.get("rawOutput", call.raw_output))


def _small(value: Any, room: list[int] | None = None, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
    """*value* with as much of its text as an event may show; *room* is what is left of it for all."""
    room = [VALUE_BYTES_MAX] if room is None else room
    if isinstance(value, str):
        kept = bounded(value, min(TEXT_BYTES_MAX, room[0])) if room[0] >= TEXT_BYTES_MIN else ""
        room[0] -= len(kept)
        return kept
    if depth > DEPTH_MAX:
        return None
    if isinstance(value, dict):
        items = list(value.items())[:ITEMS_MAX]
        return {str(key)[:KEY_CHARS_MAX]: _small(item, room, depth + 1) for key, item in items}
    if isinstance(value, list):
        return [_small(item, room, depth + 1) for item in value[:ITEMS_MAX]]
    return value


def _text(value: object) -> str:
    return well_formed(value) if isinstance(value, str) else ""


def writes(kind: str) -> bool:
    """Whether a call of this kind may change something, or run what does; an unknown kind may."""
    return kind not in _READING


def paths_of(call: Call) -> list[str]:
    """The files that a call is about, as far as it says."""
    given = call.raw_input if isinstance(call.raw_input, dict) else {}
    named = [given.get(key) for key in _PATH_KEYS]
    diffs = [item.get("path") for item in call.content if item.get("type") == "diff"]
    found = [path for path in [*call.paths, *diffs, *named] if isinstance(path, str) and path]
    return list(dict.fromkeys(map(well_formed, found)))[:PATHS_MAX]


def event(call: Call, terminals: Callable[[str], Ran | None], relative: Callable[[str], str]) -> Told:
    """The call as hooks hear of it; *terminals* knows what ran in ours, *relative* shortens paths."""
    shown = [
        terminals(str(item.get("terminalId"))) for item in call.content if item.get("type") == "terminal"
    ]
    ours = next((ran for ran in shown if ran is not None), None)
    output, exit_code = (ours.output, ours.exit_code) if ours else _outcome(call)
    failed = call.status == "failed"
    if call.kind == "execute":
        error = output or "the agent calls it failed" if failed and exit_code is None else None
        return Told(
            "terminal",
            {"command": ours.command if ours else command_of(call), **_where(call, ours)},
            {"output": output, "exit_code": exit_code, "error": error},
        )
    paths = [relative(path) for path in paths_of(call)]
    args: dict[str, Any] = {"path": paths[0]} if paths else {}
    if len(paths) > 1:
        args["paths"] = paths
    name = _edit_name(call) if call.kind == "edit" else _NAMES.get(call.kind, call.title[:80] or "other")
    result: dict[str, Any] = {"output": output}
    if failed:
        result["error"] = output or "the agent calls it failed"
    return Told(name, args, result)


def cut_short(told: Told) -> bool:
    """Whether a call that ended while its turn was broken off may have ended by that: it has no end of its own."""
    if "exit_code" not in told.result:
        return bool(told.result.get("error"))
    code = told.result["exit_code"]
    return code is None or not 0 <= code < SIGNALLED


def command_of(call: Call) -> str:
    """The command of an ``execute``; its title where the agent does not say."""
    given = call.raw_input if isinstance(call.raw_input, dict) else {}
    command = given.get("command", given.get("cmd"))
    if isinstance(command, list):
        return line_of([well_formed(word) for word in command if isinstance(word, str)])
    return well_formed(command) if isinstance(command, str) else call.title.strip("`")


def _where(call: Call, ours: Ran | None) -> dict[str, str]:
    """Where it ran, if that is said."""
    given = call.raw_input if isinstance(call.raw_input, dict) else {}
    said = ours.cwd if ours else given.get("cwd") or given.get("workdir")
    return {"cwd": well_formed(said)} if isinstance(said, str) and said else {}


def line_of(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """*argv* as a command line, with what is set for it alone; of a shell's ``-c LINE`` the line."""
    shell = len(argv) == 3 and argv[0].rpartition("/")[2] in _SHELLS and argv[1] in ("-c", "-lc")  # noqa: PLR2004
    line = argv[2] if shell else shlex.join(argv)
    # Whoever reads it sees that, say, the options of a test runner came that way.
    return "".join(f"export {name}={shlex.quote(value)}; " for name, value in (env or {}).items()) + line


def _edit_name(call: Call) -> str:
    old = [item.get("oldText") for item in call.content if item.get("type") == "diff"]
    return "write_file" if old and not any(old) else "patch"


def _outcome(call: Call) -> tuple[str, int | None]:
    """What a call printed and its exit status, as far as the agent says."""
    blocks = [item.get("content") for item in call.content]
    said = [
        block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    text = "\n".join(said or _texts(call.raw_output))
    return bounded(well_formed(text), TEXT_BYTES_MAX), _exit_code(call.raw_output, 0)


def _texts(raw: object) -> list[str]:
    if isinstance(raw, str):
        return [raw]
    if isinstance(raw, dict):
        found = [raw.get(key) for key in ("output", "formatted_output", "stdout", "stderr", "error", "text")]
        return [text for text in found if isinstance(text, str) and text][:2]
    return []


def _exit_code(raw: object, depth: int) -> int | None:
    if not isinstance(raw, dict) or depth > 2:  # noqa: PLR2004
        return None
    for key in _EXIT_KEYS:
        value = raw.get(key)
        if type(value) is int:
            return value
    inner = (_exit_code(value, depth + 1) for value in raw.values())
    return next((code for code in inner if code is not None), None)

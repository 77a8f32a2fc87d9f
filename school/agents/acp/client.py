"""What an ACP agent may ask of us: permissions, files and terminals, all by its role and inside its working tree.

``Client.handle(method, params)`` answers one request of the agent or raises the library's RequestError. Permissions: a
reading role (searcher, reviewer) gets none for a call that may change or run something; nobody gets one for a path
outside the working tree. A permission is given once, never for always where once is offered. Files are read and
written inside the working tree only, links followed. A terminal's command runs like the agent itself: below a warden,
confined, with its environment and within the limit of a command; its output is kept to head and tail.

``wrote`` is told of each file that was written, ``refused`` lists what was turned down. Nothing else is offered, and unknown methods are refused.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from school.agents.acp.calls import Call, Calls, Ran, line_of, paths_of, writes
from school.agents.places import inside, read_plain, write_plain
from school.contracts import bounded
from school.system.processes import Finished

TERMINAL_BYTES: Final = 256 * 1024
TERMINALS_MAX: Final = 16
Run = Callable[[list[str], Path, Mapping[str, str], Callable[[], bool], Path], Finished]


@dataclass(slots=True)
class _Terminal:
    command: str
    output: Path
    limit_bytes: int
    cwd: Path
    stop: threading.Event = field(default_factory=threading.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    finished: Finished | None = None
    error: str = ""

    def text(self) -> tuple[str, bool]:
        """What it printed so far, the end of it, and whether that is not all; of one that never began, why."""
        if why := self.error or (self.finished and self.finished.exit_code is None and self.finished.detail):
            return why, False
        try:
            raw = self.output.read_bytes() if self.finished is None else self.finished.stdout
        except FileNotFoundError:
            raw = b""
        kept = raw[-self.limit_bytes :] if self.limit_bytes else b""
        return kept.decode("utf-8", "backslashreplace"), len(kept) < len(raw)


class Client:
    """Our side of one session."""

    def __init__(
        self, root: Path, *, scratch: Path, read_only: bool, run: Run, wrote: Callable[[str, int], None]
    ) -> None:
        self.root = root.resolve()
        self.scratch = scratch
        self.read_only = read_only
        self.refused: list[str] = []
        self._run = run
        self._wrote = wrote
        self._terminals: dict[str, _Terminal] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        from acp import RequestError

        known: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "session/request_permission": self._permission,
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
            "terminal/create": self._create,
            "terminal/output": self._output,
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
        }
        do = known.get(method)
        if do is None:
            raise RequestError.method_not_found(method)
        try:
            answer = do(params)
            found = await answer if asyncio.iscoroutine(answer) else answer
        except FileNotFoundError as error:
            raise RequestError.resource_not_found(str(params.get("path") or "")) from error
        except (OSError, ValueError, LookupError, TypeError, OverflowError) as error:
            raise RequestError.invalid_params({"details": str(error)[:500]}) from error
        return dict(found)

    # --- permissions ------------------------------------------------------------------------------------

    def _permission(self, params: Mapping[str, Any]) -> dict[str, Any]:
        asked = params.get("toolCall")
        update = asked if isinstance(asked, dict) else {}
        call = Calls().hear({**update, "status": "completed"}, 1.0) or Call("", 0.0)
        options = [option for option in params.get("options") or [] if isinstance(option, dict)]
        why = self.objection(call)
        wanted = ("reject_once", "reject_always") if why else ("allow_once", "allow_always")
        if why:
            self._refuse(f"{call.kind} {call.title}: {why}")
        for kind in wanted:
            for option in options:
                if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                    return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
        return {"outcome": {"outcome": "cancelled"}}

    def objection(self, call: Call) -> str:
        """Why *call* is not permitted; '' where it is."""
        if not writes(call.kind):
            return ""
        if self.read_only:
            return "this role changes and runs nothing"
        outside = [path for path in paths_of(call) if not self._inside(path)]
        return f"{outside[0]} is outside the working tree" if outside else ""

    def _refuse(self, what: str) -> None:
        if len(self.refused) < 20:  # noqa: PLR2004
            self.refused.append(bounded(what, 500))

    def _inside(self, path: str) -> bool:
        return inside(path, self.root) is not None

    def relative(self, path: str) -> str:
        """*path* from the working tree's root, if it lies in it."""
        return os.path.relpath(path, self.root) if self._inside(path) and path.startswith("/") else path

    # --- files ------------------------------------------------------------------------------------------

    def _place(self, params: Mapping[str, Any]) -> Path:
        path = str(params["path"])
        place = inside(path, self.root)
        if place is None:
            self._refuse(f"{path}: outside the working tree")
            raise ValueError(f"{path}: outside the working tree")
        return place

    def _read(self, params: Mapping[str, Any]) -> dict[str, Any]:
        text = read_plain(self._place(params)).decode("utf-8", "replace")
        line, limit = params.get("line"), params.get("limit")
        if line is None and limit is None:
            return {"content": text}
        first = max(1, int(line or 1)) - 1
        lines = text.splitlines(keepends=True)
        return {"content": "".join(lines[first:] if limit is None else lines[first : first + int(limit)])}

    def _write(self, params: Mapping[str, Any]) -> dict[str, Any]:
        place, raw = self._place(params), str(params["content"]).encode("utf-8")
        if self.read_only:
            self._refuse(f"write {params['path']}: this role changes nothing")
            raise ValueError("this role changes nothing")
        if place.is_relative_to(self.root / ".git"):
            raise ValueError(f"{params['path']}: git's own files are not written by hand")
        write_plain(place, raw)
        self._wrote(os.path.relpath(place, self.root), len(raw))
        return {}

    # --- terminals --------------------------------------------------------------------------------------

    def running(self) -> int:
        """How many terminals have not ended."""
        return sum(not terminal.done.is_set() for terminal in self._terminals.values())

    def _create(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if self.read_only:
            self._refuse(f"run {params['command']}: this role runs nothing")
            raise ValueError("this role runs nothing")
        if self.running() >= TERMINALS_MAX:
            raise ValueError(f"{TERMINALS_MAX} terminals are running")
        cwd = self._place({"path": params.get("cwd") or "."})
        words = [str(params["command"]), *map(str, params.get("args") or [])]
        env = {str(item["name"]): str(item["value"]) for item in params.get("env") or []}
        number = next(self._numbers)
        limit = params.get("outputByteLimit")
        bound = TERMINAL_BYTES if limit is None else min(max(0, int(limit)), TERMINAL_BYTES)
        # An agent that gives the whole line as the command means a shell's.
        argv = words if len(words) > 1 or not set(words[0]) & set(" \t|&;<>") else ["bash", "-c", words[0]]
        terminal = _Terminal(line_of(argv, env), self.scratch / f"terminal-{number}", bound, cwd)
        self._terminals[f"terminal-{number}"] = terminal
        task = asyncio.create_task(self._attend(terminal, argv, cwd, env))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return {"terminalId": f"terminal-{number}"}

    async def _attend(self, terminal: _Terminal, argv: list[str], cwd: Path, env: Mapping[str, str]) -> None:
        try:
            terminal.finished = await asyncio.to_thread(
                self._run, argv, cwd, env, terminal.stop.is_set, terminal.output
            )
        except (OSError, ValueError) as error:
            terminal.error = str(error)
        finally:
            terminal.done.set()

    def ran(self, name: str) -> Ran | None:
        """What ran in the terminal *name*, for the call that shows it; None for none of ours."""
        terminal = self._terminals.get(name)
        if terminal is None:
            return None
        code = terminal.finished.exit_code if terminal.finished else None
        return Ran(
            terminal.command, terminal.text()[0], code, "" if terminal.cwd == self.root else str(terminal.cwd)
        )

    def _output(self, params: Mapping[str, Any]) -> dict[str, Any]:
        terminal = self._terminals[str(params["terminalId"])]
        text, truncated = terminal.text()
        answer: dict[str, Any] = {"output": text, "truncated": truncated}
        if terminal.done.is_set():
            answer["exitStatus"] = _status(terminal)
        return answer

    async def _wait(self, params: Mapping[str, Any]) -> dict[str, Any]:
        terminal = self._terminals[str(params["terminalId"])]
        await terminal.done.wait()
        return _status(terminal)

    def _kill(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self._terminals[str(params["terminalId"])].stop.set()
        return {}

    def _release(self, params: Mapping[str, Any]) -> dict[str, Any]:
        # Its output stays until the call that shows it has ended.
        return self._kill(params)

    async def close(self) -> None:
        """End every terminal that still runs."""
        for terminal in self._terminals.values():
            terminal.stop.set()
        if self._tasks:
            await asyncio.wait(set(self._tasks))


def _status(terminal: _Terminal) -> dict[str, Any]:
    code = terminal.finished.exit_code if terminal.finished else None
    return {"exitCode": code, "signal": None}

"""The tools of the built-in loop: read, search, write, edit, shell, finish, in one working tree.

``Toolbox(...)`` offers those that the role may use (``definitions``) and does one call: ``do(name, args)`` gives a ``Done``,
with the call as Hermes names it (``terminal``, ``read_file``, ``search_files``, ``write_file``, ``patch``) and the result as the model
and the hooks see it, an object whose ``error`` says what went wrong. Nothing that a model asks for raises.

Files are reached inside the working tree and the agent's TMPDIR only, links followed and the target held to the same;
nothing in ``.git`` is written. What is read, written and returned is bounded. A shell command runs below a warden of
its own, within a time limit, its output kept to head and tail; when it has ended, its whole process tree has. It does
not get the variable that holds the model's key. This keeps a model from mistakes; against malice stands the
confinement that the loop itself runs in.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from school.agents.places import inside, read_plain, write_plain
from school.contracts import bounded

READ_BYTES_MAX: Final = 64 * 1024
OUTPUT_BYTES_MAX: Final = 32 * 1024
LINES_DEFAULT: Final = 2000
ENTRIES_MAX: Final = 1000
MATCHES_MAX: Final = 200
SHELL_S: Final = 120.0
SEARCH_S: Final = 30.0
TIMED_OUT: Final = 124
_CLAIM: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ToolError(Exception):
    """What the model is told instead of a result."""


class _Args(BaseModel):
    model_config = ConfigDict(extra="ignore")


class ReadArgs(_Args):
    """Read a text file with line numbers, or list a folder."""

    path: str = Field(description="relative to the working tree")
    offset: int = Field(default=1, ge=1, description="first line")
    limit: int = Field(default=LINES_DEFAULT, ge=1, le=LINES_DEFAULT, description="number of lines")


class SearchArgs(_Args):
    """Search the files of the working tree for an extended regular expression."""

    pattern: str
    path: str = Field(default=".", description="file or folder to search in")


class WriteArgs(_Args):
    """Write a whole file; folders are made, an existing file is replaced."""

    path: str
    content: str


class EditArgs(_Args):
    """Replace one exact piece of a file's text by another. It must occur exactly once, unless all is set."""

    path: str
    old: str = Field(min_length=1)
    new: str
    all: bool = False


class ShellArgs(_Args):
    """Run a command with bash in the working tree. Standard input is empty; whatever it starts is ended with it."""

    command: str = Field(min_length=1)
    timeout_s: float = Field(default=SHELL_S, gt=0)


class FinishArgs(_Args):
    """Hand in the work and end. Say what is so; the files are judged, not the claim."""

    status: Literal["done", "no_change", "blocked", "failed"]
    summary: str
    ac_met: list[str] = Field(default_factory=list, description="ids of the acceptance criteria that are met")
    blockers: list[str] = Field(default_factory=list, description="what stopped you")


@dataclass(slots=True)
class Done:
    """One call that was done: as hooks hear of it, and what came of it."""

    name: str
    args: dict[str, Any]
    result: dict[str, Any]
    told: bool = True


@dataclass(frozen=True, slots=True)
class _Tool:
    args: type[_Args]
    reads: bool
    hermes: str
    do: Callable[[Any], dict[str, Any]]
    event: Callable[[Any], dict[str, Any]]


class Toolbox:
    """The tools of one run."""

    def __init__(
        self,
        root: Path,
        *,
        result_path: Path,
        tmpdir: Path,
        read_only: bool,
        command_timeout_s: float,
        environ: Mapping[str, str],
    ) -> None:
        self.root = root.resolve()
        self.result_path = result_path
        self.tmpdir = tmpdir.resolve()
        self.command_timeout_s = command_timeout_s
        self.environ = dict(environ)
        self.cancelled = threading.Event()
        self.finished: dict[str, Any] | None = None
        tools = {
            "read": _Tool(ReadArgs, True, "read_file", self._read, _event("path", "offset", "limit")),
            "search": _Tool(SearchArgs, True, "search_files", self._search, _event("pattern", "path")),
            "write": _Tool(WriteArgs, False, "write_file", self._write, _event("path", "content")),
            "edit": _Tool(EditArgs, False, "patch", self._edit, _edit_event),
            "shell": _Tool(ShellArgs, False, "terminal", self._shell, _event("command")),
            "finish": _Tool(FinishArgs, True, "finish", self._finish, _event("status", "summary")),
        }
        self._tools = {name: tool for name, tool in tools.items() if tool.reads or not read_only}

    def definitions(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Name, description and JSON schema of each tool."""
        return [
            (name, _described(tool.args), tool.args.model_json_schema()) for name, tool in self._tools.items()
        ]

    def do(self, name: str, args: object) -> Done:
        """Do one call as the model asked for it."""
        tool = self._tools.get(name)
        if tool is None:
            return Done(name, {}, {"error": f"there is no tool {name!r}; there are {', '.join(self._tools)}"})
        try:
            given = tool.args.model_validate(args)
        except ValidationError as error:
            return Done(tool.hermes, {}, {"error": f"{name}: {_problems(error)}"})
        told = tool.hermes != "finish"
        try:
            return Done(tool.hermes, tool.event(given), tool.do(given), told)
        except ToolError as error:
            return Done(tool.hermes, tool.event(given), {"error": str(error)}, told)
        except (OSError, ValueError) as error:
            return Done(tool.hermes, tool.event(given), {"error": f"{name}: {error}"}, told)

    # --- paths ------------------------------------------------------------------------------------------

    def _place(self, path: str, *, to_write: bool = False) -> Path:
        """The file that *path* means, inside the working tree or the TMPDIR, all links followed."""
        place = inside(path, self.root, self.tmpdir)
        if place is None:
            raise ToolError(f"{path}: outside the working tree")
        if to_write and place.is_relative_to(self.root / ".git"):
            raise ToolError(f"{path}: git's own files are not written by hand")
        return place

    def _text(self, path: str) -> tuple[Path, str]:
        place = self._place(path)
        try:
            raw = read_plain(place)
        except FileNotFoundError:
            raise ToolError(f"{path}: there is no such file") from None
        if b"\0" in raw[:8192]:
            raise ToolError(f"{path}: {len(raw)} bytes, and no text")
        try:
            return place, raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ToolError(f"{path}: it is not valid UTF-8; use the shell") from None

    # --- the tools --------------------------------------------------------------------------------------

    def _read(self, args: ReadArgs) -> dict[str, Any]:
        place = self._place(args.path)
        if place.is_dir():
            return self._listing(place)
        _, text = self._text(args.path)
        lines = text.splitlines()
        shown = lines[args.offset - 1 : args.offset - 1 + args.limit]
        numbered = "\n".join(f"{number}\t{line}" for number, line in enumerate(shown, args.offset))
        content = bounded(numbered, READ_BYTES_MAX)
        return {
            "content": content,
            "total_lines": len(lines),
            "truncated": len(shown) < len(lines) or content != numbered,
        }

    def _listing(self, place: Path) -> dict[str, Any]:
        names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in place.iterdir())
        return {"entries": names[:ENTRIES_MAX], "total": len(names)}

    def _search(self, args: SearchArgs) -> dict[str, Any]:
        place = self._place(args.path)
        argv = ["git", "-C", str(self.root), "grep", "--untracked", "-nIE", "-m", str(MATCHES_MAX)]
        said, code = self._run([*argv, "-e", args.pattern, "--", str(place)], SEARCH_S)
        if code not in (0, 1):
            raise ToolError(f"search: {said.strip() or f'git grep ended with {code}'}")
        return {"matches": said, "count": len(said.splitlines())}

    def _write(self, args: WriteArgs) -> dict[str, Any]:
        place = self._place(args.path, to_write=True)
        return {"bytes_written": write_plain(place, _encoded(args.content))}

    def _edit(self, args: EditArgs) -> dict[str, Any]:
        place, text = self._text(args.path)
        self._place(args.path, to_write=True)
        count = text.count(args.old)
        if count == 0:
            raise ToolError(f"{args.path}: the text to replace does not occur in it")
        if count > 1 and not args.all:
            raise ToolError(
                f"{args.path}: the text to replace occurs {count} times; give more of it, or set all"
            )
        write_plain(place, _encoded(text.replace(args.old, args.new)))
        return {"success": True, "replaced": count}

    def _shell(self, args: ShellArgs) -> dict[str, Any]:
        timeout_s = min(args.timeout_s, self.command_timeout_s)
        if "\0" in args.command:
            raise ToolError("shell: a command cannot hold a NUL character")
        output, code = self._run(["bash", "-c", args.command], timeout_s)
        return {"output": output, "exit_code": code, "error": None}

    def _run(self, argv: list[str], timeout_s: float) -> tuple[str, int | None]:
        """Run *argv* to the end of its whole tree; what it printed and its exit status."""
        from school.system import processes

        finished = processes.run(
            [word.encode("utf-8", "backslashreplace").decode() for word in argv],
            cwd=self.root,
            env=self.environ,
            stdin=b"",
            limits=processes.RunLimits(timeout_s=timeout_s, output_bytes=OUTPUT_BYTES_MAX, grace_s=1.0),
            marker=self.environ.get("SCHOOL_BEAD", "model"),
            cancelled=self.cancelled.is_set,
        )
        output = bounded(finished.stdout.decode("utf-8", "backslashreplace"), OUTPUT_BYTES_MAX)
        if finished.reason == "timeout":
            return f"{output}\n[ended after {timeout_s:g} s]", TIMED_OUT
        if finished.reason:
            raise ToolError(f"{argv[0]}: {finished.detail or finished.reason}")
        return output, finished.exit_code

    def _finish(self, args: FinishArgs) -> dict[str, Any]:
        import json

        claim = args.model_dump()
        folder = os.open(self.result_path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            file = os.open(self.result_path.name, _CLAIM, 0o600, dir_fd=folder)
        finally:
            os.close(folder)
        with open(file, "wb") as stream:  # noqa: PTH123 - a descriptor, not a path
            stream.write(json.dumps(claim).encode("ascii"))
        self.finished = claim
        return {"status": "handed in", "error": None}


def _event(*names: str) -> Callable[[Any], dict[str, Any]]:
    return lambda args: {name: getattr(args, name) for name in names}


def _edit_event(args: EditArgs) -> dict[str, Any]:
    return {"path": args.path, "old_string": args.old, "new_string": args.new, "replace_all": args.all}


def _described(args: type[_Args]) -> str:
    return " ".join((args.__doc__ or "").split())


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}" for problem in found[:5]
    )


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError("the text holds a lone surrogate, which no file in UTF-8 can") from None

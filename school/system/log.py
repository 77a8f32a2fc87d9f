"""Logs: dotted past facts with key-values (``leaf.salvaged``), to a bounded file and, if asked, to stderr.

A process calls ``configure`` once; modules call ``get(__name__)`` at import and pay nothing until they say
something. Before ``configure`` only warnings and errors are shown, on stderr. Lines are JSON or for people;
control characters and undecodable bytes are escaped in both, so that no text of an agent's reaches a terminal
raw; secrets are taken out (see ``redaction``). A log that cannot be written never stops the work: the line goes to stderr instead, once with the reason.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

from school.system import clock, files, redaction

FILE_BYTES_MAX: Final = 5 * 1024 * 1024
TEXT_CHARS_MAX: Final = 4000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def escaped(text: str) -> str:
    """*text* on one line, with every control, direction and undecodable character spelled out."""
    text = files.well_formed(redaction.text(text))
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)[
        :TEXT_CHARS_MAX
    ]


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever somebody logs
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {escaped(str(key)): _plain(item) for key, item in value.items()}
    return escaped(value if isinstance(value, str) else str(value))


class _Output:
    """Where lines go. One for the process."""

    process = ""
    path: Path | None = None
    to_stderr = True
    json = False
    level = _LEVELS["warning"]
    complained = False

    @classmethod
    def write(cls, event: MutableMapping[str, Any]) -> None:
        if cls.path is not None and cls._to_file(event) and not cls.to_stderr:
            return
        line = _as_json(event) if cls.json else _for_people(event)
        try:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return  # nobody listens: a closed terminal is no reason to stop working

    @classmethod
    def _to_file(cls, event: MutableMapping[str, Any]) -> bool:
        assert cls.path is not None
        try:
            _append(cls.path, (_as_json(event) + "\n").encode("utf-8", "backslashreplace"))
        except OSError as cause:
            if not cls.complained:
                cls.complained = True
                sys.stderr.write(f"log: {escaped(str(cause))}\n")
            return False
        return True


def _append(path: Path, line: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, files.FILE_MODE)
    except FileNotFoundError:
        files.ensure_dir(path.parent)
        fd = os.open(path, flags, files.FILE_MODE)
    try:
        if os.fstat(fd).st_size + len(line) > FILE_BYTES_MAX:
            path.replace(f"{path}.1")
            os.close(fd)
            fd = os.open(path, flags, files.FILE_MODE)
        os.write(fd, line)
    finally:
        os.close(fd)


def _as_json(event: MutableMapping[str, Any]) -> str:
    return files.dumps(event, indent=None).decode().rstrip("\n")


def _for_people(event: MutableMapping[str, Any]) -> str:
    rest = " ".join(
        f"{key}={value if isinstance(value, str) and value and ' ' not in value else _as_json({'_': value})[6:-1]}"
        for key, value in event.items()
        if key not in ("at", "level", "event", "process", "logger")
    )
    level = "" if event["level"] == "info" else f"{event['level']}: "
    return f"{event['at'][11:19]} {event['process']} {level}{event['event']}" + (f" {rest}" if rest else "")


def configure(
    process: str, *, path: Path | None, to_stderr: bool, json: bool = False, level: str = "info"
) -> None:
    """Say once, at a process's start, who it is and where its lines go."""
    _Output.process = process
    _Output.path = path
    _Output.to_stderr = to_stderr
    _Output.json = json
    _Output.level = _LEVELS[level]
    _Output.complained = False


class Log:
    """One module's logger; values may be given once with ``bind``."""

    def __init__(self, name: str, values: dict[str, Any] | None = None) -> None:
        self._name = name
        self._values = values or {}

    def bind(self, **values: Any) -> Log:  # noqa: ANN401
        return Log(self._name, {**self._values, **values})

    def _say(self, method: str, event: str, values: dict[str, Any]) -> None:
        if _LEVELS[method] < _Output.level:
            return
        said = {"logger": self._name, **self._values, **values}
        if said.pop("exc_info", None):
            import structlog.processors  # 80 ms, for the rare line that needs it

            said = dict(structlog.processors.format_exc_info(None, method, {**said, "exc_info": True}))
        head = {"at": clock.now(), "level": method, "process": _Output.process, "event": event}
        _Output.write({**head, **_plain(said)})

    def debug(self, event: str, **values: Any) -> None:  # noqa: ANN401
        self._say("debug", event, values)

    def info(self, event: str, **values: Any) -> None:  # noqa: ANN401
        self._say("info", event, values)

    def warning(self, event: str, **values: Any) -> None:  # noqa: ANN401
        self._say("warning", event, values)

    def error(self, event: str, **values: Any) -> None:  # noqa: ANN401
        self._say("error", event, values)

    def exception(self, event: str, **values: Any) -> None:  # noqa: ANN401
        """An error, with the traceback of the exception that is being handled."""
        self._say("error", event, {"exc_info": True, **values})


def get(name: str) -> Log:
    """The logger of module *name*."""
    return Log(name)

"""What a simple command runs, however it is spelled: the same program behind wrappers, as a module, by a manager.

``tool_of(argv) -> Tool | None``: ``pytest``, ``python -m pytest``, ``uv run pytest`` and ``.venv/bin/pytest`` are the
same tool, and so are ``npm test`` and ``yarn run test``, ``./run.sh`` and ``bash run.sh``. None where a wrapper or an
interpreter is given an option that is not known to leave program and exit status alone, or where a manager keeps
options for itself. ``runner_of(tool)`` is the name that ``scope`` knows its options by.

Not promised: that the program of that name is the one it should be; a path counts as the bare name only in a folder that
programs are installed in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from school.verification import commands, shell


@dataclass(frozen=True, slots=True)
class Tool:
    """What runs, whatever its name was spelled like, and its arguments."""

    name: str
    module: str
    arguments: tuple[str, ...]
    wrapped: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.module


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHELLS: Final = _set("bash sh")
_MANAGERS: Final = _set("npm pnpm yarn bun")
# Scripts that a manager also runs without `run`; other names may be commands of its own.
_BARE_SCRIPTS: Final = {
    "npm": _set("test t tst"),
    "pnpm": _set("test t lint typecheck build fmt format check tests"),
    "yarn": _set("test lint typecheck build fmt format tests"),
    "bun": _set("lint typecheck fmt format check tests"),
}
_QUIET_MANAGER: Final = _set("-s --silent -q --quiet")
# As a module of Python they are the same program.
_SAME_AS_MODULE: Final = _set("pytest mypy ruff flake8 pylint pyright black isort tox nox")
# The bin folder of an environment, or of the system.
_BIN: Final = re.compile(
    r"(?:\./)?(?:\.?venv|env|node_modules|vendor)/\.?bin|/(?:usr/|usr/local/)?bin"
    r"|/(?:[^/]+/)*(?:\.?venv|env|node_modules)/\.?bin"
)
_OTHER_PROGRAM_FLAG: Final = re.compile(r"-[bBdEIPqsSuv]+")
_WRAPPER_OPTIONS: Final[dict[str, re.Pattern[str]]] = {
    "env": re.compile(r"(?!)"),
    "time": re.compile(r"-p"),
    "command": re.compile(r"(?!)"),
    "noglob": re.compile(r"(?!)"),
    "timeout": re.compile(r"-v|--verbose|--foreground|(?:-k|--kill-after)(?:=?[\d.]+[smhd]?)?|[\d.]+[smhd]?"),
    "nice": re.compile(r"-n|--adjustment(?:=-?\d+)?|-n-?\d+|-?-?\d+"),
    "ionice": re.compile(r"-[cn]\d?|\d"),
    "stdbuf": re.compile(r"-[ioe][L0]?|[L0]"),
    "xvfb-run": re.compile(r"-a|--auto-servernum"),
    "run": re.compile(
        r"run|-q|--quiet|-v|--frozen|--locked|--no-sync|--no-progress|--offline|--all-extras|--all-groups|--dev"
        r"|-p|--(?:with|extra|group|python)(?:=.+)?|[A-Za-z0-9][A-Za-z0-9._\[\]<>=~-]*"
    ),
}


def _program(token: str) -> str:
    """The name of the program that *token* starts; a path only from a folder that programs are installed in."""
    folder, slash, name = token.rpartition("/")
    return name if not slash or _BIN.fullmatch(folder) else token


def _wrappers_pass(wrappers: Sequence[tuple[str, ...]]) -> bool:
    """Whether every wrapper does nothing but start its command, and gives its status on."""
    for words in wrappers:
        name = _program(words[0])
        known = _WRAPPER_OPTIONS.get("run" if words[1:2] == ("run",) else name)
        if known is None or "/" in name:
            return False
        for word in words[1:]:
            assigned = commands.ASSIGNMENT.fullmatch(word) if name == "env" else None
            if assigned:
                variable, _, value = word.partition("=")
                if not shell.says_nothing(variable, value):
                    return False
            elif not known.fullmatch(word):
                return False
    return True


def tool_of(argv: Sequence[str]) -> Tool | None:
    """What *argv* runs behind its wrappers; None where that is not certain."""
    if argv and argv[0] == "noglob":
        argv = argv[1:]
    wrappers = commands.wrappers(argv)
    rest = list(argv[sum(map(len, wrappers)) :])
    if not rest or not _wrappers_pass(wrappers):
        return None
    tool = _unwrapped(_program(rest[0]), rest)
    return tool and Tool(tool.name, tool.module, tool.arguments, bool(wrappers))


def _unwrapped(name: str, argv: list[str]) -> Tool | None:
    if name in ("pytest", "py.test"):
        return Tool("pytest", "", tuple(argv[1:]))
    if commands.PYTHON.fullmatch(name):
        return _python(argv)
    if name in _MANAGERS:
        return _package_script(name, argv[1:])
    if name in _SHELLS and len(argv) > 1 and re.fullmatch(r"[^-].*/.*|[^-/]*\.sh", argv[1]):
        return Tool("file", os.path.normpath(argv[1]), tuple(argv[2:]))
    if "/" in name:
        return Tool("file", os.path.normpath(name), tuple(argv[1:]))
    return Tool("program", name, tuple(argv[1:]))


def _python(argv: list[str]) -> Tool | None:
    found = commands.recognise(argv)
    if found.module < 0:
        return Tool("python", "", tuple(argv[1:]))
    flags = [*argv[1 : found.module], argv[found.module].removesuffix("m")]
    if not all(flag == "-" or _OTHER_PROGRAM_FLAG.fullmatch(flag) for flag in flags):
        return None
    module = argv[found.module + 1]
    arguments = tuple(argv[found.module + 2 :])
    if module in ("pytest", "unittest"):
        return Tool(module, "", arguments)
    return Tool("program" if module in _SAME_AS_MODULE else "module", module, arguments)


def _package_script(manager: str, words: list[str]) -> Tool | None:
    """``npm run X``, ``npm X`` and the like; the same script of package.json whoever runs it."""
    given = words
    while words and words[0] in _QUIET_MANAGER:
        words = words[1:]
    running = words[:1] in (["run"], ["run-script"])
    words = words[1:] if running else words
    while words and words[0] in _QUIET_MANAGER:
        words = words[1:]
    if not words or words[0].startswith("-") or not (running or words[0] in _BARE_SCRIPTS[manager]):
        return Tool("program", manager, tuple(given))
    script, given = words[0], words[1:]
    if not running and manager in ("npm", "pnpm") and script in ("t", "tst"):
        script = "test"
    while given and given[0] in _QUIET_MANAGER:
        given = given[1:]
    if manager == "npm" and given and given[0] != "--":
        return None  # npm keeps options for itself: --if-present, --script-shell, --help
    return Tool("script", script, tuple(given))


def runner_of(tool: Tool) -> str:
    """The name under which ``scope`` knows the options of *tool*."""
    name = tool.module if tool.name in ("program", "module", "file") else tool.name
    return commands.name_of(name)

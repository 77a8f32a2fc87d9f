"""Whether a tool call failed, and whether it only waited.

``failure(tool, args, arguments)`` says how a call failed, or ''. A host calls a shell command that exits with 3 "ok", so
the exit status in the result decides for the shell's tools, whatever the status says; 1 is no failure of a command that
answers a question with it (grep, diff, test and their like). ``is_polling`` knows calls that ask again on purpose.

Not promised: a parse of the shell. A line is taken apart at its operators outside of quotes, no further; where that
leaves doubt, a non-zero exit status is a failure.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

SHELL_TOOLS: Final = frozenset(
    {"terminal", "bash", "shell", "exec_command", "run_shell_command", "run_command", "execute_command"}
)
_GOOD: Final = frozenset({"", "ok", "success", "succeeded", "completed"})
_EXIT_KEYS: Final = ("exit_code", "exitCode", "returncode")
# Results longer than this are not parsed whole; the exit status stands behind the output.
PARSED_CHARS_MAX: Final = 128 * 1024
_TAIL_CHARS: Final = 2000
_COMMAND_CHARS_MAX: Final = 2000
_EXIT_IN_TAIL: Final = re.compile(r'"(?:exit_code|exitCode|returncode)"\s*:\s*(-?\d{1,6})\b')
# They say "no" with 1, and only with 1.
_ANSWERS: Final = frozenset(
    {
        "grep",
        "egrep",
        "fgrep",
        "zgrep",
        "rg",
        "ag",
        "ack",
        "pgrep",
        "diff",
        "colordiff",
        "cmp",
        "test",
        "[",
        "[[",
        "which",
        "type",
    }
)
_GIT_ANSWERS: Final = frozenset({"diff", "grep", "check-ignore", "merge-base"})
# They prepare the way and fail rarely; one before the last command leaves its answer an answer.
_QUIET: Final = frozenset({"cd", "pushd", "export", "set", "echo", "printf", "true", ":", "pwd", "sleep"})
_PREFIXES: Final = frozenset({"command", "time", "nice", "env", "!", "sudo"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
_OPERATORS: Final = frozenset({"&&", "||", ";", "|", "&", "|&"})

_POLLING_ACTIONS: Final = frozenset({"poll", "wait", "log", "list", "status"})
_POLLING_TOOL: Final = re.compile(r"(?:^|[_-])(?:poll|wait|sleep|status)(?:$|[_-])", re.IGNORECASE)
_WAITING: Final = re.compile(r"\s*(?:sleep|wait|watch|tail|inotifywait)(?:\s|$)")


def failure(tool: str, args: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """How the call failed that *arguments* (of post_tool_call) tell of, or ''."""
    status = _said(arguments.get("status")).lower()
    found = _result(arguments.get("result"))
    error = _said(found.get("error")) or ("it says that it failed" if found.get("success") is False else "")
    if status not in _GOOD:
        told = [_said(arguments.get("error_type")), _said(arguments.get("error_message")) or error]
        return ": ".join(part for part in told if part) or status
    code = _exit_status(found) if tool.lower() in SHELL_TOOLS else 0
    if code and not (code == 1 and answers_with_one(_command(args))):
        return f"exit {code}: {_last_line(found) or error}".removesuffix(": ")
    return "" if code else error


def is_polling(tool: str, args: Mapping[str, Any]) -> bool:
    """Whether the call only asks how something goes on: repeating it is what it is for."""
    if tool.lower() in SHELL_TOOLS:
        return bool(_WAITING.match(_command(args)))
    if tool == "process":
        return _said(args.get("action")) in _POLLING_ACTIONS
    return bool(_POLLING_TOOL.search(tool))


def answers_with_one(command: str) -> bool:
    """Whether exit status 1 of the shell line *command* is an answer and no failure."""
    commands = _last_statement(command) if len(command) <= _COMMAND_CHARS_MAX else []
    return bool(commands) and _is_answer(commands[-1]) and all(map(_is_harmless, commands[:-1]))


def _said(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None or value is False else str(value)[:500]


def _command(args: Mapping[str, Any]) -> str:
    value = args.get("command", args.get("cmd", ""))
    if isinstance(value, list):
        return shlex.join(str(word) for word in value)
    return value if isinstance(value, str) else ""


def _result(result: object) -> Mapping[str, Any]:
    """What a result says of itself: the JSON object that it is, or of a very long one its exit status."""
    if isinstance(result, Mapping):
        return result
    if not isinstance(result, str) or result.lstrip()[:1] != "{":
        return {}
    if len(result) > PARSED_CHARS_MAX:
        codes = _EXIT_IN_TAIL.findall(result[-_TAIL_CHARS:])
        return {"exit_code": int(codes[-1])} if codes else {}
    try:
        found = json.loads(result)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _exit_status(found: Mapping[str, Any]) -> int:
    for key in _EXIT_KEYS:
        value = found.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0


def _last_line(found: Mapping[str, Any]) -> str:
    output = found.get("output", found.get("stderr", ""))
    lines = output[-_TAIL_CHARS:].split("\n") if isinstance(output, str) else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _last_statement(line: str) -> list[list[str]]:
    """The simple commands that could have decided the exit status of the shell line *line*, in order.

    What stands before ``;``, ``&`` and a line's end decides nothing, and of a pipe only the last command does.
    """
    statement: list[list[str]] = []
    words: list[str] = []
    ended = False
    for token in [*_tokens(line), "&&"]:
        if token not in _OPERATORS:
            if ended:
                statement, ended = [], False
            words.append(token)
            continue
        if words and token not in ("|", "|&"):
            statement.append(_bare(words))
        words = []
        ended = ended or token in (";", "&")
    return statement


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line.replace("\n", " ; "), posix=True, punctuation_chars=";&|")
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return []


def _bare(words: list[str]) -> list[str]:
    """*words* from the command's own name on."""
    at = 0
    while at < len(words) and (words[at] in _PREFIXES or _ASSIGNMENT.match(words[at])):
        at += 1
    rest = words[at:]
    return [rest[0].rsplit("/", 1)[-1], *rest[1:]] if rest else [""]


def _is_answer(words: list[str]) -> bool:
    return words[0] in _ANSWERS or (words[0] == "git" and _git_command(words[1:]) in _GIT_ANSWERS)


def _git_command(words: list[str]) -> str:
    valued = False
    for word in words:
        if not word.startswith("-") and not valued:
            return word
        valued = word in ("-C", "-c")
    return ""


def _is_harmless(words: list[str]) -> bool:
    return words[0] in _QUIET or _is_answer(words)

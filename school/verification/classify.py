"""Whether a shell command, and the status it ended with, is evidence: of which check, how much of it, passed or failed.

``classify_command(command, *, exit_code, output="", canonical) -> Classification | None``. *canonical* are the
project's own check commands; a check is one of them, or the same in other words (``python -m pytest``, ``uv run
pytest``, ``.venv/bin/pytest``, ``npm test``, ``bash scripts/run_tests.sh``), by tokens. None is the answer wherever it
is in doubt that the status is the check's own: behind ``||``, ``|`` or ``&``, with anything but ``&&`` after it, in a
subshell or function, after whatever may have changed the shell (``exit``, ``trap``, ``source``, ``PATH=``), through
options that are not known. A failure needs more than a success: of ``a && b`` nobody knows which one failed.

A run in which no test ran is no pass, nor is one whose output says that it failed. ``attribute`` gives all checks of
a command, and from which directories they ran.

Not promised: a Makefile target, script or package.json script is not looked into; it is the project's own word.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from school.verification import commands, printed, shell
from school.verification.scope import Scope, beyond, scope_left
from school.verification.shell import Segment, Word
from school.verification.tools import Tool, runner_of, tool_of

Kind = Literal["test", "lint", "typecheck", "build", "format", "check", "verify", "ad_hoc"]

AD_HOC: Final = "ad-hoc verification script"
HERMES_VERIFY: Final = "hermes verify"
# The same, said by this program of itself: its own interpreter, its own file.
OWN_VERIFY: Final = (sys.executable, str(Path(__file__).resolve().parents[2] / "conductor.py"), "verify")

# There is no such program, or it is none.
_NOT_STARTED: Final = (126, 127)
# From here on a status may be a wrapper's own: it could not start its command, or ended it.
_WRAPPERS_OWN: Final = 124
_SUMMARY_CHARS: Final = 16_384


@dataclass(frozen=True, slots=True)
class Classification:
    """One check that ran: its kind, how much of it, how it ended, and the declared command that it is."""

    kind: Kind
    scope: Scope
    status: Literal["passed", "failed"]
    canonical_command: str


@dataclass(frozen=True, slots=True)
class Attributed:
    """A classification and where it ran: the ``cd`` before it, in order, or None where they are not certain.

    ``runner`` is what runs (``pytest``, ``script``, …); ``script`` the path of an ad-hoc one.
    """

    classification: Classification
    places: tuple[str, ...] | None
    runner: str
    script: str = ""


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_AD_HOC_NAME: Final = re.compile(r"hermes-(?:verify|ad-hoc)-[^/]*")
_INTERPRETERS: Final[tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]] = (
    (re.compile(r"(?:python|pypy|py)[\d.]*w?(?:\.exe)?"), re.compile(r"-[bBdEIPqsSuv]+")),
    (re.compile(r"(?:bash|sh)(?:\.exe)?"), re.compile(r"-[eux]+")),
    (re.compile(r"(?:node|ruby|perl)[\d.]*(?:\.exe)?"), re.compile(r"-w")),
)
_VERIFY_HARMLESS: Final = _set("--json --save")
_VERIFY_VALUED: Final = _set("--port --timeout --ready-timeout")
# Programs that put something else at the place of what they name.
_WRITERS: Final = _set("cp mv ln install tee dd rm sed perl rsync truncate unlink touch patch curl wget")
# Programs that start another one of their words, beside the wrappers of a check.
_CARRIERS: Final = _set("busybox toybox sudo doas nohup setsid")
# Programs that may be given a program of the agent's own, behind these options or as any of their words.
_INTERPRETER: Final = re.compile(r"(?:ba|da|k|z|a)?sh|(?:python|pypy|ruby|node)[\d.]*")
_CODE_OPTION: Final = re.compile(r"-[A-Za-z]*[ce]|--eval|-p|--print")
_CODED: Final = _set("find xargs awk gawk mawk")
_FREE_VARIABLES: Final = _set("CI NODE_ENV TERM LANG TZ NO_COLOR FORCE_COLOR COLUMNS VERBOSE DEBUG TMPDIR")
_SILENT: Final = _set("discover")
_DECISIVE: Final[dict[Kind, int]] = {
    "verify": 0,
    "test": 1,
    "check": 2,
    "build": 3,
    "typecheck": 4,
    "lint": 5,
}


# --- which declared command it is -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Declared:
    """A project's command, as it is matched."""

    text: str
    kind: Kind
    tool: Tool
    variables: frozenset[tuple[str, str]]


def kind_of(argv: Sequence[str]) -> Kind:
    """What sort of check *argv* is; as ``commands.kind_of``, and ``check`` for what only says that it checks."""
    kind: Kind = commands.kind_of(argv)
    words = commands.words_of(argv)
    if kind == "test" and not any(group & commands.TEST_WORDS for group in words):
        return "check" if any("check" in group for group in words) else "test"
    return kind


@lru_cache(maxsize=512)
def _declared(text: str) -> _Declared | None:
    segments = shell.parse(text)
    if segments is None or len(segments) != 1 or segments[0].redirections:
        return None
    segment = segments[0]
    argv = segment.argv
    if not argv or not all(word.literal for word in segment.words):
        return None
    given = {(name, word.text) for name, word in segment.assignments}
    words = commands.wrappers(argv)
    given |= {(n, v) for word in sum(words, ()) for n, eq, v in [word.partition("=")] if eq}
    # What it declares itself about its environment is not in doubt.
    inner = [word for wrapper in words if wrapper[0] != "env" for word in wrapper]
    tool = tool_of([*inner, *argv[sum(map(len, words)) :]])
    return None if tool is None else _Declared(text, kind_of(argv), tool, frozenset(given))


def declares_tests(canonical: Sequence[str]) -> bool:
    """Whether one of the declared commands is a test."""
    return any(declared.kind == "test" for text in canonical if (declared := _declared(text)))


def _same(declared: _Declared, tool: Tool) -> Scope | None:
    """How much of *declared* the run of *tool* is; None where it is none of it."""
    if declared.tool.key != tool.key:
        return None
    runner = runner_of(tool)
    given = [word for word in tool.arguments if word not in _SILENT]
    wanted = [word for word in declared.tool.arguments if word not in _SILENT]
    more = beyond(runner, wanted, given)
    if more is not None:
        return scope_left(runner, more)
    # A part of the same suite, named by hand.
    if runner in ("pytest", "unittest") or (runner == "go" and given[:1] == wanted[:1] == ["test"]):
        left = scope_left(runner, given[1:] if runner == "go" else given)
        return left and "targeted"
    return None


# --- one command ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Match:
    kind: Kind
    scope: Scope
    canonical: str
    runner: str
    wrapped: bool = False
    script: str = ""


def _match(segment: Segment, canonical: Sequence[str]) -> _Match | None:
    """The check that *segment* is: of several declared ones the most telling that it is whole, else in part."""
    if not segment.words or not all(word.literal or _selects(word) for word in segment.words):
        return None
    argv = segment.argv
    for verify in (HERMES_VERIFY.split(), list(OWN_VERIFY)):
        if argv[: len(verify)] == verify:
            return _verify(argv[len(verify) :]) if _free(segment) else None
    tool = tool_of(argv)
    found: list[_Match] = []
    for text in canonical:
        declared = _declared(text)
        if declared is None:
            continue
        own = _without(argv, declared.variables)
        actual = tool if own == argv else tool_of(own)
        scope = _same(declared, actual) if actual else None
        if scope and actual and _variables_pass(segment, declared):
            found.append(_Match(declared.kind, scope, text, runner_of(actual), actual.wrapped))
    if found:
        return next((match for match in found if match.scope == "full"), found[0])
    return _ad_hoc(argv) if not canonical and _free(segment) else None


def _selects(word: Word) -> bool:
    """A pattern of names that cannot turn into an option."""
    return not word.dynamic and word.text[:1] not in "*?[" and not word.text.startswith("-")


def _without(argv: list[str], variables: frozenset[tuple[str, str]]) -> list[str]:
    """*argv* without the assignments behind its ``env`` that the declared command makes too."""
    if not variables or argv[0] != "env":
        return argv
    end = len(commands.wrappers(argv)[0])
    kept = [word for word in argv[:end] if tuple(word.split("=", 1)) not in variables]
    return kept + argv[end:]


def _variables_pass(segment: Segment, declared: _Declared) -> bool:
    """Whether what is set for the check alone leaves it what it is."""
    given = [
        (name, word) for name, word in segment.assignments if (name, word.text) not in declared.variables
    ]
    if not all(shell.says_nothing(name, word.text, literal=word.literal) for name, word in given):
        return False
    # Recipes and scripts may take any program from a variable.
    indirect = declared.tool.name in ("file", "script") or runner_of(declared.tool) in (
        "make",
        "gmake",
        "just",
    )
    if not indirect:
        return True
    names = [name for name, _ in given]
    names += [name for name, value in _env_words(segment) if (name, value) not in declared.variables]
    return all(_free_variable(name) for name in names)


def _env_words(segment: Segment) -> Iterator[tuple[str, str]]:
    for words in commands.wrappers(segment.argv):
        for word in words[1:]:
            name, equals, value = word.partition("=")
            if equals and not name.startswith("-"):
                yield name, value


def _free_variable(name: str) -> bool:
    return name in _FREE_VARIABLES or name.startswith("LC_")


def _free(segment: Segment) -> bool:
    return all(shell.says_nothing(n, w.text, literal=w.literal) for n, w in segment.assignments)


def _verify(options: Sequence[str]) -> _Match | None:
    """``hermes verify``, or ours: the whole recipe, or the phases that it was asked for."""
    scope: Scope = "full"
    words = iter(options)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in {"--skip-start", "--phase"}:
            scope = "targeted"
        elif name not in _VERIFY_HARMLESS | _VERIFY_VALUED:
            return None
        if name in _VERIFY_VALUED | {"--phase"} and not equals and next(words, None) is None:
            return None
    return _Match("verify", scope, HERMES_VERIFY, "hermes")


def _ad_hoc(argv: Sequence[str]) -> _Match | None:
    """A script of the agent's own in the temporary folder, by name, where the project declares no check."""
    words = list(argv)
    if words[0] in ("env", "/usr/bin/env"):
        words = words[1:]
    name = commands.name_of(words[0]) if words and (words[0].startswith("/") or "/" not in words[0]) else ""
    for interpreter, flags in _INTERPRETERS:
        if interpreter.fullmatch(name):
            words = words[1:]
            while words and flags.fullmatch(words[0]):
                words = words[1:]
            break
    if not words or not words[0].startswith("/"):
        return None
    path = os.path.realpath(words[0])
    below = os.path.realpath(tempfile.gettempdir())
    if not _AD_HOC_NAME.fullmatch(commands.name_of(words[0])) or not path.startswith(below + os.sep):
        return None
    return _Match("ad_hoc", "targeted", AD_HOC, "ad_hoc", script=path)


def _touches(segments: Sequence[Segment], check: Segment) -> bool:
    """Whether one of *segments* writes to a file that is named like the program or script that *check* runs."""
    argv = check.argv
    at = commands.program_index(argv)
    names = {commands.name_of(word) for word in argv[at : at + 1 + (not _named_by_path(argv[at]))]} - {""}
    return any(_writes(segment, names) or _speaks_of(segment, names) for segment in segments)


def _writes(segment: Segment, names: set[str]) -> bool:
    """Whether *segment* writes, by a redirection or as a program known to, to a file named like one of *names*."""
    written = [word for operator, word in segment.redirections if ">" in operator]
    words = segment.words[_carried(segment.argv) :]
    if words and commands.name_of(words[0].text) in _WRITERS:
        written += words[1:]
    return any(not word.literal or commands.name_of(word.text) in names for word in written)


def _carried(argv: Sequence[str]) -> int:
    """The index of what a command runs in the end, behind what only starts it."""
    at = sum(map(len, commands.wrappers(argv)))
    while at + 1 < len(argv) and commands.name_of(argv[at]) in _CARRIERS:
        at += 1
        while at + 1 < len(argv) and argv[at].startswith("-"):
            at += 2 if argv[at] in ("-u", "-g") else 1
        at += sum(map(len, commands.wrappers(argv[at:])))
    return at


def _speaks_of(segment: Segment, names: set[str]) -> bool:
    """Whether a program that stands in the line itself names one of *names*: it may put another at its place."""
    argv = segment.argv
    argv = argv[_carried(argv) :]
    program = commands.name_of(argv[0]) if argv else ""
    if program not in _CODED:
        if not _INTERPRETER.fullmatch(program):
            return False
        argv = argv[next((n for n, word in enumerate(argv) if _CODE_OPTION.fullmatch(word)), len(argv)) :]
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", " ".join(argv[1:])) for name in names)


def _named_by_path(program: str) -> bool:
    return "/" in program


def _places(before: Sequence[Segment], last: int) -> tuple[str, ...] | None:
    """The folders that were entered before a check; None where one perhaps was not."""
    entered = []
    for number, segment in enumerate(before):
        if segment.argv[:1] != ["cd"]:
            continue
        begins = number == 0 or before[number - 1].after == ";"
        if number < last and not (begins and segment.after in (";", "&&")):
            return None
        entered.append(segment.argv[1])
    return tuple(entered)


def _cannot_fail(operator: str, target: str) -> bool:
    """Whether a redirection is nothing that may keep a command from being started; one to a file is let pass."""
    if operator in ("<", "<>"):
        return target == "/dev/null"
    return not operator.endswith("&") or target in ("0", "1", "2", "-")


def _own_failure(segments: Sequence[Segment], check: int, match: _Match, exit_code: int) -> bool:
    """Whether a failing status can only be that of the check at *check*."""
    if exit_code in _NOT_STARTED or (match.wrapped and not 0 < exit_code < _WRAPPERS_OWN):
        return False
    if not all(_cannot_fail(operator, word.text) for operator, word in segments[check].redirections):
        return False
    # A shell that knows no `>& file` does not read the line at all.
    if any(
        op.endswith("&") and not _cannot_fail(op, word.text)
        for one in segments
        for op, word in one.redirections
    ):
        return False
    last = _last_sequence(segments)
    before = [segment for number, segment in enumerate(segments) if number != check]
    if len(segments) - last != 1:
        return False
    strict = any(shell.stops_at_errors(segment) for segment in before)
    return not strict or all(shell.sure_to_go_on(segment) for segment in before)


def _last_sequence(segments: Sequence[Segment]) -> int:
    """Where the commands behind the last ``;`` begin."""
    begins = [number for number, segment in enumerate(segments[:-1], 1) if segment.after == ";"]
    return begins[-1] if begins else 0


def _belied(match: _Match, output: str) -> bool:
    """Whether what was printed says that status 0 is no pass."""
    if match.kind not in ("test", "check", "verify", "ad_hoc") or not output:
        return False
    if printed.ran_nothing(output):
        return True
    return match.runner == "pytest" and bool(printed.contradiction(output[-_SUMMARY_CHARS:]))


def attribute(
    command: str, *, exit_code: int | None, output: str = "", canonical: Sequence[str]
) -> list[Attributed]:
    """Every check in *command* whose own status *exit_code* shows, in the order they ran."""
    segments = shell.parse(command)
    if not segments or exit_code is None:
        return []
    last = _last_sequence(segments)
    if any(segment.after not in ("", "&&") for segment in segments[last:]):
        return []
    # Where `sh` is no bash, `&>` puts the check into the background.
    if exit_code == 0 and any(op.startswith("&") for segment in segments for op, _ in segment.redirections):
        return []
    found = [
        (number, _match(segment, canonical)) for number, segment in enumerate(segments) if number >= last
    ]
    checks = [(number, match) for number, match in found if match]
    numbers = {number for number, _ in checks}
    if not all(shell.inert(segment) for number, segment in enumerate(segments) if number not in numbers):
        return []
    result = []
    for number, match in checks:
        segment = segments[number]
        if _touches(segments[:number], segment) or any(word.dynamic for _, word in segment.redirections):
            continue
        if _belied(match, output) if exit_code == 0 else not _own_failure(segments, number, match, exit_code):
            continue
        status: Literal["passed", "failed"] = "passed" if exit_code == 0 else "failed"
        made = Classification(match.kind, match.scope, status, match.canonical)
        result.append(Attributed(made, _places(segments[:number], last), match.runner, match.script))
    return result


def classify_command(
    command: str, *, exit_code: int | None, output: str = "", canonical: Sequence[str]
) -> Classification | None:
    """The most telling check in *command*, or None where it is no evidence; see the module."""
    found = [
        one.classification
        for one in attribute(command, exit_code=exit_code, output=output, canonical=canonical)
    ]
    return min(found, key=lambda one: _DECISIVE.get(one.kind, len(_DECISIVE)), default=None)

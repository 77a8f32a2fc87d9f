"""What an argv is: which runner it starts, whether it is a test command, how much of the suite it covers.

Decided by tokens, never by substring, and only through wrappers whose exit status is the command's own (``env``,
``uv run``, ``coverage run``, ``timeout`` …). What it does not promise: a shell line, a Makefile target or a
script is not looked into; those are ``other``, and are judged by their exit status.

``recognise(argv) -> Recognised``; ``wrappers(argv)`` says behind what its program stands; ``instrument(argv, report,
shim) -> list[str]`` gives the argv that also writes a report; ``kind_of(argv)``; ``words_of(argv)``; ``scope_of(argv)``.
No errors are raised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Runner = Literal["pytest", "unittest", "other"]
Kind = Literal["test", "lint", "typecheck", "build", "format"]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


PYTHON: Final = re.compile(r"(?:python|pypy)[\d.]*w?(?:\.exe)?")
_PYTEST_NAMES: Final = frozenset({"pytest", "py.test", "pytest.exe"})
_MODULE_FLAG: Final = re.compile(r"-[bBdEiIOPqsSuvx]*m")
# What may stand before `-m`; behind `-c`, `-V`, `--help` and the like no module is run.
_PLAIN_FLAG: Final = re.compile(r"-[bBdEiIOPqsSuvx]+|-[WX].+")
_VALUE_FLAGS: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})
ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_RUN_WRAPPERS: Final = frozenset({"uv", "poetry", "pipenv", "pdm", "hatch", "rye"})
_PLAIN_WRAPPERS: Final = frozenset(
    {"timeout", "nice", "ionice", "time", "command", "xvfb-run", "stdbuf", "npx", "bunx", "uvx"}
)
_WRAPPER_VALUE_FLAGS: Final = _set("""
    --with --with-editable --with-requirements --extra --group --only-group --no-group --python -p --index --index-url
    --default-index --find-links --env-file --directory --project --package --config-file --cache-dir -C --env -n
    -s --signal -k --kill-after --adjustment -i -o -e
""")
_TASK_RUNNERS: Final = frozenset({"npm", "pnpm", "yarn", "bun", "make", "gmake", "just", "cargo", "go"})

_KIND_WORDS: Final[tuple[tuple[Kind, frozenset[str]], ...]] = (
    (
        "lint",
        _set("""
            ruff flake8 pylint eslint lint linter codespell bandit clippy vet shellcheck yamllint rubocop stylelint
            pydocstyle pyflakes pycodestyle vulture commit
        """),
    ),
    ("typecheck", _set("mypy pyright basedpyright tsc typecheck types pytype pyre ty")),
    ("build", _set("build compile compileall wheel sdist package assemble")),
    ("format", _set("fmt format black isort prettier gofmt rustfmt yapf autopep8")),
)
TEST_WORDS: Final = _set("test tests testing pytest unittest tox nox spec nose2 jest vitest mocha")

_TARGET_SUFFIXES: Final = (".py", ".js", ".jsx", ".ts", ".tsx", ".rs", ".go", ".java")
_NARROWING: Final = re.compile(
    r"-k|-m|-t|--lf|--last-failed|--ff|--sw|--stepwise|--deselect|--ignore|--ignore-glob|--co|--collect-only"
    r"|--testPathPattern|-run|--grep|--filter|--only|--changed"
)


@dataclass(frozen=True, slots=True)
class Recognised:
    """Which runner an argv starts. ``program`` indexes the program behind its wrappers, ``module`` the ``-m``
    that names the runner (-1 if none), ``args`` the first argument of the runner itself.
    """

    runner: Runner
    program: int
    module: int
    args: int


def name_of(token: str) -> str:
    """The last part of a path, as ``PurePosixPath`` has it."""
    return token.rstrip("/").rpartition("/")[2]


def _past_env(argv: Sequence[str], at: int) -> int:
    """The index behind ``env``, its options and its assignments."""
    at += 1
    while at < len(argv):
        if argv[at] in ("-u", "--unset", "-C", "--chdir"):
            at += 2
        elif argv[at].startswith("-") or ASSIGNMENT.fullmatch(argv[at]):
            at += 1
        else:
            break
    return at


def _past_options(argv: Sequence[str], at: int) -> int:
    """The index of the first word that is neither an option nor an option's value."""
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in _WRAPPER_VALUE_FLAGS else 1
    return at


def wrappers(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """``env`` and whatever else passes its command's status on, before the program: the words of each, in order."""
    found: list[tuple[str, ...]] = []
    at = 0
    for _ in range(8):  # Nobody nests more wrappers than this.
        begin, name = at, name_of(argv[at]) if at < len(argv) else ""
        if name == "env":
            at = _past_env(argv, at)
        elif name in _RUN_WRAPPERS and list(argv[at + 1 : at + 2]) == ["run"]:
            at = _past_options(argv, at + 2)
        elif name in _PLAIN_WRAPPERS and at + 1 < len(argv):
            # The first word of `timeout` is a duration.
            at = _past_options(argv, at + 1) + (name == "timeout")
        else:
            break
        found.append(tuple(argv[begin:at]))
    return found


def program_index(argv: Sequence[str]) -> int:
    """The index of the program that an argv runs behind its wrappers."""
    return min(sum(map(len, wrappers(argv))), len(argv) - 1)


def _module_index(argv: Sequence[str], at: int) -> int:
    """The index of an interpreter's ``-m`` (its module stands behind it), or -1 where a script is run."""
    while at + 1 < len(argv) and argv[at].startswith("-"):
        if _MODULE_FLAG.fullmatch(argv[at]):
            return at
        if argv[at] in _VALUE_FLAGS:
            at += 2
        elif _PLAIN_FLAG.fullmatch(argv[at]):
            at += 1
        else:
            break
    return -1


def _runner_of_module(argv: Sequence[str], program: int, module: int) -> Recognised:
    name = argv[module + 1]
    if name in ("pytest", "py.test"):
        return Recognised("pytest", program, module, module + 2)
    if name == "unittest":
        return Recognised("unittest", program, module, module + 2)
    if name == "coverage" and argv[module + 2 : module + 3] == ["run"]:
        return _coverage(argv, program, module + 3)
    return Recognised("other", program, module, module + 2)


def _coverage(argv: Sequence[str], program: int, at: int) -> Recognised:
    """``coverage run [options] -m pytest …``"""
    for index in range(at, len(argv) - 1):
        if argv[index] == "-m":
            return _runner_of_module(argv, program, index)
    return Recognised("other", program, -1, at)


def recognise(argv: Sequence[str]) -> Recognised:
    """Which runner *argv* (not empty) starts."""
    at = program_index(argv)
    name = name_of(argv[at])
    if name in _PYTEST_NAMES:
        return Recognised("pytest", at, -1, at + 1)
    if name == "coverage" and argv[at + 1 : at + 2] == ["run"]:
        return _coverage(argv, at, at + 2)
    if PYTHON.fullmatch(name):
        module = _module_index(argv, at + 1)
        if module >= 0:
            return _runner_of_module(argv, at, module)
    return Recognised("other", at, -1, at + 1)


def instrument(argv: Sequence[str], *, report: str, shim: str, fail_fast: bool = False) -> list[str]:
    """*argv* made to write each test's outcome to *report*; unchanged where its runner names none.

    A suite is run to its end (no ``-x``, other modules still run where one cannot be collected), because a test that
    did not run cannot be compared; with *fail_fast* it stops at the first failure instead.
    """
    what = recognise(argv)
    if what.runner == "pytest":
        extra = [f"--junitxml={report}", "--continue-on-collection-errors", f"--maxfail={int(fail_fast)}"]
        end = argv.index("--", what.args) if "--" in argv[what.args :] else len(argv)
        return [*argv[:end], *extra, *argv[end:]]
    if what.runner == "unittest":
        flags = ["--fail-fast"] if fail_fast else []
        return [*_without_module(argv, what.module), shim, report, *flags, "--", *argv[what.args :]]
    return list(argv)


def _without_module(argv: Sequence[str], module: int) -> list[str]:
    """*argv* up to its ``-m``, keeping interpreter flags that were written together with it (``-Bm``)."""
    flags = argv[module].removesuffix("m")
    return [*argv[:module], *([flags] if flags != "-" else [])]


def words_of(argv: Sequence[str]) -> list[set[str]]:
    """The words of what an argv runs, most telling first: its task or module, then its program."""
    what = recognise(argv)
    tokens = [argv[what.module + 1]] if what.module >= 0 else [name_of(argv[what.program])]
    if name_of(argv[what.program]) in _TASK_RUNNERS:
        rest = [word for word in argv[what.program + 1 :] if not word.startswith("-") and word != "run"]
        tokens = [*rest[:1], *tokens]
    return [set(re.split(r"[^a-z0-9]+", token.lower())) for token in tokens]


def kind_of(argv: Sequence[str]) -> Kind:
    """What sort of check *argv* is; whatever is not known to be something else counts as a test command."""
    for words in words_of(argv):
        if words & TEST_WORDS:
            return "test"
        for kind, names in _KIND_WORDS:
            if words & names:
                return kind
    return "test"


def _is_target(token: str) -> bool:
    if token.startswith("-") or "=" in token:
        return False
    return (
        any(mark in token for mark in ("/", "\\", "::"))
        or token.endswith(_TARGET_SUFFIXES)
        or token.startswith("test_")
        or token in ("tests", "spec", "__tests__")
    )


def scope_of(argv: Sequence[str]) -> Literal["full", "targeted"]:
    """``targeted`` where arguments narrow the suite: paths, or options that select."""
    what = recognise(argv)
    arguments = list(argv[what.args :])
    if what.runner == "unittest":
        return (
            "full"
            if not arguments or arguments[0] == "discover" or arguments[0].startswith("-")
            else "targeted"
        )
    narrowed = any(_is_target(a) or _NARROWING.fullmatch(a.split("=", 1)[0]) for a in arguments)
    return "targeted" if narrowed else "full"

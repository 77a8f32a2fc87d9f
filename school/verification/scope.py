"""How much of a check is left when more arguments are given to it than were declared.

``beyond(tool, declared, given)`` gives those. ``scope_left(tool, arguments) -> "full" | "targeted" | None``: *tool* is the
name of what runs, *arguments* are those beyond the declared ones. ``full`` where they only change how it runs or
reports, ``targeted`` where they select, None where they may keep it from running anything or from failing (``--collect-only``, ``--version``, ``make -n``,
``--exit-zero``), and for every option that is not known here: what an option does cannot be seen by looking at it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Scope = Literal["full", "targeted"]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NONE: Final = re.compile(r"(?!)")
_OPTION: Final = re.compile(r"-(?!\d+$)")


@dataclass(frozen=True, slots=True)
class _Options:
    """What a tool's options do. ``valued`` ones take a value, in the same word behind ``=`` or in the next.

    ``harmless_valued`` may have one behind ``=``. ``letters`` are short options that may be written together; ``pairs`` are options that count only with certain values.
    """

    harmless: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    harmless_valued: frozenset[str] = frozenset()
    narrowing: frozenset[str] = frozenset()
    narrowing_valued: frozenset[str] = frozenset()
    letters: str = ""
    pairs: re.Pattern[str] = _NONE
    narrowing_pairs: re.Pattern[str] = _NONE
    positional: bool = True


_PYTEST: Final = _Options(
    harmless=_set("""
        -q -v -x -s -l --quiet --verbose --exitfirst --showlocals --no-header --no-summary --strict --strict-markers
        --strict-config --disable-warnings --disable-pytest-warnings --cache-clear --full-trace --ff --failed-first --nf
        --new-first --continue-on-collection-errors --cov --cov-append --cov-branch --forked --no-showlocals
        --xfail-tb --force-short-summary
    """),
    valued=_set("""
        --tb --color --code-highlight --capture --show-capture --durations --durations-min --maxfail --junitxml
        --junit-xml --junit-prefix --import-mode --basetemp --log-level --log-cli-level --log-file --log-format
        --log-date-format --verbosity --numprocesses --dist --maxprocesses --cov-report --cov-config
        --timeout --timeout-method --session-timeout --randomly-seed --html --report-log -n -r
    """),
    narrowing=_set("""
        --lf --last-failed --sw --stepwise --sw-skip --stepwise-skip --testmon --picked --benchmark-skip
        --benchmark-only --no-cov --no-cov-on-fail --runxfail
    """),
    # Some of these leave every test in, but take away what else may fail the run.
    narrowing_valued=_set("""
        -k -m --deselect --ignore --ignore-glob --lfnf --last-failed-no-failures --cov-fail-under -W --pythonwarnings
    """),
    harmless_valued=_set("--cov"),
    letters="qvxsl",
    # Of plugins only those can be left out that look at nothing.
    pairs=re.compile(r"-p ?no:(?:cacheprovider|randomly|random_order|sugar|xdist)|-W ?error"),
    narrowing_pairs=re.compile(r"-o ?addopts="),
)
_UNITTEST: Final = _Options(
    harmless=_set("-v -q -f -b -c --verbose --quiet --failfast --buffer --catch --locals"),
    valued=_set("--durations"),
    narrowing_valued=_set("-k -s -t -p --start-directory --top-level-directory --pattern"),
    letters="vqfbc",
)
_MAKE: Final = _Options(
    harmless=_set(
        "-s --silent --quiet --no-print-directory -B --always-make -k --keep-going -j --jobs -O -w"
    ),
    pairs=re.compile(r"-j\d+|--jobs=\d+|-j \d+|--output-sync(?:=\w+)?|-O\w+"),
    positional=False,
)
_GO: Final = _Options(
    harmless=_set("-v -race -cover -failfast -json -a -msan -asan"),
    valued=_set("-timeout -parallel -p -coverprofile -covermode -shuffle -cpu"),
    narrowing=_set("-short"),
    narrowing_valued=_set("-run -skip"),
    pairs=re.compile(r"-count=[1-9]\d*|-count [1-9]\d*|--?timeout=\w+"),
)
_CARGO: Final = _Options(
    harmless=_set("""
        -v -vv --verbose -q --quiet -r --release --locked --frozen --offline --all-features --workspace --all
        --all-targets --no-fail-fast
    """),
    valued=_set("-j --jobs --color --target-dir --message-format --profile"),
    narrowing=_set("--lib --bins --doc --tests --examples --no-default-features --exact"),
    narrowing_valued=_set("-p --package --exclude --test --bin --example --bench --features -F --skip"),
    pairs=re.compile(r"--nocapture|--test-threads=\d+|--show-output"),
)
_JVM: Final = _Options(
    harmless=_set("""
        -q -B -e -U -o -ntp --batch-mode --no-transfer-progress --offline --info --stacktrace --no-daemon --rerun-tasks
        --quiet --errors --continue --build-cache --no-build-cache --parallel
    """),
    valued=_set("--console -T --max-workers"),
    narrowing_valued=_set("--tests -pl --projects"),
    narrowing_pairs=re.compile(r"-Dtest=.+"),
    positional=False,
)
_TOX: Final = _Options(
    harmless=_set("-v -vv -q -r -R --recreate --reuse-existing-virtualenvs --no-color"),
    valued=_set("--colored"),
    narrowing_valued=_set("-e -f -s -k -t -p --session --sessions --python --pythons --keywords --tags"),
    positional=False,
)
_LINTER: Final = _Options(
    harmless=_set("-q -v --verbose --no-cache --no-fix --no-color-output --pretty --show-error-codes"),
    valued=_set("--output-format --color --cache-dir"),
    narrowing_valued=_set("--select --ignore --exclude --extend-exclude"),
)
# A script of package.json: behind `--` stands what its own runner is given, whatever that is.
_SCRIPT: Final = _Options(
    harmless=_set("""
        --silent --quiet --verbose --coverage --ci --runInBand --no-color --colors --bail --no-watch --run --color
        --detectOpenHandles --forceExit --no-cache --no-coverage
    """),
    valued=_set("--reporter --reporters --maxWorkers --testTimeout"),
    narrowing=_set("--onlyChanged --onlyFailures --changed --lastCommit -o"),
    narrowing_valued=_set("""
        --testPathPattern --testPathPatterns --testNamePattern -t --grep -g --filter --project --selectProjects --shard
        --testPathIgnorePatterns --dir --changedSince --spec
    """),
    pairs=re.compile(r"--watch=false|--watchAll=false|--watchman=false|--passWithNoTests=false"),
)
_OTHER: Final = _Options()
_TOOLS: Final = {
    "pytest": _PYTEST,
    "unittest": _UNITTEST,
    "make": _MAKE,
    "gmake": _MAKE,
    "go": _GO,
    "cargo": _CARGO,
    "tox": _TOX,
    "nox": _TOX,
    "script": _SCRIPT,
    **dict.fromkeys(("mvn", "mvnw", "gradle", "gradlew"), _JVM),
    **dict.fromkeys(("ruff", "mypy", "flake8", "pylint", "pyright", "black", "isort"), _LINTER),
}
# A declared command is the same one without these.
_QUIET: Final = _set("-q -qq --quiet -v -vv --verbose")
# Everything, from here: what a runner is given to look at when nothing is left out.
_ALL: Final = _set(". ./ ./...")


def scope_left(tool: str, arguments: Sequence[str]) -> Scope | None:
    """What *arguments* leave of a check by *tool*; see the module."""
    options = _TOOLS.get(tool, _OTHER)
    scope: Scope = "full"
    at = 0
    while at < len(arguments):
        word, following = arguments[at], arguments[at + 1 : at + 2]
        at += 1
        if word == "--":
            continue
        if not word.startswith("-") or word == "-":
            if not options.positional or not word or word[0] in "@-":
                return None
            scope = scope if word in _ALL else "targeted"
            continue
        taken = _taken(options, word, following)
        if taken is None:
            return None
        used, narrows = taken
        scope = "targeted" if narrows else scope
        at += used
    return scope


def beyond(tool: str, declared: Sequence[str], given: Sequence[str]) -> list[str] | None:
    """What *given* has beyond the *declared* arguments, which must be among it in their order; else None.

    A word that may be the value of an option before it is not taken for a declared one.
    """
    options = _TOOLS.get(tool, _OTHER)
    wanted = [word for word in declared if word not in _QUIET or not options.harmless]
    rest: list[str] = []
    free = True
    for word in given:
        if wanted and word == wanted[0] and free:
            del wanted[0]
            continue
        rest.append(word)
        free = not word.startswith("-") or "=" in word or word in options.harmless | options.narrowing
    return None if wanted else rest


def _taken(options: _Options, word: str, following: Sequence[str]) -> tuple[int, bool] | None:
    """How many further words the option *word* takes, and whether it selects; None for one not known."""
    name, equals, _ = word.partition("=")
    if following and _OPTION.match(following[0]):
        following = ()  # no value: a runner may well obey it (`pytest --maxfail --version`)
    for pattern, narrows in ((options.pairs, False), (options.narrowing_pairs, True)):
        for used, text in enumerate([word, *(f"{word} {value}" for value in following)]):
            if pattern.fullmatch(text):
                return used, narrows
    for valued, narrows in ((options.valued, False), (options.narrowing_valued, True)):
        if name in valued:
            return (0 if equals else 1, narrows) if equals or following else None
    if word in options.harmless | options.narrowing or (equals and name in options.harmless_valued):
        return 0, word in options.narrowing
    return _letters(options, word, following)


def _letters(options: _Options, word: str, following: Sequence[str]) -> tuple[int, bool] | None:
    """The same for short options written together, the last perhaps with its value (``-xk name``, ``-n4``)."""
    if word.startswith("--") or not options.letters:
        return None
    for place, letter in enumerate(word[1:], 2):
        if letter in options.letters:
            continue
        short = f"-{letter}"
        if short not in options.valued | options.narrowing_valued:
            return None
        narrows = short in options.narrowing_valued
        if place < len(word):
            return 0, narrows
        return (1, narrows) if following else None
    return 0, False

"""What a runner prints of itself: that no test ran, and the counts of its last line.

``says_no_tests(text)``: it says that no test ran. ``ran_nothing(text)``: that, and nowhere that one did.
``contradiction(text)``: pytest's last summary line where it names a failure, or no success. What a program prints
proves nothing good; it can only take a pass away.
"""

from __future__ import annotations

import re
from typing import Final

_LINE: Final = re.MULTILINE
_NO_TESTS: Final = re.compile(
    r"^=* ?no tests ran\b|^Ran 0 tests in |^collected 0 items|^No tests found|^No test files found"
    r"|^testing: warning: no tests to run|^ *0 passing\b|^(?:#|\u2139) tests 0$",
    _LINE,
)
# Said by runners that go through many suites, some of which may be empty, or that only listed what they would run.
_NO_TESTS_HERE: Final = re.compile(
    r"^\s*0 passed\b|^Tests:\s+0 total|^test result: ok\. 0 passed|^=* ?(?:no|\d+(?:/\d+)?) tests? collected"
    r"|^running 0 tests|\[no tests to run\]|\[no test files\]|^1\.\.0\b|^Tests run: 0\b|^OK \(0 tests",
    _LINE,
)
_TESTS: Final = re.compile(
    r"\b[1-9]\d* (?:passed|passing|xpassed|failed|failing)\b|^Ran [1-9]\d* tests? in |^(?:#|\u2139) tests [1-9]"
    r"|^ok  ?\t?\s*\S+\s+(?:[\d.]+s|\(cached\))(?!.*\[no tests to run\])|^Tests run: [1-9]|^ok [1-9]\d* ",
    _LINE,
)
# unittest counts the tests that it skipped among those that it ran.
_ALL_SKIPPED: Final = re.compile(
    r"^Ran (\d+) tests? in [\d.]+s\n+OK \((?:[a-z ]+=\d+, )*skipped=\1\b[^\n]*\)$", _LINE
)
_SUMMARY: Final = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+m?s\b", _LINE)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_COUNT: Final = re.compile(r"(\d+) (failed|errors?|x?passed)")


def _plain(text: str) -> str:
    return _ALL_SKIPPED.sub("Ran 0 tests in 0s", _COLOUR.sub("", text).replace("\r\n", "\n"))


def says_no_tests(text: str) -> bool:
    """Whether *text* says that no test ran: anywhere, for a runner that has one suite."""
    return _NO_TESTS.search(_plain(text)) is not None or ran_nothing(text)


def ran_nothing(text: str) -> bool:
    """Whether *text* says that no test ran, or that tests were only listed, and nowhere that one did run."""
    text = _plain(text)
    none = _NO_TESTS.search(text) or _NO_TESTS_HERE.search(text)
    return none is not None and _TESTS.search(text) is None


def contradiction(text: str) -> str:
    """The last summary line of pytest in *text* where it cannot belong to a pass; else empty."""
    lines = _SUMMARY.findall(_plain(text))
    if not lines:
        return ""
    counts = {word.rstrip("s"): int(number) for number, word in _COUNT.findall(lines[-1])}
    good = counts.get("passed", 0) + counts.get("xpassed", 0)
    return lines[-1] if counts.get("failed") or counts.get("error") or not good else ""

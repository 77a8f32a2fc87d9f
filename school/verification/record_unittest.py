"""Run what ``python -m unittest ARGS`` runs, and write down the outcome of every test.

A script, not a module: ``python record_unittest.py REPORT [--fail-fast] -- ARGS``, in whichever interpreter the
project uses (3.6 or later, standard library only). One JSON line a test is appended to REPORT as it ends, and a
last one, ``{"end": true}``, when the run came to its own end; a report without it was cut off. ``-f`` of the project
is not honoured: a test that did not run cannot be compared.
"""

import json
import os
import sys
import unittest
from typing import Any


class _Recording(unittest.TextTestResult):
    """The usual result, which also tells the report; ``report`` is set by main()."""

    report = -1

    def _tell(self, test: Any, outcome: str) -> None:  # noqa: ANN401 - also unittest's private error holders
        line = json.dumps({"id": test.id(), "outcome": outcome}) + "\n"
        os.write(self.report, line.encode("utf-8", "backslashreplace"))

    def addSuccess(self, test: Any) -> None:  # noqa: N802, ANN401 - unittest's names
        super().addSuccess(test)
        self._tell(test, "passed")

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802, ANN401
        super().addError(test, err)
        self._tell(test, "error")

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802, ANN401
        super().addFailure(test, err)
        self._tell(test, "failed")

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802, ANN401
        super().addSkip(test, reason)
        self._tell(test, "skipped")

    def addExpectedFailure(self, test: Any, err: Any) -> None:  # noqa: N802, ANN401
        super().addExpectedFailure(test, err)
        self._tell(test, "skipped")

    def addUnexpectedSuccess(self, test: Any) -> None:  # noqa: N802, ANN401
        super().addUnexpectedSuccess(test)
        self._tell(test, "failed")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802, ANN401
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._tell(test, "failed")


class _Runner(unittest.TextTestRunner):
    """The usual runner with that result; ``stop_early`` is set by main()."""

    resultclass: Any = _Recording
    stop_early = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever this Python's unittest passes
        kwargs["failfast"] = self.stop_early
        super().__init__(*args, **kwargs)

    def run(self, test: Any) -> Any:  # noqa: ANN401 - as above
        result = super().run(test)
        os.write(_Recording.report, json.dumps({"end": True, "ran": result.testsRun}).encode() + b"\n")
        return result


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as light as the script
    split = sys.argv.index("--")
    report, *flags = sys.argv[1:split]
    # With `-m`, the first entry is the current directory; without (-P, -I) there is none to replace.
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(here):
        sys.path[0] = os.getcwd()  # noqa: PTH109
    _Recording.report = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    _Runner.stop_early = "--fail-fast" in flags
    unittest.main(module=None, testRunner=_Runner, argv=["python -m unittest", *sys.argv[split + 1 :]])


if __name__ == "__main__":
    main()

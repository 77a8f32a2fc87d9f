"""What each verify command does at base: run once, kept by (base tree, command and those before it, environment).

``Baselines(bench, commands).measure()`` gives one ``Baseline`` a command, from disk or by running them in order at base
(a later command may need what an earlier one made). ``again()`` runs them once more, up to ``EXTRA_RUNS`` times in
all, and remembers what did not pass then: that is what makes a newly red test flaky. A run that timed out, could not
start, or in which nothing passed is not kept: it may be the machine's mood, and would stand in the way for ever.

Errors: SetupFailedError where base's environment cannot be built. A kept file that cannot be read is run anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from school.contracts import Receipt, Record
from school.system import faults, files
from school.verification import reports
from school.verification.bench import Bench
from school.verification.reports import COMMAND
from school.verification.runner import CheckRun

EXTRA_RUNS: Final = 3
# A later base run in which more than this differs is not the same machine any more.
SHAKEN_MIN: Final = 3
SHAKEN_SHARE: Final = 0.1
FILES_MAX: Final = 200
FILE_BYTES_MAX: Final = 64 * 1024 * 1024


class Baseline(Record):
    """One command at base. ``tests`` is None where its runner names none; ``unsteady`` holds what passed in the
    first run and not in a later one; ``slowest_s`` is the longest that it took.
    """

    receipt: Receipt
    tests: dict[str, str] | None = None
    detail: str = ""
    runs: int = 1
    unsteady: list[str] = Field(default_factory=list)
    slowest_s: float = 0.0

    @classmethod
    def of(cls, run: CheckRun) -> Baseline:
        tests = run.tests_by_name
        return cls(
            receipt=Receipt.model_validate(run.model_dump()),
            tests=None if tests is None else dict(tests),
            detail=run.detail,
            slowest_s=run.duration_s,
        )

    @property
    def passed(self) -> set[str]:
        """The tests that pass at base; the command itself stands for them where it names none."""
        if self.tests is None:
            return {COMMAND} if self.receipt.outcome == "passed" else set()
        return {name for name, outcome in self.tests.items() if outcome == "passed"}

    @property
    def green(self) -> bool:
        return self.receipt.outcome == "passed"

    def add(self, run: CheckRun) -> bool:
        """Another run at base: what passed before and does not now is unsteady. False where so much differs that this is
        no flaky test but another machine; then nothing is learnt of single tests.
        """
        self.runs += 1
        self.slowest_s = max(self.slowest_s, run.duration_s)
        if self.tests is None:
            now = {COMMAND} if run.outcome != "passed" and self.green else set()
        elif run.tests_by_name is None:
            return not self.passed
        else:
            now = self._worse(run.tests_by_name)
        if len(now) > max(SHAKEN_MIN, SHAKEN_SHARE * len(self.passed)):
            return False
        self.unsteady = sorted({*self.unsteady, *now})
        return True

    def _worse(self, after: Mapping[str, str]) -> set[str]:
        worse = {name for name in self.passed if after.get(name) in reports.BAD}
        if COMMAND in after:
            return worse | ({COMMAND} if self.green else set())
        return worse | {name for name in self.passed if after.get(name, "skipped") == "skipped"}


def limit_s(baseline: Baseline, timeout_s: float) -> float:
    """How long the same command may take at head: generous where base was quick, longer where base was slow."""
    return max(min(timeout_s, 30 + 5 * baseline.slowest_s), 3 * baseline.slowest_s)


class Baselines:
    """The baselines of one bench's commands, in their order."""

    def __init__(self, bench: Bench, commands: Sequence[Sequence[str]]) -> None:
        self.bench = bench
        self.commands = [list(argv) for argv in commands]
        self.found: list[Baseline] = []
        self.shaken = ""

    def _path(self, index: int) -> Path:
        what = [
            self.bench.tree("base"),
            self.commands[: index + 1],
            self.bench.environment.fingerprint("base"),
            self.bench.terms.verify_timeout_s,
        ]
        digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:40]
        return self.bench.context.baselines / f"base-{digest}.json"

    def _kept(self, index: int) -> Baseline | None:
        try:
            raw: Any = files.read_json(self._path(index), limit_bytes=FILE_BYTES_MAX)
            return None if raw is None else Baseline.model_validate(raw)
        except (ValueError, ValidationError):
            return None

    def _keep(self, index: int) -> None:
        baseline = self.found[index]
        if baseline.receipt.outcome in ("passed", "failed", "no_tests") and (
            baseline.passed or baseline.receipt.outcome == "no_tests"
        ):
            files.ensure_dir(self.bench.context.baselines)
            with faults.around("baseline.kept"):
                files.write_json(self._path(index), baseline.model_dump(mode="json"))

    def measure(self) -> list[Baseline]:
        """One baseline a command; what is not known yet is run."""
        kept = [self._kept(index) for index in range(len(self.commands))]
        known = [baseline for baseline in kept if baseline is not None]
        if len(known) == len(self.commands):
            for baseline in known:
                baseline.receipt.cached = True
            self.found = known
            return known
        self.found = [Baseline.of(run) for run in self._run(self.commands)]
        for index in range(len(self.found)):
            self._keep(index)
        self._prune()
        return self.found

    def again(self, last: int) -> bool:
        """Run the commands up to number *last* at base once more; False where there is nothing more to learn.

        Where base does not do at all what it did, ``shaken`` names the command, and what was kept of it is dropped.
        """
        if min(baseline.runs for baseline in self.found[: last + 1]) > EXTRA_RUNS:
            return False
        for index, run in enumerate(self._run(self.commands[: last + 1])):
            if not self.found[index].add(run):
                self.shaken = " ".join(run.argv)
                self._path(index).unlink(missing_ok=True)
                return False
            self._keep(index)
        return True

    def _run(self, commands: Sequence[list[str]]) -> list[CheckRun]:
        self.bench.go("base")
        timeout_s = self.bench.terms.verify_timeout_s
        return [self.bench.run(argv, timeout_s=timeout_s, check="verification") for argv in commands]

    def _prune(self) -> None:
        """The newest stay; a cache needs a bound."""
        found = sorted(self.bench.context.baselines.glob("base-*.json"), key=_modified, reverse=True)
        for path in found[FILES_MAX:]:
            path.unlink(missing_ok=True)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def failing(tests: dict[str, str] | None) -> set[str]:
    """The tests that failed or had an error."""
    return {name for name, outcome in (tests or {}).items() if outcome in reports.BAD}

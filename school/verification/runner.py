"""Run one check command, and say what it did in a receipt that its own code cannot easily dress up.

``run_check(argv, worktree=…, env=…, …) -> CheckRun``, a ``Receipt`` that also carries, where the runner names its
tests (pytest, unittest), each test's outcome (``tests_by_name``), the seconds it took and why it did not run.
Argv lists only, no shell. The command's whole process tree has ended when this returns.

A pass needs more than exit status 0. Where a runner names its tests, the report, written outside the tree under a
name made for this run, must be there, be whole, name at least one test, none of them failed, and agree with what
the runner printed last; ``sys.exit(0)`` in an imported module leaves no report and is a failure. A test that failed
makes a failure whatever the exit status says, and an exit status that says failure while every test passed stands
as a failure of ``COMMAND``.

Not promised: protection from code that knows this module and forges report, exit status and summary together; for
that there are ``compare`` (tests that vanish) and ``sight`` (tests that do not look at the sources).

``outcome``: ``passed``, ``failed``, ``timed_out``, ``no_tests`` (it ran, and no test did), ``not_run`` (no such
program, or cancelled: see ``detail`` and ``cancelled``). Errors: MachineError where the scratch cannot be
written, or the command was about to fill the disk.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import PrivateAttr

from school.confinement import left_running, opening, refusals
from school.contracts import Progress, Receipt, bounded
from school.errors import MachineError
from school.system import clock, confine, files, processes
from school.system.gauge import RESERVE_BYTES, Bounds, free, half_of_room, starved
from school.verification import commands, printed, reports
from school.verification.reports import COMMAND, Outcomes

OUTPUT_BYTES_MAX: Final = 256 * 1024
RECEIPT_OUTPUT_BYTES: Final = 6000
GRACE_S: Final = 2.0
_UNBOUNDED: Final = Bounds()
_SHIM: Final = Path(__file__).with_name("record_unittest.py")

# pytest's own status for "I ran, and collected nothing".
_PYTEST_NO_TESTS: Final = 5
_SUMMARY_BYTES: Final = 16384
# What `cargo test` prints around the tests of one program; a test that exits with 0 keeps the second from coming.
_BEGINS: Final = re.compile(rb"^running \d+ tests?$", re.MULTILINE)
_ENDS: Final = re.compile(rb"^test result: ", re.MULTILINE)


class CheckRun(Receipt):
    """A receipt and what does not belong on disk: each test's outcome, and why nothing could be run."""

    _outcomes: Outcomes | None = PrivateAttr(default=None)
    _detail: str = PrivateAttr(default="")
    _cancelled: bool = PrivateAttr(default=False)

    @property
    def tests_by_name(self) -> Mapping[str, str] | None:
        """Each test by its id, or None where the runner names none (or its report is missing)."""
        return None if self._outcomes is None else self._outcomes.tests

    @property
    def detail(self) -> str:
        """One sentence where the outcome needs one."""
        return self._detail

    @property
    def cancelled(self) -> bool:
        """Whether it was ended because its teacher was told to stop."""
        return self._cancelled


class _Report:
    """A place outside the tree for what the runner says of its tests."""

    def __init__(self, scratch: Path) -> None:
        files.ensure_dir(scratch)
        self.folder = Path(tempfile.mkdtemp(prefix="report-", dir=scratch))
        self.path = self.folder / f"{secrets.token_hex(16)}.report"
        self.shim = self.folder / _SHIM.name

    def __enter__(self) -> Self:
        shutil.copyfile(_SHIM, self.shim)
        return self

    def __exit__(self, *_: object) -> None:
        files.remove_tree(self.folder)

    def read(self, runner: commands.Runner) -> Outcomes | None:
        if runner == "other":
            return None
        try:
            raw = files.read_bytes(self.path, limit_bytes=reports.REPORT_BYTES_MAX)
        except (OSError, ValueError):  # Not a plain file, or too large: no report that can be believed.
            return None
        return reports.read_junit(raw) if runner == "pytest" else reports.read_lines(raw)


def run_check(  # noqa: PLR0913 - what ran, where, on what and for whom; all are keywords
    argv: Sequence[str],
    *,
    worktree: Path,
    env: Mapping[str, str],
    timeout_s: float,
    marker: str,
    check: str,
    progress: Progress,
    at: Literal["base", "head"] = "head",
    commit: str = "",
    tree: str = "",
    environment: str = "",
    cancelled: Callable[[], bool] | None = None,
    scratch: Path | None = None,
    fail_fast: bool = False,
    confinement: confine.Policy | None = None,
    bounds: Bounds = _UNBOUNDED,
) -> CheckRun:
    """Run *argv* in *worktree*; see the module for what its outcome means. *scratch* defaults to ``env``'s TMPDIR.

    *bounds* says what it may use; one that uses more, or fills the disk itself, did not come to an end. Where it writes is
    filled in here, and that no file of it takes more than half of what is free.
    """
    places = (worktree, Path(env.get("TMPDIR") or worktree)) if confinement is None else confinement.write
    receipt = CheckRun(
        check=check,
        argv=list(argv),
        scope=commands.scope_of(argv),
        at=at,
        commit=commit,
        tree=tree,
        environment=environment,
        started_at=clock.now(),
    )
    runner = commands.recognise(argv).runner
    with _Report(scratch or Path(env.get("TMPDIR") or tempfile.gettempdir())) as report:
        finished = processes.run(
            commands.instrument(argv, report=str(report.path), shim=str(report.shim), fail_fast=fail_fast),
            cwd=worktree,
            env=dict(env),
            limits=processes.RunLimits(
                timeout_s=timeout_s,
                output_bytes=OUTPUT_BYTES_MAX,
                grace_s=GRACE_S,
                bounds=replace(
                    bounds, reserve_bytes=RESERVE_BYTES, folders=places, file_bytes=half_of_room(places)
                ),
            ),
            marker=marker,
            cancelled=cancelled,
            on_tick=lambda: progress(check),
            confinement=confinement and opening(confinement, report.folder),
        )
        outcomes = report.read(runner)
    if finished.filled and finished.reason in ("", "disk_full"):
        finished.reason, finished.detail = "disk", f"it filled the disk: {finished.filled}"
        free(
            (worktree, Path(env.get("TMPDIR") or worktree)), since=clock.parse(receipt.started_at).timestamp()
        )
    elif finished.reason == "disk_full":
        raise MachineError(f"{check}: ended before the disk was full: {finished.detail}")
    _fill(receipt, finished, outcomes, runner)
    if receipt.outcome != "passed" and (full := starved(worktree, Path(env.get("TMPDIR") or worktree))):
        # Nobody's fault but the disk's; and what was seen there must not be kept as what base does.
        raise MachineError(f"{check}: failed, and {full} is full")
    if confinement is not None:
        receipt.refused = refusals(finished.stdout.decode("utf-8", "replace"))
    receipt.refused += left_running(finished.left)
    return receipt


def _fill(receipt: CheckRun, finished: processes.Finished, outcomes: Outcomes | None, runner: str) -> None:
    receipt.exit_code = finished.exit_code
    receipt.duration_s = round(finished.duration_s, 3)
    receipt.output = bounded(finished.stdout.decode("utf-8", "backslashreplace"), RECEIPT_OUTPUT_BYTES)
    receipt.output_sha256 = finished.output_sha256
    receipt._cancelled = finished.reason == "cancelled"  # noqa: SLF001 - its own factory
    outcome, detail, kept = _judge(finished, outcomes, runner)
    receipt.outcome = outcome
    receipt._detail = detail  # noqa: SLF001
    receipt._outcomes = kept  # noqa: SLF001
    if kept is not None:
        receipt.tests = kept.counts()


_Judged = tuple[Literal["passed", "failed", "timed_out", "not_run", "no_tests"], str, Outcomes | None]


def _judge(finished: processes.Finished, outcomes: Outcomes | None, runner: str) -> _Judged:
    if finished.reason in ("not_found", "not_executable", "cancelled"):
        return "not_run", finished.detail or finished.reason, None
    if finished.reason:
        return "timed_out", finished.detail or f"ended at its limit ({finished.reason})", None
    if runner == "other":
        return _judge_by_status(finished)
    if outcomes is None:
        return _judge_without_report(finished, runner)
    return _judge_by_test(finished, outcomes)


def _judge_by_status(finished: processes.Finished) -> _Judged:
    if finished.exit_code != 0:
        return "failed", f"exit {finished.exit_code}", None
    if printed.says_no_tests(finished.stdout.decode("utf-8", "replace")):
        return "no_tests", "it says itself that it ran no test", None
    if len(_BEGINS.findall(finished.stdout)) > len(_ENDS.findall(finished.stdout)):
        return "failed", "exit 0, but a run of tests that began did not come to its own end", None
    return "passed", "", None


def _judge_without_report(finished: processes.Finished, runner: str) -> _Judged:
    if runner == "pytest" and finished.exit_code == _PYTEST_NO_TESTS:
        return "no_tests", "it collected no test", None
    if finished.exit_code == 0:
        return "failed", "exit 0, but the run did not come to its own end: no report of its tests", None
    return "failed", f"exit {finished.exit_code}, and no report of its tests", None


def _judge_by_test(finished: processes.Finished, outcomes: Outcomes) -> _Judged:
    if not outcomes.whole:
        return "failed", "the run did not come to its own end", _with_command(outcomes)
    if not outcomes.tests:
        return "no_tests", "it collected no test", outcomes
    if any(outcome in reports.BAD for outcome in outcomes.tests.values()):
        return "failed", f"exit {finished.exit_code}", outcomes
    if finished.exit_code != 0:
        return "failed", f"every test passed, but exit {finished.exit_code}", _with_command(outcomes)
    said = printed.contradiction(finished.stdout[-_SUMMARY_BYTES:].decode("utf-8", "replace"))
    if said:
        return (
            "failed",
            f"the report says that all passed, the runner printed {said!r}",
            _with_command(outcomes),
        )
    return "passed", "", outcomes


def _with_command(outcomes: Outcomes) -> Outcomes:
    return Outcomes({**outcomes.tests, COMMAND: "failed"}, outcomes.whole)

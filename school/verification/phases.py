"""Run a recipe: its phases in order, each within its own time, to the first failure; then the service, if there is one.

``verify(recipe, root, …) -> Result``. Every line is run by ``sh -c`` in *root*, below a warden, so that its whole
process tree has ended when the next one begins, on every path, success and Ctrl-C too. A phase's limit is for all its
lines together. A test line that says itself that it ran no test has failed, whatever its exit status.

A run of part of a recipe (``phases``, ``skip_start``) is ``targeted``, never ``full``; and full means everything that
this recipe declares, no more. How it went is data. Errors: MachineError where a process cannot be had at all.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from school.system import processes
from school.verification import compose
from school.verification.commands import kind_of
from school.verification.printed import says_no_tests
from school.verification.recipe import PHASES, Phase, Recipe
from school.verification.service import READY_S, Readiness, Service

PHASE_S: Final = 600.0
GRACE_S: Final = 5.0
OUTPUT_BYTES: Final = 8 * 1024 * 1024
TAIL_CHARS: Final = 2000
_LAST_LINE_BYTES: Final = 2048
# What a shell's variables must not decide about a check: which repository it is in, which tests are left out.
_NOT_PASSED: Final = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", processes.LIFELINE_VARIABLE)


class Watching(Protocol):
    """Who is told while phases run."""

    def began(self, phase: str, command: str) -> None: ...

    def goes_on(self, phase: str, command: str, seconds: float, last_line: str) -> None: ...

    def ended(self, run: PhaseRun) -> None: ...

    def answered(self, readiness: Readiness) -> None: ...


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One line of one phase. ``note`` says in words what an exit status does not."""

    phase: str
    command: str
    exit_code: int | None
    duration_s: float
    ok: bool
    timed_out: bool = False
    output: str = ""
    output_sha256: str = ""
    note: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "command": self.command,
            "exitCode": self.exit_code,
            "duration": round(self.duration_s, 3),
            "ok": self.ok,
            "timedOut": self.timed_out,
            "outputTail": self.output,
            "outputSha256": self.output_sha256,
            "note": self.note,
        }


@dataclass(slots=True)
class Result:
    """What ran, and how it went. ``note`` says why nothing did."""

    scope: Literal["full", "targeted"]
    phases: list[PhaseRun] = field(default_factory=list)
    readiness: Readiness | None = None
    note: str = ""

    @property
    def ok(self) -> bool:
        ready = self.readiness is None or self.readiness.ready
        return not self.note and ready and all(run.ok for run in self.phases)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which part of a recipe is wanted, and how long it may take; seconds by phase win over the recipe's own."""

    phases: Sequence[Phase] = PHASES
    skip_start: bool = False
    port: int | None = None
    timeouts: Mapping[str, float] = field(default_factory=dict)
    ready_s: float = READY_S

    @property
    def scope(self) -> Literal["full", "targeted"]:
        return "full" if set(self.phases) == set(PHASES) and not self.skip_start else "targeted"

    def wants(self, phase: Phase) -> bool:
        return phase in self.phases and not (phase == "start" and self.skip_start)


def environment(root: Path) -> dict[str, str]:
    """The caller's environment for the lines of a recipe in *root*: its own tools first, nothing of ``GIT_*``."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") and name not in _NOT_PASSED
    }
    own = [str(root / ".venv" / "bin"), str(root / "node_modules" / ".bin")]
    env["PATH"] = os.pathsep.join([*own, env.get("PATH") or os.defpath])
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env.setdefault("CI", "true")  # what would watch files and wait, runs once instead
    return env


def verify(recipe: Recipe, root: Path, selection: Selection, watching: Watching) -> Result:
    """Run what *selection* wants of *recipe*; see the module."""
    result = Result(selection.scope)
    wanted = [phase for phase in recipe.phases if selection.wants(phase)]
    if not wanted:
        asked = ", ".join(phase for phase in PHASES if selection.wants(phase))
        result.note = f"nothing to run: this recipe declares nothing for {asked or 'that'}"
        return result
    with tempfile.TemporaryDirectory(prefix="school-verify-") as scratch:
        lines = _Lines(root, environment(root), watching, Path(scratch))
        for phase in wanted:
            if phase == "start":
                result.readiness = lines.serve(recipe, selection)
                continue
            limit_s = selection.timeouts.get(phase) or recipe.timeouts.get(phase) or PHASE_S
            if not lines.run_phase(recipe, phase, limit_s, result.phases):
                break
    return result


class _Lines:
    """One run's directory, environment and watcher."""

    def __init__(self, root: Path, env: Mapping[str, str], watching: Watching, scratch: Path) -> None:
        self.root = root
        self.env = env
        self.watching = watching
        self.output = scratch / "output"
        self.marker = f"verify-{os.urandom(8).hex()}"

    def run_phase(self, recipe: Recipe, phase: Phase, limit_s: float, runs: list[PhaseRun]) -> bool:
        """Run every line of *phase*, to the first that fails; whether none did."""
        deadline = time.monotonic() + limit_s
        for line in recipe.commands(phase):
            self.watching.began(phase, line)
            run = self._line(phase, line, limit_s, max(0.0, deadline - time.monotonic()))
            runs.append(run)
            self.watching.ended(run)
            if not run.ok:
                return False
        return True

    def _line(self, phase: Phase, line: str, limit_s: float, left_s: float) -> PhaseRun:
        refused = compose.refusal(line, cwd=self.root, env=self.env, marker=self.marker)
        if refused:
            return PhaseRun(phase, line, None, 0.0, ok=False, note=refused)
        begun = time.monotonic()
        finished = processes.run(
            ["/bin/sh", "-c", line],
            cwd=self.root,
            env=self.env,
            limits=processes.RunLimits(timeout_s=left_s, output_bytes=OUTPUT_BYTES, grace_s=GRACE_S),
            marker=self.marker,
            output_path=self.output,
            on_tick=lambda: self.watching.goes_on(phase, line, time.monotonic() - begun, self.last_line()),
        )
        return _judged(phase, line, finished, limit_s)

    def serve(self, recipe: Recipe, selection: Selection) -> Readiness:
        """Start the service, see it answer, end it."""
        self.watching.began("start", recipe.start)
        begun = time.monotonic()
        service = Service(
            recipe,
            self.root,
            self.env,
            port=selection.port,
            ready_s=selection.timeouts.get("start") or recipe.timeouts.get("start") or selection.ready_s,
            marker=f"{self.marker}-start",
            output=self.output,
        )
        readiness = service.check(
            lambda: self.watching.goes_on("start", recipe.start, time.monotonic() - begun, self.last_line())
        )
        self.watching.answered(readiness)
        return readiness

    def last_line(self) -> str:
        """What the running line said last."""
        try:
            size = self.output.stat().st_size
            if size >= OUTPUT_BYTES:  # what comes now is no longer written there
                return ""
            with self.output.open("rb") as stream:
                stream.seek(max(0, size - _LAST_LINE_BYTES))
                lines = stream.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        return next((line.rpartition("\r")[2].strip() for line in reversed(lines) if line.strip()), "")


def _judged(phase: Phase, line: str, finished: processes.Finished, limit_s: float) -> PhaseRun:
    timed_out = finished.reason == "timeout"
    no_test = phase == "test" and _tests(line) and says_no_tests(finished.stdout.decode("utf-8", "replace"))
    notes = [
        f"ended at its limit: phase {phase} has {limit_s:g} s" if timed_out else "",
        finished.detail if finished.reason and not timed_out else "",
        "it says itself that it ran no test" if no_test else "",
        f"{finished.survivors} of its processes could not be ended" if finished.survivors else "",
    ]
    return PhaseRun(
        phase,
        line,
        None if finished.reason else finished.exit_code,
        finished.duration_s,
        ok=not finished.reason and finished.exit_code == 0 and not any(notes),
        timed_out=timed_out,
        output=finished.stdout.decode("utf-8", "replace")[-TAIL_CHARS:],
        output_sha256=finished.output_sha256,
        note="; ".join(note for note in notes if note),
    )


def _tests(line: str) -> bool:
    try:
        words = shlex.split(line)
    except ValueError:
        return True
    return not words or kind_of(words) == "test"

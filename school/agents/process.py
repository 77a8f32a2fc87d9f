"""One foreign process as an agent: environment, limits, output, claim, and how it ended in words.

A ``Job`` holds what one run needs; ``job.run(argv, stdin, timeout_s)`` does it once and returns an AgentOutcome. The
agent's output goes to ``stdout`` and ``stderr`` in ``output_dir``, bounded; the outcome carries head and tail as
valid text. Nothing that an agent does or prints raises here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from school.agents.claim import read_claim
from school.agents.registry import TOOL_DIR
from school.confinement import agent_caches, environment, left_running, refusals
from school.contracts import (
    OUTPUT_BYTES_MAX,
    AgentOutcome,
    AgentSpec,
    AgentTool,
    Gate,
    Limits,
    Progress,
    bounded,
)
from school.hooks import Hooks
from school.settings import Settings
from school.system import files, processes
from school.system.confine import Policy
from school.system.foreign import Streams
from school.system.gauge import RESERVE_BYTES, Bounds, starved
from school.system.processes import Finished, RunLimits

# Below this a failed agent most likely failed for want of space, which is not the student's fault.
# An agent whose model's endpoint has kept it waiting this long, or half its time, came to no end for want of an answer.
KEPT_WAITING_S: Final = 60.0
STDERR_BYTES_MAX: Final = OUTPUT_BYTES_MAX // 4
# What a shell says of one that a signal ended; many a program ends with 255 by itself.
_BY_SIGNAL: Final = range(129, 193)
_BETWEEN: Final = "--- stderr ---\n"
_MARK_BYTES: Final = 64
_REASONS: Final = {
    "timeout": "timeout",
    "stalled": "stalled",
    "startup": "startup",
    "cancelled": "interrupted",
    "not_found": "not_installed",
    "not_executable": "not_installed",
    "memory": "memory_limit",
    "processes": "process_limit",
    "disk": "disk_limit",
}


def agent_environment(
    spec: AgentSpec,
    *,
    bead: str,
    brief_path: Path,
    result_path: Path,
    tmpdir: Path,
    confined: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of an agent: what the contract lists, what its configuration names, and nothing else.

    *confined* are the variables of a confined one, which say where tools keep their caches.
    """
    caches = tmpdir / "cache"
    return processes.child_environment(
        environ=os.environ,
        pass_names=tuple(spec.env),
        set_values={
            # What tools leave beside the work by themselves would count as the agent's work.
            "PYTHONDONTWRITEBYTECODE": "1",
            "RUFF_CACHE_DIR": str(caches / "ruff"),
            "MYPY_CACHE_DIR": str(caches / "mypy"),
            **(confined or {}),
            **spec.set_env,
            "SCHOOL_BEAD": bead,
            "SCHOOL_BRIEF": str(brief_path),
            "SCHOOL_RESULT": str(result_path),
        },
        tmpdir=tmpdir,
        path_last=(TOOL_DIR,),
    )


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that one run of an agent needs."""

    spec: AgentSpec
    bead: str
    limits: Limits
    folder: Path
    brief_path: Path
    result_path: Path
    tmpdir: Path
    output_dir: Path
    settings: Settings
    progress: Progress
    cancelled: Callable[[], bool]
    hooks: Hooks
    gate: Gate
    confinement: Policy | None = None
    tools: Sequence[AgentTool] = ()
    urgent: Callable[[], bool] = bool

    @property
    def time_limit_s(self) -> float:
        """How long an agent that is prompted may take, for all its turns."""
        return self.spec.timeout_s or self.limits.agent_timeout_s

    def kept_waiting(self, seconds: float) -> bool:
        """Whether an answer that did not come in *seconds* is why the agent came to no end."""
        return seconds >= min(KEPT_WAITING_S, self.time_limit_s / 2)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        prefix: str = "",
        streams: Streams | None = None,
    ) -> AgentOutcome:
        """Run *argv* to its end, and the end of everything that it started; *prefix* names its output files.

        With *streams* somebody converses with it instead of *stdin* (see ``school.agents.talk``).
        """
        files.ensure_dir(self.tmpdir)
        files.ensure_dir(self.output_dir)
        self.progress("running")
        finished = processes.run(
            argv,
            cwd=self.folder,
            env=self.environment(),
            stdin=stdin,
            limits=self._limits(timeout_s),
            output_path=self.output_dir / f"{prefix}stdout",
            stderr_path=self.output_dir / f"{prefix}stderr",
            marker=self.bead,
            watch_dir=self.folder,
            cancelled=self.cancelled,
            confinement=self.confinement,
            streams=streams,
        )
        return self._outcome(finished, argv[0], self.output_dir / f"{prefix}stdout")

    def environment(self) -> dict[str, str]:
        """The agent's environment, and that of what it has us run."""
        return agent_environment(
            self.spec,
            bead=self.bead,
            brief_path=self.brief_path,
            result_path=self.result_path,
            tmpdir=self.tmpdir,
            confined=environment(self.confinement, agent_caches(self.tmpdir)),
        )

    def _limits(self, timeout_s: float) -> RunLimits:
        return RunLimits(
            timeout_s=timeout_s,
            startup_timeout_s=self.limits.startup_timeout_s,
            stall_timeout_s=self.limits.stall_timeout_s,
            output_bytes=self.limits.output_bytes,
            bounds=Bounds(
                memory_bytes=self.limits.memory_bytes,
                processes=self.limits.processes,
                disk_bytes=self.limits.disk_bytes,
                reserve_bytes=RESERVE_BYTES,
                folders=(self.folder, self.tmpdir) if self.confinement is None else self.confinement.write,
            ),
        )

    def _outcome(self, finished: Finished, program: str, output_path: Path) -> AgentOutcome:
        claim, notes = read_claim(self.result_path)
        problems = bool(notes)
        reason, detail = self._ending(finished, program)
        if not reason and claim.retry_at:
            reason, detail = "quota", f"the agent's quota is used up until {claim.retry_at}"
        output = _text(finished)
        if self.confinement is not None:
            notes = [*notes, *refusals(output)]
        notes = [*notes, *left_running(finished.left)]
        return AgentOutcome(
            claim=claim,
            reason=reason,
            detail=detail,
            exit_code=finished.exit_code,
            output=output,
            output_path=output_path,
            output_bytes=finished.output_bytes,
            usage={"wall_s": round(finished.duration_s, 3), "cpu_s": round(finished.cpu_s, 3)},
            claimed=os.path.lexists(self.result_path) and not problems,
            notes=notes,
        )

    def _ending(self, finished: Finished, program: str) -> tuple[str, str]:
        """Reason and sentence for how it ended; both empty for an exit status of 0."""
        name = self.spec.name
        if reason := _REASONS.get(finished.reason, finished.reason):
            said = f"; its last line: {finished.last_line}" if finished.last_line else ""
            what = f"{program}: " if reason == "not_installed" else ""
            return reason, f"{name}: {what}{finished.detail or finished.reason}{said}"
        if finished.exit_code == 0:
            return "", ""
        if full := starved(self.folder, self.tmpdir):
            return "disk_full", f"{name} failed and {full} is full"
        if finished.exit_code is None or finished.exit_code in _BY_SIGNAL:
            return "killed", f"{name} was killed (exit status {finished.exit_code})"
        return "exit", f"{name} ended with exit status {finished.exit_code}"


def _text(finished: Finished) -> str:
    """What it printed as valid text: stdout, and what it had to say on stderr."""
    errors = _excerpt(finished.stderr, STDERR_BYTES_MAX)
    said = bool(errors.strip())
    room = OUTPUT_BYTES_MAX - (len(errors.encode()) + len(_BETWEEN) + 1 if said else 0)
    text = _excerpt(finished.stdout, room, finished.output_bytes - len(finished.stderr))
    if not said or not text.strip():
        return errors if said else text
    return text + ("" if text.endswith("\n") else "\n") + _BETWEEN + errors


def _excerpt(raw: bytes, limit_bytes: int, total_bytes: int = 0) -> str:
    """Head and tail of *raw* as valid text; *total_bytes* is what there was before somebody else cut it."""
    if len(raw) <= limit_bytes:
        return bounded(raw.decode("utf-8", "backslashreplace"), limit_bytes)
    # Cut before it is decoded: what an agent prints may be as large as the limit on its output.
    room = limit_bytes - _MARK_BYTES
    head, tail = raw[: room // 3], raw[len(raw) - (room - room // 3) :]
    mark = f"\n[… {max(len(raw), total_bytes) - room} bytes left out …]\n"
    text = head.decode("utf-8", "backslashreplace") + mark + tail.decode("utf-8", "backslashreplace")
    return bounded(text, limit_bytes)

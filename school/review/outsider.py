"""A command line agent as a reviewer: its prompt goes in, its answer is what it prints, and it may change nothing.

``outsider(spec, context, …)`` is an ``Asks``. The command runs in the teacher's worktree at head, with the reduced environment
of foreign commands and only the variables that its configuration names, its prompt on stdin or in a file outside the
tree; confined, where the teacher's checks are, it may write to a folder of its own and to its own state only. How it
ended is the answer's reason: anything but exit status 0 in time is no answer, whatever was printed. The worktree and
where its HEAD stands are compared before and after; a difference is ``worktree_changed``, which voids the review.

``start`` and ``understand`` are handed in by who knows the CLI: what is run, and what its output means.

Not promised: that an agent which is not confined has not written elsewhere. Errors: MachineError of our side.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from school.confinement import for_reader
from school.contracts import AgentSpec, Answer, CheckContext, bounded
from school.system import files, processes
from school.system.git import Git
from school.system.processes import Finished, RunLimits

OUTPUT_BYTES_MAX: Final = 4 * 1024 * 1024
GRACE_S: Final = 2.0
_DETAIL_BYTES: Final = 1000
_REASONS: Final = {"not_found": "not_installed", "not_executable": "not_installed", "cancelled": "cancelled"}


class Started(Protocol):
    """What is run: the prompt on ``stdin``, or only in its file, which argv names; ``env`` goes on top."""

    @property
    def argv(self) -> list[str]: ...

    @property
    def stdin(self) -> bool: ...

    @property
    def env(self) -> dict[str, str]: ...


# The spec, the file with the prompt, a folder of its own; and the spec, that folder, how the command ended.
Starts = Callable[[AgentSpec, Path, Path], Started]
Understands = Callable[[AgentSpec, Path, Finished], Answer]


def outsider(spec: AgentSpec, context: CheckContext, *, start: Starts, understand: Understands) -> Outsider:
    """The reviewer that *spec* describes."""
    return Outsider(spec, context, start, understand)


@dataclass(slots=True)
class Outsider:
    """See the module."""

    spec: AgentSpec
    context: CheckContext
    start: Starts
    understand: Understands
    model: str = field(init=False)

    def __post_init__(self) -> None:
        self.model = self.spec.model or self.spec.name

    def __call__(self, system: str, prompt: str, *, timeout_s: float) -> Answer:
        folder = files.ensure_dir(self.context.scratch / "reviewer")
        before = _state(self.context.worktree)
        try:
            finished = self._run(f"{system}\n\n{prompt}", folder, timeout_s)
            if changed := _changes(before, _state(self.context.worktree)):
                return Answer(
                    model=self.model, reason="worktree_changed", detail=f"{self.spec.name} changed {changed}"
                )
            return self._answer(finished, folder)
        finally:
            files.remove_tree(folder)

    def _run(self, text: str, folder: Path, timeout_s: float) -> Finished:
        spec = self.spec
        raw = text.encode("utf-8", "backslashreplace")
        prompt_file = folder / "prompt.md"
        files.write_atomic(prompt_file, raw)
        started = self.start(spec, prompt_file, folder)
        key = [spec.api_key_env] if spec.api_key_env else []
        env = processes.child_environment(
            pass_names=[*spec.env, *key],
            set_values={"PYTHONDONTWRITEBYTECODE": "1", **spec.set_env, **started.env},
            tmpdir=files.ensure_dir(folder / "tmp"),
        )
        return processes.run(
            started.argv,
            cwd=self.context.worktree,
            env=env,
            stdin=raw if started.stdin else b"",
            limits=RunLimits(timeout_s=timeout_s, output_bytes=OUTPUT_BYTES_MAX, grace_s=GRACE_S),
            stderr_path=folder / "stderr",
            marker=f"{self.context.bag['bead']}-{self.context.role}",
            cancelled=self.context.cancelled,
            confinement=for_reader(
                self.context.confinement, spec, worktree=self.context.worktree, folder=folder
            ),
        )

    def _answer(self, finished: Finished, folder: Path) -> Answer:
        if finished.reason:
            reason = _REASONS.get(finished.reason, "timeout")
            return Answer(
                model=self.model,
                reason=reason,
                detail=f"{self.spec.name}: {finished.detail or finished.reason}",
            )
        answer = self.understand(self.spec, folder, finished)
        if finished.exit_code != 0 and not answer.reason:
            last = finished.stderr.decode("utf-8", "backslashreplace").strip() or finished.last_line
            answer.reason, answer.text = "exit", ""
            answer.detail = f"{self.spec.name} ended with exit status {finished.exit_code}" + (
                f": {bounded(last[-_DETAIL_BYTES:], _DETAIL_BYTES)}" if last else ""
            )
        answer.detail = answer.detail or f"{self.spec.name} said nothing"
        return answer


# --- what it must not change ------------------------------------------------------------------------------

_State = dict[str, tuple[int, ...]]


def _state(worktree: Path) -> _State:
    """Every entry below *worktree* as the file system knows it, and its HEAD; the change time cannot be set back."""
    found: _State = {}
    for folder, names, leaves in os.walk(worktree):
        for name in (*names, *leaves):
            path = os.path.join(folder, name)  # noqa: PTH118 - one Path a file would cost more than the walk
            try:
                seen = os.lstat(path)
            except FileNotFoundError:
                continue
            is_folder = name in names
            found[os.path.relpath(path, worktree)] = (
                (seen.st_mode, seen.st_ino)
                if is_folder
                else (seen.st_mode, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
            )
    found["HEAD"] = (int(Git(cwd=worktree).text("rev-parse", "HEAD"), 16),)
    return found


def _changes(before: _State, after: _State) -> str:
    """What differs, in words; '' when nothing does."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004
    return ", ".join(names[:3]) + more

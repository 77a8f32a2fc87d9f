"""What a working tree needs before its agent starts: ``[setup] copy_files`` and ``[setup] commands``.

``prepare(workspace, terms, ways)`` copies the named files from the user's working tree and runs the commands in the
worktree, in order, until one fails. Nothing that it makes may become part of the change: a copied file must not be
one that git tracks there, and set-up commands may change nothing that git tracks and leave nothing behind that it
would keep, but for new files that ``[setup] keep`` names.

Errors: SetupFailed, with a sentence and the output of the command; MachineError where our own files cannot be
written. Returns notes about what was odd but no failure (a file to copy that is not there).
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from school.confinement import caches, kept_caches, opening
from school.contracts import Terms, Workspace, bounded
from school.errors import LeafError
from school.settings import Settings
from school.system import files, processes
from school.system.confine import Policy
from school.system.git import Git
from school.system.processes import Finished, RunLimits

COPY_BYTES_MAX: Final = 64 * 1024 * 1024
OUTPUT_BYTES_MAX: Final = 4 * 1024 * 1024
NAMES_SHOWN: Final = 5


class SetupFailed(LeafError):  # noqa: N818 - the state of affairs, not a kind of mistake
    """The working tree could not be prepared; ``output`` is what the command printed."""

    def __init__(self, why: str, output: str = "") -> None:
        super().__init__(why)
        self.output = output


@dataclass(frozen=True, slots=True)
class Ways:
    """How set-up commands run: with which environment, told where, ended by whom, within what."""

    env: Mapping[str, str]
    output_path: Path
    cancelled: Callable[[], bool]
    confinement: Policy | None
    settings: Settings


def prepare(workspace: Workspace, terms: Terms, ways: Ways) -> list[str]:
    """Copy what is to be copied, run what is to be run; notes on what was odd."""
    notes = [note for name in terms.copy_files if (note := _copy(workspace, name))]
    for argv in terms.setup:
        _run(workspace, terms, argv, ways)
        if ways.cancelled():
            return notes
    if terms.setup:
        _refuse_leftovers(workspace, terms)
    return notes


def _copy(workspace: Workspace, name: str) -> str:
    """Copy one file of the user's into the worktree; a note when there is none."""
    source, target = workspace.repo / name, workspace.path / name
    if (
        Path(name).is_absolute()
        or ".." in Path(name).parts
        or not source.resolve().is_relative_to(workspace.repo.resolve())
    ):
        raise SetupFailed(f"[setup] copy_files: {name} lies outside the repository")
    if not source.is_file():
        return f"[setup] copy_files: there is no {source}"
    if source.stat().st_size > COPY_BYTES_MAX:
        raise SetupFailed(f"[setup] copy_files: {name} is larger than {COPY_BYTES_MAX} bytes")
    if Git(cwd=workspace.path).text("ls-files", "--", f":(literal){name}"):
        raise SetupFailed(
            f"[setup] copy_files: git tracks {name}, so its copy would become part of the change"
        )
    if not target.parent.resolve().is_relative_to(workspace.path.resolve()):
        raise SetupFailed(f"[setup] copy_files: {name} leads out of the working tree through a link")
    files.ensure_dir(target.parent)
    shutil.copy2(source, target, follow_symlinks=True)
    return ""


def _run(workspace: Workspace, terms: Terms, argv: list[str], ways: Ways) -> None:
    env, confinement = dict(ways.env), ways.confinement
    if confinement is not None:
        # Set-up runs on base, before there is an agent: what it downloads may serve the next bead.
        kept = kept_caches(ways.settings, "students")
        env, confinement = env | caches(kept), opening(confinement, kept)
    finished = processes.run(
        argv,
        cwd=workspace.path,
        env=env,
        limits=RunLimits(timeout_s=terms.setup_timeout_s, output_bytes=OUTPUT_BYTES_MAX),
        output_path=ways.output_path,
        marker=workspace.bead,
        cancelled=ways.cancelled,
        confinement=confinement,
    )
    if finished.exit_code != 0 and finished.reason != "cancelled":
        raise SetupFailed(f"[setup] `{shlex.join(argv)}` {_how(finished)}", _output(finished))


def _how(finished: Finished) -> str:
    how = finished.detail or finished.reason or f"ended with exit status {finished.exit_code}"
    return f"{how}: {finished.last_line}" if finished.last_line else how


def _output(finished: Finished) -> str:
    return bounded(finished.stdout.decode("utf-8", "backslashreplace"))


def _refuse_leftovers(workspace: Workspace, terms: Terms) -> None:
    """What set-up leaves in view of git would be taken for the agent's work, and the agent blamed for it."""
    kept = [f":(exclude,literal){name.rstrip('/')}" for name in (*terms.keep, *terms.copy_files)]
    # What git tracks is part of the change wherever it lies: no ``keep`` can take it out of the commit again.
    for looked_at, untracked, what, remedy in (
        ([":/"], "no", "tracks", "let a last set-up command put them back, or git not track them"),
        ([":/", *kept], "normal", "keeps", "let .gitignore or [setup] keep name them"),
    ):
        asked = ("status", "--porcelain", "-z", "--no-renames", f"--untracked-files={untracked}", "--")
        status = Git(cwd=workspace.path).run(*asked, *looked_at).stdout
        names = [os.fsdecode(entry[3:]) for entry in status.split(b"\0") if entry]
        if names:
            more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
            shown = ", ".join(names[:NAMES_SHOWN])
            raise SetupFailed(f"[setup] commands changed files that git {what}: {shown}{more}; {remedy}")

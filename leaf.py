"""The student leaf: the process that runs one bead, from its worktree to the hand-over (contract, section 9).

``python leaf.py --bead BEAD`` reads everything from the bookbag, which stands at ``running``: it makes the worktree,
prepares it, writes the brief, runs the agent, takes the snapshot, writes the bookbag, then the flag, and exits. It
does not wait for verdicts and does not remove its worktree; the conductor does both. ``StudentLeaf`` has the same
steps for a caller: ``boot, write_brief, run_task, write_output, signal_ready, wait_for_handoff, dispose``; using one
before ``boot`` raises LeafNotBootedError. However it ends, the work is in a commit and the record says in which.

While it lives it holds ``processes/<bead>.leaf.lock`` and keeps its step in ``processes/<bead>.json``. SIGTERM,
SIGINT or SIGHUP end the agent, salvage, and exit with 128+n; a second one ends the leaf at once, and so does the
death of the conductor after a second and a half: then whoever finds the bead salvages it (school.worktrees.salvage).

Exit: 0 handed over, 1 failed or blocked (the record says why), 2 no such bead, 3 the machine, 4 another leaf has it.
"""

from __future__ import annotations

from importlib import import_module

from school.system import lifeline

if __name__ == "__main__":
    lifeline.hold()  # before the rest is loaded, which takes its time
    import_module("school.system.redaction").guard_tracebacks()
    # By name, so that there is one module object for whoever imports it besides; and here, not to build it twice.
    import_module("leaf").main()

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

import bookbag
from school import masking
from school import settings as school_settings
from school.agents.ending import Ending, decide
from school.agents.stop import Stop
from school.confinement import Confinement, Place, for_leaf
from school.contracts import (
    AgentOutcome,
    AgentSpec,
    Snapshot,
    Terms,
    Workspace,
    bounded,
)
from school.errors import (
    AgentError,
    BookbagInvalidError,
    HeldError,
    LeafError,
    LeafNotBootedError,
    MachineError,
    SchoolError,
    WorktreeError,
)
from school.records.store import check_bead
from school.settings import Settings
from school.study import briefing
from school.system import clock, files, identity, log, processes
from school.worktrees import salvage

if TYPE_CHECKING:
    from school.contracts import LeafWorktrees
    from school.study.session import Study

LOCK_TIMEOUT_S: Final = 30.0
SUMMARY_BYTES_MAX: Final = 16 * 1024
EXIT_USAGE: Final = 2
# What a snapshot says of work that no commit of this repository can hold.
SUBMODULE_NOTE: Final = "submodule: "
DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_log = log.get("leaf")


class NothingToRunError(LeafError):
    """There is no bookbag that stands at ``running`` under that name."""

    exit_code: ClassVar[int] = 2


class StudentLeaf:
    """One bead's worktree and agent; the steps in order, each usable by itself."""

    def __init__(self, bead: str, *, settings: Settings | None = None, stop: Stop | None = None) -> None:
        self.bead = check_bead(bead)
        self.settings = settings or school_settings.current()
        self.stop = stop or Stop()
        self.bag: dict[str, Any] = {}
        self.workspace: Workspace | None = None
        self._tree: tuple[int, int] | None = None
        self.outcome: AgentOutcome | None = None
        self.notes: list[str] = []
        self._confined: Confinement | None = None

    # --- boot -------------------------------------------------------------------------------------------

    def boot(self) -> str:
        """Make the worktree of the bead, verified at its base commit, and prepare it; its path.

        Raises NothingToRunError when the record is not ``running``, WorktreeError when there can be no worktree (then
        nothing of it is left), SetupFailed when ``[setup]`` fails (then it stays, for the snapshot).
        """
        if self.workspace is None:
            self.bag = self.running()
            masking.learn(*([self._spec()] if self.bag.get("agent") else []))
            self._step("booting")
            self.workspace = self._worktrees().create(self.bag)
            self._tree = briefing.identity(self.workspace.path)
            self._prepare()
        return str(self.workspace.path)

    def running(self) -> dict[str, Any]:
        """The bookbag, which stands at ``running``; NothingToRunError if not."""
        bag = bookbag.read_bookbag(self.bead)
        if bag is None:
            raise NothingToRunError(
                f"{self.bead}: there is no bookbag of that name in {self.settings.bookbag_dir}"
            )
        if bag.get("status") != "running":
            raise NothingToRunError(
                f"{self.bead}: its bookbag stands at {bookbag.bookbag_state(bag)}, nothing to run"
            )
        return bag

    def _worktrees(self) -> LeafWorktrees:
        from school.worktrees import leaf_worktrees

        return leaf_worktrees(str(self.bag.get("worktrees") or "git"), settings=self.settings)

    def _prepare(self) -> None:
        terms = Terms.model_validate(self.bag.get("terms") or {})
        if not (terms.setup or terms.copy_files):
            return
        from school.agents.preparation import Ways, prepare
        from school.agents.process import agent_environment

        self._step("preparing")
        env = agent_environment(
            self._spec(),
            bead=self.bead,
            brief_path=self._brief_path(),
            result_path=self._result_path(),
            tmpdir=files.ensure_dir(self._tmpdir()),
        )
        ways = Ways(env, self._output_dir() / "setup", self.stop, self._confinement().policy, self.settings)
        self.notes += prepare(self._booted(), terms, ways)

    def _confinement(self) -> Confinement:
        """What agent and set-up run within; MachineError where it must be there and is not."""
        if self._confined is None:
            sandbox = Terms.model_validate(self.bag.get("terms") or {}).sandbox
            handed = (self._brief_path().parent, self._result_path().parent)
            place = Place(self._booted(), self._tmpdir(), handed)
            self._confined = for_leaf(sandbox, self._spec(), place, self.settings)
        return self._confined

    def _booted(self) -> Workspace:
        if self.workspace is None:
            raise LeafNotBootedError(f"{self.bead}: boot() comes first")
        return self.workspace

    def _spec(self) -> AgentSpec:
        if not self.bag.get("agent"):
            raise LeafError(f"{self.bead}: its bookbag names no agent")
        return AgentSpec.model_validate(self.bag["agent"])

    # --- places -----------------------------------------------------------------------------------------

    def _tmpdir(self) -> Path:
        return self.settings.scratch_dir / self.bead

    def _output_dir(self) -> Path:
        return files.ensure_dir(self.settings.outputs_dir / self.bead)

    def _brief_path(self) -> Path:
        return self._hidden("briefs") / f"{self.bead}.json"

    def _result_path(self) -> Path:
        return self._hidden("outputs") / f"{self.bead}.result.json"

    def _hidden(self, name: str) -> Path:
        return briefing.hidden(self._booted().path, self._tree, name, self._output_dir())

    # --- brief ------------------------------------------------------------------------------------------

    def write_brief(self, task_prompt: str | None = None) -> Path:
        """Write what the agent is asked to ``.hermes/briefs/<bead>.json``; *task_prompt* replaces the bag's task."""
        self._booted()
        self._step("briefing")
        task = str(self.bag.get("task") or "") if task_prompt is None else task_prompt
        brief, self.bag["persona"] = briefing.brief_of(
            self.bag, self._booted().path, self._result_path(), task, self.settings
        )
        files.write_json(self._output_dir() / "brief.json", brief)
        files.write_json(self._brief_path(), brief)
        return self._brief_path()

    # --- run --------------------------------------------------------------------------------------------

    def run_task(self, task_prompt: str | None = None) -> dict[str, Any]:
        """Run the agent, take the snapshot, write the bookbag; the bookbag as it is then."""
        from school.agents import run_agent
        from school.study.record import Ended, fields_of

        workspace = self._booted()
        brief_path = self._brief_path()
        if task_prompt is not None or not brief_path.is_file():
            brief_path = self.write_brief(task_prompt)
        if self.stop():
            return self.fail(self.stop.reason, "it was told to end before its agent began")
        study = self._study(workspace)
        with study:
            self.outcome = run_agent(
                self._spec(),
                workspace=workspace,
                bag=self.bag,
                brief_path=brief_path,
                result_path=self._result_path(),
                tmpdir=self._tmpdir(),
                output_dir=self._output_dir(),
                settings=self.settings,
                progress=self._step,
                cancelled=study.cancelled,
                hooks=study.hooks,
                gate=study.gate,
                confinement=self._confinement().policy,
                tools=study.tools,
                urgent=study.urgent,
            )
            study.ended(self.outcome)
        self._step("snapshot")
        snapshot = self._snapshot(workspace)
        ending = decide(self.outcome, self._spec(), changed=bool(snapshot.files_changed))
        if ending.reason == "interrupted" and self.stop():
            ending = Ending("failed", self.stop.reason or "interrupted")
        else:
            ending = study.ending(ending)
        if ending.status == "open" and any(note.startswith(SUBMODULE_NOTE) for note in snapshot.notes):
            ending = Ending("blocked", "submodule")
        run = Ended(self.outcome, snapshot, ending, study, workspace)
        return self._write(ending, fields_of(run, self.notes))

    def _study(self, workspace: Workspace) -> Study:
        from school.study.session import Study

        return Study(
            self.bag,
            workspace,
            self._spec(),
            self.settings,
            result_path=self._result_path(),
            scratch=self._tmpdir(),
            stop=self.stop,
        )

    def _snapshot(self, workspace: Workspace) -> Snapshot:
        from school.worktrees import snapshot

        return snapshot(workspace, bag=self.bag, settings=self.settings)

    def fail(self, reason: str, why: str, *, output: str = "", status: str = "failed") -> dict[str, Any]:
        """Save what is there, and write that the bead ended for *reason*; the bookbag as it is then."""
        fields: dict[str, Any] = {"output": output or (self.outcome.output if self.outcome else "")}
        if self.workspace is not None:
            try:
                snapshot = self._snapshot(self.workspace)
                fields |= salvage.fields_of(snapshot)
                why = f"{why}; {salvage.describe(snapshot, self.workspace)}"
            except WorktreeError as error:
                why = f"{why}; {error}"
        fields |= {
            "summary": bounded(why, SUMMARY_BYTES_MAX),
            "blockers": [why] if status == "blocked" else [],
        }
        return self._write(Ending("blocked" if status == "blocked" else "failed", reason), fields)

    def _write(self, ending: Ending, fields: dict[str, Any]) -> dict[str, Any]:
        own = {name: self.bag[name] for name in ("persona",) if self.bag.get(name)}
        place = {"worktree": str(self.workspace.path)} if self.workspace else {}
        said = self._confined.said if self._confined else self.bag.get("confinement")
        confinement = {"confinement": said or "none"}
        new = {**own, **place, **confinement, **fields, "status": ending.status, "reason": ending.reason}
        bag = bookbag.update_bookbag(self.bead, lambda old: old | new, by="leaf", lock_timeout=LOCK_TIMEOUT_S)
        if bag is None:
            raise LeafError(f"{self.bead}: its bookbag could not be locked, or is gone")
        self.bag = bag
        _log.info(
            "leaf.ended", bead=self.bead, status=ending.status, reason=ending.reason, ref=bag.get("ref")
        )
        return bag

    # --- hand over --------------------------------------------------------------------------------------

    def write_output(self, data: dict[str, Any] | None = None) -> Path:
        """Write the audit trail to ``.hermes/outputs/<bead>.json``; without *data*, what the bookbag holds."""
        self._booted()
        record = self.bag if data is None else data
        files.write_json(self._output_dir() / "output.json", record)
        path = self._hidden("outputs") / f"{self.bead}.json"
        files.write_json(path, record)
        return path

    def signal_ready(self) -> None:
        """Tell the teachers that the bookbag is worth reading."""
        self._booted()
        bookbag.BookbagSignal(self.bead).ready()

    def wait_for_handoff(self, timeout: float | None = None) -> tuple[str, str]:
        """Both verdicts, as far as they came in time."""
        self._booted()
        return bookbag.wait_for_verdicts(self.bead, timeout)

    def dispose(self) -> None:
        """Remove the worktree; twice is fine. WorktreeError when its work is not saved."""
        workspace = self._booted()
        self._worktrees().remove(workspace)
        self.clear_scratch()

    def clear_scratch(self) -> None:
        """Remove the agent's TMPDIR. What resists is no failure of the bead; the next sweep meets it again."""
        try:
            files.remove_tree(self._tmpdir())
        except MachineError as error:
            _log.warning("leaf.scratch_left", bead=self.bead, why=str(error))

    def _step(self, step: str) -> None:
        """Say what is being done, for whoever looks; a hint, so it may be lost."""
        path = self.settings.processes_dir / f"{self.bead}.json"
        base = {
            "name": self.bead,
            "kind": "leaf",
            "bead": self.bead,
            "parent": os.getppid(),
            "argv": sys.argv,
        }
        owner = processes.owner_fields(identity.this_process())
        files.write_plain(path, files.dumps({**base, **owner, "step": step, "since": clock.now()}))
        _log.info("leaf.stepped", bead=self.bead, step=step)


# --- the process ------------------------------------------------------------------------------------------


def run_leaf(bead: str, *, settings: Settings | None = None, stop: Stop | None = None) -> int:
    """Run the bead to its hand-over; what the process exits with. HeldError when another leaf has it."""
    leaf = StudentLeaf(bead, settings=settings, stop=stop)
    leaf.running()  # before anything is made for it
    lock = salvage.leaf_lock(leaf.settings, bead)
    files.ensure_dir(leaf.settings.processes_dir)
    if not lock.try_acquire("leaf"):
        raise HeldError(f"{bead}: another leaf, or its salvage, has it")
    try:
        bag = _lifecycle(leaf)
    finally:
        leaf.clear_scratch()
        lock.release()
    if leaf.stop() and bag["status"] != "open":
        return leaf.stop.exit_code
    return 0 if bag["status"] == "open" else 1


def _lifecycle(leaf: StudentLeaf) -> dict[str, Any]:
    from school.agents.preparation import SetupFailed

    try:
        leaf.boot()
        leaf.write_brief()
        bag = leaf.run_task()
    except SetupFailed as error:
        bag = leaf.fail("setup", str(error), output=error.output, status="blocked")
    except (SchoolError, OSError) as error:
        if not leaf.bag:
            raise
        bag = leaf.fail(_reason(error), str(error))
    if leaf.workspace is not None:
        _leave_trail(leaf)
        if bag["status"] == "open":
            leaf.signal_ready()
    return bag


def _leave_trail(leaf: StudentLeaf) -> None:
    """The record is written already: a trail that cannot be is a pity, and no reason to lose the hand-over."""
    try:
        leaf.write_output()
    except (SchoolError, OSError) as error:
        _log.warning("leaf.trail_missing", bead=leaf.bead, why=str(error))


def _reason(error: Exception) -> str:
    """The reason for the bookbag when our own side of the work failed."""
    causes = (error, error.__cause__)
    if any(getattr(cause, "errno", None) in DISK_FULL for cause in causes) or "No space left" in str(error):
        return "disk_full"
    return "agent" if isinstance(error, AgentError) else "machine"


@click.command()
@click.option("--bead", required=True, help="The bead to run; its bookbag must stand at running.")
def main(bead: str) -> None:
    """Run one bead: worktree, brief, agent, snapshot, hand-over."""
    stop = Stop()
    try:
        settings = school_settings.current()
        masking.install()
        log.configure("leaf", path=settings.logs_dir / "leaf.jsonl", to_stderr=True, json=False)
        stop.install()
        sys.exit(run_leaf(bead, settings=settings, stop=stop))
    except SchoolError as error:
        click.echo(f"leaf: {masking.text(str(error))}", err=True)
        sys.exit(EXIT_USAGE if isinstance(error, BookbagInvalidError) else error.exit_code)

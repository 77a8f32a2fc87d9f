"""The ground of a run: the repository held, leftovers of the dead swept, the clone there, the record begun.

``hold(repository, settings)`` is the exclusion that every writing command needs: one conductor per repository and
state directory, by a kernel lock that dies with its holder. ``open_ground`` adds what a run stands on, and takes down
at its end, however that comes, what must not outlive it: the lock, the conductor's own record, unused pins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import bookbag
from school.contracts import ProcessRecord, dump
from school.errors import HeldError, MachineError
from school.settings import Settings
from school.supervisor.board import Register
from school.supervisor.closing import Closing, Deliver
from school.supervisor.plan import Plan
from school.supervisor.request import RunRecord, begin_record, new_run_id
from school.supervisor.screen import Screen
from school.system import clock, files, locks, processes
from school.tasks import TaskLedger
from school.worktrees import Repository, SchoolClone, check_space, fingerprint, free_bytes

# A conductor that was just killed is still being buried; its lock is free when it is.
HOLD_WAIT_S: Final = 0.5
# A record with its reviews, written anew beside the old one, needs more than this.
FULL_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class Ground:
    """What a run stands on."""

    run: str
    record: RunRecord
    clone: SchoolClone
    ledger: TaskLedger
    register: Register
    closing: Closing
    shelf: bookbag.Shelf
    fingerprint: str


def lock_file(repository: Repository, settings: Settings) -> Path:
    """What ``hold`` locks; it stays, so where there is none nobody was ever at work here."""
    return settings.runs_dir / f"{repository.key}.lock"


@contextmanager
def hold(repository: Repository, settings: Settings, purpose: str) -> Iterator[None]:
    """Hold *repository* for this process; HeldError names who has it."""
    files.ensure_dir(settings.runs_dir)
    path = lock_file(repository, settings)
    lock = locks.KernelLock(path, show_owner=True)
    if not lock.acquire(HOLD_WAIT_S, purpose):
        owner = locks.holder(path)
        who = f"process {owner.pid} ({owner.purpose})" if owner else "another process"
        raise HeldError(f"{repository.path}: {who} is at work on this repository")
    try:
        yield
    finally:
        lock.release()


@contextmanager
def open_ground(plan: Plan, screen: Screen, deliver: Deliver) -> Iterator[Ground]:
    """Everything a run needs, made; MachineError where the machine does not allow it."""
    settings, repository = plan.settings, plan.repository
    run = new_run_id()
    # Before anything is made: a disk that is too full is not filled further.
    check_space(settings, repository, plan.leaves)
    with hold(repository, settings, f"run {run}"):
        refuse_unfit(settings)
        sweep(settings)
        clone = SchoolClone.open(repository, commits=[plan.base_commit], settings=settings)
        clone.pin(plan.base_commit, pin_name(plan.base_commit))
        facts = {"repo": str(repository.path), "repo_key": repository.key, "base": plan.base_commit}
        record = begin_record(settings, run, plan.request, facts)
        ledger = TaskLedger(settings, repository.key)
        closing = Closing(settings, repository, clone, deliver, ledger, screen.warn)
        with present(settings, repository, run):
            yield Ground(
                run=run,
                record=record,
                clone=clone,
                ledger=ledger,
                register=Register(plan, ledger),
                closing=closing,
                shelf=bookbag.Shelf(),
                fingerprint=fingerprint(repository),
            )


def refuse_unfit(settings: Settings) -> None:
    """Directories that can be written, on a file system whose locks hold."""
    for path in (settings.bookbag_dir, settings.signal_dir, settings.lock_dir, settings.school_dir):
        files.ensure_dir(path)
    for path in (settings.processes_dir, settings.logs_dir, settings.worktrees_dir):
        files.ensure_dir(path)
    locks.refuse_unfit(settings.lock_dir)


def refuse_full(settings: Settings) -> None:
    """MachineError, naming the folder, once a disk that holds records or trees takes no more.

    Asked at every look: whoever else writes there fails in its own way, and would be taken for slow.
    """
    devices: set[int] = set()
    for path in (*settings.record_dirs(), settings.school_dir, settings.worktrees_dir):
        try:
            device = path.stat().st_dev
        except OSError:
            continue  # not made yet
        if device not in devices:
            devices.add(device)
            free = free_bytes(path)
            if free < FULL_BYTES:
                raise MachineError(f"{path}: the disk is full: {free // 1024} KiB free")


def sweep(settings: Settings) -> None:
    """Temporary files of the dead, flags out of step, records of processes that are no more."""
    bookbag.sweep_leftovers()
    bookbag.sweep_signals()
    # A teacher that is killed while it leaves its tree clean leaves an index half written.
    admins = settings.clones_dir.glob("*.git/worktrees/teacher-*")
    for directory in (settings.processes_dir, settings.runs_dir, settings.worktree_records_dir, *admins):
        if directory.is_dir():
            files.sweep_temporaries(directory)
    for path in settings.processes_dir.glob("*.json"):
        if _is_of_the_dead(path):
            path.unlink(missing_ok=True)


def _is_of_the_dead(path: Path) -> bool:
    """A record whose process is gone, or of one that never came to be."""
    record = files.read_object(path)
    if record is None:
        return False
    owner = processes.owner_of(record)
    return owner is None or locks.is_dead(owner)


@contextmanager
def present(settings: Settings, repository: Repository, run: str) -> Iterator[None]:
    """This process' own record, for ``status`` and ``stop``, while the run lasts."""
    path = settings.processes_dir / f"conductor-{repository.key}.json"
    known = processes.owner_fields(processes.identity())
    record = ProcessRecord(name=path.stem, kind="conductor", step="running", since=clock.now(), **known)
    files.write_json(
        path, {**dump(record), "run": run, "repo": str(repository.path), "repo_key": repository.key}
    )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def pin_name(commit: str) -> str:
    """Pins are named by what they hold, so that two runs with one base share one."""
    return f"base-{commit}"


def base_pins(clone: SchoolClone) -> list[str]:
    """The names of every pin on a base, also of runs that were killed before they could take theirs away."""
    found = clone.git.text(
        "for-each-ref", "--format=%(refname:lstrip=3)", f"refs/school/pins/{pin_name('*')}"
    )
    return found.splitlines()

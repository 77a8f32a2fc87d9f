"""What a user does to the school between runs: clean up, retry a task, stop.

Each command that writes holds the repository as a run does (HeldError, exit 4, when one is at work). All of them can
be done twice. Nothing that an agent wrote is removed before it is in a commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import bookbag
from school.contracts import TEACHER_ROLES
from school.errors import MachineError
from school.settings import Settings
from school.supervisor.board import Bag, bag_of
from school.supervisor.closing import NOT_DELIVERED, Closing
from school.supervisor.opening import hold, lock_file
from school.system import clock, files, locks, processes
from school.tasks import TaskLedger
from school.worktrees import Repository, SchoolClone, clone_for, inspect_repository, reap
from school.worktrees.salvage import salvage

STOP_WAIT_S: Final = 90.0

Row = dict[str, Any]


def clean_worktrees(repo: Path, settings: Settings, *, dry_run: bool) -> list[Row]:
    """Remove what dead runs left; a tree whose leaf died unsaved is salvaged first, a living one left alone."""
    repository = inspect_repository(repo)
    with hold(repository, settings, "clean-worktrees"):
        if not dry_run:
            _salvage_dead(repository, settings)
        live = {bead for bead in bookbag.list_bookbags() if _needs_its_tree(bead, settings)}
        return reap(settings, repo_key=repository.key, dry_run=dry_run, live=live.__contains__)


def _salvage_dead(repository: Repository, settings: Settings) -> None:
    for bead, bag in bookbag.Shelf().scan().items():
        if bag.get("repo_key") == repository.key and bag.get("status") == "running":
            salvage(bead, reason="conductor_died", settings=settings)


def _needs_its_tree(bead: str, settings: Settings) -> bool:
    """A bead whose leaf is at work; a dead one's work is in a commit by now."""
    bag = bag_of(bead)
    if bag is None or bag.get("status") != "running":
        return False
    return locks.held_elsewhere(settings.processes_dir / f"{bead}.leaf.lock")


def retry(task_id: str, repo: Path, settings: Settings) -> Row:
    """Let the attempts of *task_id* begin again; a blocked bead of it goes to the archive.

    One that only could not be delivered is not done again: the next run tries its delivery again.
    """
    repository = inspect_repository(repo)
    ledger = TaskLedger(settings, repository.key)
    if not lock_file(repository, settings).exists():
        ledger.to_retry(task_id)  # refuses what was never tried, before anything is made
    with hold(repository, settings, f"retry {task_id}"):
        records = ledger.retry(task_id)
        archived, readmitted = [], []
        for bag in _blocked_of(task_id, repository):
            closing = _closing(bag, repository, settings, ledger)
            if str(bag.get("reason")).partition(":")[0] == NOT_DELIVERED:
                readmitted += [bag["bead"]] if closing.readmit(bag) else []
            else:
                archived += [bag["bead"]] if closing.close(bag) else []
    return {"task_id": task_id, "records": len(records), "archived": archived, "readmitted": readmitted}


def _blocked_of(task_id: str, repository: Repository) -> list[Bag]:
    return [
        bag
        for bag in bookbag.Shelf().scan().values()
        if bag.get("repo_key") == repository.key
        and bag.get("task_id") == task_id
        and bookbag.bookbag_state(bag) == "BLOCKED"
    ]


def _closing(bag: Bag, repository: Repository, settings: Settings, ledger: TaskLedger) -> Closing:
    clone = clone_for(bag, settings=settings)
    return Closing(settings, repository, clone, _nothing_to_deliver, ledger, lambda _: None)


def _nothing_to_deliver(bag: Bag, _repository: Repository, _clone: SchoolClone) -> Mapping[str, str]:
    raise AssertionError(f"{bag['bead']}: a blocked bead is not accepted")


# --- stop ---------------------------------------------------------------------------------------------------


def stop(repo: Path, settings: Settings) -> list[Row]:
    """End the conductor of this repository, and the teachers unless another conductor needs them.

    Only a process whose identity is proven is signalled; each is waited for within a bound.
    """
    repository = inspect_repository(repo)
    conductors = {path.stem: owner for path, owner in _present(settings, "conductor")}
    mine = f"conductor-{repository.key}"
    rows = [_end(mine, conductors[mine])] if mine in conductors else []
    if not (conductors.keys() - {mine}):
        rows += [
            _end(f"teacher-{role}", owner) for role in TEACHER_ROLES if (owner := _teacher(role, settings))
        ]
    return rows


def _present(settings: Settings, kind: str) -> list[tuple[Path, locks.Owner]]:
    found = []
    for path in sorted(settings.processes_dir.glob(f"{kind}-*.json")):
        owner = processes.owner_of(files.read_object(path) or {})
        if owner is not None and processes.alive(owner):
            found.append((path, owner))
    return found


def _teacher(role: str, settings: Settings) -> locks.Owner | None:
    """The living holder of *role*; None where nobody is."""
    if not locks.held_elsewhere(settings.teachers_dir / f"{role}.lock"):
        return None
    owner = processes.owner_of(files.read_object(settings.teachers_dir / f"{role}.json") or {})
    return owner if owner is not None and processes.alive(owner) else None


def _end(name: str, owner: locks.Owner) -> Row:
    if not processes.alive(owner):
        return {"process": name, "pid": owner.pid, "action": "gone"}
    processes.ask_to_end(owner.pid, owner.start)
    deadline = clock.monotonic() + STOP_WAIT_S
    waiting = clock.SystemClock()
    while processes.alive(owner) and clock.monotonic() < deadline:
        waiting.sleep(0.05)
    if processes.alive(owner):
        raise MachineError(f"{name}: process {owner.pid} has not ended within {STOP_WAIT_S:g} s of SIGTERM")
    return {"process": name, "pid": owner.pid, "action": "stopped"}

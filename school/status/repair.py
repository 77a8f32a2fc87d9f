"""``check --repair``: put right what can be, losing nothing.

Torn records go to ``corrupt/``; a record that is archived leaves the shelf; flags, dead locks, records of dead
processes and temporary files are swept; scores are folded again from their journal and the records of tasks made
again from the archive. Verdicts, outcomes, journals, worktrees and commits are never touched: what is wrong there
is for a person.

``put_right(settings, found)`` needs the repository's lock held by its caller, and these settings to be the
process' own. Raises MachineError for a disk that refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import bookbag
from school.errors import BookbagCorruptedError, BookbagInvalidError, LockTimeout
from school.scores import repair_scores
from school.settings import Settings
from school.status import look
from school.status.checks.leftovers import bead_lock
from school.status.checks.world import KINDS, Violation
from school.system import files, locks, log
from school.tasks import TaskLedger

# A lock that names nobody can be taken by its age alone, which is 5 s.
_UNNAMED_LOCK_S: Final = 6.0

Violations = Sequence[Violation]
_log = log.get("check")


def put_right(settings: Settings, found: Mapping[str, Violations]) -> None:
    """Repair what *found* names, where there is a repair."""
    for name, repair in _REPAIRS.items():
        if found.get(name):
            repair(settings, found[name])
            _log.info("check.repaired", check=name, beads=sorted({item.bead for item in found[name]}))


def _torn_records(settings: Settings, violations: Violations) -> None:
    for item in violations:
        if look.find(settings, item.bead) != (None, look.UNREADABLE):
            continue
        try:
            bookbag.read_bookbag(item.bead)  # looks again under the lock, and moves what is torn
        except (BookbagCorruptedError, BookbagInvalidError) as error:
            _log.warning("check.record_set_aside", bead=item.bead, why=str(error))


def _archived_twice(settings: Settings, violations: Violations) -> None:
    for item in violations:
        if look.read(settings.archive_dir / item.bead / "bookbag.json") is None:
            continue  # the live one may be all there is
        try:
            bookbag.archive_bookbag(item.bead)
        except (BookbagInvalidError, BookbagCorruptedError, LockTimeout) as error:
            _log.warning("check.not_repaired", bead=item.bead, why=str(error))


def _flags(_: Settings, __: Violations) -> None:
    bookbag.sweep_signals()


def _dead_locks(settings: Settings, violations: Violations) -> None:
    for item in violations:
        lock = bead_lock(settings, item.bead)
        if lock.acquire(0.0 if lock.owner() else _UNNAMED_LOCK_S, purpose="check --repair"):
            lock.release()


def _process_records(settings: Settings, _: Violations) -> None:
    live = {bead for bead, _, _ in look.live(settings)}
    for kind in KINDS:
        for record in look.processes(settings, kind):
            if str(record.get("bead") or "") not in live and not look.lives(record):
                (settings.processes_dir / f"{record['name']}.json").unlink(missing_ok=True)
    for bead in look.names(settings.processes_dir, ".leaf.lock"):
        path = settings.processes_dir / f"{bead}.leaf.lock"
        if bead not in live and not locks.held_elsewhere(path):
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}.owner").unlink(missing_ok=True)


def _scores(settings: Settings, _: Violations) -> None:
    repair_scores(settings)


def _task_records(settings: Settings, _: Violations) -> None:
    keys = {str(bag.get("repo_key")) for _, bag, _ in look.archived(settings) if bag and bag.get("repo_key")}
    for key in sorted(keys):
        TaskLedger(settings, key).rebuild()


def _temporaries(settings: Settings, _: Violations) -> None:
    for directory in settings.record_dirs():
        if directory.is_dir():
            files.sweep_temporaries(directory)


_REPAIRS: Final[Mapping[str, Callable[[Settings, Violations], None]]] = {
    "bookbag-valid": _torn_records,
    "one-place-a-bead": _archived_twice,
    "no-dead-locks": _dead_locks,
    "flags-in-step": _flags,
    "processes-accounted-for": _process_records,
    "scores-follow-journal": _scores,
    "task-records-agree": _task_records,
    "no-temporary-files": _temporaries,
}

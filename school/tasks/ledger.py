"""How far each task has come: one small record a task, ``tasks/<hash8>/<id>-<digest>.json``.

``TaskLedger(settings, repo_key).record(bag)`` enters how a bead ended, once per bead however often it is told;
``why_not_due(task)`` says whether the task is due (''), or what keeps it from being so; ``retry(task_id)`` lets
the attempts begin again; ``rebuild()`` makes the records anew from the archive, which is the truth behind them.

A task is known by repository, id and digest, so an edited task has a record of its own. Attempts that were cut
short (``UNCHARGED_REASONS``) are entered and cost nothing. A record that cannot be parsed is quarantined and
made again from the archive; it is never taken for absent.

Only the conductor that holds the repository's lock writes here. Raises BookbagInvalidError for a bag that names
no task, ConfigError from ``retry``, MachineError where the disk refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from school.contracts import SCHEMA_VERSION, UNCHARGED_REASONS, Record
from school.errors import BookbagInvalidError, ConfigError
from school.settings import Settings
from school.system import clock, faults, files
from school.tasks.taskfile import Task, id_problem
from school.wording import shown

DONE: Final = frozenset({"accepted", "no_change"})
MAX_INTERRUPTIONS: Final = 5
# A bead that could not be judged, set up or started says nothing about the student and costs no attempt.
_CHARGED_BLOCKS: Final = frozenset({"agent", "stuck"})
_DIGEST: Final = re.compile(r"[0-9a-f]{12}")


class Attempt(Record):
    """How one bead of the task ended."""

    bead: str
    outcome: str
    reason: str = ""
    charged: bool = True
    at: str = ""


class TaskRecord(Record):
    """The attempts of one task; those before ``counted_from`` were before its last retry."""

    task_id: str
    digest: str
    repo_key: str
    schema_: int = Field(default=SCHEMA_VERSION, alias="schema")
    attempts: list[Attempt] = Field(default_factory=list)
    counted_from: int = 0
    retried_at: str = ""

    @property
    def outcome(self) -> str:
        """``accepted`` or ``no_change`` once any attempt ended so, else the last one's outcome, else ''."""
        done = next((attempt.outcome for attempt in self.attempts if attempt.outcome in DONE), "")
        return done or (self.attempts[-1].outcome if self.attempts else "")

    @property
    def done(self) -> bool:
        return self.outcome in DONE

    @property
    def counted(self) -> list[Attempt]:
        """The attempts since the last retry."""
        return self.attempts[self.counted_from :]

    @property
    def charged(self) -> int:
        """How many attempts count against ``max_attempts``."""
        return sum(attempt.charged for attempt in self.counted)

    @property
    def blocked(self) -> str:
        """The reason for which the newest attempt is blocked, or ''."""
        last = self.counted[-1] if self.counted else None
        return (last.reason or "blocked") if last and last.outcome == "blocked" else ""

    @property
    def interruptions(self) -> int:
        """How many leaves died by themselves in a row; what a person or the machine cut short does not count."""
        run = 0
        for attempt in reversed(self.counted):
            if attempt.charged:
                break
            run += attempt.reason == "leaf_died"
        return run


def attempt_of(bag: Mapping[str, Any]) -> Attempt:
    """What a finished or blocked bag says about its attempt."""
    status, reason = str(bag.get("status") or "open"), str(bag.get("reason") or "")
    outcome = status if status in ("failed", "blocked") else str(bag.get("outcome") or "")
    if outcome not in ("accepted", "rejected", "failed", "blocked", "no_change"):
        raise BookbagInvalidError(f"{bag.get('bead')}: it has not ended, so there is no attempt to enter")
    charged = reason not in UNCHARGED_REASONS
    if outcome == "blocked":
        charged = reason.partition(":")[0] in _CHARGED_BLOCKS
    at = str(bag.get("scored_at") or bag.get("timestamp") or "")
    return Attempt(bead=str(bag["bead"]), outcome=outcome, reason=reason, charged=charged, at=at)


class TaskLedger:
    """The records of one repository's tasks."""

    def __init__(self, settings: Settings, repo_key: str) -> None:
        self.settings = settings
        self.repo_key = repo_key
        self.directory = settings.tasks_dir / _hash8(repo_key)

    def state(self, task: Task) -> TaskRecord:
        """The record of *task*; an empty one where nothing was tried yet."""
        return self._load(task.id, task.digest)

    def why_not_due(self, task: Task, *, max_interruptions: int = MAX_INTERRUPTIONS) -> str:
        """'' while *task* is due; else ``accepted``, ``no_change``, ``rejected``, ``failed`` or ``blocked``."""
        record = self.state(task)
        if record.done:
            return record.outcome
        if record.blocked or record.interruptions >= max_interruptions:
            return "blocked"
        if record.charged < task.max_attempts:
            return ""
        last = next(attempt for attempt in reversed(record.counted) if attempt.charged)
        return last.outcome

    def due(self, task: Task, *, max_interruptions: int = MAX_INTERRUPTIONS) -> bool:
        return not self.why_not_due(task, max_interruptions=max_interruptions)

    def knows(self, bag: Mapping[str, Any]) -> bool:
        """Whether *bag* names a task at all; every record of ours does, unless somebody else wrote over it."""
        try:
            self._identity(bag)
        except BookbagInvalidError:
            return False
        return True

    def record(self, bag: Mapping[str, Any]) -> TaskRecord:
        """Enter how *bag* ended; a second time changes nothing."""
        task_id, digest = self._identity(bag)
        record = self._load(task_id, digest)
        attempt = attempt_of(bag)
        known = next((i for i, item in enumerate(record.attempts) if item.bead == attempt.bead), None)
        if known is not None and record.attempts[known].model_dump() == attempt.model_dump():
            return record
        if known is None:
            record.attempts.append(attempt)
        else:  # a blocked bead that was taken up again has ended in another way since
            record.attempts[known] = attempt
        self._save(record)
        return record

    def retry(self, task_id: str) -> list[TaskRecord]:
        """Let every unfinished record of *task_id* begin its attempts again; ConfigError if there is none."""
        unfinished = self.to_retry(task_id)
        for record in unfinished:
            record.counted_from, record.retried_at = len(record.attempts), clock.now()
            self._save(record)
        return unfinished

    def to_retry(self, task_id: str) -> list[TaskRecord]:
        """The unfinished records of *task_id*; ConfigError if there is none."""
        records = [record for record in self.records() if record.task_id == task_id]
        if not records:
            raise ConfigError(f"retry {shown(task_id)}: no task of that id was ever tried on this repository")
        unfinished = [record for record in records if not record.done]
        if not unfinished:
            raise ConfigError(
                f"retry {shown(task_id)}: it is {records[-1].outcome}; there is nothing to retry"
            )
        return unfinished

    def records(self) -> list[TaskRecord]:
        """Every record of this repository, by task id; an unreadable one is made again first."""
        found = []
        for path in sorted(self.directory.glob("*.json")) if self.directory.is_dir() else []:
            task_id, _, digest = path.stem.rpartition("-")
            if not path.name.startswith(".") and _DIGEST.fullmatch(digest) and not id_problem(task_id, ""):
                found.append(self._load(task_id, digest))
        return found

    def rebuild(self) -> int:
        """Make every record anew from the archive and the blocked bags; returns how many there are.

        When a retry was is known only here and is kept; a blocked bead in the archive was retried, or it would
        still lie among the live ones.
        """
        rebuilt: dict[tuple[str, str], TaskRecord] = {}
        for bag, archived in _ended_bags(self.settings, self.repo_key):
            try:
                task_id, digest = self._identity(bag)
                attempt = attempt_of(bag)
            except BookbagInvalidError as error:
                _warn("ledger.bag_skipped", bead=str(bag.get("bead")), why=str(error))
                continue
            record = rebuilt.setdefault((task_id, digest), self._empty(task_id, digest))
            record.attempts.append(attempt)
            if archived and attempt.outcome == "blocked":
                record.counted_from = len(record.attempts)
        for (task_id, digest), record in rebuilt.items():
            self._keep_retry(record, self._read(self._path(task_id, digest)))
            self._save(record)
        return len(rebuilt)

    # --- files ------------------------------------------------------------------------------------------

    def _identity(self, bag: Mapping[str, Any]) -> tuple[str, str]:
        task_id, digest = str(bag.get("task_id") or ""), str(bag.get("task_digest") or "")
        if id_problem(task_id, "") or not _DIGEST.fullmatch(digest):
            raise BookbagInvalidError(f"{bag.get('bead')}: task_id {shown(task_id)} names no task of a file")
        return task_id, digest

    def _path(self, task_id: str, digest: str) -> Path:
        return self.directory / f"{task_id}-{digest}.json"

    def _empty(self, task_id: str, digest: str) -> TaskRecord:
        return TaskRecord(task_id=task_id, digest=digest, repo_key=self.repo_key)

    def _read(self, path: Path) -> TaskRecord | None:
        """The record in *path*; None if there is none; an unreadable one is moved out of the way, and None."""
        try:
            raw = files.read_json(path)
            return None if raw is None else TaskRecord.model_validate(raw)
        except (ValueError, ValidationError) as error:
            moved = files.quarantine(path, self.settings.corrupt_dir)
            _warn("ledger.quarantined", path=str(path), moved=str(moved), why=str(error)[:200])
            return None

    def _load(self, task_id: str, digest: str) -> TaskRecord:
        path = self._path(task_id, digest)
        existed = path.exists()
        record = self._read(path)
        if record is None and existed:
            self.rebuild()
            record = self._read(path)
        return record or self._empty(task_id, digest)

    def _save(self, record: TaskRecord) -> None:
        files.ensure_dir(self.directory)
        path = self._path(record.task_id, record.digest)
        with faults.around("task.told"):
            files.write_json(path, record.model_dump(mode="json", by_alias=True))

    @staticmethod
    def _keep_retry(record: TaskRecord, old: TaskRecord | None) -> None:
        if old is None or not old.retried_at:
            return
        record.retried_at = old.retried_at
        before = {attempt.bead for attempt in old.attempts[: old.counted_from]}
        counted = next((i for i, item in enumerate(record.attempts) if item.bead not in before), None)
        record.counted_from = max(record.counted_from, len(record.attempts) if counted is None else counted)


def _warn(event: str, **facts: object) -> None:
    from school.system import log

    log.get("tasks").warning(event, **facts)


def _hash8(repo_key: str) -> str:
    digest = repo_key.rpartition("-")[2]
    if not re.fullmatch(r"[0-9a-f]{8,64}", digest):
        raise BookbagInvalidError(f"{shown(repo_key)} is no key of a repository")
    return digest


def _ended_bags(settings: Settings, repo_key: str) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Archived bags, then the live blocked ones, of one repository, each group in the order of their time."""
    places = [
        (sorted(settings.archive_dir.glob("*/bookbag.json")), True),
        (sorted(settings.bookbag_dir.glob("*.json")), False),
    ]
    seen: set[str] = set()
    for paths, archived in places:
        bags = [bag for path in paths if (bag := _bag(path)) and bag.get("repo_key") == repo_key]
        for bag in sorted(bags, key=lambda item: str(item.get("timestamp"))):
            if bag["bead"] not in seen and (archived or bag.get("status") == "blocked"):
                seen.add(bag["bead"])
                yield bag, archived


def _bag(path: Path) -> Mapping[str, Any] | None:
    try:
        bag = files.read_json(path)
    except ValueError as error:
        _warn("ledger.bag_unreadable", path=str(path), why=str(error)[:200])
        return None
    name = path.parent.name if path.name == "bookbag.json" else path.stem
    return bag if isinstance(bag, dict) and bag.get("bead") == name else None

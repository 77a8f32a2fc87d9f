"""The bookbag: the JSON record of one bead, its states, its lock and its signal (contract, sections 5 to 7).

The record is the only truth about a bead; every participant reads and writes it here and nowhere else.

Calling sequence: ``write_bookbag`` creates a record and never overwrites one; ``update_bookbag`` runs a function on
the record under the bead's lock and writes what it returns; ``locked_update_bookbag`` does so with keywords;
``archive_bookbag`` ends it. ``Shelf().scan()`` is what a loop looks at. Every write is validated, judged by the table
of legal moves (``LEGAL_MOVES``), durable before it is visible, and counted in ``rev``; the write that completes the
two verdicts also derives what follows from them, and takes the ``.ready`` flag away.

Errors: BookbagInvalidError (bad name, bad record, illegal move, stale writer: the record stays as it was),
BookbagCorruptedError (not JSON: moved to ``corrupt/``), LockTimeout, LockLost, FileExistsError, MachineError.

What it does not promise: that ``.ready`` flags are complete (they are hints, and swept), or that a verdict has its
review file (whoever acts on an acceptance looks).
"""

from __future__ import annotations

import copy
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from school import settings
from school.errors import BookbagCorruptedError, BookbagInvalidError, LockLost, LockTimeout
from school.records.moves import (
    BLOCKED,
    LEGAL_MOVES,
    NEW,
    REQUIRED,
    REVIEWED,
    RUNNING,
    SCORED,
    STATES,
    WAITING,
    bookbag_state,
    move_refusal,
    refusal,
)
from school.records.shelf import BookbagSignal, Shelf, list_bookbags, sweep_signals
from school.records.store import (
    LOCK_TIMEOUT_S,
    acquire_lock,
    archive_path,
    bead_lock,
    check_bead,
    live_path,
    problems,
    read_archived,
    read_live,
    release_dead_locks,
    release_lock,
    settled,
    store,
)
from school.system import clock, faults, files, log, watch

__all__ = [
    "LEGAL_MOVES",
    "STATES",
    "BookbagCorruptedError",
    "BookbagInvalidError",
    "BookbagSignal",
    "LockLost",
    "LockTimeout",
    "Shelf",
    "acquire_lock",
    "archive_bookbag",
    "bead_lock",
    "bead_name",
    "bookbag_state",
    "list_bookbags",
    "locked_update_bookbag",
    "read_archived",
    "read_bookbag",
    "release_lock",
    "sweep_leftovers",
    "sweep_signals",
    "update_bookbag",
    "validate_bookbag",
    "wait_for_bookbag",
    "wait_for_verdicts",
    "write_bookbag",
]

_NAME_PART_MAX: Final = 50
_COPY_BYTES: Final = 1024 * 1024

Bag = dict[str, Any]


def bead_name(role: str, domain: str) -> str:
    """A new, unique name for an attempt: ``{role}-{domain}-{rand8}``."""
    parts = [_name_part(role), _name_part(domain), uuid.uuid4().hex[:8]]
    return check_bead("-".join(part for part in parts if part))


def _name_part(text: str) -> str:
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in text.lower())
    return "-".join(word for word in kept.split("-") if word)[:_NAME_PART_MAX].strip("-")


def validate_bookbag(bag: Mapping[str, Any]) -> list[str]:
    """What is wrong with *bag*, as sentences; an empty list when nothing is."""
    return problems(bag)


def read_bookbag(bead: str) -> Bag | None:
    """The live record; None when there is none (an archived one is read with ``read_archived``)."""
    return read_live(bead)


# --- writing ----------------------------------------------------------------------------------------------


def write_bookbag(bead: str = "", /, *, by: str = "conductor", **fields: Any) -> Bag:  # noqa: ANN401
    """Create the record of *bead*; FileExistsError when there is one, live or archived. Returns what was written.

    Needs at least task, student, domain and difficulty. ``status`` is ``open`` unless it says ``running``.
    """
    bead = check_bead(bead or fields.pop("bead", ""))
    if fields.get("bead", bead) != bead:
        raise BookbagInvalidError(f"{bead}: the fields name another bead, {fields['bead']!r}")
    if archive_path(bead).exists():
        raise FileExistsError(f"{bead}: already in the archive ({archive_path(bead)})")
    if missing := [name for name in REQUIRED if fields.get(name) in (None, "")]:
        raise BookbagInvalidError(f"{bead}: {', '.join(missing)}: missing")
    claimed_accepted = bool(fields.pop("accepted", False))
    bag = {"bead": bead, **fields, "schema": 1, "rev": 1, "history": []}
    bag["timestamp"] = fields.get("timestamp") or clock.now()
    bag = _finished(settled(bag), NEW, by)
    if claimed_accepted and not bag["accepted"]:
        raise BookbagInvalidError(f"{bead}: accepted does not follow from its reviews")
    if reason := move_refusal(NEW, bookbag_state(bag), by):
        raise BookbagInvalidError(f"{bead}: {reason}")
    with faults.around("record.made"):
        store(bag, create=True)
    return bag


def update_bookbag(
    bead: str, change: Callable[[Bag], Bag | None], *, by: str, lock_timeout: float = LOCK_TIMEOUT_S
) -> Bag | None:
    """Run *change* on a fresh record under the bead's lock, and write what it returns (or the dict it edited).

    *by* is who writes: ``leaf``, ``cto``, ``coo``, ``conductor`` or ``salvage``; each may change only what is its
    own. Returns the new record, or None when the lock could not be had or there is no such live bead. A change
    that breaks a rule raises BookbagInvalidError and leaves the record as it was; one that changes nothing writes
    nothing. *change* holds up everybody else, so it computes nothing slow.
    """
    check_bead(bead)
    try:
        with bead_lock(bead, lock_timeout):
            return _update_locked(bead, change, by)
    except LockTimeout as error:
        log.get("bookbag").warning("bookbag.lock_timed_out", bead=bead, by=by, why=str(error))
        return None


def _update_locked(bead: str, change: Callable[[Bag], Bag | None], by: str) -> Bag | None:
    old = read_live(bead, locked=True)
    if old is None or archive_path(bead).exists():
        return None
    edited = copy.deepcopy(old)
    returned = change(edited)
    new = settled(edited if returned is None else returned)
    if new == old:
        return old
    if reason := refusal(old, new, by):
        raise BookbagInvalidError(f"{bead}: {reason}")
    new["rev"] = int(old.get("rev", 0)) + 1
    before, after = bookbag_state(old), bookbag_state(new)
    new = _finished(new, before, by)
    with faults.around(f"record.{by}"):
        store(new)
    if after not in WAITING and before in WAITING:
        BookbagSignal(bead).clear()
    return new


def _finished(bag: Bag, before: str, by: str) -> Bag:
    """What the write itself adds: the history entry of a state first reached, and what completed verdicts imply."""
    after = bookbag_state(bag)
    if after == BLOCKED:
        bag["accepted"] = False  # what waits for a human does not count as accepted
    if (after == REVIEWED and before != REVIEWED) or (after == SCORED and before == BLOCKED):
        from school.records.derive import derive

        wanted = bag.get("accepted")
        bag |= derive(bag)
        if wanted and not bag["accepted"]:
            raise BookbagInvalidError(f"{bag['bead']}: accepted does not follow from its reviews")
    if after not in {step["state"] for step in bag.get("history") or []}:
        bag["history"] = [*(bag.get("history") or []), {"state": after, "at": clock.now(), "by": by}]
    return bag


def locked_update_bookbag(
    bead: str,
    lock_timeout: float = LOCK_TIMEOUT_S,
    *,
    by: str = "conductor",
    **fields: Any,  # noqa: ANN401
) -> Bag | None:
    """Set *fields* under the lock, the seed's form. A ``rev`` among them must be the record's, or it is refused."""
    return update_bookbag(bead, lambda bag: bag | fields, by=by, lock_timeout=lock_timeout)


# --- the end of a record ----------------------------------------------------------------------------------


def archive_bookbag(
    bead: str, extra: Mapping[str, bytes | Path] | None = None, *, only: Mapping[str, Any] | None = None
) -> Path:
    """Move the record into ``archive/<bead>/`` with *extra* files (name to content, or to a file to copy).

    Built aside, synced, renamed; only then the live record and its flag go. Doing it again after a crash at any
    step ends the same: once the archive is there it wins. Legal from SCORED, FAILED and BLOCKED. With *only* it is that
    very record or none (BookbagInvalidError): what was told of a bead's end is what is archived.
    """
    place = archive_path(bead)
    aside = Path(files.temporary_name(settings.current().bookbag_dir / bead))
    if not place.exists():
        _build_aside(aside, extra or {})
    try:
        with bead_lock(bead):
            return _archive_locked(bead, aside, place, only)
    finally:
        if aside.exists():
            files.remove_tree(aside)


def _build_aside(aside: Path, extra: Mapping[str, bytes | Path]) -> None:
    files.ensure_dir(aside)
    for name, content in extra.items():
        if name in ("", ".", "..", "bookbag.json") or "/" in name or "\0" in name:
            raise BookbagInvalidError(f"{name!r}: no name for a file in the archive")
        if isinstance(content, Path):
            _copy(content, aside / name)
        else:
            files.write_atomic(aside / name, content)


def _copy(source: Path, target: Path) -> None:
    try:
        with source.open("rb") as reading, target.open("xb") as writing:
            target.chmod(settings.FILE_MODE)
            shutil.copyfileobj(reading, writing, _COPY_BYTES)
            writing.flush()
            os.fsync(writing.fileno())
    except OSError as cause:
        raise files.machine_error(f"copy {source} into the archive", target, cause) from cause


def _archive_locked(bead: str, aside: Path, place: Path, only: Mapping[str, Any] | None) -> Path:
    if not place.exists():
        bag = read_live(bead, locked=True)
        if bag is None:
            raise BookbagInvalidError(f"{bead}: neither a live record nor an archived one")
        if reason := move_refusal(bookbag_state(bag), "DISPOSED", "conductor"):
            raise BookbagInvalidError(f"{bead}: {reason}")
        if only is not None and bag != only:
            raise BookbagInvalidError(
                f"{bead}: its record is not the one whose end was entered (rev {bag['rev']})"
            )
        _rename_into_archive(bag, aside, place)
    with faults.around("record.unshelved"):
        live_path(bead).unlink(missing_ok=True)
    files.fsync_dir(live_path(bead).parent)
    BookbagSignal(bead).clear()
    return place


def _rename_into_archive(bag: Bag, aside: Path, place: Path) -> None:
    steps = [*(bag.get("history") or []), {"state": "DISPOSED", "at": clock.now(), "by": "conductor"}]
    files.write_json(aside / "bookbag.json", {**bag, "rev": int(bag.get("rev", 0)) + 1, "history": steps})
    files.fsync_dir(aside)
    # The folder carries its bead's birth, so that a hundred thousand of them can be put in order unread.
    born = _born(bag)
    os.utime(aside, (born, born))
    files.ensure_dir(place.parent)
    with faults.around("record.archived"):
        aside.rename(place)
    files.fsync_dir(place.parent)


def _born(bag: Bag) -> float:
    """When the record was made; a seed record may not say so in a way that can be read, and then comes first."""
    try:
        return clock.parse(bag.get("timestamp", "")).timestamp()
    except ValueError:
        return 0.0


def sweep_leftovers() -> int:
    """Remove what killed writers left half-written; never a living writer's. Returns how many went.

    So does a record on the shelf that lies in the archive as well (its conductor died between the two), and the lock
    of somebody dead: nobody takes the one of a finished bead ever again.
    """
    here = settings.current()
    release_dead_locks()
    for bead in list_bookbags():
        if archive_path(bead).exists():
            _finish_archiving(bead)
    return sum(files.sweep_temporaries(place) for place in here.record_dirs() if place.is_dir())


def _finish_archiving(bead: str) -> None:
    try:
        if read_archived(bead) is not None:
            archive_bookbag(bead)
    except (BookbagCorruptedError, BookbagInvalidError, LockTimeout) as error:
        log.get("bookbag").warning("bookbag.archived_twice", bead=bead, why=str(error))


# --- waiting ----------------------------------------------------------------------------------------------


def wait_for_bookbag(bead: str, timeout: float | None = None) -> Bag | None:
    """The record once it is no longer running, live or archived; None when HANDOFF_TIMEOUT (or *timeout*) ran out."""
    return _wait(bead, timeout, lambda bag: bookbag_state(bag) != RUNNING)


def wait_for_verdicts(bead: str, timeout: float | None = None) -> tuple[str, str]:
    """Both verdicts (cto, coo), as soon as both are in or none can come any more; at the time limit what is there."""
    _wait(bead, timeout, lambda bag: bookbag_state(bag) not in {RUNNING, *WAITING})
    bag = _anywhere(bead) or {}
    return str(bag.get("cto_verdict", "")), str(bag.get("coo_verdict", ""))


def _anywhere(bead: str) -> Bag | None:
    return read_archived(bead) or read_live(bead)


def _wait(bead: str, timeout: float | None, done: Callable[[Bag], bool]) -> Bag | None:
    here = settings.current()
    limit_s = here.handoff_timeout_s if timeout is None else timeout
    deadline = clock.monotonic() + limit_s
    check_bead(bead)
    files.ensure_dir(here.signal_dir)
    # Armed before the first look: what changes in between wakes the wait instead of being missed.
    with watch.Watcher(here.signal_dir, rescan_s=here.handoff_poll_interval_s) as watcher:
        while True:
            bag = _anywhere(bead)
            if bag is not None and done(bag):
                return bag
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                return None
            watcher.wait(min(left_s, here.handoff_poll_interval_s))

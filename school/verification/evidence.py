"""The ledger of checks that really ran: which, on what files, how they ended, and whether that still holds.

``Ledger.begin(session, root)`` before a command, ``record(run, command, …)`` after it: one event for each check that
``classify`` can attribute, with commit and tree digest. ``status(session, root)`` says what is known of the files as
they are now: ``disabled, not_applicable, unverified, stale, passed, failed``. ``edited`` tells of an edit at once; any
other, by whatever program, is seen by the digest at the next call. An edit made while a check ran makes its event one
of no known tree: kept, and no evidence.

``passed`` is a passing check of a deciding kind (test, verify, ad_hoc; ``check`` where no test is declared) after the
latest edit, and no failing one that still stands: a failure stands until the same command, or the whole of it, passes
on the same files. ``stale`` is what a state says that was not written here: a pointer to an event before the edit.

SQLite in WAL mode; one short write transaction a call, so that any number of processes may write. Open it in each
process for itself, never across a fork, and close it. Events are never changed, and kept for 30 days, 100 a session
and root, 10,000 that no state points to.

Errors: MachineError when the file cannot be used; one that is no database is set aside and begun anew.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, Self

from school import settings as school_settings
from school.contracts import bounded
from school.system.clock import Clock, SystemClock, parse
from school.verification import evidence_db as db
from school.verification.classify import Attributed, attribute, declares_tests
from school.verification.digest import TreeDigest, TreeState, changed

Status = Literal["disabled", "not_applicable", "unverified", "stale", "passed", "failed"]

DEFAULT_SESSION: Final = "default"
KEPT_DAYS: Final = 30
EVENTS_MAX: Final = 100
UNREFERENCED_MAX: Final = 10_000
CHANGED_PATHS_MAX: Final = 200
SUMMARY_BYTES: Final = 2000
COMMAND_BYTES: Final = 4000
_PRUNE_EVERY: Final = 50
_DECIDING: Final = frozenset({"test", "verify", "ad_hoc"})
# These look for their tests from where they are started; other tools would be given another project there.
_WALKING: Final = frozenset({"pytest", "go"})


@dataclass(frozen=True, slots=True)
class Event:
    """One check that ran. ``tree`` is what it ran on; empty where the files changed meanwhile."""

    id: int
    created_at: str
    session: str
    cwd: str
    root: str
    command: str
    canonical_command: str
    kind: str
    scope: str
    status: str
    exit_code: int
    commit: str
    tree: str
    output_summary: str


@dataclass(frozen=True, slots=True)
class Run:
    """What was there when a command began."""

    session: str
    root: Path
    state: TreeState
    edits: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of the files now; ``event`` is the one that says so, ``newest`` the latest of each kind."""

    status: Status
    scope: str = ""
    event: Event | None = None
    newest: Mapping[str, Event] = field(default_factory=dict)
    last_edit_at: str | None = None
    changed_paths: tuple[str, ...] = ()


class Ledger:
    """The ledger at *path* (default: the settings'); without *enabled* nothing is made, read or written."""

    def __init__(self, path: Path | None = None, *, enabled: bool = True, clock: Clock | None = None) -> None:
        self.path = path or school_settings.current().evidence_db
        self.enabled = enabled
        self._clock = clock or SystemClock()
        self._guard = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._digests: dict[Path, TreeDigest] = {}
        self._seen: dict[Path, TreeState] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        with self._guard:
            if self._db is not None:
                self._db.close()
                self._db = None

    # --- around a command -------------------------------------------------------------------------------

    def begin(self, session: str, root: Path | None) -> Run | None:
        """Look at the files before a command; None where nothing is recorded."""
        if not self.enabled or root is None:
            return None
        root = root.resolve()
        state, row = self._look(session, root)
        return Run(session, root, state, row.edits)

    def record(
        self,
        run: Run | None,
        command: str,
        *,
        exit_code: int | None,
        output: str = "",
        cwd: Path | None = None,
        canonical: Sequence[str],
    ) -> list[Event]:
        """The events of *command*, which ended just now; none where its status is no evidence."""
        if not self.enabled or run is None:
            return []
        found = attribute(command, exit_code=exit_code, output=output, canonical=canonical)
        here = (cwd or run.root).resolve()
        placed = [(one, scope) for one in found if (scope := _scope_there(one, here, run.root))]
        if not placed:
            return []
        after = self._take(run.root)
        with self._writing() as connection:
            row = db.state(connection, run.session, run.root)
            clean = after.tree == run.state.tree and row.edits == run.edits
            if not clean:
                self._invalidate(row, changed(run.state, after), db.last_id(connection))
            events = []
            for one, scope in placed:
                events.append(
                    db.insert(
                        connection,
                        created_at=self._clock.now(),
                        session_id=run.session,
                        cwd=str(here),
                        root=str(run.root),
                        command=bounded(command, COMMAND_BYTES),
                        canonical_command=one.classification.canonical_command,
                        kind=one.classification.kind,
                        scope=scope,
                        status=one.classification.status,
                        exit_code=exit_code or 0,
                        commit_id=after.commit,
                        tree=after.tree if clean else "",
                        output_summary=bounded(output, SUMMARY_BYTES),
                    )
                )
            made = [Event(*values) for values in events]
            self._point(row, made, canonical, clean=clean)
            row.tree = after.tree
            db.save(connection, row, self._clock.now())
            db.keep_newest(connection, row, EVENTS_MAX)
            if any(event.id % _PRUNE_EVERY == 0 for event in made):
                self._prune(connection)
        return made

    def _point(self, row: db.State, made: Sequence[Event], canonical: Sequence[str], *, clean: bool) -> None:
        if not clean:
            row.valid_after = made[-1].id
            return
        row.newest.update({event.kind: event.id for event in made})
        if any(event.status == "passed" and event.kind in _deciding(canonical) for event in made):
            row.last_edit_at, row.changed_paths = None, []

    def enter(self, session: str, root: Path, **event: str | int) -> Event | None:
        """Enter a check that somebody else ran and saw the files of: all of an event but id, time and place.

        Its caller answers for ``commit`` and ``tree``. It speaks for the files only as long as they make that tree.
        """
        if not self.enabled:
            return None
        place = str(root.resolve())
        said = {**event, "commit_id": event["commit"], "session_id": session, "cwd": place, "root": place}
        with self._writing() as connection:
            made = Event(*db.insert(connection, created_at=self._clock.now(), **said))
            row = db.state(connection, session, place)
            if row.tree != made.tree:
                self._invalidate(row, [], made.id - 1)
                row.last_edit_at, row.tree = None, made.tree
            row.newest[made.kind] = made.id
            db.save(connection, row, self._clock.now())
            db.keep_newest(connection, row, EVENTS_MAX)
        return made

    # --- edits --------------------------------------------------------------------------------------------

    def edited(
        self, session: str, root: Path | None, paths: Sequence[str] = (), *, landed: bool = False
    ) -> bool:
        """Tell of an edit; whether it counts, because the files are others than when they were last looked at.

        One that is said to have *landed* counts too where the look came between edit and telling.
        """
        if not self.enabled or root is None:
            return False
        root = root.resolve()
        before = self._row(session, root)
        now, row = self._look(session, root, paths)
        if landed and row.edits == before.edits and any(os.fsencode(path) in now.entries for path in paths):
            with self._writing() as connection:
                row = db.state(connection, session, root)
                self._invalidate(row, paths, db.last_id(connection))
                db.save(connection, row, self._clock.now())
        return row.edits != before.edits

    def _row(self, session: str, root: Path) -> db.State:
        with self._reading() as connection:
            return db.state(connection, session, root)

    def _look(self, session: str, root: Path, paths: Sequence[str] = ()) -> tuple[TreeState, db.State]:
        """The files now; if they are not those that the state knows, somebody edited them."""
        before = self._seen.get(root)
        now = self._take(root)
        with self._writing() as connection:
            row = db.state(connection, session, root)
            if row.tree != now.tree:
                if row.tree or paths:
                    known = before is not None and before.tree == row.tree
                    names = changed(before, now) if known and before is not None else []
                    self._invalidate(row, [*names, *paths], db.last_id(connection))
                row.tree = now.tree
                db.save(connection, row, self._clock.now())
        return now, row

    def _invalidate(self, row: db.State, paths: Sequence[str], last_id: int) -> None:
        row.newest.clear()
        row.valid_after = last_id
        row.edits += 1
        row.last_edit_at = self._clock.now()
        row.changed_paths = list(dict.fromkeys([*row.changed_paths, *paths]))[-CHANGED_PATHS_MAX:]

    def _take(self, root: Path) -> TreeState:
        with self._guard:
            digest = self._digests.setdefault(root, TreeDigest(root))
            self._seen[root] = digest.take()
            return self._seen[root]

    # --- what is known --------------------------------------------------------------------------------

    def status(self, session: str, root: Path | None, *, canonical: Sequence[str]) -> Standing:
        """What holds for the files of *root* as they are now; *canonical* are its declared commands."""
        if not self.enabled:
            return Standing("disabled")
        if root is None:
            return Standing("not_applicable")
        state, row = self._look(session, root.resolve())
        with self._reading() as connection:
            rows = db.events(connection, session, row.root, EVENTS_MAX + len(row.newest))
        events = [Event(*values) for values in reversed(rows)]
        newest = {event.kind: event for event in events if row.newest.get(event.kind) == event.id}
        holding = [event for event in events if event.id > row.valid_after and event.tree == state.tree]
        deciding = _deciding(canonical)
        event = _verdict([event for event in holding if event.kind in deciding])
        status: Status = "unverified"
        if event is not None:
            status = "passed" if event.status == "passed" else "failed"
        elif any(number <= row.valid_after for number in row.newest.values()):
            status = "stale"
        scope = event.scope if event else ""
        return Standing(status, scope, event, newest, row.last_edit_at, tuple(row.changed_paths))

    def events(self, session: str, root: Path, limit: int = EVENTS_MAX) -> list[Event]:
        """The newest events of *session* in *root*, newest first."""
        if not self.enabled:
            return []
        with self._reading() as connection:
            return [Event(*values) for values in db.events(connection, session, str(root.resolve()), limit)]

    def prune(self) -> None:
        """Drop what is kept no longer; ``record`` does so now and then."""
        if self.enabled:
            with self._writing() as connection:
                self._prune(connection)

    def _prune(self, connection: sqlite3.Connection) -> None:
        before = parse(self._clock.now()) - timedelta(days=KEPT_DAYS)
        db.prune(connection, before.isoformat(timespec="microseconds"), UNREFERENCED_MAX)

    # --- the file -------------------------------------------------------------------------------------

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = db.connect(self.path)
        return self._db

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._guard, db.reading(self._connection(), self.path) as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._guard, db.transaction(self._connection(), self.path) as connection:
            yield connection


def _deciding(canonical: Sequence[str]) -> frozenset[str]:
    return _DECIDING if not canonical or declares_tests(canonical) else _DECIDING | {"check"}


def _verdict(events: Sequence[Event]) -> Event | None:
    """The event that says how the files stand: the newest failure that stands, else the fullest pass."""
    failing: dict[str, Event] = {}
    best: Event | None = None
    for event in events:
        if event.status == "failed":
            failing.pop(event.command, None)  # to the end: it is the newest
            failing[event.command] = event
            continue
        whole = event.scope == "full"
        for command, failure in list(failing.items()):
            same = failure.canonical_command == event.canonical_command or event.kind == "verify"
            if command == event.command or (whole and same):
                del failing[command]
        if best is None or whole or best.scope != "full":
            best = event
    return list(failing.values())[-1] if failing else best


def _scope_there(one: Attributed, cwd: Path, root: Path) -> str:
    """How much of the check of *root* it was, from where it ran; empty where it was none."""
    place = cwd
    for entered in one.places or ():
        place = (place / Path(entered).expanduser()).resolve()
    if one.places is None or not place.is_dir():
        return ""
    if one.script and Path(one.script).is_relative_to(root):
        return ""
    if place == root or one.script:
        return one.classification.scope
    return "targeted" if place.is_relative_to(root) and one.runner in _WALKING else ""

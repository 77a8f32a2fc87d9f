"""The file of the evidence ledger: its tables, and every statement that is put to them.

``connect(path)`` opens or makes it (0600, WAL); ``reading(connection, path)`` is one look,
``transaction(connection, path)`` one write, waiting its turn. The
rules of what an event means are in ``evidence``. Errors: MachineError, with the path.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from school.errors import MachineError
from school.system import files, log, redaction
from school.system.locks import KernelLock

SCHEMA_VERSION: Final = 1
# Writers take turns of milliseconds; whoever waits this long waits for something that is broken.
BUSY_S: Final = 60.0

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS verification_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at TEXT NOT NULL,
    session_id TEXT NOT NULL,
    cwd TEXT NOT NULL,
    root TEXT NOT NULL,
    command TEXT NOT NULL,
    canonical_command TEXT NOT NULL,
    kind TEXT NOT NULL,
    scope TEXT NOT NULL,
    status TEXT NOT NULL,
    exit_code INTEGER NOT NULL,
    commit_id TEXT NOT NULL,
    tree TEXT NOT NULL,
    output_summary TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS verification_events_by_place ON verification_events (session_id, root, id DESC);
CREATE INDEX IF NOT EXISTS verification_events_by_time ON verification_events (created_at);
CREATE TABLE IF NOT EXISTS verification_state (
    session_id TEXT NOT NULL,
    root TEXT NOT NULL,
    newest_json TEXT NOT NULL,
    valid_after INTEGER NOT NULL,
    edits INTEGER NOT NULL,
    tree TEXT NOT NULL,
    last_edit_at TEXT,
    changed_paths_json TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (session_id, root)
);
CREATE TRIGGER IF NOT EXISTS verification_events_stay BEFORE UPDATE ON verification_events
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
"""
_COLUMNS: Final = (
    "id, created_at, session_id, cwd, root, command, canonical_command, kind, scope, status, exit_code, commit_id, tree,"
    " output_summary"
)
_REFERENCED: Final = "SELECT value FROM verification_state, json_each(verification_state.newest_json)"


@dataclass(slots=True)
class State:
    """A row of ``verification_state``: ``newest`` maps a kind to an event; events up to ``valid_after`` are void."""

    session: str
    root: str
    newest: dict[str, int] = field(default_factory=dict)
    valid_after: int = 0
    edits: int = 0
    tree: str = ""
    last_edit_at: str | None = None
    changed_paths: list[str] = field(default_factory=list)


def connect(path: Path) -> sqlite3.Connection:
    """The database at *path*, made if it is not there; one that is no database is set aside.

    Opening takes turns: SQLite keeps a database and its ``-wal`` together by their names alone, so nobody may begin a new
    one while somebody moves the old one away, and the switch to WAL waits for nobody.
    """
    with KernelLock(path.with_name(f"{path.name}.lock"), show_owner=False):
        try:
            return _opened(path)
        except sqlite3.OperationalError as cause:
            raise MachineError(f"{path}: the evidence ledger cannot be opened: {cause}") from cause
        except sqlite3.DatabaseError as cause:
            _set_aside(path, cause)
        try:
            return _opened(path)
        except sqlite3.Error as cause:
            raise MachineError(f"{path}: the evidence ledger cannot be opened: {cause}") from cause


def _opened(path: Path) -> sqlite3.Connection:
    files.ensure_dir(path.parent)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as cause:
        raise files.machine_error("open the evidence ledger", path, cause) from cause
    # The guard of the one who calls makes it safe between threads.
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode=WAL")
    # Whole after a power cut, if without the last few events.
    connection.execute("PRAGMA synchronous=NORMAL")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise MachineError(
            f"{path}: made by a newer version (schema {version}, this one knows {SCHEMA_VERSION})"
        )
    if version < SCHEMA_VERSION:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _statements(_SCHEMA):
            connection.execute(statement)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _set_aside(path: Path, why: sqlite3.DatabaseError) -> None:
    """Move a file that is no database out of the way, its ``-wal`` first: a new one must not be given that to replay."""
    aside = path.parent / "corrupt"
    for name in (f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(FileNotFoundError):
            files.quarantine(path.with_name(name), aside)
    moved = files.quarantine(path, aside)
    log.get(__name__).warning("evidence.set_aside", path=str(path), aside=str(moved), why=str(why))


@contextmanager
def reading(connection: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """One look."""
    try:
        yield connection
    except sqlite3.Error as cause:
        raise MachineError(f"{path}: the evidence ledger cannot be read: {cause}") from cause


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """One write; all of it or nothing."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    except sqlite3.Error as cause:
        raise MachineError(f"{path}: the evidence ledger cannot be written: {cause}") from cause


# --- rows -----------------------------------------------------------------------------------------------------


def state(connection: sqlite3.Connection, session: str, root: Path | str) -> State:
    """What is kept for *session* in *root*; empty where nothing is."""
    row = connection.execute(
        "SELECT newest_json, valid_after, edits, tree, last_edit_at, changed_paths_json FROM verification_state"
        " WHERE session_id = ? AND root = ?",
        (session, str(root)),
    ).fetchone()
    if row is None:
        return State(session, str(root))
    newest, valid_after, edits, tree, last_edit_at, paths = row
    return State(
        session, str(root), json.loads(newest), valid_after, edits, tree, last_edit_at, json.loads(paths)
    )


def save(connection: sqlite3.Connection, row: State, now: str) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO verification_state VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row.session,
            row.root,
            json.dumps(row.newest),
            row.valid_after,
            row.edits,
            row.tree,
            row.last_edit_at,
            json.dumps(row.changed_paths),
            now,
        ),
    )


def insert(connection: sqlite3.Connection, **values: str | int) -> tuple[Any, ...]:
    """Add an event; its row."""
    names = _COLUMNS.split(", ")[1:]
    row = tuple(redaction.text(value) if isinstance(value := values[name], str) else value for name in names)
    marks = ", ".join("?" * len(names))
    cursor = connection.execute(
        f"INSERT INTO verification_events ({', '.join(names)}) VALUES ({marks})",  # noqa: S608 - our own columns
        row,
    )
    return (cursor.lastrowid, *row)


def events(connection: sqlite3.Connection, session: str, root: str, limit: int) -> list[tuple[Any, ...]]:
    """The newest events first."""
    return connection.execute(
        f"SELECT {_COLUMNS} FROM verification_events WHERE session_id = ? AND root = ? ORDER BY id DESC LIMIT ?",  # noqa: S608
        (session, root, limit),
    ).fetchall()


def last_id(connection: sqlite3.Connection) -> int:
    """The id of the newest event that ever was."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'verification_events'").fetchone()
    return int(row[0]) if row else 0


def keep_newest(connection: sqlite3.Connection, row: State, most: int) -> None:
    """Drop all but the *most* newest events of one session and root, and those its state points to."""
    connection.execute(
        "DELETE FROM verification_events WHERE session_id = :session AND root = :root AND id < ("
        " SELECT min(id) FROM (SELECT id FROM verification_events WHERE session_id = :session AND root = :root"
        " ORDER BY id DESC LIMIT :most))"
        " AND id NOT IN (SELECT value FROM json_each(:newest))",
        {
            "session": row.session,
            "root": row.root,
            "most": most,
            "newest": json.dumps(list(row.newest.values())),
        },
    )


def prune(connection: sqlite3.Connection, before: str, unreferenced: int) -> None:
    """Drop states and events older than *before*, and all but the newest *unreferenced* that no state points to."""
    connection.execute("DELETE FROM verification_state WHERE updated_at < ?", (before,))
    connection.execute(
        f"DELETE FROM verification_events WHERE created_at < ? AND id NOT IN ({_REFERENCED})",  # noqa: S608
        (before,),
    )
    connection.execute(
        "DELETE FROM verification_events WHERE id IN (SELECT id FROM verification_events"  # noqa: S608
        f" WHERE id NOT IN ({_REFERENCED}) ORDER BY id DESC LIMIT -1 OFFSET ?)",
        (unreferenced,),
    )

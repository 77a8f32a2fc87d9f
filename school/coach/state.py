"""What a coach remembers of a session between turns and processes: one file a session, behind one lock.

``Memory(folder).session(session_id)`` is a context manager: it takes the lock, loads, hands out the ``State``, and saves it
when the block ends well. Nothing that crosses a model call is done inside one: whoever asked a model comes back and loads
again, so a background review cannot overwrite spending, holds or notes that were added meanwhile. ``look`` only reads.

A file that cannot be read is put aside, under ``corrupt``, and the session begins anew. ``prune`` removes the oldest.
Not promised: that the newest state survives a power cut.
Errors: MachineError where the disk refuses or the lock is not had in time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from school.coach.ledger import Ledger, cut
from school.contracts import Record, dump
from school.errors import MachineError
from school.system import clock, files
from school.system.clock import Clock
from school.system.locks import KernelLock

LOCK_TIMEOUT_S: Final = 5.0
PENDING_MAX: Final = 20
CARDS_MAX: Final = 100
ADVICE_MAX: Final = 200
SEEN_MAX: Final = 200
HELD_MAX: Final = 60
SESSION_NOTE_CHARS_MAX: Final = 600
_SESSION_ID_CHARS_MAX: Final = 200


class Note(Record):
    """A finding on its way to the next turn."""

    turn: int
    severity: str
    title: str
    body: str
    evidence: str = ""
    digest: str = ""
    source: str = ""
    created_at: str = ""


class Spent(Record):
    """What the coach's own calls have cost; ``unpriced`` counts those of which nobody said what they cost."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    by: dict[str, int] = Field(default_factory=dict)


class State(Record):
    """One session. ``turn`` is the number of the newest turn, ``base`` the commit that it began at."""

    session: str = ""
    created_at: str = ""
    touched_at: str = ""
    turn: int = 0
    turn_id: str = ""
    base: str = ""
    ledger: list[dict[str, Any]] = Field(default_factory=list)
    pending: list[Note] = Field(default_factory=list)
    cards: list[dict[str, Any]] = Field(default_factory=list)
    advice: list[dict[str, Any]] = Field(default_factory=list)
    seen: list[str] = Field(default_factory=list)
    held: list[str] = Field(default_factory=list)
    spent: Spent = Field(default_factory=Spent)
    calls: dict[str, int] = Field(default_factory=dict)
    corrective: int = 0
    last_active_turn: int = 0
    last_active_digest: str = ""
    last_pre_turn: int = 0
    last_change_digest: str = ""
    gated_turn: int = 0
    paused: bool = False
    note: str = ""
    primary: str = ""

    def turns(self) -> Ledger:
        return Ledger.read(self.ledger)

    def tell(self, at: str, kind: str, **facts: Any) -> None:  # noqa: ANN401 - JSON
        """Add to what was advised, held, followed, skipped or went wrong."""
        self.advice.append({"adviser": "coach", "kind": kind, "at": at, "turn": self.turn, **facts})
        del self.advice[:-ADVICE_MAX]

    def tell_once(self, at: str, kind: str, title: str) -> None:
        """The same, unless this session has been told already."""
        if not any((row.get("kind"), row.get("title")) == (kind, title) for row in self.advice):
            self.tell(at, kind, title=title)

    def bound(self) -> None:
        """Let nothing grow for ever; of each list the oldest go."""
        for rows, most in (
            (self.pending, PENDING_MAX),
            (self.cards, CARDS_MAX),
            (self.seen, SEEN_MAX),
            (self.held, HELD_MAX),
        ):
            del rows[:-most]
        self.note = cut(self.note, SESSION_NOTE_CHARS_MAX)


def file_name(session_id: str) -> str:
    """A file name for any session id: readable as far as it is plain, and never the same for two."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", session_id)[:40].strip("-")
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{plain or 'session'}-{digest}.json"


class Memory:
    """All sessions of one state directory."""

    def __init__(self, folder: Path, clock_: Clock) -> None:
        self.folder = folder
        self._clock = clock_
        self._here = threading.Lock()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """The one lock, for threads and processes alike."""
        lock = KernelLock(self.folder / ".lock", show_owner=False)
        # The background and a turn meet here: they wait for each other at once, and look now and then for processes only.
        held = self._here.acquire(timeout=LOCK_TIMEOUT_S)
        try:
            if not held or not lock.acquire(LOCK_TIMEOUT_S):
                raise MachineError(f"{lock.path}: somebody holds it for more than {LOCK_TIMEOUT_S:g} s")
            try:
                yield
            finally:
                lock.release()
        finally:
            if held:
                self._here.release()

    @contextlib.contextmanager
    def session(self, session_id: str) -> Iterator[State]:
        """The session as it is now, saved at the end of the block."""
        with self.locked():
            state = self._load(session_id)
            yield state
            state.bound()
            state.touched_at = self._clock.now()
            self._save(self.path(session_id), state)

    def look(self, session_id: str) -> State:
        """The session as it is now, for reading."""
        with self.locked():
            return self._load(session_id)

    def path(self, session_id: str) -> Path:
        return self.folder / "sessions" / file_name(session_id)

    def _save(self, path: Path, state: State) -> None:
        # At each turn, so neither by the slow encoder that indents, nor waiting for the disk: a kill loses nothing,
        # and a power cut no more than advice.
        data = files.dumps(dump(state), indent=None)
        files.ensure_dir(path.parent)
        files.write_plain(path, data)

    def _load(self, session_id: str) -> State:
        path = self.path(session_id)
        known = cut(session_id, _SESSION_ID_CHARS_MAX)
        fresh = State(session=known, created_at=self._clock.now())
        try:
            record = files.read_json(path)
            if record is None:
                return fresh
            state = State.model_validate(record)
        except (ValueError, ValidationError):
            lost = files.quarantine(path, self.folder / "corrupt")
            fresh.tell(self._clock.now(), "error", title="state lost", detail=f"it lies in {lost.name}")
            return fresh
        return state

    def prune(self, *, most: int, days: float) -> int:
        """Remove the files of sessions that are old, or beyond the newest *most*, and what killed writers left; how many."""
        # The files' own times are the machine's, so they are compared with its clock.
        oldest = clock.parse(clock.now()) - timedelta(days=days)
        with self.locked():
            aged = sorted(self._aged(), reverse=True)
            going = [
                path for at, (stamp, path) in enumerate(aged) if at >= most or stamp < oldest.timestamp()
            ]
            for path in going:
                files.discard(path)
            files.sweep_temporaries(self.folder / "sessions")
        return len(going)

    def _aged(self) -> Iterator[tuple[float, str]]:
        try:
            entries = list(os.scandir(self.folder / "sessions"))
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.name.endswith(".json"):
                with contextlib.suppress(FileNotFoundError):
                    yield entry.stat(follow_symlinks=False).st_mtime, entry.path

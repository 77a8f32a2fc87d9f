"""What is on the shelf: which live bookbags there are, their ``.ready`` flags, and putting the two in step.

A flag is a hint that a record is worth reading; the record is the truth. So a flag may be lost or left over without
harm: ``sweep_signals`` gives every waiting record its flag and takes away every other. Behind ``bookbag``.

``Shelf`` is for loops: a look costs one ``stat`` of the folder while nothing has changed, and one of each record
otherwise; a record is parsed again only when its file is another one. It never looks at the archive's size.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

from school import settings
from school.errors import BookbagCorruptedError, BookbagInvalidError
from school.records.moves import BEAD_NAME, BLOCKED, FAILED, SCORED, WAITING, bookbag_state
from school.records.store import (
    archive_path,
    bead_lock,
    check_bead,
    live_path,
    read_live,
    signal_path,
)
from school.system import clock, faults, files, log

# A folder's time stamp has the grain of the kernel's tick: two changes within one leave the same stamp, so a stamp
# as young as this proves nothing.
_STAMP_GRAIN_NS: Final = 100_000_000
# Whoever edits a record in place, which nothing of ours does, leaves the folder's stamp alone.
_FULL_LOOK_S: Final = 30.0
_SUFFIX: Final = ".json"

Bag = dict[str, Any]


class BookbagSignal:
    """``signals/<bead>.ready``: fast flag-file signalling for the hand-over."""

    def __init__(self, bead: str) -> None:
        self.bead = check_bead(bead)
        self._path = signal_path(bead)

    def ready(self) -> None:
        """Say that this bead's record is worth reading; written after the record is durable."""
        bag = read_live(self.bead) or {}
        files.ensure_dir(self._path.parent)
        hint = {"bead": self.bead, "rev": bag.get("rev", 0), "tree": bag.get("tree", ""), "at": clock.now()}
        with faults.around("flag.raised"):
            files.write_json(self._path, hint)

    def check(self) -> bool:
        return self._path.exists()

    def read(self) -> Bag | None:
        """What the flag says, or None when there is none; a torn or foreign flag says nothing but that it is there."""
        try:
            hint = files.read_json(self._path)
        except ValueError:
            return {}
        if hint is None and not self.check():
            return None
        return hint if isinstance(hint, dict) else {}

    def clear(self) -> None:
        """Take the flag away; doing it twice is fine."""
        with faults.around("flag.cleared"):
            self._path.unlink(missing_ok=True)


class Shelf:
    """The live records, cheaply, again and again. What it hands out is shared: look, do not edit.

    ``problems`` says of each bead that could not be read why. With ``full=False`` a record is only looked at for
    what decides its state (no model library is loaded): for a quick ``status``, not for acting on.
    """

    def __init__(self, *, full: bool = True) -> None:
        self.problems: dict[str, str] = {}
        self._full = full
        self._cache: dict[str, tuple[tuple[int, int, int], Bag | None, str]] = {}
        self._bags: dict[str, Bag] = {}
        self._trusted: tuple[int, int, int] | None = None
        self._looked_at = 0.0

    def scan(self) -> dict[str, Bag]:
        """Bead to record of everything live, oldest first."""
        here = settings.current()
        stamp = (*_stamp(here.bookbag_dir), _stamp(here.archive_dir)[0])
        if stamp == self._trusted and time.monotonic() - self._looked_at < _FULL_LOOK_S:
            return self._bags
        begun_ns = time.time_ns()
        self._look(here.bookbag_dir)
        settled_down = begun_ns - max(stamp[0], stamp[2]) > _STAMP_GRAIN_NS
        self._trusted = stamp if settled_down and not self.problems else None
        self._looked_at = time.monotonic()
        return self._bags

    def waiting(self) -> dict[str, Bag]:
        """Those that wait for a verdict."""
        return {bead: bag for bead, bag in self.scan().items() if bookbag_state(bag) in WAITING}

    def _look(self, folder: Path) -> None:
        found = dict(_entries(folder))
        for bead in self._cache.keys() - found.keys():
            del self._cache[bead]
        for bead, mark in found.items():
            if bead not in self._cache or self._cache[bead][0] != mark:
                self._cache[bead] = (mark, *self._read(bead))
        self.problems = {bead: why for bead, (_, _, why) in self._cache.items() if why}
        bags = [(bead, bag) for bead, (_, bag, _) in self._cache.items() if bag and not _ended(bead, bag)]
        self._bags = dict(sorted(bags, key=lambda pair: (str(pair[1].get("timestamp", "")), pair[0])))

    def _read(self, bead: str) -> tuple[Bag | None, str]:
        try:
            return read_live(bead, full=self._full), ""
        except (BookbagCorruptedError, BookbagInvalidError) as error:
            return None, str(error)


def _ended(bead: str, bag: Bag) -> bool:
    """Whether it lies in the archive as well: then the archive wins."""
    return bookbag_state(bag) in (SCORED, FAILED, BLOCKED) and archive_path(bead).exists()


def _stamp(folder: Path) -> tuple[int, int]:
    try:
        stat = folder.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_ino


def _entries(folder: Path) -> list[tuple[str, tuple[int, int, int]]]:
    """Bead and file identity of every record file; what else lies there is nobody's record."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                bead = entry.name.removesuffix(_SUFFIX)
                if not entry.name.endswith(_SUFFIX) or not BEAD_NAME.fullmatch(bead):
                    continue
                try:
                    stat = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # gone since the folder was listed
                found.append((bead, (stat.st_mtime_ns, stat.st_size, stat.st_ino)))
    except FileNotFoundError:
        return []
    return found


def list_bookbags(archived: bool = False) -> list[str]:
    """Bead names, oldest first; the archived ones instead with *archived*."""
    here = settings.current()
    if archived:
        return [bead for _, bead in sorted(_archived(here.archive_dir))]
    return [
        bead for _, bead in sorted((_born(bead, mark), bead) for bead, mark in _entries(here.bookbag_dir))
    ]


def _archived(folder: Path) -> list[tuple[int, str]]:
    """The folders' time stamps are their beads' births (``bookbag.archive_bookbag`` sets them)."""
    try:
        with os.scandir(folder) as entries:
            return [
                (e.stat().st_mtime_ns, e.name) for e in entries if BEAD_NAME.fullmatch(e.name) and e.is_dir()
            ]
    except FileNotFoundError:
        return []


def _born(bead: str, mark: tuple[int, int, int]) -> float:
    """When the record was made; of one that cannot be read, when its file was last changed."""
    path = live_path(bead)
    try:
        return clock.parse(files.read_json(path)["timestamp"]).timestamp()  # type: ignore[index]
    except (ValueError, TypeError, KeyError):
        return mark[0] / 1e9


# --- keeping flags and records in step --------------------------------------------------------------------


def sweep_signals(shelf: Shelf | None = None) -> dict[str, list[str]]:
    """Give each waiting record its flag, take every other flag away; says which (``raised``, ``removed``)."""
    here = settings.current()
    waiting = (shelf or Shelf()).waiting()
    flagged = _flagged(here.signal_dir)
    raised = [bead for bead in waiting if bead not in flagged]
    for bead in raised:
        BookbagSignal(bead).ready()
    removed = [bead for bead in sorted(flagged - waiting.keys()) if _drop_stale_flag(bead)]
    if raised or removed:
        log.get("bookbag").info("signals.swept", raised=raised, removed=removed)
    return {"raised": raised, "removed": removed}


def _flagged(folder: Path) -> set[str]:
    try:
        names = [entry.removesuffix(".ready") for entry in os.listdir(folder) if entry.endswith(".ready")]  # noqa: PTH208
    except FileNotFoundError:
        return set()
    return {name for name in names if BEAD_NAME.fullmatch(name)}


def _drop_stale_flag(bead: str) -> bool:
    """Looked at again under the lock: no record can be handed over between that look and the removal."""
    from school.errors import LockTimeout

    try:
        with bead_lock(bead, 1.0):
            bag = read_live(bead, locked=True)
            if bag is not None and bookbag_state(bag) in WAITING:
                return False
            BookbagSignal(bead).clear()
            return True
    except (BookbagCorruptedError, BookbagInvalidError, LockTimeout) as error:
        log.get("bookbag").warning("signals.flag_kept", bead=bead, why=str(error))
        return False

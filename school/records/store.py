"""One bookbag as a file: its place, its lock, reading it, and bringing a record into the form that lies on disk.

The mechanism behind ``bookbag``, which is the public face; callers go there. Calling sequence of a change:
``with bead_lock(bead):`` then ``read_live``, ``settled`` on the new record, ``store``.

Reading: absent is None. What cannot be parsed raises BookbagCorruptedError and is moved to ``corrupt/`` under the
lock; what parses and breaks a rule raises BookbagInvalidError and stays. Neither is ever taken for absent or empty.

What it does not promise: that a move is legal (``school.records.moves``).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from school import settings
from school.errors import BookbagCorruptedError, BookbagInvalidError, LockLost, LockTimeout
from school.records.moves import BEAD_NAME
from school.system import files, locks, log

LOCK_TIMEOUT_S: Final = 10.0
DEPTH_MAX: Final = 64

_held: dict[Path, locks.OwnedLock] = {}
os.register_at_fork(after_in_child=_held.clear)  # a forked child holds none of its parent's locks


def check_bead(bead: str) -> str:
    """*bead* itself, when it may become part of a path; anything else is refused before it does."""
    if not isinstance(bead, str) or not BEAD_NAME.fullmatch(bead):
        raise BookbagInvalidError(f"{bead!r} is no bead name: expected {BEAD_NAME.pattern}")
    return bead


def live_path(bead: str) -> Path:
    return settings.current().bookbag_dir / f"{check_bead(bead)}.json"


def archive_path(bead: str) -> Path:
    return settings.current().archive_dir / check_bead(bead)


def signal_path(bead: str) -> Path:
    return settings.current().signal_dir / f"{check_bead(bead)}.ready"


def lock_path(bead: str) -> Path:
    return settings.current().lock_dir / f"{check_bead(bead)}.lock"


# --- the lock ---------------------------------------------------------------------------------------------


def acquire_lock(bead: str, timeout: float = LOCK_TIMEOUT_S) -> bool:
    """Take the bead's lock within *timeout* seconds (0 tries once); False when somebody else has it for that long.

    It is held for milliseconds, never across an agent, a model or a test run. It is not re-entrant.
    """
    path = lock_path(bead)
    lock = locks.OwnedLock(path, path.parent / ".guard")
    if not lock.acquire(timeout, purpose="bookbag"):
        return False
    _held[path] = lock
    return True


def release_lock(bead: str) -> None:
    """Release what ``acquire_lock`` took; LockLost when this process does not hold it, and the file is left alone."""
    path = lock_path(bead)
    lock = _held.pop(path, None)
    if lock is None:
        raise LockLost(f"{path}: not held by this process ({os.getpid()})")
    lock.release()


@contextlib.contextmanager
def bead_lock(bead: str, timeout: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """The bead's lock for a block; LockTimeout, naming the holder, when it cannot be had."""
    if not acquire_lock(bead, timeout):
        path = lock_path(bead)
        owner = locks.OwnedLock(path, path.parent / ".guard").owner()
        holder = f"pid {owner.pid} on {owner.host}" if owner else "nobody who can be named"
        raise LockTimeout(f"{bead}: its lock was not free within {timeout:g} s; held by {holder} ({path})")
    try:
        yield
    finally:
        release_lock(bead)


def release_dead_locks() -> None:
    """Take away every lock whose owner is proven dead, or that has named nobody for long; no living one's."""
    folder = settings.current().lock_dir
    for path in sorted(folder.glob("*.lock")):
        lock = locks.OwnedLock(path, folder / ".guard")
        owner = lock.owner()
        if (owner is None or locks.is_dead(owner)) and lock.acquire(0.0, purpose="sweep"):
            lock.release()


# --- reading ----------------------------------------------------------------------------------------------


def read_live(bead: str, *, locked: bool = False, full: bool = True) -> dict[str, Any] | None:
    """The live record; *locked* says that the caller holds the bead's lock. See the module for what it raises.

    Without *full* only what decides the record's state is checked, which needs no model library.
    """
    path = live_path(bead)
    try:
        bag = files.read_json(path)
    except ValueError as error:
        raise BookbagCorruptedError(f"{error}; {_set_aside(bead, locked=locked)}") from None
    if bag is None and not path.exists():
        return None
    return _checked(bag, bead, path, full=full)


def read_archived(bead: str) -> dict[str, Any] | None:
    """The record in ``archive/<bead>/``; it is never moved from there, whatever is wrong with it."""
    path = archive_path(bead) / "bookbag.json"
    try:
        bag = files.read_json(path)
    except ValueError as error:
        raise BookbagCorruptedError(str(error)) from None
    if bag is None and not path.exists():
        return None
    return _checked(bag, bead, path, full=True)


def _checked(bag: Any, bead: str, path: Path, *, full: bool) -> dict[str, Any]:  # noqa: ANN401 - not yet known
    wrong = problems(bag) if full else light_problems(bag)
    if not wrong and bag["bead"] != bead:
        wrong = [f"bead: the record says {bag['bead']!r}"]
    if wrong:
        log.get("bookbag").warning("bookbag.invalid", bead=bead, path=str(path), wrong=wrong)
        raise BookbagInvalidError(f"{path}: {'; '.join(wrong)}")
    return with_defaults(bag)


def _set_aside(bead: str, *, locked: bool) -> str:
    """Move an unparsable record to ``corrupt/``: looked at again under the lock, so that only what is torn goes."""
    try:
        with contextlib.nullcontext() if locked else bead_lock(bead, 1.0):
            return _quarantine_if_torn(bead)
    except LockTimeout as error:
        return f"not moved, since its lock is held: {error}"


def _quarantine_if_torn(bead: str) -> str:
    path = live_path(bead)
    try:
        files.read_json(path)
    except ValueError as error:
        place = files.quarantine(path, settings.current().corrupt_dir)
        log.get("bookbag").error("bookbag.quarantined", bead=bead, moved_to=str(place), why=str(error))
        return f"moved to {place}"
    return "moved away or made whole meanwhile"


# --- form -------------------------------------------------------------------------------------------------


def problems(bag: Any) -> list[str]:  # noqa: ANN401 - what a file holds may be anything
    from school.records import derive

    return derive.problems(bag)


def light_problems(bag: Any) -> list[str]:  # noqa: ANN401 - what a file holds may be anything
    """The few things without which a record's state could not be told."""
    if not isinstance(bag, Mapping):
        return [f"a bookbag is a JSON object, not {type(bag).__name__}"]
    wrong = [] if isinstance(bag.get("bead"), str) else ["bead: missing"]
    if bag.get("status", "open") not in ("running", "open", "failed", "blocked"):
        wrong.append(f"status: {bag['status']!r}")
    wrong += [
        f"{name}: {bag[name]!r}"
        for name in ("cto_verdict", "coo_verdict")
        if bag.get(name, "") not in ("", "PASS", "FAIL")
    ]
    return wrong


_V0_DEFAULTS: Final[Mapping[str, Any]] = {
    "status": "open",
    "rev": 0,
    "attempt": 1,
    "output": "",
    "cto_verdict": "",
    "coo_verdict": "",
    "accepted": False,
    "timestamp": "",
}


def with_defaults(bag: dict[str, Any]) -> dict[str, Any]:
    """A seed record with the fields that every reader looks at; ours are always written whole."""
    return bag if "schema" in bag else {**_V0_DEFAULTS, **{k: v for k, v in bag.items() if v is not None}}


def settled(bag: Mapping[str, Any]) -> dict[str, Any]:
    """*bag* as it will lie on disk: plain JSON values, valid text, bounded output, every known field present."""
    from pydantic import ValidationError

    from school.contracts import Bookbag, bounded

    plain = _plain(bag, "record", 0)
    if "output" in plain:
        plain["output"] = bounded(str(plain["output"] or ""))
    if "schema" not in plain:
        return with_defaults(plain)
    try:
        settled_bag: dict[str, Any] = Bookbag.model_validate(plain).model_dump(mode="json", by_alias=True)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)]
        raise BookbagInvalidError(f"{plain.get('bead')}: {'; '.join(wrong)}") from None
    return settled_bag


def _plain(value: Any, where: str, depth: int) -> Any:  # noqa: ANN401 - one return a JSON type
    if depth > DEPTH_MAX:
        raise BookbagInvalidError(f"{where}: nested more than {DEPTH_MAX} deep")
    if isinstance(value, str):
        return value if value.isascii() else files.well_formed(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BookbagInvalidError(f"{where}: {value} is not JSON")
        return value
    if isinstance(value, Mapping):
        return {files.well_formed(str(k)): _plain(v, f"{where}.{k}", depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [_plain(item, f"{where}.{index}", depth + 1) for index, item in enumerate(items)]
    return _plain(_unwrapped(value, where), where, depth + 1)


def _unwrapped(value: Any, where: str) -> Any:  # noqa: ANN401 - whatever a caller keeps its facts in
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="python", by_alias=True)
    raise BookbagInvalidError(f"{where}: {type(value).__name__} cannot lie in a bookbag")


def store(bag: Mapping[str, Any], *, create: bool = False) -> None:
    """Write a settled record durably; with *create* only where there is none (FileExistsError)."""
    if wrong := problems(bag):
        raise BookbagInvalidError(f"{bag.get('bead')}: {'; '.join(wrong)}")
    path = live_path(bag["bead"])
    if create:
        files.ensure_dir(path.parent)
        files.create_json(path, dict(bag))
    else:
        files.write_json(path, dict(bag))

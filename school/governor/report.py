"""The report: ``escalation-governor-reports.jsonl``, exactly one line a session, the one written last at the end.

``put(settings, session_id, numbers, facts)`` adds *numbers* to what the session's line has, or makes it its line; *facts*
replace what the line says. A session's end is told again and again (Hermes tells it after every turn, and a session may go
on in another process), so a line is taken out and written anew, the whole file at once, under a kernel lock: a reader
sees one line a session at any moment. A kill loses nothing; what was written without waiting for the disk, a power cut may. Of more than ``LINES_MAX`` lines the older half moves to ``<name>.1``.

Errors: MachineError, LockTimeout; then the file is as it was. Lines that are no JSON object are kept as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from school.errors import LockTimeout, MachineError
from school.governor.tally import Numbers, added
from school.settings import Settings
from school.system import files
from school.system.locks import KernelLock

LINES_MAX: Final = 1000
BYTES_MAX: Final = 8 * 1024 * 1024
_LOCK_TIMEOUT_S: Final = 5.0


def put(
    settings: Settings, session_id: str, numbers: Numbers, facts: Mapping[str, Any], *, durable: bool = True
) -> None:
    """Bring the line of *session_id* up to date; not *durable* spares a turn the wait for the disk."""
    path = settings.governor_reports
    lock = KernelLock(settings.governor_dir / "reports.lock", show_owner=False)
    if not lock.acquire(_LOCK_TIMEOUT_S):
        raise LockTimeout(f"{lock.path}: not had within {_LOCK_TIMEOUT_S:g} s")
    try:
        _put(path, session_id, numbers, facts, files.write_atomic if durable else files.write_plain)
    finally:
        lock.release()


def lines(settings: Settings) -> list[dict[str, Any]]:
    """Every session's line, the one written last at the end; MachineError when the file cannot be read."""
    try:
        raw = _raw_lines(settings.governor_reports)
    except ValueError as cause:
        raise MachineError(str(cause)) from cause
    return [line for line in map(_parsed, raw) if line is not None]


def line_of(settings: Settings, session_id: str = "") -> dict[str, Any] | None:
    """The line of *session_id*, or without one the last."""
    found = lines(settings)
    wanted = [line for line in found if line["session_id"] == session_id] if session_id else found
    return wanted[-1] if wanted else None


def _put(
    path: Path,
    session_id: str,
    numbers: Numbers,
    facts: Mapping[str, Any],
    write: Callable[[Path, bytes], None],
) -> None:
    others: list[bytes] = []
    before: dict[str, Any] = {}
    named = files.dumps(session_id, indent=None).strip()
    for text in _kept_lines(path):
        line = _parsed(text) if named in text else None
        if line is not None and line["session_id"] == session_id:
            before = line
        else:
            others.append(text)
    line = {"session_id": session_id, **added(before, numbers), **facts, **_of_both(before, facts)}
    if len(others) >= LINES_MAX:
        old, others = others[: LINES_MAX // 2], others[LINES_MAX // 2 :]
        files.write_atomic(path.with_name(f"{path.name}.1"), b"".join(old))
    write(path, b"".join([*others, files.dumps(line, indent=None)]))


def _of_both(before: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier line of the session (of another process, maybe by another clock) and *facts* say together."""
    return {
        "started_at": str(before.get("started_at") or facts.get("started_at") or ""),
        "ended_at": max(str(before.get("ended_at") or ""), str(facts.get("ended_at") or "")),
        "reasons": sorted({*map(str, before.get("reasons") or ()), *(facts.get("reasons") or ())}),
        "delegated": bool(before.get("delegated") or facts.get("delegated")),
    }


def _kept_lines(path: Path) -> list[bytes]:
    """What stands in the file; what cannot be ours (no plain file, or far too large) is put aside, not lost."""
    try:
        return _raw_lines(path)
    except ValueError:
        files.quarantine(path, path.parent)
        return []


def _raw_lines(path: Path) -> list[bytes]:
    raw = files.read_bytes(path, limit_bytes=BYTES_MAX) or b""
    return [text + b"\n" for text in raw.split(b"\n") if text]


def _parsed(text: bytes) -> dict[str, Any] | None:
    """A line of ours; a torn one of anybody's is none."""
    try:
        line = files.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("session_id"), str) else None

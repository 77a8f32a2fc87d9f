"""The documents of ``list``, ``show`` and ``status``, exactly as the contract spells them.

``list_rows``, ``show`` and ``status_document`` read the disk (``school.status.look``) and return plain JSON
values; keys may be added, never renamed. ``show`` raises ConfigError for a bead that is not there and
BookbagCorruptedError for one that cannot be read; the other two show what cannot be read as ``UNREADABLE``.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, Final

from school.errors import BookbagCorruptedError, ConfigError
from school.records.moves import COO_REVIEWED, CTO_REVIEWED, RUNNING, STATES, WAITING, WRITTEN
from school.settings import ROLES, Settings
from school.status import look
from school.system import clock

_ROW: Final = ("task_id", "outcome", "attempt", "cto_verdict", "coo_verdict", "accepted", "timestamp", "repo")
_EMPTY: Final[dict[str, Any]] = {"attempt": 0, "accepted": False}
_WAITS_FOR: Final = {"cto": (WRITTEN, COO_REVIEWED), "coo": (WRITTEN, CTO_REVIEWED)}


def list_rows(
    settings: Settings, *, archived: bool = False, repo_key: str | None = None
) -> list[dict[str, Any]]:
    """One row a bead, oldest first; with *archived* the finished ones too; of one repository if asked."""
    rows, known = [], set()
    # One record at a time: all that were ever archived would not fit beside each other.
    for bead, bag, state in chain(look.live(settings), look.archived(settings) if archived else ()):
        if bead not in known and _is_of(bag, repo_key):
            rows.append(_row(bead, bag or {}, state))
        known.add(bead)
    return sorted(rows, key=lambda row: (row["timestamp"], row["bead"]))


def _is_of(bag: look.Bag | None, repo_key: str | None) -> bool:
    # Whose an unreadable record is cannot be known, so it is shown to everybody.
    return repo_key is None or bag is None or bag.get("repo_key") == repo_key


def _row(bead: str, bag: look.Bag, state: str) -> dict[str, Any]:
    values = {name: bag.get(name, _EMPTY.get(name, "")) for name in _ROW}
    values["timestamp"] = str(values["timestamp"] or "")
    return {"bead": bead, "task_id": values.pop("task_id"), "state": state, **values}


def show(settings: Settings, bead: str) -> dict[str, Any]:
    """The bookbag of *bead*, live or archived, with its ``state``."""
    bag, state = look.find(settings, bead)
    if bag is None and state:
        raise BookbagCorruptedError(f"{bead}: its record cannot be read; `check` says more")
    if bag is None:
        raise ConfigError(
            f"{bead!r}: there is no such bead in {settings.bookbag_dir}; `list --all` names them"
        )
    return {**bag, "state": state}


# --- status -------------------------------------------------------------------------------------------------


def status_document(settings: Settings, *, repo: Path | None = None) -> dict[str, Any]:
    """Who is at work and what waits. ``conductor`` is the one on *repo*, else any; ``conductors`` are all."""
    conductors = [_conductor(settings, record) for record in _living(settings, "conductor")]
    mine = [item for item in conductors if repo is not None and _same_place(str(item["repo"]), repo)]
    return {
        "conductor": next(iter(mine or conductors), None),
        "conductors": conductors,
        "teachers": _teachers(settings),
        "leaves": [_leaf(record) for record in _living(settings, "leaf")],
        "queue": _queue(settings),
    }


def _living(settings: Settings, kind: str) -> list[look.Bag]:
    return [record for record in look.processes(settings, kind) if look.lives(record)]


def _same_place(known: str, asked: Path) -> bool:
    """Whether *asked* is the repository *known* or a folder in it."""
    real, root = os.path.realpath(asked), os.path.realpath(known)
    return bool(known) and (real == root or real.startswith(root.rstrip("/") + "/"))


def _conductor(settings: Settings, record: look.Bag) -> dict[str, Any]:
    run = str(record.get("run") or "")
    # The name becomes part of a path, and a record is only data.
    described = (look.read(settings.runs_dir / f"{run}.json") if run and "/" not in run else None) or {}
    return {
        "pid": record.get("pid"),
        "run": run,
        "round": described.get("round", record.get("round", 0)),
        "repo": str(record.get("repo") or ""),
        "since": str(described.get("started_at") or record.get("since") or ""),
        "away": described.get("away") or [],
    }


def _teachers(settings: Settings) -> list[dict[str, Any]]:
    rows = []
    for role in ROLES:
        record = look.read(settings.teachers_dir / f"{role}.json")
        if record is None or record.get("state") == "stopped":
            continue
        alive = look.lives(record)
        rows.append(
            {
                "role": role,
                "pid": record.get("pid"),
                "state": record.get("state", "") if alive else "dead",
                "bead": str(record.get("bead") or ""),
                "check": str(record.get("check") or ""),
                "since": str(record.get("since") or ""),
                "reviewed": record.get("reviewed", 0),
                "watching": str(record.get("watching") or ""),
            }
        )
    return rows


def _leaf(record: look.Bag) -> dict[str, Any]:
    bead = str(record.get("bead") or record.get("name") or "")
    return {
        "bead": bead,
        "pid": record.get("pid"),
        "step": str(record.get("step") or ""),
        "since": str(record.get("since") or ""),
    }


def _queue(settings: Settings) -> dict[str, Any]:
    """How many beads are in each state, how many each teacher still has to judge, and the longest wait."""
    states: Counter[str] = Counter()
    waiting_since: list[str] = []
    stopped = 0
    for _, bag, state in look.live(settings):
        states[state] += 1
        if state in WAITING and bag is not None:
            waiting_since.append(_written_at(bag))
            stopped += any((bag.get(f"{role}_review") or {}).get("short_of") for role in _WAITS_FOR)
    counts = {state.lower(): states[state] for state in STATES if state != "DISPOSED"}
    return {
        **counts,
        "unreadable": states[look.UNREADABLE],
        "waiting": sum(states[state] for state in WAITING),
        "for_cto": sum(states[state] for state in _WAITS_FOR["cto"]),
        "for_coo": sum(states[state] for state in _WAITS_FOR["coo"]),
        "for_budget": stopped,
        "oldest_wait_s": _age_s(min((at for at in waiting_since if at), default="")),
        "in_flight": states[RUNNING] + sum(states[state] for state in WAITING),
    }


def _written_at(bag: look.Bag) -> str:
    steps = [step for step in bag.get("history") or [] if isinstance(step, dict)]
    at = next((step.get("at") for step in steps if step.get("state") == WRITTEN), None)
    return str(at or bag.get("timestamp") or "")


def _age_s(stamp: str) -> float | None:
    try:
        return round((clock.parse(clock.now()) - clock.parse(stamp)).total_seconds(), 1) if stamp else None
    except ValueError:
        return None

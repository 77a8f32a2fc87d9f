"""The states of a bookbag, the moves between them, and who may write which field. Pure; reads and writes nothing.

A state is a function of the record and of its place (contract, section 5) and is never stored beside them. The
legal moves are one table with every cell written; ``refusal`` is the only judge of a write and says in one
sentence why it refuses, or says nothing. Records are plain dictionaries here: this module is on the way of every
command line, so it needs no model library.

What it does not promise: that a record is well formed (``school.records.derive``), or that the caller holds the lock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

BEAD_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,120}")
REQUIRED: Final = ("task", "student", "domain", "difficulty")

NEW: Final = "NEW"
RUNNING: Final = "RUNNING"
WRITTEN: Final = "WRITTEN"
CTO_REVIEWED: Final = "CTO_REVIEWED"
COO_REVIEWED: Final = "COO_REVIEWED"
REVIEWED: Final = "REVIEWED"
SCORED: Final = "SCORED"
FAILED: Final = "FAILED"
BLOCKED: Final = "BLOCKED"
DISPOSED: Final = "DISPOSED"

STATES: Final = (
    RUNNING,
    WRITTEN,
    CTO_REVIEWED,
    COO_REVIEWED,
    REVIEWED,
    SCORED,
    FAILED,
    BLOCKED,
    DISPOSED,
)
WAITING: Final = frozenset({WRITTEN, CTO_REVIEWED, COO_REVIEWED})

_LETTERS: Final = {"l": "leaf", "t": "cto", "o": "coo", "c": "conductor", "s": "salvage"}
ACTORS: Final = frozenset(_LETTERS.values())

# Who may make which move: l leaf, t cto, o coo, c conductor, s salvage, a dot nobody. A row is where the record
# is, a column where the write would take it. Two cells are wider than the pipeline needs: NEW to a reviewed state
# (records that the seed wrote in one go), WRITTEN straight to REVIEWED (both verdicts inline, the seed's phase 1).
# REVIEWED or SCORED to BLOCKED: what no review file stands behind, or what could not be delivered, is set aside;
# BLOCKED to SCORED: a human says that the delivery may be tried again.
_COLUMNS: Final = "RUNNING  WRITTEN  CTO_REVIEWED  COO_REVIEWED  REVIEWED  SCORED  FAILED  BLOCKED  DISPOSED"
_ROWS: Final = {
    NEW: "          c        cl       c             c             c         .       c       c        .",
    RUNNING: "      lcs      l        .             .             .         .       lcs     lc       .",
    WRITTEN: "      .        ctol     tc            oc            c         .       c       toc      .",
    CTO_REVIEWED: " .        .        oc            .             oc        .       c       oc       .",
    COO_REVIEWED: " .        .        .             tc            tc        .       c       tc       .",
    REVIEWED: "     .        .        .             .             c         c       .       c        .",
    SCORED: "       .        .        .             .             .         c       .       c        c",
    FAILED: "       .        .        .             .             .         .       lcs     .        c",
    BLOCKED: "      .        .        .             .             .         c       .       c        c",
    DISPOSED: "     .        .        .             .             .         .       .       .        .",
}


def _read_table() -> dict[tuple[str, str], frozenset[str]]:
    columns = _COLUMNS.split()
    return {
        (row, column): frozenset(_LETTERS[letter] for letter in cell.strip("."))
        for row, cells in _ROWS.items()
        for column, cell in zip(columns, cells.split(), strict=True)
    }


LEGAL_MOVES: Final[Mapping[tuple[str, str], frozenset[str]]] = _read_table()

# Which fields each writer may change. The conductor writes the whole record at its birth and the end of it, and
# the seed's keyword form of an update acts with its rights; what is in the sets below it may change too.
_LEAF_FIELDS: Final = frozenset(
    {
        "output",
        "files_changed",
        "summary",
        "blockers",
        "head_commit",
        "tree",
        "ref",
        "status",
        "reason",
        "claim",
        "usage",
        "worktree",
        "confinement",
        "agent",
        "persona",
        "ac_met",
        "guidance",
        "evidence",
    }
)
OWN_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "leaf": _LEAF_FIELDS,
    "salvage": _LEAF_FIELDS,
    "cto": frozenset({"cto_verdict", "cto_review", "status", "reason"}),
    "coo": frozenset({"coo_verdict", "coo_review", "status", "reason"}),
}
# Unknown fields belong to whoever makes or runs the bead, never to its judges.
_MAY_ADD_FIELDS: Final = frozenset({"leaf", "salvage", "conductor"})

MANAGED: Final = frozenset({"bead", "schema", "rev", "history", "timestamp"})
DERIVED: Final = frozenset({"lens", "findings", "ac_met", "verification", "accepted"})
# What is judged: it stays what it was once it is handed over, or a verdict would be about something else.
JUDGED: Final = frozenset(
    {"repo", "repo_key", "base_commit", "head_commit", "tree", "acceptance", "terms", "claim"}
)
_VERDICTS: Final = ("cto_verdict", "coo_verdict")


def bookbag_state(bag: Mapping[str, Any], *, archived: bool = False) -> str:
    """The state of *bag*, first match wins; *archived* says that it lies in ``archive/``."""
    if archived:
        return DISPOSED
    status = bag.get("status") or "open"
    if status in ("failed", "blocked"):
        return FAILED if status == "failed" else BLOCKED
    if bag.get("scored_at"):
        return SCORED
    cto, coo = (bool(bag.get(name)) for name in _VERDICTS)
    if cto and coo:
        return REVIEWED
    if cto or coo:
        return CTO_REVIEWED if cto else COO_REVIEWED
    return RUNNING if status == "running" else WRITTEN


def move_refusal(old: str, new: str, by: str) -> str:
    """Why *by* may not move a record from state *old* to *new*; empty when it may."""
    if by not in ACTORS:
        return f"unknown writer {by!r}: expected one of {', '.join(sorted(ACTORS))}"
    allowed = LEGAL_MOVES[old, new]
    if by in allowed:
        return ""
    who = "only " + " or ".join(sorted(allowed)) + " may" if allowed else "nobody may"
    return f"{by} may not move it from {old} to {new}: {who}"


def refusal(old: Mapping[str, Any], new: Mapping[str, Any], by: str) -> str:
    """Why *by* may not turn the live record *old* into *new*; empty when it may."""
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    before, after = bookbag_state(old), bookbag_state(new)
    return (
        _stale(old, new)
        or move_refusal(before, after, by)
        or _rights_refusal(changed, new, by)
        or _verdict_refusal(old, changed, before)
        or _frozen_refusal(old, changed, before)
    )


def _stale(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if old.get("rev", 0) == new.get("rev", 0):
        return ""
    return (
        f"stale: the record is at rev {old.get('rev', 0)}, this write was made from rev {new.get('rev', 0)}"
    )


def _rights_refusal(changed: set[str], new: Mapping[str, Any], by: str) -> str:
    if managed := sorted(changed & MANAGED):
        return f"{', '.join(managed)}: kept by the bookbag itself and never written by {by}"
    if by == "conductor":
        return ""
    foreign = sorted(name for name in changed - OWN_FIELDS[by] if by not in _MAY_ADD_FIELDS or _known(name))
    if foreign:
        return f"{', '.join(foreign)}: not {by}'s to write"
    if by in ("cto", "coo") and "status" in changed and new.get("status") != "blocked":
        return f"status: {by} may only set it to blocked"
    return ""


def _known(name: str) -> bool:
    from school.contracts import Bookbag

    return name in Bookbag.model_fields or name == "schema"


def _verdict_refusal(old: Mapping[str, Any], changed: set[str], before: str) -> str:
    for name in _VERDICTS:
        if name in changed and old.get(name):
            return f"{name}: {old[name]} was given and is never overwritten"
        if name in changed and before not in WAITING:
            return f"{name}: no verdict is due in state {before}"
    return ""


def _frozen_refusal(old: Mapping[str, Any], changed: set[str], before: str) -> str:
    if before != RUNNING and (judged := sorted(name for name in changed & JUDGED if old.get(name))):
        return f"{', '.join(judged)}: fixed since the hand-over"
    if before in (REVIEWED, SCORED) and (derived := sorted(changed & DERIVED)):
        return f"{', '.join(derived)}: derived from the two reviews and final"
    return ""

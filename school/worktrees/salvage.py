"""Take what a leaf's worktree holds into the school clone, for a leaf that cannot do it itself any more.

``salvage(bead, reason=..., by=...)`` is for whoever finds a bead ``running`` without its leaf. It takes the leaf's
own kernel lock first, so that it never works beside a living leaf, nor two salvagers beside each other; ends every
process that carries the bead's mark, so that nobody writes while it looks; takes the snapshot; and sets the record
to ``failed``. Doing it again, or after a crash at any step, ends the same.

It returns the bookbag as it is then, or None when the leaf lives or there is no such live bead. A snapshot that
cannot be taken is no error here: the bookbag says so, the worktree's record too, and such a tree is never removed.
Errors: MachineError and the bookbag's own where the record cannot be written.

``describe(snapshot, ...)`` is the sentence that every failure ends with: where the work is and how to get it back.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Final

import bookbag
from school import settings as school_settings
from school.contracts import OUTPUT_BYTES_MAX, Snapshot, Workspace, bounded
from school.errors import WorktreeError
from school.settings import Settings
from school.system import files, locks, log, processes

# A leaf that has just been killed gives its lock back at once; one that is alive keeps it.
LOCK_WAIT_S: Final = 0.5
LOCK_TIMEOUT_S: Final = 30.0

TRANSCRIPT: Final = "transcript.jsonl"
_COUNTS: Final = ("requests", "input_tokens", "output_tokens")

_log = log.get("worktrees.salvage")


def leaf_lock(settings: Settings, bead: str) -> locks.KernelLock:
    """The lock that a leaf holds for its life."""
    return locks.KernelLock(settings.processes_dir / f"{bead}.leaf.lock")


def salvage(
    bead: str, *, reason: str, by: str = "salvage", settings: Settings | None = None
) -> dict[str, Any] | None:
    """Save the work of a dead leaf and set its record to ``failed`` with *reason*; see the module."""
    settings = settings or school_settings.current()
    lock = leaf_lock(settings, bead)
    if not lock.acquire(LOCK_WAIT_S):
        return None
    try:
        bag = bookbag.read_bookbag(bead)
        if bag is None or bag.get("status") != "running":
            return bag
        processes.end_marked(bead)
        fields = {"output": _printed(settings, bead), **_spent(settings, bead), **_saved(bag, settings)}
        failed = _record(bead, fields, reason, by)
        files.remove_tree(settings.scratch_dir / bead)
        return failed
    finally:
        lock.release()


def _saved(bag: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The fields that say what was saved."""
    from school.worktrees import snapshot, workspace_of

    bead = str(bag["bead"])
    try:
        workspace = workspace_of(bag, settings=settings)
        if workspace is None or not workspace.path.is_dir():
            return {"summary": f"{bead}: its leaf had no working tree yet; nothing was lost"}
        saved = snapshot(workspace, bag=bag, settings=settings)
    except WorktreeError as error:
        _log.error("leaf.salvage_failed", bead=bead, why=str(error))
        return {
            "summary": f"its work could not be saved and stays in {bag.get('worktree') or 'its worktree'}: {error}"
        }
    _log.info("leaf.salvaged", bead=bead, ref=saved.ref, files=len(saved.files_changed))
    return {**fields_of(saved), "worktree": str(workspace.path), "summary": describe(saved, workspace)}


def _printed(settings: Settings, bead: str) -> str:
    """What the agent had printed when its leaf died, head and tail."""
    try:
        with (settings.outputs_dir / bead / "stdout").open("rb") as file:
            head = file.read(OUTPUT_BYTES_MAX)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(len(head), size - OUTPUT_BYTES_MAX))
            raw = head + file.read(OUTPUT_BYTES_MAX)
    except FileNotFoundError:
        return ""
    return bounded(raw.decode("utf-8", "backslashreplace"))


def _spent(settings: Settings, bead: str) -> dict[str, Any]:
    """What its model had used when its leaf died, by the answers in its transcript: it counts against the budget all the same.

    Nothing for an agent that tells of that elsewhere, or only at its end.
    """
    said = files.read_json_lines(settings.outputs_dir / bead / TRANSCRIPT)
    usages = [usage for line in said if isinstance(usage := line.get("usage"), dict) and usage]
    if not usages:
        return {}
    counts = {name: sum(_whole(usage.get(name)) for usage in usages) for name in _COUNTS}
    costs = [usage.get("cost_usd") for usage in usages]
    known = [cost for cost in costs if isinstance(cost, int | float) and math.isfinite(cost)]
    # As in a session that came to its end: a cost that is unknown once stays unknown.
    return {"usage": {**counts, "cost_usd": round(sum(known), 9) if len(known) == len(costs) else None}}


def _whole(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _record(bead: str, fields: dict[str, Any], reason: str, by: str) -> dict[str, Any] | None:
    def fail(bag: dict[str, Any]) -> dict[str, Any]:
        if bag.get("status") == "running":
            bag |= {**fields, "status": "failed", "reason": reason}
        return bag

    return bookbag.update_bookbag(bead, fail, by=by, lock_timeout=LOCK_TIMEOUT_S)


# --- what leaf and salvage share ----------------------------------------------------------------------------


def fields_of(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as fields of the bookbag."""
    extra = {
        "agent_ref": snapshot.agent_ref,
        "rescue_ref": snapshot.rescue_ref,
        "notes": list(snapshot.notes),
    }
    return {
        "head_commit": snapshot.head_commit,
        "tree": snapshot.tree,
        "ref": snapshot.ref,
        "files_changed": list(snapshot.files_changed),
        **{name: value for name, value in extra.items() if value},
    }


def describe(snapshot: Snapshot, workspace: Workspace) -> str:
    """Where the work is, and the commands that bring it back."""
    from school.worktrees.layout import how_to_recover

    if not snapshot.files_changed and not snapshot.agent_ref and not snapshot.rescue_ref:
        return "it had changed nothing"
    refs = [ref for ref in (snapshot.ref, snapshot.agent_ref, snapshot.rescue_ref) if ref]
    commands = "; ".join(how_to_recover(workspace.clone, ref) for ref in refs)
    count = len(snapshot.files_changed)
    what = f"{count} changed file{'s' if count != 1 else ''}"
    return f"its work ({what}) is saved as {' and '.join(refs)}; in {workspace.repo} this brings it back: {commands}"

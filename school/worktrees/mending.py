"""A leaf's worktree record that cannot be read any more, made again from its bookbag.

The bookbag names everything that the record does: bead, repository, base, who made the tree. ``mend`` keeps the torn file
in ``corrupt/`` and writes a new one, so that the tree can be saved and removed like any other. Only git's own trees are
mended: how another manager calls its tree stood nowhere else.

Errors: WorktreeError, naming the record, where the bag does not say enough; MachineError where the disk refuses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from school.contracts import WorktreeRecord
from school.errors import WorktreeError
from school.settings import Settings
from school.system import clock, files, log
from school.worktrees import layout

_log = log.get(__name__)


def read_or_mend(bag: Mapping[str, Any], settings: Settings) -> WorktreeRecord | None:
    """The worktree record of *bag*'s bead, mended if it is torn; None when there is none."""
    path = layout.leaf_record_path(settings, str(bag.get("bead") or ""))
    try:
        return layout.read_record(path)
    except WorktreeError as error:
        return mend(path, bag, settings, str(error))


def mend(path: Path, bag: Mapping[str, Any], settings: Settings, why: str) -> WorktreeRecord:
    """Make the torn record at *path* again from *bag*."""
    bead, key = str(bag.get("bead") or ""), str(bag.get("repo_key") or "")
    manager = str(bag.get("worktrees") or "git")
    if not key or not bag.get("base_commit") or manager != "git":
        raise WorktreeError(f"{why}; and its bookbag does not say enough to make it again")
    tree = layout.leaf_path(settings, key, bead)
    record = WorktreeRecord(
        name=tree.name,
        kind="leaf",
        path=str(tree),
        repo=str(bag.get("repo") or ""),
        repo_key=key,
        bead=bead,
        base_commit=str(bag["base_commit"]),
        created_at=clock.now(),
        # A tree that stands may hold an agent's work; one whose removal had begun was renamed first.
        made=os.path.lexists(tree),
    )
    moved = files.quarantine(path, settings.corrupt_dir)
    layout.write_record(path, record)
    _log.warning("worktree.record_mended", bead=bead, moved_to=str(moved), why=why)
    return record

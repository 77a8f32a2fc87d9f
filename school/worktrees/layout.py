"""Names, paths and records of working trees, and the paths that must never be removed.

A leaf's tree is ``worktrees/<repo_key>/study-<role>-<rand8>`` on ``beads/<bead>.git``; a teacher's is
``worktrees/<repo_key>/teacher-<role>`` on the school clone ``clones/<repo_key>.git``. Each has a record that is
written before it exists and removed after it is gone; a directory without one was not made here, and stays.

Refs of the school, in the clone: ``refs/school/<bead>`` the snapshot; ``refs/school/agent/<bead>`` what the agent
itself committed; ``refs/school/rescue/<bead>`` what no snapshot can show; ``refs/school/earlier/<bead>/*``
snapshots that a later one replaced; ``refs/school/pins/*`` commits in use.

Errors: ``WorktreeError`` for a bad name, an unreadable record, or a path that ``refuse_removal`` refuses.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from school.contracts import STUDENT_ROLES, TEACHER_ROLES, WorktreeRecord, dump
from school.errors import WorktreeError
from school.settings import Settings
from school.system import faults, files

_BEAD: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,120}")
_SHORT: Final = re.compile(r"([a-z]+)-.+-([0-9a-z]{8})")
# Names below refs/school/ that are directories of refs; a bead so called would be in their way.
_RESERVED: Final = frozenset({"agent", "rescue", "earlier", "pins"})
# A tree whose removal has begun is renamed to this first, so that half of it is never taken for a whole one.
REMOVING: Final = ".removing-"
SCHOOL_IGNORES: Final = ("/.hermes/briefs/", "/.hermes/outputs/")


def check_bead(bead: str) -> str:
    """*bead* itself, if it can be part of a path and of a ref; otherwise WorktreeError."""
    if not isinstance(bead, str) or not _BEAD.fullmatch(bead) or bead in _RESERVED:
        raise WorktreeError(f"{bead!r} is no bead name that a working tree can have")
    return bead


def check_repo_key(repo_key: str) -> str:
    """*repo_key* itself, if it is one plain path component; otherwise WorktreeError."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}", repo_key or ""):
        raise WorktreeError(f"{repo_key!r} is no key of a repository")
    return repo_key


# --- names and paths ----------------------------------------------------------------------------------------


def worktree_name(bead: str) -> str:
    """``study-<role>-<rand8>`` for a bead ``<role>-<domain>-<rand8>``, else ``study-<bead>``."""
    short = _SHORT.fullmatch(check_bead(bead))
    if short and short[1] in STUDENT_ROLES:
        return f"study-{short[1]}-{short[2]}"
    return f"study-{bead}"


def leaf_path(settings: Settings, repo_key: str, bead: str) -> Path:
    return settings.worktrees_dir / check_repo_key(repo_key) / worktree_name(bead)


def bead_repository(settings: Settings, bead: str) -> Path:
    return settings.bead_repos_dir / f"{check_bead(bead)}.git"


def clone_path(settings: Settings, repo_key: str) -> Path:
    return settings.clones_dir / f"{check_repo_key(repo_key)}.git"


# The conductor judges merges of needs in a tree of its own, made and kept like a teacher's.
TREE_ROLES: Final = (*TEACHER_ROLES, "merge")


def teacher_path(settings: Settings, repo_key: str, role: str) -> Path:
    assert role in TREE_ROLES, role
    return settings.worktrees_dir / check_repo_key(repo_key) / f"teacher-{role}"


def snapshot_ref(bead: str) -> str:
    return f"refs/school/{check_bead(bead)}"


def agent_ref(bead: str) -> str:
    return f"refs/school/agent/{check_bead(bead)}"


def rescue_ref(bead: str) -> str:
    return f"refs/school/rescue/{check_bead(bead)}"


def how_to_recover(clone: Path, ref: str) -> str:
    """The command that brings *ref* of the school clone into the repository in which it is run."""
    return f"git fetch {shlex.quote(str(clone))} {ref}:{ref}"


# --- records ------------------------------------------------------------------------------------------------


def leaf_record_path(settings: Settings, bead: str) -> Path:
    return settings.worktree_records_dir / f"{check_bead(bead)}.json"


def teacher_record_path(settings: Settings, repo_key: str, role: str) -> Path:
    # An underscore is in no bead's name, so a teacher's record can never be taken for a leaf's.
    return settings.worktree_records_dir / f"teacher_{role}_{check_repo_key(repo_key)}.json"


def read_record(path: Path) -> WorktreeRecord | None:
    """The record at *path*, or None when there is none; WorktreeError when it cannot be read as one."""
    try:
        raw = files.read_json(path)
        return None if raw is None else WorktreeRecord.model_validate(raw)
    except (ValueError, ValidationError) as cause:
        raise WorktreeError(f"{path}: not a readable worktree record: {cause}") from cause


def write_record(path: Path, record: WorktreeRecord) -> None:
    files.ensure_dir(path.parent)
    with faults.around("worktree.recorded"):
        files.write_json(path, dump(record))


def remove_record(path: Path) -> None:
    if os.path.lexists(path):
        path.unlink(missing_ok=True)
        files.fsync_dir(path.parent)


def records(settings: Settings) -> Iterator[tuple[Path, WorktreeRecord | None]]:
    """Every record on disk, in name order; None in place of one that cannot be read."""
    if not settings.worktree_records_dir.is_dir():
        return
    for path in sorted(settings.worktree_records_dir.glob("*.json")):
        if path.name.startswith("."):
            continue
        try:
            record = read_record(path)
        except WorktreeError:
            yield path, None
            continue
        if record is not None:
            yield path, record


# --- what must never be removed -----------------------------------------------------------------------------


def refuse_removal(settings: Settings, path: Path, repo: Path | None) -> None:
    """Raise WorktreeError unless *path* is a real directory strictly below the worktrees directory.

    Refused are: the worktrees directory and a repository's own folder in it, anything outside, a symlink or a path
    through one below the worktrees directory, the user's repository, and whatever contains it.
    """
    if not path.is_absolute() or ".." in path.parts:
        raise WorktreeError(f"{path}: refused to remove: not a plain absolute path")
    root = settings.worktrees_dir
    if root not in path.parents or path.parent == root:
        raise WorktreeError(f"{path}: refused to remove: not a working tree below {root}")
    for part in (path, *path.parents):
        if part == root:
            break
        if part.is_symlink():
            raise WorktreeError(f"{path}: refused to remove: {part} is a symlink")
    if repo is not None and _touches(path, repo):
        raise WorktreeError(f"{path}: refused to remove: it is, or holds, the repository {repo}")


def _touches(path: Path, repo: Path) -> bool:
    real, real_repo = path.resolve(), repo.resolve()
    return real == real_repo or real in real_repo.parents or real_repo in real.parents

"""Retention: what is kept of finished beads, by age, by number and by size; nothing goes without being asked for.

``prune(repo, settings, keep, apply=False)`` gives a row for each archived bead of the repository that *keep* leaves out,
and with *apply* removes it: its refs in the user's repository and in the school clone, its review files, and last its
archive, so that a prune that is cut short is found again by the next. The record of its task, its line in the score
journal and its deliveries stay: what was done is still known, only its files are gone.

Never removed: a bead that is not archived, and accepted work that is in no branch or tag but its own (``unmerged``). A squash or
a rebase makes other commits, so what was merged that way counts as unmerged.

Errors: ConfigError for limits that cannot be, HeldError when a conductor is at work, MachineError where it cannot be removed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import bookbag
from school.contracts import TEACHER_ROLES
from school.errors import BookbagCorruptedError, BookbagInvalidError, ConfigError
from school.records.store import archive_path, read_archived
from school.settings import Settings
from school.supervisor.opening import hold
from school.system import clock, files, log
from school.system.git import Git
from school.worktrees import Repository, SchoolClone, clone_for, inspect_repository

DEFAULT_DAYS: Final = 90.0
# What a teacher that was started by hand may just be writing is younger than this.
UNNAMED_KEPT: Final = "1.hour.ago"
GC_TIMEOUT_S: Final = 600.0

_log = log.get("supervisor.retention")
Row = dict[str, Any]
Bag = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept: beads that ended within *days*, at most *beads* of them, in at most *size_bytes*; None: no limit."""

    days: float | None = None
    beads: int | None = None
    size_bytes: int | None = None

    def checked(self) -> Keep:
        """These limits, or the default where none is given; ConfigError for one that cannot be."""
        for name, value in (("--days", self.days), ("--beads", self.beads), ("--bytes", self.size_bytes)):
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigError(f"{name} {value}: expected a number that is not negative")
        return self if (self.days, self.beads, self.size_bytes) != (None,) * 3 else Keep(days=DEFAULT_DAYS)


@dataclass(frozen=True, slots=True)
class _Kept:
    bead: str
    bag: Bag
    ended: str
    size: int


def prune(repo: Path, settings: Settings, keep: Keep, *, apply: bool = False) -> list[Row]:
    """What *keep* leaves out, oldest first; removed with *apply*, otherwise only named."""
    keep = keep.checked()
    repository = inspect_repository(repo)
    with hold(repository, settings, "prune"):
        rows = [
            _pruned(one, why, repository, settings, apply=apply)
            for one, why in _left_out(sorted(_archived(repository), key=lambda kept: kept.ended), keep)
        ]
        if apply and any(row["action"] == "removed" for row in rows):
            _pack(repository, settings)
    return rows


def _archived(repository: Repository) -> Iterator[_Kept]:
    for bead in bookbag.list_bookbags(archived=True):
        try:
            bag = read_archived(bead)
        except (BookbagCorruptedError, BookbagInvalidError):
            continue  # ``check`` tells of it; what it was nobody knows, so it stays
        if bag is not None and bag.get("repo_key") == repository.key:
            ended = bag["history"][-1]["at"] if bag.get("history") else str(bag.get("timestamp") or "")
            yield _Kept(bead, bag, ended, _size(archive_path(bead)))


def _size(folder: Path) -> int:
    found = (os.lstat(path) for path in folder.rglob("*"))
    return sum(status.st_size for status in found if stat.S_ISREG(status.st_mode))


def _left_out(beads: list[_Kept], keep: Keep) -> Iterator[tuple[_Kept, str]]:
    """Those that a limit leaves out, oldest first, each with the first limit that does."""
    oldest = (clock.parse(clock.now()) - timedelta(days=keep.days or 0)).isoformat()
    room = keep.size_bytes
    reasons: dict[str, str] = {}
    for number, one in enumerate(reversed(beads)):
        room = None if room is None else room - one.size
        if keep.days is not None and one.ended < oldest:
            reasons[one.bead] = f"it ended more than {keep.days:g} days ago"
        elif keep.beads is not None and number >= keep.beads:
            reasons[one.bead] = f"{keep.beads} newer ones are kept"
        elif room is not None and room < 0:
            reasons[one.bead] = f"with the newer ones it is more than {keep.size_bytes} bytes"
    yield from ((one, reasons[one.bead]) for one in beads if one.bead in reasons)


def _pruned(one: _Kept, why: str, repository: Repository, settings: Settings, *, apply: bool) -> Row:
    refs = _refs(one, repository)
    row = {"bead": one.bead, "task_id": one.bag.get("task_id", ""), "action": "would_remove", "why": why}
    row |= {"bytes": one.size, "ref": " ".join(refs)}
    if one.bag.get("outcome") == "accepted" and not _merged(one.bag, repository):
        return {**row, "action": "kept", "why": f"{why}, but it is accepted and in no branch but its own"}
    if apply:
        _remove(one, refs, repository, settings)
        row["action"] = "removed"
        _log.info("bead.pruned", bead=one.bead, why=why, size_bytes=one.size)
    return row


def _merged(bag: Bag, repository: Repository) -> bool:
    """Whether the delivered commit is in a branch or tag beside the one that was made for it."""
    git = repository.git()
    commit = str((bag.get("delivered") or {}).get("commit") or bag.get("head_commit"))
    own = f"refs/heads/{(bag.get('delivered') or {}).get('branch')}"
    if not git.ok("cat-file", "-e", f"{commit}^{{commit}}"):
        return False
    places = ("refs/heads/", "refs/remotes/", "refs/tags/")
    found = git.text("for-each-ref", f"--contains={commit}", "--format=%(refname)", *places).split()
    return bool(set(found) - {own}) or git.ok("merge-base", "--is-ancestor", commit, "HEAD^0")


def _refs(one: _Kept, repository: Repository) -> list[str]:
    """The refs of ours in the user's repository that keep this bead's work."""
    name = str(one.bag.get("published_ref") or f"refs/school/{one.bead}")
    there = repository.git().text("for-each-ref", "--format=%(refname)", name).split()
    return [ref for ref in there if ref == name]


def _remove(one: _Kept, refs: list[str], repository: Repository, settings: Settings) -> None:
    _delete(repository.git(), refs)
    clone = clone_for(one.bag, settings=settings)
    if clone.path.is_dir():
        patterns = [f"refs/school/{kind}{one.bead}" for kind in ("", "agent/", "rescue/", "earlier/")]
        with clone.lock():
            _delete(clone.git, clone.git.text("for-each-ref", "--format=%(refname)", *patterns).split())
    for role in TEACHER_ROLES:
        review = str((one.bag.get(f"{role}_review") or {}).get("review_id") or "")
        if review.isalnum():
            (settings.reviews_dir / f"{review}.json").unlink(missing_ok=True)
    files.remove_tree(archive_path(one.bead))


def _delete(git: Git, refs: list[str]) -> None:
    if refs:
        git.run("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in refs).encode())


def _pack(repository: Repository, settings: Settings) -> None:
    """Free the space of commits that have no name any more, where no bead is in flight that might borrow them."""
    if any(bag.get("repo_key") == repository.key for bag in bookbag.Shelf().scan().values()):
        return
    clone = SchoolClone.open(repository, commits=[], settings=settings)
    with clone.lock():
        clone.git.run("gc", "--quiet", f"--prune={UNNAMED_KEPT}", timeout_s=GC_TIMEOUT_S)

"""Clean-up of what nobody uses any more: the rows of ``--clean-worktrees``.

A leaf's tree whose bead does not live is saved (again: it costs a hash of its files, and is the same if nothing
changed) and then removed; one that cannot be saved stays. A tree that is gone leaves its bead repository, whose
commits are saved before it goes. So do the output and scratch folders, the leaf's log and lock. A directory without a record was not made here: with anything in it, it stays and
is listed. Administration of the clones for trees that are gone is removed, locked or not.

Never touched: what *live* says is in use, a teacher's tree whose repository is still there, anything outside the
worktrees and bead repository directories.

Errors: none for a single row (it says ``kept`` and why); ``MachineError`` when the directories cannot be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import bookbag
from school.contracts import WorktreeRecord
from school.errors import SchoolError, WorktreeError
from school.records.moves import BEAD_NAME
from school.settings import Settings
from school.system import files, locks, log
from school.worktrees import layout
from school.worktrees.clone import SchoolClone
from school.worktrees.commits import save_commits
from school.worktrees.leaves import has_objects, workspace_from
from school.worktrees.makers import leaf_worktrees
from school.worktrees.mending import read_or_mend
from school.worktrees.snapshot import snapshot
from school.worktrees.teachers import TeacherTrees

Action = Literal["removed", "kept", "would_remove"]
Row = dict[str, Any]
# Who else has a scratch folder; no student's role is called so.
_NO_BEADS: Final = ("teacher-", "conductor-")

_log = log.get(__name__)


def reap(
    settings: Settings,
    *,
    repo_key: str | None,
    dry_run: bool,
    live: Callable[[str], bool],
    saved: Callable[[str], None] = lambda _ref: None,
) -> list[Row]:
    """Clean up below *settings*, of one repository or of all; one row for each thing found.

    *saved* hears of each ref of the clone that work was saved as, before what it was saved from is removed: whoever
    is killed in between does both again.
    """
    reaper = _Reaper(settings, repo_key, dry_run=dry_run, live=live, saved=saved)
    found = [*reaper.recorded(), *reaper.unrecorded(), *reaper.bead_repositories(), *reaper.administration()]
    return [*found, *reaper.folders()]


class _Reaper:
    def __init__(
        self,
        settings: Settings,
        repo_key: str | None,
        *,
        dry_run: bool,
        live: Callable[[str], bool],
        saved: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.repo_key = repo_key
        self.dry_run = dry_run
        self.live = live
        self.saved = saved
        self.known: set[Path] = set()
        self.beads: set[str] = set()

    def _row(self, path: Path | str, action: Action, why: str, ref: str = "") -> Row:
        if action == "removed" and self.dry_run:
            action = "would_remove"
        _log.info("worktree.reaped", path=str(path), action=action, why=why, ref=ref)
        return {"worktree": str(path), "action": action, "why": why, "ref": ref}

    # --- what has a record ------------------------------------------------------------------------------

    def recorded(self) -> Iterator[Row]:
        for record_path, readable in list(layout.records(self.settings)):
            record = readable or self._mended(record_path)
            if record is None:
                yield self._row(record_path, "kept", "its record cannot be read")
                continue
            self.known.add(files.place_of(Path(record.path)))
            self.beads.add(record.bead)
            if self.repo_key is not None and record.repo_key != self.repo_key:
                continue
            try:
                yield from self._recorded(record_path, record)
            except (SchoolError, OSError) as cause:
                yield self._row(record.path, "kept", str(cause))

    def _mended(self, record_path: Path) -> WorktreeRecord | None:
        """A torn record made again from its bookbag, where that says enough."""
        bag = _bag_of(record_path.stem) if BEAD_NAME.fullmatch(record_path.stem) else {}
        if self.dry_run or (self.repo_key is not None and bag.get("repo_key") != self.repo_key):
            return None
        try:
            return read_or_mend(bag, self.settings)
        except SchoolError as cause:
            _log.warning("worktree.record_torn", path=str(record_path), why=str(cause))
            return None

    def _recorded(self, record_path: Path, record: WorktreeRecord) -> Iterator[Row]:
        if record.kind == "teacher":
            if record.repo and not Path(record.repo).exists():
                if not self.dry_run:
                    TeacherTrees(record.role, self.settings).remove(record_path, record)
                yield self._row(record.path, "removed", f"its repository {record.repo} is gone")
            return
        if self.live(record.bead):
            yield self._row(record.path, "kept", "in use")
            return
        yield self._leaf(record)

    def _leaf(self, record: WorktreeRecord) -> Row:
        workspace = workspace_from(record, self.settings)
        layout.refuse_removal(self.settings, workspace.path, workspace.repo)
        ref = layout.snapshot_ref(record.bead)
        gone = not os.path.lexists(workspace.path)
        why = "its tree had vanished" if gone else "its bead is not in use"
        if self.dry_run:
            return self._row(workspace.path, "removed", why, ref)
        if record.removing:
            why = "its removal had begun"
        elif gone:
            ref = save_commits(workspace.git_dir, record.bead, SchoolClone(workspace.clone))
            # What could not be saved of the tree went with it; there is nothing left to keep for anybody.
            record.salvage_failed = ""
            layout.write_record(layout.leaf_record_path(self.settings, record.bead), record)
        else:
            bag = _bag_of(record.bead)
            made = snapshot(workspace, bag=bag, settings=self.settings)
            why += f"; saved: {layout.how_to_recover(workspace.clone, made.ref)}"
        self.saved(ref)
        leaf_worktrees(record.manager, settings=self.settings).remove(workspace)
        return self._row(workspace.path, "removed", why, ref)

    # --- what has none ----------------------------------------------------------------------------------

    def unrecorded(self) -> Iterator[Row]:
        for folder in _folders(self.settings.worktrees_dir):
            if self.repo_key is not None and folder.name != self.repo_key:
                continue
            for path in sorted(folder.iterdir()):
                if files.place_of(path) in self.known or path.is_symlink() or not path.is_dir():
                    continue
                yield from self._unrecorded(path)

    def _unrecorded(self, path: Path) -> Iterator[Row]:
        if path.name.startswith(layout.REMOVING):
            # Saved before it was renamed to this.
            made = path.with_name(path.name.removeprefix(layout.REMOVING))
            if files.place_of(made) not in self.known:
                if not self.dry_run:
                    files.remove_tree(path)
                yield self._row(path, "removed", "its removal had begun")
        elif not any(path.iterdir()):
            if not self.dry_run:
                path.rmdir()
            yield self._row(path, "removed", "empty, and nobody's")
        else:
            yield self._row(path, "kept", "no record says that it was made here; look, and remove it by hand")

    def bead_repositories(self) -> Iterator[Row]:
        for path in _folders(self.settings.bead_repos_dir):
            bead = path.name.removesuffix(".git")
            if (
                bead in self.beads
                or self.live(bead)
                or (self.settings.worktree_records_dir / f"{bead}.json").exists()
            ):
                continue
            try:
                yield from self._orphan(path, bead)
            except (SchoolError, OSError) as cause:
                yield self._row(path, "kept", str(cause))

    def _orphan(self, path: Path, bead: str) -> Iterator[Row]:
        """A bead repository without a record: what the agent committed is saved in the clone it borrows from."""
        clone = self._clone_of(path)
        if self.repo_key is not None and (clone is None or clone.path.stem != self.repo_key):
            return
        ref = ""
        if has_objects(path):
            if clone is None:
                yield self._row(path, "kept", "nobody's, holds commits, and borrows from no clone of ours")
                return
            if not self.dry_run:
                ref = save_commits(path, bead, clone)
                self.saved(ref)
        if not self.dry_run:
            files.remove_tree(path)
        yield self._row(path, "removed", "no record says that a tree belongs to it", ref)

    def _clone_of(self, path: Path) -> SchoolClone | None:
        try:
            said = files.read_bytes(path / "objects" / "info" / "alternates")
        except (ValueError, SchoolError):
            return None
        for line in (said or b"").splitlines():
            objects = Path(os.fsdecode(line))
            if objects.name == "objects" and objects.parent.parent == self.settings.clones_dir:
                try:
                    return SchoolClone.at(objects.parent.stem, settings=self.settings)
                except WorktreeError:
                    continue
        return None

    # --- what lies beside the trees ---------------------------------------------------------------------

    def folders(self) -> Iterator[Row]:
        """Output, scratch, log and lock of beads that are over; while a tree or a repository stays, so do they."""
        here = self.settings
        for folder in (here.outputs_dir, here.scratch_dir):
            for path in _folders(folder):
                if self._is_over(path.name):
                    yield self._discarded(path)
        files_of = [(here.logs_dir, "leaf-", ".log")]
        files_of += [(here.processes_dir, "", f".leaf.lock{end}") for end in ("", ".owner")]
        for folder, prefix, suffix in files_of:
            for path in sorted(folder.glob(f"{prefix}*{suffix}")):
                bead = path.name.removeprefix(prefix).removesuffix(suffix)
                if not self.dry_run and self._is_over(bead):
                    path.unlink(missing_ok=True)

    def _discarded(self, path: Path) -> Row:
        try:
            if not self.dry_run:
                files.remove_tree(path)
        except (SchoolError, OSError) as cause:
            return self._row(path, "kept", str(cause))
        return self._row(path, "removed", "its bead is over")

    def _is_over(self, bead: str) -> bool:
        """Asked after the path was seen: a record is there before its leaf makes anything."""
        here = self.settings
        if not BEAD_NAME.fullmatch(bead) or bead.startswith(_NO_BEADS) or self.live(bead):
            return False
        marks = (
            here.bookbag_dir / f"{bead}.json",
            here.worktree_records_dir / f"{bead}.json",
            layout.bead_repository(here, bead),
        )
        if any(map(os.path.lexists, marks)) or locks.held_elsewhere(here.processes_dir / f"{bead}.leaf.lock"):
            return False
        bag = _bag_of(bead)
        return self.repo_key is None or bag.get("repo_key", self.repo_key) == self.repo_key

    # --- the clones' own lists --------------------------------------------------------------------------

    def administration(self) -> Iterator[Row]:
        for clone_path in _folders(self.settings.clones_dir):
            key = clone_path.name.removesuffix(".git")
            if not clone_path.name.endswith(".git") or (self.repo_key is not None and key != self.repo_key):
                continue
            for admin in _folders(clone_path / "worktrees"):
                yield from self._entry(SchoolClone(clone_path), admin)

    def _entry(self, clone: SchoolClone, admin: Path) -> Iterator[Row]:
        tree = _tree_of(admin)
        if tree is not None and tree.is_dir():
            return
        if not self.dry_run:
            with clone.lock():
                # Under the lock nobody is just making this very tree.
                tree = _tree_of(admin)
                if tree is not None and tree.is_dir():
                    return
                files.remove_tree(admin)
        yield self._row(tree or admin, "removed", "a list entry of a tree that is gone")


def _tree_of(admin: Path) -> Path | None:
    """The working tree that the list entry *admin* is of."""
    try:
        said = files.read_bytes(admin / "gitdir")
    except (ValueError, SchoolError):
        return None
    return Path(os.fsdecode(said.strip())).parent if said else None


def _folders(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink())


def _bag_of(bead: str) -> Mapping[str, Any]:
    """The bag of *bead*, live or archived; one that cannot be read does not stop its work from being saved."""
    try:
        return bookbag.read_bookbag(bead) or bookbag.read_archived(bead) or {"bead": bead}
    except SchoolError:
        return {"bead": bead}

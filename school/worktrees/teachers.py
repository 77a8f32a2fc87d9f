"""A teacher's working trees: one per repository it serves, on the school clone, made again when gone.

A teacher runs code there that an agent wrote. So nothing that lies in the tree is trusted afterwards: not its
``.git`` file, not its index, not a time stamp. ``checkout`` names git directory and tree itself, resets, cleans, and
then proves by hashing with a fresh index that the tree is the commit and nothing more than the commit and what
*keep* names; a tree that cannot be brought there is removed and made again.

Errors: ``WorktreeError`` when even a new tree is not what it should be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from school import settings as school_settings
from school.contracts import WorktreeRecord
from school.errors import GitError, MachineError, WorktreeError
from school.settings import Settings
from school.system import clock, files, log
from school.system.git import Git
from school.worktrees import layout, submodules
from school.worktrees.clone import SchoolClone, clone_for
from school.worktrees.leaves import CHECKOUT_TIMEOUT_S, checkout_workers

_SHOWN: Final = 5

_log = log.get(__name__)


class TeacherTrees:
    """The working trees of teacher *role*."""

    def __init__(self, role: str, settings: Settings | None = None) -> None:
        self.role = role
        self.settings = settings or school_settings.current()
        self._submodules_of: Path | None = None
        # The index with which the last checkout was proven; whoever runs code in the tree must have taken it before.
        self.proven: Path | None = None

    # --- making and removing ----------------------------------------------------------------------------

    def ensure(self, bag: Mapping[str, Any]) -> Path:
        """This teacher's tree for the repository of *bag*; one that is there stays as it is."""
        clone = clone_for(bag, settings=self.settings)
        repo_key = str(bag["repo_key"])
        wanted = bool((bag.get("terms") or {}).get("submodules"))
        self._submodules_of = Path(str(bag.get("repo") or "")) if wanted else None
        path = layout.teacher_path(self.settings, repo_key, self.role)
        if not self._stands(path, clone):
            with clone.lock():
                self._make(path, clone, str(bag.get("repo") or ""), repo_key)
        return path

    def _admin(self, clone: SchoolClone) -> Path:
        return clone.path / "worktrees" / f"teacher-{self.role}"

    def _stands(self, path: Path, clone: SchoolClone) -> bool:
        admin = self._admin(clone)
        if path.is_symlink() or not path.is_dir() or not (admin / "HEAD").is_file():
            return False
        self._own_marker(path, admin)
        return Git(admin, path).ok("rev-parse", "--verify", "--quiet", "HEAD^{commit}")

    def _own_marker(self, path: Path, admin: Path) -> None:
        """Make the tree's ``.git`` file ours again, for the tools that the checks run."""
        marker, content = path / ".git", b"gitdir: " + os.fsencode(admin) + b"\n"
        try:
            found = files.read_bytes(marker)
        except (ValueError, MachineError):
            found = None  # a link, a folder, or not to be read: replaced below
        if found == content:
            return
        if os.path.lexists(marker):
            files.remove_tree(marker) if marker.is_dir() and not marker.is_symlink() else marker.unlink()
        files.write_atomic(marker, content)

    def _make(self, path: Path, clone: SchoolClone, repo: str, repo_key: str) -> None:
        """A tree without files; ``checkout`` fills it."""
        self._discard(path, clone)
        record = WorktreeRecord(
            name=path.name, kind="teacher", path=str(path), repo=repo, repo_key=repo_key, role=self.role,
            created_at=clock.now(),
        )  # fmt: skip
        record_path = layout.teacher_record_path(self.settings, repo_key, self.role)
        layout.write_record(record_path, record)
        files.ensure_dir(path.parent)
        start = self._any_commit(clone)
        clone.git.run("worktree", "add", "--quiet", "--detach", "--no-checkout", str(path), start)
        if not (self._admin(clone) / "HEAD").is_file() or not (path / ".git").is_file():
            raise WorktreeError(f"{path}: git said it was made, and it is not there")
        record.made = True
        layout.write_record(record_path, record)
        _log.info("teacher.worktree_made", role=self.role, path=str(path))

    def _any_commit(self, clone: SchoolClone) -> str:
        for pattern in ("refs/school/", "refs/heads/", "refs/tags/"):
            found = clone.git.text("for-each-ref", "--count=1", "--format=%(objectname)", pattern)
            if found:
                return found
        raise WorktreeError(f"{clone.path}: holds no commit")

    def _discard(self, path: Path, clone: SchoolClone) -> None:
        """Remove tree and administration, also when locked, half made or made for another clone."""
        if path.is_symlink():
            path.unlink()
        elif os.path.lexists(path):
            layout.refuse_removal(self.settings, path, None)
            files.remove_tree(path)
        if os.path.lexists(self._admin(clone)):
            files.remove_tree(self._admin(clone))

    def remove_all(self, repo_key: str = "") -> None:
        """Remove this role's trees, of every repository unless one is named; twice is fine."""
        for record_path, record in layout.records(self.settings):
            mine = record is not None and record.kind == "teacher" and record.role == self.role
            if record is not None and mine and repo_key in ("", record.repo_key):
                self.remove(record_path, record)

    def remove(self, record_path: Path, record: WorktreeRecord) -> None:
        """Remove the one tree of *record*."""
        clone = SchoolClone(layout.clone_path(self.settings, record.repo_key))
        if clone.path.is_dir():
            with clone.lock():
                self._discard(Path(record.path), clone)
        else:
            self._discard(Path(record.path), clone)
        layout.remove_record(record_path)

    # --- checking out -----------------------------------------------------------------------------------

    def checkout(self, path: Path, commit: str, keep: Sequence[str] = ()) -> None:
        """Bring the tree at *path* to *commit*, exactly, but for what *keep* names at its top."""
        clone = self._clone_of(path)
        kept = [name for name in map(_plain, keep) if name]
        try:
            self._reset(path, clone, commit, kept)
            wrong = self._difference(path, clone, commit, kept)
        except (GitError, MachineError) as cause:
            wrong = str(cause)
        if not wrong:
            self._populate(path, clone, commit)
            return
        _log.warning("teacher.worktree_remade", role=self.role, path=str(path), why=wrong)
        _empty(path, {".git", *(name.split("/")[0] for name in kept)})
        (self._admin(clone) / "index").unlink(missing_ok=True)
        self._reset(path, clone, commit, kept)
        wrong = self._difference(path, clone, commit, kept)
        if wrong:
            raise WorktreeError(f"{path}: cannot be brought to {commit}: {wrong}")
        self._populate(path, clone, commit)

    def _populate(self, path: Path, clone: SchoolClone, commit: str) -> None:
        """The submodules, for a bag whose terms ask for them; the next checkout empties their folders again."""
        if self._submodules_of is not None:
            scratch = clone.path / "scratch" / f"teacher_{self.role}"
            submodules.populate(path, clone.git, commit, self._submodules_of, scratch)

    def _clone_of(self, path: Path) -> SchoolClone:
        expected = self.settings.worktrees_dir / path.parent.name / f"teacher-{self.role}"
        if path != expected:
            raise WorktreeError(f"{path}: not a working tree of {self.role}")
        clone = SchoolClone.at(path.parent.name, settings=self.settings)
        if not self._stands(path, clone):
            with clone.lock():
                record = layout.read_record(
                    layout.teacher_record_path(self.settings, path.parent.name, self.role)
                )
                self._make(path, clone, record.repo if record else "", path.parent.name)
        return clone

    def _git(self, path: Path, clone: SchoolClone, index: Path | None = None) -> Git:
        config = {"checkout.workers": str(checkout_workers()), "core.bare": "false"}
        return Git(self._admin(clone), path, index=index, config=config)

    def _reset(self, path: Path, clone: SchoolClone, commit: str, keep: Sequence[str]) -> None:
        admin = self._admin(clone)
        self._own_marker(path, admin)
        files.remove_pipes(path)
        _unlock(admin)
        git = self._git(path, clone)
        git.run("reset", "--hard", "--quiet", commit, timeout_s=CHECKOUT_TIMEOUT_S)
        if (admin / "HEAD").is_symlink() or (admin / "HEAD").read_bytes().strip() != commit.encode():
            git.run("update-ref", "--no-deref", "HEAD", commit)
        excluded = [part for name in keep for part in ("-e", _pattern(name))]
        git.run("clean", "-ffdxq", *excluded, timeout_s=CHECKOUT_TIMEOUT_S)
        for entry in git.run("ls-files", "--stage", "-z").stdout.split(b"\0"):
            if entry.startswith(b"160000 "):
                # git leaves a submodule's folder alone, whatever lies in it.
                _empty(path / os.fsdecode(entry.partition(b"\t")[2]), set())

    def _difference(self, path: Path, clone: SchoolClone, commit: str, keep: Sequence[str]) -> str:
        """What is not as *commit* has it, found with an index that nobody else wrote; empty when nothing is."""
        self.proven = self._admin(clone) / "school-index"
        _unlock(self.proven.parent)
        self.proven.unlink(missing_ok=True)
        git = self._git(path, clone, self.proven)
        git.run("read-tree", commit)
        # Without this a fresh index would call every file changed; with it, each is read and hashed.
        git.run("update-index", "-q", "--really-refresh", check=False, timeout_s=CHECKOUT_TIMEOUT_S)
        changed = git.run("diff-files", "--name-only", "-z").stdout.split(b"\0")
        others = git.run("ls-files", "--others", "-z").stdout.split(b"\0")
        kept = tuple(os.fsencode(name) for name in keep)
        left = [name for name in others if name and not _below(name.rstrip(b"/"), kept)]
        wrong = [name for name in changed if name and not self._is_submodule(path, clone, commit, name)]
        names = [os.fsdecode(name) for name in [*wrong, *left]]
        return ", ".join(map(repr, names[:_SHOWN])) + (" …" if len(names) > _SHOWN else "")

    def _is_submodule(self, path: Path, clone: SchoolClone, commit: str, name: bytes) -> bool:
        listed = clone.git.run("--literal-pathspecs", "ls-tree", "-z", commit, "--", os.fsdecode(name)).stdout
        return listed.startswith(b"160000 ") and (path / os.fsdecode(name)).is_dir()


def _unlock(admin: Path) -> None:
    """Remove what a git that was killed held: of an index, ours included, or of HEAD. One teacher per role, so it is dead."""
    for lock in admin.glob("*.lock"):
        lock.unlink(missing_ok=True)


def _empty(folder: Path, kept: Collection[str]) -> None:
    """Remove everything in *folder* but what is called like one of *kept*."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name not in kept:
            entry.unlink() if entry.is_symlink() else files.remove_tree(entry)


def _plain(name: str) -> str:
    """*name* as a path below the top, or empty if it is none."""
    plain = os.path.normpath(name)
    return "" if plain == "." or plain.startswith(("/", "..")) else plain


def _pattern(name: str) -> str:
    return "/" + re.sub(r"([\\*?\[ !#])", r"\\\1", name)


def _below(path: bytes, names: Sequence[bytes]) -> bool:
    return any(path == name or path.startswith(name + b"/") for name in names)

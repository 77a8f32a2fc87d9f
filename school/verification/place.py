"""One teacher's worktree, moved between commits and cleaned, whatever the code that ran in it did to it.

``Place.find(worktree, scratch)`` learns once, before any foreign code has run, where the worktree's git directory
is; from then on that is explicit, with an index of its own in *scratch*. So neither a rewritten ``.git`` file nor
``assume-unchanged`` bits in the worktree's index can keep a file from being put back. ``go(commit)`` brings the tree
to a commit and removes everything that is not of it, but for ``keep``; ``settle(commit)`` does so for the last time
and leaves the worktree's own index and ``.git`` file as they should be.

Errors: WorktreeError where it is no worktree, or is not what it should be afterwards.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from school.errors import GitError, WorktreeError
from school.system import files
from school.system.git import Git

COPY_BYTES_MAX: Final = 16 * 1024 * 1024
_TIMEOUT_S: Final = 600.0
_FULL_ID: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SLASH: Final = ord("/")
# The commit that each private index was brought to by this process, and what the index was then.
_STANDS: Final[dict[Path, tuple[str, bytes]]] = {}


@dataclass(slots=True)
class Place:
    """A linked worktree and the git directory behind it. ``copies`` are put into the tree at every move."""

    worktree: Path
    git_dir: Path
    dot_git: bytes
    index: Path
    keep: Sequence[str] = ()
    copies: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)

    @classmethod
    def find(cls, worktree: Path, scratch: Path) -> Place:
        """The place at *worktree*; its private index will lie in *scratch*."""
        dot_git = worktree / ".git"
        try:
            content = dot_git.read_bytes()
            named = content.decode("utf-8", "surrogateescape").removeprefix("gitdir:").strip()
            git_dir = Path(os.path.realpath(worktree / named))
            back = Path((git_dir / "gitdir").read_text("utf-8", "surrogateescape").strip())
        except OSError as cause:
            raise WorktreeError(f"{worktree}: not a linked git worktree: {cause}") from cause
        if os.path.realpath(back) != os.path.realpath(dot_git):
            raise WorktreeError(f"{worktree}: its git directory {git_dir} belongs to {back.parent}")
        files.ensure_dir(scratch)
        return cls(worktree, git_dir, content, scratch / "place.index")

    def adopt(self, index: Path, commit: str) -> None:
        """Begin with *index*, which has just been shown to be what lies in the tree, and *commit*."""
        files.write_atomic(self.index, index.read_bytes())
        _STANDS[self.index] = (commit, _digest(self.index))

    @property
    def git(self) -> Git:
        """Git on this worktree with the private index."""
        return Git(
            git_dir=self.git_dir, work_tree=self.worktree, index=self.index, config={"core.bare": "false"}
        )

    def go(self, commit: str) -> None:
        """The tree exactly as *commit* has it, nothing beside it but what is kept and copied."""
        git = self.git
        files.remove_pipes(self.worktree)
        for lock in (self.git_dir / "index.lock", self.index.with_name(f"{self.index.name}.lock")):
            lock.unlink(missing_ok=True)
        head = self._detached_at()
        if not head:
            # Detached first: a test may have checked out a branch here, and a reset would move that.
            git.run("update-ref", "--no-deref", "HEAD", commit)
        if not self._stands(git, head, commit):
            _STANDS.pop(self.index, None)
            self._reset(git, commit)
            _STANDS[self.index] = (commit, _digest(self.index))
        if self._has_strangers(git, commit):
            self._clean(git)
        for name, (content, mode) in self.copies.items():
            target = self.worktree / name
            if self.holds(name) and not target.exists():
                files.write_atomic(target, content, mode=mode)

    def _stands(self, git: Git, head: str, commit: str) -> bool:
        """Whether the tree is still at *commit* as this process brought it there; an index that changed is thrown away."""
        at, digest = _STANDS.get(self.index, ("", b""))
        if not at:
            return False
        if not self.index.is_file() or self.index.is_symlink() or _digest(self.index) != digest:
            self.index.unlink(missing_ok=True)
            return False
        return (
            head == at == commit
            and git.run("diff-files", "--quiet", check=False, timeout_s=_TIMEOUT_S).returncode == 0
        )

    def _detached_at(self) -> str:
        """The commit that HEAD names itself; empty where it names a branch, or is no plain file."""
        head = self.git_dir / "HEAD"
        if head.is_symlink() or not head.is_file():
            return ""
        content = head.read_bytes().strip().decode("ascii", "replace")
        return content if _FULL_ID.fullmatch(content) else ""

    def _has_strangers(self, git: Git, commit: str) -> bool:
        """Whether anything lies in the tree that git may have to clean; the many times that nothing does cost no process."""
        listed = git.fixed("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
        tracked = frozenset(listed.split(b"\0"))
        folders = {name[:at] for name in tracked for at, byte in enumerate(name) if byte == _SLASH}
        kept = {b".git", *(os.fsencode(name) for name in self.keep)}
        root, pending = os.fsencode(self.worktree) + b"/", [b""]
        while pending:
            below = pending.pop()
            try:
                entries = list(os.scandir(root + below))
            except OSError:
                return True  # git says what it makes of it
            for entry in entries:
                name = below + entry.name
                if name in tracked or name in kept:
                    continue  # a folder under a tracked name is a submodule's, which git leaves alone
                if name not in folders or not entry.is_dir(follow_symlinks=False):
                    return True
                pending.append(name + b"/")
        return False

    def holds(self, name: str) -> bool:
        """Whether *name*, there or not, can only lie in this tree: a commit may have a link where a folder was."""
        folder = self.worktree
        for part in PurePosixPath(name).parts[:-1]:
            folder /= part
            if os.path.lexists(folder) and not stat.S_ISDIR(folder.lstat().st_mode):
                return False
        return True

    def _reset(self, git: Git, commit: str) -> None:
        try:
            git.run("reset", "--hard", "--quiet", commit, timeout_s=_TIMEOUT_S)
        except GitError:
            # A directory without permissions, or one where a file belongs; once cleared, it has to work.
            self._clear()
            git.run("reset", "--hard", "--quiet", commit, timeout_s=_TIMEOUT_S)
        if git.run("diff-files", "--quiet", check=False, timeout_s=_TIMEOUT_S).returncode != 0:
            raise WorktreeError(f"{self.worktree}: cannot be brought to {commit}")

    def _clear(self) -> None:
        for entry in self.worktree.iterdir():
            if entry.name != ".git" and entry.name not in {name.split("/")[0] for name in self.keep}:
                entry.unlink() if entry.is_symlink() else files.remove_tree(entry)
        self.index.unlink(missing_ok=True)

    def _clean(self, git: Git) -> None:
        kept = [word for name in self.keep for word in ("-e", f"/{name}")]
        done = git.run("clean", "-ffdxq", *kept, check=False, timeout_s=_TIMEOUT_S)
        if done.returncode == 0:
            return
        for name in self.strangers():
            path = self.worktree / name
            path.unlink() if path.is_symlink() else files.remove_tree(path)

    def strangers(self, but: Sequence[str] = ()) -> list[str]:
        """What lies in the tree that is neither of its commit nor kept, nor named like one of *but*; folders as one."""
        kept = [*(f"--exclude=/{name}" for name in self.keep), *(f"--exclude={glob}" for glob in but)]
        raw = self.git.run("ls-files", "--others", "--directory", "-z", *kept).stdout
        return [os.fsdecode(name).rstrip("/") for name in raw.split(b"\0") if name]

    def settle(self, commit: str) -> None:
        """Leave the worktree clean at *commit*, with its own index and ``.git`` file."""
        self.go(commit)
        dot_git = self.worktree / ".git"
        if dot_git.is_symlink() or not dot_git.is_file() or dot_git.read_bytes() != self.dot_git:
            if dot_git.is_dir() and not dot_git.is_symlink():
                files.remove_tree(dot_git)
            files.write_atomic(dot_git, self.dot_git, mode=0o644)
        files.write_atomic(self.git_dir / "index", self.index.read_bytes())


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def copies_from(repository: Path, names: Sequence[str]) -> dict[str, tuple[bytes, int]]:
    """Files such as ``.env`` that checks need and git does not have: content and mode, from the user's repository."""
    found: dict[str, tuple[bytes, int]] = {}
    root = Path(os.path.realpath(repository))
    for name in names:
        path = root / name
        if path.is_symlink() or not path.is_file() or not Path(os.path.realpath(path)).is_relative_to(root):
            continue
        if path.stat().st_size <= COPY_BYTES_MAX:
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o777)
    return found

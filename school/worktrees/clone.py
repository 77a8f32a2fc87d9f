"""The school clone: our own bare copy of the user's repository, written only by our code under its kernel lock.

``SchoolClone.open`` makes it (aside, then renamed into place) or brings in the commits it lacks, by path, from the
user's repository; ``clone_for`` finds one from a bag without looking at the user's repository at all. It shares no
inode with the user's objects, borrows none, keeps shallow boundaries and object format, and never collects garbage:
what a ref named once can always be found again.

Trees are exact in it: no filter, line-ending or encoding conversion applies to any path (``EXACT_ATTRIBUTES``), so
that what a snapshot stores and what a teacher checks out are the bytes that the agent left.

Not promised: that commits arrive with signatures checked, or that tags made later are known here.
Errors: ``WorktreeError`` when it cannot be made, is not what it should be, or is held too long; ``MachineError`` from
below when the disk does not suffice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from school import settings as school_settings
from school.errors import GitError, WorktreeError
from school.settings import Settings
from school.system import clock, faults, files, log
from school.system import git as system_git
from school.system.git import FETCHING, Git
from school.system.locks import KernelLock
from school.worktrees import layout
from school.worktrees.repository import Repository

# `git merge-tree --write-tree` merges without a working tree.
MERGE_TREE_SINCE: Final = (2, 38)
LOCK_TIMEOUT_S: Final = 600.0
# Git holds the lock of a ref for milliseconds. One that lies for longer was left by a git that was killed.
GIT_LOCK_S: Final = 5.0
FETCH_TIMEOUT_S: Final = 3600.0
BLOB_BYTES_MAX: Final = 64 * 1024 * 1024
# `!` and not `-` for the encoding, because git dies on `-working-tree-encoding`; `!diff` so that no .gitattributes
# of an agent's can make its source look like a binary file that no diff shows.
EXACT_ATTRIBUTES: Final = "* -text !eol -ident -filter !working-tree-encoding !diff\n"
# One pack or none: `index-pack` puts a whole pack in place, loose objects could be left half of a history.
FETCH_CONFIG: Final[Mapping[str, str]] = {
    **FETCHING,
    "fetch.unpackLimit": "1",
    "transfer.unpackLimit": "1",
    "fetch.writeCommitGraph": "false",
    "fetch.prune": "false",
    "protocol.version": "2",
}
# Since this version git says with `core.fsync` what it brings to the disk.
_FSYNC_SINCE: Final = (2, 36)
_CLONE_CONFIG: Final[Mapping[str, str]] = {
    "gc.auto": "0",
    "maintenance.auto": "false",
    "core.logAllRefUpdates": "false",
    "core.hooksPath": "/dev/null",
    "commit.gpgSign": "false",
    "uploadpack.allowAnySHA1InWant": "true",
}
NAME: Final = "School"
EMAIL: Final = "school@localhost"

_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Merged:
    """All commits in one, pinned by nobody yet."""

    commit: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Which of the merged names does not fit, and the paths on which it does not."""

    names: list[str]
    paths: list[str]


@cache
def durable() -> Mapping[str, str]:
    """The settings under which objects and refs outlive a power cut, like any other record."""
    if system_git.version() < _FSYNC_SINCE:
        return {"core.fsyncObjectFiles": "true"}
    return {"core.fsync": "committed,loose-object"}


def identity(at: int, timezone: str = "+0000") -> dict[str, str]:
    """The environment that makes a commit ours and its id a function of its content."""
    date = f"@{at} {timezone}"
    return {
        "GIT_AUTHOR_NAME": NAME,
        "GIT_AUTHOR_EMAIL": EMAIL,
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_NAME": NAME,
        "GIT_COMMITTER_EMAIL": EMAIL,
        "GIT_COMMITTER_DATE": date,
    }


class SchoolClone:
    """One repository's clone. Reading needs no lock; what changes refs or the clone itself takes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git = Git(path)
        self._durable = Git(path, config={**FETCH_CONFIG, **durable()})
        self._lock = KernelLock(path.with_suffix(".lock"))
        self._depth = 0

    # --- finding and making -----------------------------------------------------------------------------

    @classmethod
    def open(
        cls, repository: Repository, *, commits: Sequence[str] = (), settings: Settings | None = None
    ) -> SchoolClone:
        """The clone of *repository*, made if need be, holding *commits* (and HEAD's when none are named)."""
        settings = settings or school_settings.current()
        files.ensure_dir(settings.clones_dir)
        clone = cls(layout.clone_path(settings, repository.key))
        with clone.lock():
            clone._sweep()
            # Below refs/school nobody but us makes a ref; every other lock of the user's repository is the user's.
            _free(clone.path / "refs", clone.path, repository.common_dir / "refs" / "school")
            if not clone._usable(repository):
                clone._make(repository)
            clone._bring(repository, commits or [repository.head_commit])
            clone._write_info(repository)
        return clone

    @classmethod
    def at(cls, repo_key: str, *, settings: Settings | None = None) -> SchoolClone:
        """The existing clone of *repo_key*; WorktreeError when there is none."""
        return cls.existing(layout.clone_path(settings or school_settings.current(), repo_key))

    @classmethod
    def existing(cls, path: Path) -> SchoolClone:
        """The clone at *path*; WorktreeError when there is none."""
        if not (path / "HEAD").is_file():
            raise WorktreeError(f"{path}: there is no school clone of this repository")
        return cls(path)

    @contextmanager
    def lock(self, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
        """Hold the clone's kernel lock; nested use by one object is fine. One object is for one thread."""
        if self._depth == 0 and not self._lock.acquire(timeout_s):
            raise WorktreeError(f"{self.path}: locked by another process for more than {timeout_s:g} s")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._lock.release()

    def _aside(self) -> Path:
        return self.path.with_suffix(".making")

    def _sweep(self) -> None:
        # Under the lock nobody else makes this clone: what is aside belongs to somebody who died making it.
        if os.path.lexists(self._aside()):
            files.remove_tree(self._aside())

    def _usable(self, repository: Repository) -> bool:
        if not os.path.lexists(self.path):
            return False
        asked = self.git.run("rev-parse", "--is-bare-repository", "--show-object-format", check=False)
        if asked.stdout.decode().split() == ["true", repository.object_format]:
            return True
        kept = files.quarantine(self.path, self.path.parent / "broken")
        _log.warning("clone.broken", path=str(self.path), kept=str(kept))
        return False

    def _make(self, repository: Repository) -> None:
        aside = self._aside()
        source = repository.common_dir
        # Copying object files is quickest; it would keep borrowed objects borrowed, and cannot end at a shallow
        # boundary, so such repositories are asked for their history instead.
        borrowed = (source / "objects" / "info" / "alternates").exists()
        try:
            if borrowed or repository.shallow:
                self._clone(source, "--no-local")
            else:
                self._copy(source)
        except GitError as cause:
            self._sweep()
            raise WorktreeError(
                f"{repository.path}: could not be cloned into {self.path}: {cause}"
            ) from cause
        made = Git(aside)
        made.run("config", "--remove-section", "remote.origin", check=False)
        for key, value in _CLONE_CONFIG.items():
            made.run("config", key, value)
        (aside / "info").mkdir(exist_ok=True)
        (aside / "info" / "attributes").write_text(EXACT_ATTRIBUTES)
        aside.chmod(files.DIR_MODE)
        aside.replace(self.path)  # the commit point
        files.fsync_dir(self.path.parent)
        if not self._usable(repository):
            raise WorktreeError(f"{self.path}: git said the clone was made, and it is not there")
        _log.info("clone.made", path=str(self.path), repo=str(repository.path))

    def _copy(self, source: Path) -> None:
        """Copy *source*; ask for its history where a repack of the user's takes files away under the copy."""
        try:
            self._clone(source, "--no-hardlinks")
        except GitError as cause:
            _log.warning("clone.copy_failed", source=str(source), why=str(cause))
            self._sweep()
            self._clone(source, "--no-local")

    def _clone(self, source: Path, how: str) -> None:
        run = Git(cwd=self.path.parent, config=FETCH_CONFIG).run
        words = ("clone", "--quiet", "--bare", "--template=", how, str(source), str(self._aside()))
        run(*words, timeout_s=FETCH_TIMEOUT_S)

    def _bring(self, repository: Repository, commits: Iterable[str]) -> None:
        lacking = [commit for commit in commits if not self.has(commit)]
        if not lacking:
            return
        self.fetch(repository.common_dir, lacking, shallow=repository.shallow)
        for commit in lacking:
            if not self.has(commit):
                raise WorktreeError(
                    f"{repository.path}: commit {commit} could not be brought into {self.path}"
                )

    def fetch(self, source: Path, commits: Sequence[str], *, shallow: bool = False) -> None:
        """Bring *commits* and their history from the repository at *source*, without a ref."""
        how = [
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--no-recurse-submodules",
        ]
        try:
            self._durable.run(
                "fetch", *how, *(["--update-shallow"] if shallow else []), str(source), *commits,
                timeout_s=FETCH_TIMEOUT_S,
            )  # fmt: skip
        except GitError as cause:
            raise WorktreeError(f"{source}: {', '.join(commits)} could not be fetched: {cause}") from cause

    def _write_info(self, repository: Repository) -> None:
        """What the user's own ignore files hide in their repository is hidden here too."""
        info = self.path / "info"
        info.mkdir(exist_ok=True)
        lines = [*layout.SCHOOL_IGNORES, *_user_ignores(repository)]
        for name, text in (("exclude", "\n".join(lines) + "\n"), ("attributes", EXACT_ATTRIBUTES)):
            target = info / name
            data = text.encode("utf-8", "surrogateescape")
            if not target.is_file() or target.read_bytes() != data:
                files.write_atomic(target, data)

    # --- reading ----------------------------------------------------------------------------------------

    def has(self, *commits: str) -> bool:
        """Whether it holds each of *commits*, whatever a record says in their place."""
        asked = "".join(f"{commit}^{{commit}}\n" for commit in commits).encode("utf-8", "surrogateescape")
        said = self.git.run("cat-file", "--batch-check=%(objecttype)", stdin=asked, check=False)
        return said.returncode == 0 and said.stdout == b"commit\n" * len(commits)

    def ref(self, name: str) -> str:
        """What *name* points to, or an empty string."""
        asked = self.git.run("rev-parse", "--verify", "--quiet", name, check=False)
        return asked.stdout.decode().strip()

    def read_file(self, commit: str, path: str) -> bytes | None:
        """The content of the file (or the target of the link) *path* at *commit*; None where there is none."""
        if not path:
            return None
        listed = self.git.run(
            "--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", path
        ).stdout
        for entry in listed.split(b"\0"):
            head, _, name = entry.partition(b"\t")
            if os.fsdecode(name) == path and head.split()[1:2] == [b"blob"]:
                oid = head.split()[2].decode()
                return self.git.run("cat-file", "blob", oid, limit_bytes=BLOB_BYTES_MAX).stdout
        return None

    def list_files(self, commit: str) -> list[str]:
        """Every path at *commit*, undecodable bytes as surrogates."""
        listed = self.git.fixed("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
        return [os.fsdecode(name) for name in listed.split(b"\0") if name]

    def tree_of(self, commit: str) -> str:
        return self.git.tree_of(commit)

    def trees_of(self, commits: Iterable[str]) -> set[str]:
        """The trees of *commits*, as far as there are any."""
        asked = "".join(f"{commit}^{{tree}}\n" for commit in commits if commit).encode()
        said = self.git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked).stdout
        return {line[5:].decode() for line in said.splitlines() if line.startswith(b"tree ")}

    def committed_at(self, *commits: str) -> int:
        """When the latest of *commits* was made."""
        return max(map(int, self.git.text("show", "-s", "--format=%ct", *commits).split()))

    # --- refs -------------------------------------------------------------------------------------------

    def set_ref(self, name: str, commit: str) -> None:
        """Point *name* to *commit*, durably."""
        with self.lock(), faults.around("clone.pinned"):
            self._durable.run("update-ref", name, commit)

    def pin(self, commit: str, name: str) -> None:
        """Keep *commit* named while somebody uses it; *name* is one path component."""
        self.set_ref(f"refs/school/pins/{name}", commit)

    def unpin(self, name: str) -> None:
        with self.lock():
            self.git.run("update-ref", "-d", f"refs/school/pins/{name}")

    # --- merging ----------------------------------------------------------------------------------------

    def merge(self, base: str, commits: Sequence[tuple[str, str]]) -> Merged | Conflict:
        """*base* with each (name, commit) merged in, in that order; what it already holds adds nothing."""
        current = base
        merged: list[str] = []
        for name, commit in commits:
            if self.git.ok("merge-base", "--is-ancestor", commit, current):
                continue
            tree = self._merge_trees(current, commit)
            if isinstance(tree, list):
                return Conflict(names=[*merged, name], paths=tree)
            at = self.committed_at(current, commit)
            ours = Git(self.path, env=identity(at), config=durable())
            message = f"Merge {name}\n".encode()
            made = ours.run("commit-tree", tree, "-p", current, "-p", commit, stdin=message)
            current = made.stdout.decode().strip()
            merged.append(name)
        return Merged(current)

    def _merge_trees(self, ours: str, theirs: str) -> str | list[str]:
        """The merged tree, or the paths that conflict."""
        if system_git.version() < MERGE_TREE_SINCE:
            return self._merge_in_a_tree(ours, theirs)
        how = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages")
        done = self.git.run(*how, ours, theirs, check=False)
        tree, _, rest = done.stdout.partition(b"\0")
        if done.returncode == 0 and tree:
            return tree.decode()
        if done.returncode == 1:
            return [os.fsdecode(name) for name in rest.split(b"\0") if name]
        said = done.stderr.decode("utf-8", "replace").strip()
        raise GitError(f"{self.path}: cannot merge {theirs} into {ours}: {said}")

    def _merge_in_a_tree(self, ours: str, theirs: str) -> str | list[str]:
        """The same for a git that can only merge where it can check out."""
        with self.lock():
            tree = self.path / "scratch" / "merge"
            self._forget(tree)
            try:
                self.git.run(
                    "worktree", "add", "--quiet", "--detach", str(tree), ours, timeout_s=FETCH_TIMEOUT_S
                )
                git = Git(cwd=tree, env=identity(0))
                done = git.run("merge", "--quiet", "--no-commit", "--no-ff", "--no-stat", theirs, check=False)
                if done.returncode == 0:
                    return git.text("write-tree")
                listed = git.run("diff", "--name-only", "--diff-filter=U", "-z").stdout
                paths = [os.fsdecode(name) for name in listed.split(b"\0") if name]
                if paths:
                    return paths
                said = done.stderr.decode("utf-8", "replace").strip()
                raise GitError(f"{self.path}: cannot merge {theirs} into {ours}: {said}")
            finally:
                self._forget(tree)

    def _forget(self, tree: Path) -> None:
        files.remove_tree(tree)
        files.remove_tree(self.path / "worktrees" / tree.name)


def clone_for(bag: Mapping[str, Any], *, settings: Settings | None = None) -> SchoolClone:
    """The clone that a bag's commits lie in; the user's repository is not looked at."""
    return SchoolClone.at(str(bag.get("repo_key") or ""), settings=settings)


def _user_ignores(repository: Repository) -> Iterator[str]:
    """Lines of the user's own ignore files, which are no part of any commit."""
    home = Path(os.environ.get("HOME") or "~").expanduser()
    config_home = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    named = _configured_ignore_file(repository, home, config_home)
    for path in (named or config_home / "git" / "ignore", repository.common_dir / "info" / "exclude"):
        try:
            text = files.read_bytes(path, follow=True)
        except (OSError, ValueError):
            continue  # an ignore file that cannot be read hides nothing
        for line in (text or b"").decode("utf-8", "surrogateescape").removeprefix("\ufeff").splitlines():
            if line.strip() and not line.startswith("#"):
                yield line


def _configured_ignore_file(repository: Repository, home: Path, config_home: Path) -> Path | None:
    git = Git(cwd=repository.path)
    for path in (repository.common_dir / "config", home / ".gitconfig", config_home / "git" / "config"):
        asked = ("config", "--file", str(path), "--includes", "--type=path", "--get", "core.excludesFile")
        if path.is_file() and (found := git.run(*asked, check=False).stdout.rstrip(b"\n")):
            return Path(os.fsdecode(found))
    return None


def _free(*places: Path) -> None:
    """Remove the locks that a killed git left in *places* and, of folders of refs, below them."""
    now = clock.parse(clock.now()).timestamp()
    for place in places:
        for folder, inside, names in os.walk(place):
            if "refs" not in place.parts[-2:]:
                inside.clear()
            for lock in [Path(folder, name) for name in names if name.endswith(".lock")]:
                with suppress(FileNotFoundError):
                    if abs(now - lock.lstat().st_mtime) > GIT_LOCK_S:
                        lock.unlink()
                        _log.warning("git.lock_removed", path=str(lock))

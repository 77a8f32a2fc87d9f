"""The user's repository, looked at and never touched.

``inspect_repository`` says what a run needs to know of it or why there can be none; everything else here takes what
it returns. A repository is known by the real path, device and inode of git's common directory: ``key`` is
``<name>-<hash8>`` and names the school clone, the worktrees folder, the task ledger and the run lock.

Not promised: that the repository stays as it was seen. ``fingerprint`` tells whether configuration, hooks or
``info/`` changed since.

Errors: ``MachineError`` for what cannot be worked on (no folder, no repository, bare, no commit yet, partial
clone, no space), ``ConfigError`` for a revision that names no commit.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from school.errors import ConfigError, GitError, MachineError
from school.settings import Settings
from school.system import git as system_git
from school.system.git import Git

# Room that git needs beyond the bytes counted: packs in the making, indexes, records.
_SLACK_BYTES: Final = 16 * 1024 * 1024
# git itself rewrites this one (`git gc` does), so it says nothing about anybody's meddling.
_OWN_BUSINESS_OF_GIT: Final = frozenset({"refs"})


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository that can be worked on. ``dirty`` counts uncommitted files; ``head_ref`` is empty if detached."""

    path: Path
    common_dir: Path
    key: str
    name: str
    head_commit: str
    head_ref: str
    dirty: int
    object_format: str
    shallow: bool = False

    @property
    def hash8(self) -> str:
        return self.key.rsplit("-", 1)[1]

    def git(self) -> Git:
        """Git on the common directory: objects and refs, no work tree, no index."""
        return Git(self.common_dir)


def inspect_repository(path: Path) -> Repository:
    """What *path* (a folder of a working tree) belongs to; MachineError says why it cannot be worked on."""
    system_git.version()
    path = Path(os.path.abspath(path))  # noqa: PTH100 - the folder as named, symlinks kept
    if not path.is_dir():
        what = "not a folder" if os.path.lexists(path) else "no such folder"
        raise MachineError(f"{path}: {what}")
    top, common_dir = _locate(path)
    git = Git(cwd=top)
    head = git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", check=False).stdout.decode().strip()
    if not head:
        raise MachineError(f"{top}: the repository has no commit yet; commit something first")
    _refuse_partial(git, top)
    name = common_dir.parent.name if common_dir.name == ".git" else common_dir.name.removesuffix(".git")
    return Repository(
        path=top,
        common_dir=common_dir,
        key=repository_key(name, common_dir),
        name=name,
        head_commit=head,
        head_ref=git.run("symbolic-ref", "--quiet", "HEAD", check=False).stdout.decode().strip(),
        dirty=_count_dirty(git),
        object_format=git.text("rev-parse", "--show-object-format"),
        shallow=(common_dir / "shallow").is_file(),
    )


def _locate(path: Path) -> tuple[Path, Path]:
    asked = ("rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-common-dir")
    found = Git(cwd=path).run(*asked, check=False)
    if found.returncode != 0:
        raise MachineError(f"{path}: not a git repository")
    bare, _, common = os.fsdecode(found.stdout).rstrip("\n").partition("\n")
    if bare == "true":
        raise MachineError(f"{path}: a bare repository has no working tree to take tasks from")
    top = Git(cwd=path).run("rev-parse", "--show-toplevel", check=False)
    if top.returncode != 0:
        raise MachineError(f"{path}: inside a git directory, not in a working tree")
    said = Path(os.fsdecode(top.stdout).removesuffix("\n"))
    # What git leaves out would be read as the folder that we happen to stand in.
    if not said.is_absolute() or not Path(common).is_absolute():
        raise MachineError(
            f"{path}: git does not say where the repository is: {os.fspath(said)!r}, {common!r}"
        )
    return said, Path(common).resolve()


def _refuse_partial(git: Git, top: Path) -> None:
    promised = git.run(
        "config", "--get-regexp", r"^(remote\..*\.promisor|extensions\.partialclone)$", check=False
    )
    if promised.stdout.strip():
        raise MachineError(
            f"{top}: a partial clone lacks objects that its remote promised, and nothing is fetched here; "
            "make it whole first: git fetch --refetch --no-filter"
        )


def repository_key(name: str, common_dir: Path) -> str:
    """``<name>-<hash8>``: the name for people, the digest of real path, device and inode for us."""
    real = common_dir.resolve()
    seen = real.stat()
    digest = hashlib.sha256(b"\0".join([os.fsencode(real), b"%d" % seen.st_dev, b"%d" % seen.st_ino]))
    shown = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40].rstrip("-.") or "repo"
    return f"{shown}-{digest.hexdigest()[:8]}"


def _count_dirty(git: Git) -> int:
    """How many files are not as HEAD has them: what a run leaves out, and says so."""
    status = git.run(
        "status", "--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames", check=False
    )
    if status.returncode != 0:
        return 0
    return sum(1 for entry in status.stdout.split(b"\0") if entry)


def resolve_base(repository: Repository, rev: str | None) -> str:
    """The commit that *rev* names, HEAD's when it is None; ConfigError when it names none."""
    if rev is None:
        return repository.head_commit
    named = (
        None
        if not rev or rev.startswith("-") or "\0" in rev
        else Git(cwd=repository.path).run(
            "rev-parse", "--verify", "--quiet", f"{rev}^{{commit}}", check=False
        )
    )
    if named is None or named.returncode != 0:
        raise ConfigError(f"--base {rev!r}: names no commit in {repository.path}")
    return named.stdout.decode().strip()


# --- has anybody meddled ------------------------------------------------------------------------------------


def fingerprint(repository: Repository) -> str:
    """A digest of configuration, hooks and ``info/`` of the repository: names, modes, contents."""
    digest = hashlib.sha256()
    common = repository.common_dir
    for path in (common / "config", common / "config.worktree", common / "hooks", common / "info"):
        for found in _below(path):
            relative = os.fsencode(found.relative_to(common))
            digest.update(b"%d:%s\0" % (len(relative), relative))
            digest.update(_state_of(found))
    return digest.hexdigest()


def _below(path: Path) -> Iterator[Path]:
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for name in sorted(os.listdir(path)):  # noqa: PTH208 - names only
        if not (path.name == "info" and name in _OWN_BUSINESS_OF_GIT):
            yield from _below(path / name)


def _state_of(path: Path) -> bytes:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return b"link:" + hashlib.sha256(os.fsencode(path.readlink())).digest()
        if not stat.S_ISREG(mode):
            return b"other:%o" % mode
        return b"file:%o:" % stat.S_IMODE(mode) + hashlib.sha256(path.read_bytes()).digest()
    except FileNotFoundError:
        return b"absent"
    except OSError as cause:
        return f"unreadable:{cause.errno}".encode()


# --- space --------------------------------------------------------------------------------------------------


def checkout_bytes(git: Git, commit: str) -> int:
    """What a checkout of *commit* takes: its blobs, each rounded up to the blocks of a usual file system."""
    listing = git.run("ls-tree", "-r", "-l", "-z", commit).stdout
    sizes = [entry.split(b"\t", 1)[0].split()[-1] for entry in listing.split(b"\0") if entry]
    return sum((int(size) + 4095) // 4096 * 4096 for size in sizes if size.isdigit())


def _directory_bytes(path: Path) -> int:
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512  # noqa: PTH118
            except OSError:
                continue  # git may pack while we count
    return total


def space_needed(repository: Repository, leaves: int, *, cloned: bool = False) -> tuple[int, int]:
    """Bytes for the clone (0 when it is there) and for (leaves + 2) checkouts."""
    clone = 0 if cloned else _directory_bytes(repository.common_dir / "objects")
    checkouts = (leaves + len(("cto", "coo"))) * checkout_bytes(repository.git(), repository.head_commit)
    return clone, checkouts


def check_space(settings: Settings, repository: Repository, leaves: int) -> None:
    """MachineError, with the numbers, when clone, checkouts or records would not fit where they belong."""
    cloned = (settings.clones_dir / f"{repository.key}.git").is_dir()
    try:
        clone, checkouts = space_needed(repository, leaves, cloned=cloned)
    except GitError as cause:
        raise MachineError(f"{repository.path}: cannot tell how much space is needed: {cause}") from cause
    wanted: dict[int, list[tuple[Path, int]]] = {}
    needs = [(settings.school_dir, clone), (settings.worktrees_dir, checkouts)]
    needs += [(place, 0) for place in (settings.bookbag_dir, settings.signal_dir, settings.lock_dir)]
    for place, need in needs:
        existing = next(parent for parent in (place, *place.parents) if parent.exists())
        wanted.setdefault(existing.stat().st_dev, []).append((existing, need))
    for places in wanted.values():
        taken = sum(need for _, need in places)
        needed = taken + _SLACK_BYTES
        free = free_bytes(places[0][0])
        if free < needed:
            what = f"the clone of {repository.path} and {leaves + 2} checkouts" if taken else "records"
            raise MachineError(
                f"{places[0][0]}: {free // 2**20} MiB free, about {needed // 2**20} MiB needed for {what}"
            )


def free_bytes(path: Path) -> int:
    """How much a user may still write where *path* is."""
    seen = os.statvfs(path)
    return seen.f_bavail * seen.f_frsize

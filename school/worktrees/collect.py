"""What a working tree holds, as git would keep it, read without trusting anything in it.

``Collector`` works with the school clone's git directory and a private index; the tree's own ``.git``, its
configuration, attributes, index and exclude files are never asked. Every file is read and hashed afresh (a size and
a time stamp can be set), exactly as its bytes are. Links are stored as links and never followed, not even as a
directory in the middle of a path. Nested repositories are listed like any folder.

Kept are: every file that base tracks and that is still there; every other file that neither the tree's own ignore
rules nor the user's hide. Files that only ignore rules *newer than base* hide are listed apart (``hidden``), and so
is what git cannot hold under its name (``unholdable``). What cannot be stored at all (sockets, files that even their
owner cannot read) is said in ``notes``.

Errors: ``GitError`` (also for one file that git does not store though it can be read), and ``MachineError`` for a disk that is full.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from school.errors import GitError
from school.system import files
from school.system.git import Git, GitCommandError
from school.worktrees.clone import durable
from school.worktrees.ignores import base_rules

LIST_TIMEOUT_S: Final = 600.0
LIST_PATIENCE_S: Final = 15.0
HASH_TIMEOUT_S: Final = 3600.0
GITLINK: Final = "160000"
_CANNOT_OPEN: Final = re.compile(
    rb"warning: could not open directory|warning: unable to access", re.IGNORECASE
)
_CACHE_TAG: Final = b"Signature: 8a477f597d28d172789f06886806bc55"
# Names that git refuses in a tree, on Linux too: they would be `.git` itself on another file system.
_DOT_GIT: Final = re.compile(rb"(?:\.git|git~1)[ .]*(?::.*)?", re.IGNORECASE | re.DOTALL)
NOTES_MAX: Final = 50
_ERRNO: Final = {
    b"No space left": errno.ENOSPC,
    b"Disk quota": errno.EDQUOT,
    b"Read-only file system": errno.EROFS,
    b"insufficient permission": errno.EACCES,
}
_DISK_SAYS: Final = re.compile(b"|".join(_ERRNO))
_SYNCED_ONE_BY_ONE_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Entry:
    mode: str
    oid: str


@dataclass(slots=True)
class Collected:
    """``kept`` is the tree; ``hidden`` and ``unholdable`` go elsewhere; ``nested`` are repositories in the tree."""

    kept: dict[bytes, Entry] = field(default_factory=dict)
    hidden: dict[bytes, Entry] = field(default_factory=dict)
    unholdable: dict[bytes, Entry] = field(default_factory=dict)
    nested: list[bytes] = field(default_factory=list)
    submodules: list[bytes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if len(self.notes) < NOTES_MAX:
            self.notes.append(text)
        elif len(self.notes) == NOTES_MAX:
            self.notes.append("more of the same was left out")


def parse_tree(listing: bytes) -> dict[bytes, Entry]:
    """``ls-tree -r -z`` as path to mode and object."""
    entries: dict[bytes, Entry] = {}
    for line in listing.split(b"\0"):
        head, separator, path = line.partition(b"\t")
        if separator:
            mode, _, oid = head.decode().split()[:3]
            entries[path] = Entry(mode, oid)
    return entries


def git_can_hold(path: bytes) -> bool:
    """Whether every component of *path* is a name that git takes into a tree."""
    return not any(_DOT_GIT.fullmatch(part) for part in path.split(b"/"))


def quoted_line(path: bytes) -> bytes:
    """*path* as one line of a ``--stdin-paths`` list."""
    if not path.startswith(b'"') and not re.search(rb"[\n\r]", path):
        return path
    escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return b'"' + escaped + b'"'


class Collector:
    """One reading of the tree at *root*, of which *base* is what it started from."""

    def __init__(
        self,
        clone: Path,
        root: Path,
        base: str,
        scratch: Path,
        *,
        left_out: Iterable[str] = (),
        submodules: Mapping[bytes, Mapping[bytes, tuple[str, str]]] | None = None,
    ) -> None:
        self.clone = clone
        self.root = os.fsencode(root)
        self.base = base
        self.scratch = scratch
        self.out = Collected()
        self._objects = Git(clone, cwd=root, config=durable())
        # For thousands of files at once: their bytes are brought to the disk together, at the end.
        self._many_objects = Git(clone, cwd=root)
        self._left_out = tuple(os.fsencode(name).strip(b"/") for name in left_out)
        self._expected = submodules or {}
        self._real_dirs: dict[bytes, bool] = {b"": True}
        self._base_entries: dict[bytes, Entry] = {}
        self._by_base: list[str] = []
        self._by_tree: list[str] = []

    def collect(self) -> Collected:
        self._base_entries = parse_tree(
            self._objects.run("ls-tree", "-r", "-z", "--full-tree", self.base).stdout
        )
        visible, every = self._list()
        tracked = [path for path, entry in self._base_entries.items() if entry.mode != GITLINK]
        in_submodules = self._keep_submodules()
        self._find_nested([*tracked, *visible, *in_submodules])
        kept = self._store(dict.fromkeys([*tracked, *visible]))
        for path, entry in kept.items():
            (self.out.kept if git_can_hold(path) else self.out.unholdable)[path] = entry
        hidden = self._worth_rescuing(path for path in every if path not in kept)
        self.out.hidden = self._store([*hidden, *in_submodules])
        return self.out

    # --- listing ----------------------------------------------------------------------------------------

    def _list(self) -> tuple[list[bytes], list[bytes]]:
        """Untracked files that the tree's rules leave visible, and those that the rules of base do."""
        index = self.scratch / "index"
        git = Git(self.clone, Path(os.fsdecode(self.root)), index=index, config={"core.bare": "false"})
        git.run("read-tree", self.base)
        user_rules = ["--exclude-from", str(self.clone / "info" / "exclude")]
        old_rules = self.scratch / "base-rules"
        old_rules.write_bytes(base_rules(self._objects, self._base_entries))
        self._by_tree = ["ls-files", "--others", "-z", "--exclude-per-directory=.gitignore", *user_rules]
        self._by_base = ["ls-files", "--others", "-z", *user_rules, "--exclude-from", str(old_rules)]
        return self._untracked(git, self._by_tree), self._untracked(git, self._by_base)

    def _listing(self, git: Git, command: list[str]) -> subprocess.CompletedProcess[bytes]:
        """What *command* lists; where git does not come back, once more without what it may be waiting for."""
        try:
            return git.run(*command, timeout_s=LIST_PATIENCE_S)
        except GitCommandError as cause:
            if cause.returncode is not None:
                raise
        for name in files.remove_pipes(Path(os.fsdecode(self.root))):
            self.out.note(f"{name!r}: neither file nor link, not kept")
        return git.run(*command, timeout_s=LIST_TIMEOUT_S)

    def _untracked(self, git: Git, command: list[str]) -> list[bytes]:
        done = self._listing(git, command)
        if _CANNOT_OPEN.search(done.stderr):
            # git goes on without what it cannot read; the owner can make it readable.
            self._open_up(self.root)
            done = git.run(*command, timeout_s=LIST_TIMEOUT_S)
        if _CANNOT_OPEN.search(done.stderr):
            self.out.note(f"not all could be read: {done.stderr[-300:].decode('utf-8', 'replace')}")
        found: list[bytes] = []
        for path in done.stdout.split(b"\0"):
            if path.endswith(b"/"):
                found.extend(self._inside(path.rstrip(b"/"), command))
            elif path:
                found.append(path)
        return [path for path in found if not self._is_left_out(path)]

    def _inside(self, nested: bytes, command: list[str]) -> list[bytes]:
        """The files of a nested repository, which git lists as one name; its own rules apply to them."""
        if not self._is_real_dir(nested):
            return []
        if nested not in self.out.nested:
            self.out.nested.append(nested)
        top = self.root + b"/" + nested
        empty = self.scratch / "empty-index"
        git = Git(self.clone, Path(os.fsdecode(top)), index=empty, config={"core.bare": "false"})
        done = self._listing(git, command)
        found: list[bytes] = []
        for path in done.stdout.split(b"\0"):
            full = nested + b"/" + path
            if path.endswith(b"/"):
                found.extend(self._inside(full.rstrip(b"/"), command))
            elif path:
                found.append(full)
        return found

    def _open_up(self, top: bytes) -> None:
        """Give the owner read access to every directory below *top* that lacks it."""
        pending = [top]
        while pending:
            directory = pending.pop()
            try:
                mode = stat.S_IMODE(os.lstat(directory).st_mode)
                if mode & 0o500 != 0o500:  # noqa: PLR2004 - read and search
                    os.chmod(directory, mode | 0o500)  # noqa: PTH101 - bytes
                with os.scandir(directory) as entries:
                    pending.extend(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
            except OSError as cause:
                self.out.note(f"{os.fsdecode(directory)!r}: cannot be read: {cause.strerror}")

    def _is_left_out(self, path: bytes) -> bool:
        return any(path == name or path.startswith(name + b"/") for name in self._left_out)

    def _is_real_dir(self, path: bytes) -> bool:
        """Whether *path* is a directory, reached through none but directories."""
        known = self._real_dirs.get(path)
        if known is None:
            parent = path.rpartition(b"/")[0]
            try:
                known = self._is_real_dir(parent) and stat.S_ISDIR(os.lstat(self.root + b"/" + path).st_mode)
            except OSError:
                known = False
            self._real_dirs[path] = known
        return known

    # --- nested repositories and submodules -------------------------------------------------------------

    def _find_nested(self, paths: Iterable[bytes]) -> None:
        """A `.git` in a directory that git walked through: its commits are nowhere else."""
        directories: set[bytes] = set()
        for path in paths:
            parent = path.rpartition(b"/")[0]
            while parent and parent not in directories:
                directories.add(parent)
                parent = parent.rpartition(b"/")[0]
        for directory in sorted(directories):
            if directory not in self.out.nested and self._is_real_dir(directory + b"/.git"):
                self.out.nested.append(directory)

    def _keep_submodules(self) -> list[bytes]:
        """A submodule stays as base has it, unless its folder is gone; what else lies in there, it cannot show."""
        inside: list[bytes] = []
        for path, entry in self._base_entries.items():
            full = self.root + b"/" + path
            if entry.mode != GITLINK or not os.path.lexists(full):
                continue
            self.out.kept[path] = entry
            found = self._inside(path, self._by_tree) if self._is_real_dir(path) else [path]
            if self._differs_from_submodule(path, found):
                self.out.submodules.append(path)
                inside.extend(found)
        return inside

    def _differs_from_submodule(self, path: bytes, found: list[bytes]) -> bool:
        """Whether *found* is not what was put into the submodule's folder (nothing, unless it was asked for)."""
        expected = self._expected.get(path, {})
        if {path + b"/" + name for name in expected} != set(found):
            return bool(found or expected)
        kinds = {name: self._kind(name) for name in found}
        plain = self._hash([name for name in found if kinds[name].startswith("100")], write=False) or {}
        links = self._hash_links({name: self._target(name) for name in found if kinds[name] == "120000"})
        seen = {name: (kinds[name], oid) for name, oid in {**plain, **links}.items()}
        return seen != {path + b"/" + name: what for name, what in expected.items()}

    def _target(self, path: bytes) -> bytes:
        return os.readlink(self.root + b"/" + path)  # noqa: PTH115 - bytes

    # --- rescuing ---------------------------------------------------------------------------------------

    def _worth_rescuing(self, paths: Iterable[bytes]) -> dict[bytes, None]:
        """*paths* without those below a directory that its tool itself marks as a cache or an environment."""
        judged: dict[bytes, bool] = {b"": False}

        def disposable(directory: bytes) -> bool:
            if directory not in judged:
                above = directory.rpartition(b"/")[0]
                judged[directory] = disposable(above) or self._marked_disposable(directory)
            return judged[directory]

        return {path: None for path in paths if not disposable(path.rpartition(b"/")[0])}

    def _marked_disposable(self, directory: bytes) -> bool:
        top = self.root + b"/" + directory
        if os.path.lexists(top + b"/pyvenv.cfg"):
            return True
        try:
            tag = files.read_bytes(os.fsdecode(top + b"/CACHEDIR.TAG"), limit_bytes=4096)
        except (OSError, ValueError):
            return False
        return tag is not None and tag.startswith(_CACHE_TAG)

    # --- storing ----------------------------------------------------------------------------------------

    def _store(self, paths: Iterable[bytes]) -> dict[bytes, Entry]:
        """Store each of *paths* that is a file or a link as an object."""
        modes: dict[bytes, str] = {}
        links: dict[bytes, bytes] = {}
        for path in paths:
            kind = self._kind(path)
            if kind == "120000":
                links[path] = self._target(path)
            elif kind:
                modes[path] = kind
        stored = {path: Entry(modes[path], oid) for path, oid in self._hash_files(list(modes)).items()}
        stored.update({path: Entry("120000", oid) for path, oid in self._hash_links(links).items()})
        return stored

    def _kind(self, path: bytes) -> str:
        """The mode that git would give *path*; empty when it is absent or nothing that git can keep."""
        if not self._is_real_dir(path.rpartition(b"/")[0]):
            return ""
        try:
            mode = os.lstat(self.root + b"/" + path).st_mode
        except OSError as cause:
            if cause.errno not in (errno.ENOENT, errno.ENOTDIR):
                self.out.note(f"{os.fsdecode(path)!r}: cannot be looked at: {cause.strerror}")
            return ""
        if stat.S_ISLNK(mode):
            return "120000"
        if stat.S_ISREG(mode):
            return "100755" if mode & stat.S_IXUSR else "100644"
        if not stat.S_ISDIR(mode):
            self.out.note(f"{os.fsdecode(path)!r}: neither file nor link, not kept")
        return ""

    def _hash_files(self, paths: list[bytes]) -> dict[bytes, str]:
        unreadable = [path for path in paths if not self._readable(path)]
        hashed = None if unreadable else self._hash_known_first(paths)
        if hashed is not None:
            return hashed
        stored: dict[bytes, str] = {}
        for path in paths:
            one = self._hash([path])
            if one is not None:
                stored.update(one)
            elif self._legible(path):
                raise GitError(f"{self.clone}: git did not store {os.fsdecode(path)!r}, which can be read")
            else:
                self.out.note(f"{os.fsdecode(path)!r}: cannot be read, not kept")
        return stored

    def _legible(self, path: bytes) -> bool:
        """Whether a file can be read to its end: then it is git that fails, and not the file."""
        try:
            with open(self.root + b"/" + path, "rb", buffering=0) as stream:  # noqa: PTH123 - bytes
                while stream.read(1 << 20):
                    pass
        except OSError:
            return False
        return True

    def _hash_known_first(self, paths: list[bytes]) -> dict[bytes, str] | None:
        """Most files are as base has them: their objects are there, and only what differs is written."""
        known = [path for path in paths if path in self._base_entries]
        seen = self._hash(known, write=False)
        if seen is None:
            return None
        same = {path: oid for path, oid in seen.items() if oid == self._base_entries[path].oid}
        written = self._hash([path for path in paths if path not in same])
        return None if written is None else {**same, **written}

    def _readable(self, path: bytes) -> bool:
        full = self.root + b"/" + path
        if os.access(full, os.R_OK):
            return True
        try:
            os.chmod(full, stat.S_IMODE(os.lstat(full).st_mode) | stat.S_IRUSR)  # noqa: PTH101 - bytes
        except OSError:
            return False
        return os.access(full, os.R_OK)

    def _hash(self, paths: list[bytes], *, write: bool = True) -> dict[bytes, str] | None:
        """Object ids for *paths*, or None when git could not read all of them; a full disk raises."""
        if not paths:
            return {}
        lines = b"".join(quoted_line(path) + b"\n" for path in paths)
        command = ["hash-object", *(["-w"] if write else []), "--no-filters", "--stdin-paths"]
        many = write and len(paths) > _SYNCED_ONE_BY_ONE_MAX
        git = self._many_objects if many else self._objects
        done = git.run(*command, stdin=lines, check=False, timeout_s=HASH_TIMEOUT_S)
        if many:
            os.sync()
        oids = done.stdout.decode().split()
        if done.returncode == 0 and len(oids) == len(paths):
            return dict(zip(paths, oids, strict=True))
        if write and (refused := _DISK_SAYS.search(done.stderr)):
            said = done.stderr.decode("utf-8", "replace").strip()
            cause = OSError(_ERRNO[refused[0]], said)
            raise files.machine_error("store a snapshot in", self.clone, cause)
        if len(paths) == 1:
            return None
        if done.returncode == 0:
            raise GitError(
                f"{self.clone}: git hashed {len(oids)} of {len(paths)} files and said that it was fine"
            )
        return None

    def _hash_links(self, links: dict[bytes, bytes]) -> dict[bytes, str]:
        """A link's object is its target; written to files of ours, all are stored by one git."""
        if not links:
            return {}
        folder = self.scratch / "links"
        folder.mkdir(exist_ok=True)
        names = {path: folder / str(number) for number, path in enumerate(links)}
        for path, name in names.items():
            name.write_bytes(links[path])
        lines = b"".join(quoted_line(os.fsencode(name)) + b"\n" for name in names.values())
        done = self._objects.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=lines)
        return dict(zip(links, done.stdout.decode().split(), strict=True))

"""A folder that somebody else works in, looked at through a repository of our own, so that nothing of theirs runs.

``Outlook(folder, timeout_s=…)`` finds the repository that *folder* lies in, asks it once for its HEAD (no command of
git's that could run anything), and makes an empty repository of ours beside it that borrows its objects and has a copy
of its index. Everything else is asked of that one. So no configuration of theirs is in force (fsmonitor, external diff,
textconv, filters, pager, aliases, hooks), attributes cannot call a patch binary or convert it, and nothing is written
where they can see it. In the copy the index is reset to HEAD, and files that it was told not to look at are looked at.

``head``, ``root`` and ``state`` (of a rebase, say) are known at once, ``usable(base)`` says '' or why commits from there cannot be
shown. After ``take_index()`` ``git diff`` compares the working tree with HEAD; once ``list_files()`` has said no it misses nothing, and
if it says yes it is to be asked again. ``untracked()`` are then the files that HEAD has not, one by one. ``read_new(path, …)`` reads one of those, and no other place: absolute paths, ``..`` and links on the way are
refused. Commits and files may be asked for from two threads.

Not promised: what changed inside a submodule or an embedded repository (its own configuration would run), what lies
under an environment's ignored folder, or that all answers are of one moment. Errors: GitError, MachineError.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from school.errors import GitError, MachineError
from school.system import clock, files
from school.system.git import Git

INDEX_BYTES_MAX: Final = 256 * 1024 * 1024
LISTING_BYTES_MAX: Final = 32 * 1024 * 1024
# A file beyond this is no text that anybody reads: git compares it without holding it.
BIG_FILE: Final = "32m"
EMPTY_TREE: Final = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": ("6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"),
}
_ATTRIBUTES: Final = "* !diff !filter -text !eol !ident !working-tree-encoding !merge !whitespace\n"
# The objects are theirs: what they say of them beforehand is not believed.
_CONFIG: Final = {"core.bigFileThreshold": BIG_FILE, "core.commitGraph": "false"}
_WORD_BYTES_MAX: Final = 4096
_EXCLUDES_BYTES_MAX: Final = 1024 * 1024
_IN_PROGRESS: Final = {
    "rebase-merge": "a rebase is in progress",
    "rebase-apply": "a rebase is in progress",
    "MERGE_HEAD": "a merge is in progress",
    "CHERRY_PICK_HEAD": "a cherry-pick is in progress",
    "BISECT_LOG": "a bisection is in progress",
}


def project_of(folder: Path) -> Path | None:
    """The working tree that *folder* lies in, by the nearest ``.git`` above; None where there is none."""
    start = folder.absolute()
    return next((place for place in (start, *start.parents) if os.path.lexists(place / ".git")), None)


def is_commit_id(text: str) -> bool:
    """Whether *text* can only be taken for an object's id: git takes options for names and names for options."""
    return re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", text) is not None


def head_of(folder: Path, *, timeout_s: float = 5.0) -> str:
    """The commit that is checked out where *folder* lies; '' without a repository or a commit."""
    root = project_of(folder)
    if root is None:
        return ""
    # At each turn of a session, so git is asked only where that is not just two files to read.
    if plain := _plain_head(root / ".git"):
        return plain
    git = Git(root / ".git", root)
    done = git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", check=False, timeout_s=timeout_s)
    return done.stdout.decode("ascii", "replace").strip() if done.returncode == 0 else ""


def _plain_head(git_dir: Path) -> str:
    """HEAD's commit, where HEAD and its branch are plain files; '' where only git knows (packed, a linked tree, none)."""
    try:
        text = _word(git_dir / "HEAD")
        if text.startswith("ref: refs/heads/") and ".." not in text:
            text = _word(git_dir / text.removeprefix("ref: "))
    except (OSError, MachineError, ValueError):
        return ""
    return text if is_commit_id(text) else ""


def _word(path: Path) -> str:
    """What a small file of git's holds; ValueError where it is none."""
    return (files.read_bytes(path, limit_bytes=_WORD_BYTES_MAX) or b"").decode("ascii").strip()


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that HEAD has not; ``kind`` is ``file``, ``link``, ``folder`` (a repository inside) or ``other``."""

    path: str
    kind: str
    size: int
    stamp: int


class Outlook:
    """One look at a folder; a context manager, because the repository of ours is temporary."""

    def __init__(self, folder: Path, *, timeout_s: float) -> None:
        root = project_of(folder)
        if root is None:
            raise GitError(f"{folder}: it lies in no git repository")
        self.root = root
        self._until = clock.monotonic() + timeout_s
        self._admin, self._common = _places(root)
        self._format, self.head = self._asked_of_theirs()
        self._forced: list[str] = []
        self._others: list[str] = []
        self.state = next(
            (said for name, said in _IN_PROGRESS.items() if os.path.lexists(self._admin / name)), ""
        )

    def left(self) -> float:
        """How much time there still is; GitError when there is none."""
        left = self._until - clock.monotonic()
        if left <= 0:
            raise GitError(f"{self.root}: looking at the changes took too long")
        return left

    def _asked_of_theirs(self) -> tuple[str, str]:
        """The object format and HEAD, in the one call that reads a configuration of theirs."""
        asked = ("rev-parse", "--show-object-format", "--verify", "--quiet", "HEAD^{commit}")
        done = Git(self.root / ".git", self.root).run(*asked, check=False, timeout_s=self.left())
        form, _, head = done.stdout.decode("ascii", "replace").strip().partition("\n")
        if form not in EMPTY_TREE:
            why = done.stderr.decode("utf-8", "replace").strip()
            raise GitError(f"{self.root}: git does not know this repository: {why}")
        return form, head

    def __enter__(self) -> Self:
        self._scratch = tempfile.TemporaryDirectory(prefix="outlook-")
        try:
            self.git = Git(Path(self._scratch.name), self.root, config=_CONFIG)
            self._make(Path(self._scratch.name))
        except BaseException:
            self._scratch.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scratch.cleanup()

    # --- the repository of ours ---

    def _make(self, place: Path) -> None:
        version = "0\n" if self._format == "sha1" else "1\n[extensions]\n\tobjectFormat = sha256\n"
        for name in ("objects/info", "refs", "info"):
            (place / name).mkdir(parents=True)
        (place / "config").write_text(f"[core]\n\tbare = false\n\trepositoryFormatVersion = {version}")
        (place / "HEAD").write_text((self.head or "ref: refs/heads/none") + "\n")
        (place / "objects/info/alternates").write_bytes(
            _quoted(os.fsencode((self._common / "objects").absolute()))
        )
        (place / "info/attributes").write_text(_ATTRIBUTES)
        (place / "info/exclude").write_bytes(b"\n".join(map(_read_small, self._excludes())))
        shallow = _read_small(self._common / "shallow")
        if shallow:
            (place / "shallow").write_bytes(shallow)

    def _excludes(self) -> list[Path]:
        """What is ignored by this repository and everywhere by this user: patterns, which run nothing."""
        named = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
        return [Path(named) / "git" / "ignore", self._common / "info" / "exclude"]

    def take_index(self) -> None:
        """Make ready for what is asked of the working tree: an index of ours that says what HEAD has."""
        place = Path(self._scratch.name) / "index"
        if not self._copy_index(place) or not self._reset_index():
            # An index that cannot be used (split, torn): one without any knowledge of the files is slower, not wrong.
            files.discard(place)
            self._forced = []
            self._run("read-tree", self.tree())

    def _copy_index(self, place: Path) -> bool:
        try:
            raw = files.read_bytes(self._admin / "index", limit_bytes=INDEX_BYTES_MAX)
            seen = (self._admin / "index").stat()
        except (ValueError, OSError):
            return False
        if raw is None:
            return False
        place.write_bytes(raw)
        # Files changed in the same moment as the index are known by its time.
        os.utime(place, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
        return True

    def _reset_index(self) -> bool:
        asked = ("diff-index", "--cached", "--name-status", "--no-renames", "-z", self.tree())
        try:
            staged = self._run(*asked).split(b"\0")
            self._forced = [
                os.fsdecode(name)
                for status, name in zip(staged[::2], staged[1::2], strict=False)
                if status == b"A"
            ]
            if staged != [b""]:
                self._run("read-tree", "--reset", self.tree())
        except GitError:
            self.left()
            return False
        return True

    def list_files(self) -> bool:
        """Find what is new, and take back what tells git not to look at a file; whether anything did.

        A file that is not there and need not be stays so.
        """
        asked = ("ls-files", "-v", "--cached", "--others", "--exclude-standard", "-z")
        listed = self._run(*asked).split(b"\0")
        self._others = [os.fsdecode(line[2:]) for line in listed if line.startswith(b"?")]
        flagged = [line[2:] for line in listed if line[:1].islower() or line[:1] == b"S"]
        present = [name for name in flagged if os.path.lexists(self.root / os.fsdecode(name))]
        if present:
            names = b"\0".join(present) + b"\0"
            for flag in ("--no-assume-unchanged", "--no-skip-worktree"):
                self.git.run("update-index", flag, "-z", "--stdin", stdin=names, timeout_s=self.left())
        return bool(present)

    def _run(self, *args: str) -> bytes:
        return self.git.run(*args, timeout_s=self.left(), limit_bytes=LISTING_BYTES_MAX).stdout

    # --- what can be asked ---

    def tree(self) -> str:
        """What the working tree is compared with: HEAD, or nothing where there is no commit yet."""
        return self.head or EMPTY_TREE[self._format]

    def usable(self, base: str) -> str:
        """Why the commits from *base* to HEAD cannot be shown, or ''."""
        if not base:
            return "no commit was recorded when the turn began"
        if not is_commit_id(base):
            return "what was recorded when the turn began is no commit"
        if not self.head:
            return "there is no commit"
        if base == self.head:
            return ""
        asked = ("merge-base", "--is-ancestor", base, self.head)
        code = self.git.run(*asked, check=False, timeout_s=self.left()).returncode
        if code == 1:
            return f"HEAD does not descend from {base[:12]} (rebased or amended)"
        return f"{base[:12]} cannot be found" if code else ""

    def untracked(self) -> list[NewFile]:
        """Every file that HEAD has not and nobody ignores, and every other that was added to the index."""
        found = (self._seen(name) for name in {*self._others, *self._forced})
        return sorted((file for file in found if file is not None), key=lambda file: file.path)

    def _seen(self, name: str) -> NewFile | None:
        if refused(name):
            return None
        try:
            status = os.lstat(self.root / name)
        except OSError:
            return None  # gone again, or its folder is none any more
        kinds = {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "folder"}
        return NewFile(
            name, kinds.get(stat.S_IFMT(status.st_mode), "other"), status.st_size, status.st_mtime_ns
        )

    def read_new(self, path: str, limit_bytes: int) -> bytes:
        """The beginning of a new file; of a link, where it points. MachineError for what may not be read."""
        if why := refused(path):
            raise MachineError(f"{path!r}: {why}")
        try:
            return _read_below(self.root, path.split("/"), limit_bytes)
        except OSError as cause:
            raise files.machine_error("read", self.root / path, cause) from cause


def refused(path: str) -> str:
    """Why *path* names nothing below a project, or ''."""
    if not path or "\0" in path:
        return "it is no path"
    if path.startswith("/"):
        return "it is absolute"
    return "it leads out of the project" if ".." in path.split("/") else ""


def _read_below(root: Path, parts: list[str], limit_bytes: int) -> bytes:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        if stat.S_ISLNK(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode):
            return os.fsencode(os.readlink(parts[-1], dir_fd=folder))[:limit_bytes]
        # Not blocking, because a pipe put there in between would never open.
        fd = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with open(fd, "rb") as stream:  # noqa: PTH123 - a descriptor has no path
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            return stream.read(limit_bytes)
    finally:
        os.close(folder)


def _read_small(path: Path) -> bytes:
    try:
        return files.read_bytes(path, limit_bytes=_EXCLUDES_BYTES_MAX, follow=True) or b""
    except (ValueError, OSError):
        return b""


def _places(root: Path) -> tuple[Path, Path]:
    """The administrative folder of *root* and the one that it shares with other working trees of its repository."""
    admin = root / ".git"
    if not admin.is_dir():
        named = _read_small(admin).removeprefix(b"gitdir: ").rstrip(b"\r\n")
        admin = root / os.fsdecode(named)
    shared = _read_small(admin / "commondir").rstrip(b"\r\n")
    return admin, admin / os.fsdecode(shared) if shared else admin


def _quoted(path: bytes) -> bytes:
    """*path* as a line of ``alternates``, where a quoted one may hold any byte."""
    spelled = (b"\\%03o" % byte if byte <= ord(" ") or byte in b'"\\' else bytes([byte]) for byte in path)
    return b'"' + b"".join(spelled) + b'"\n'

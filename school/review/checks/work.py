"""The work that is judged, as data: what changed from base to head, read from the school clone only.

Checks look at blobs, never at files of a working tree: a link or a filter there could show something else than
what will be delivered. ``Work.of(context)`` reads the change once per bead; both sides of every changed file up to
``BLOB_BYTES_MAX`` are kept, larger ones are in ``unread``. A rename is a file gone and a file come, so that moving
a test away cannot look like an edit of something else; what merely moved is told by ``News``, which compares how
often a line occurs on both sides of the whole change.

Errors: ``GitError`` when the clone lacks what the bag names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from school.changes import Change
from school.contracts import CheckContext, Finding, Severity
from school.system.git import Git
from school.wording import printable

BLOB_BYTES_MAX: Final = 8 * 1024 * 1024
ALL_BYTES_MAX: Final = 128 * 1024 * 1024
LINK: Final = "120000"
SUBMODULE: Final = "160000"
_ABSENT: Final = "000000"
FINDINGS_MAX: Final = 20
_LOOK_BYTES: Final = 8000


@dataclass(frozen=True, slots=True)
class Touched:
    """One changed path; the side on which it does not exist has an empty mode and object name."""

    path: str
    old_mode: str
    new_mode: str
    old_oid: str
    new_oid: str

    @property
    def new(self) -> bool:
        return not self.old_mode

    @property
    def gone(self) -> bool:
        return not self.new_mode


@dataclass(frozen=True)
class Work:
    """One change and both of its sides."""

    git: Git
    base: str
    head: str
    files: tuple[Touched, ...]
    blobs: Mapping[str, bytes]
    unread: tuple[str, ...] = ()
    added: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, context: CheckContext) -> Work:
        return _work(context.clone, str(context.bag["base_commit"]), str(context.bag["head_commit"]))

    def before(self, file: Touched) -> str | None:
        """The text at base; None where there was none, or it was not read."""
        return self._text(file.old_oid, file.old_mode)

    def after(self, file: Touched) -> str | None:
        """The text at head; None where there is none, or it was not read."""
        return self._text(file.new_oid, file.new_mode)

    def _text(self, oid: str, mode: str) -> str | None:
        if not mode or mode == SUBMODULE:
            return None
        raw = self.blobs.get(oid)
        return None if raw is None else raw.decode("utf-8", "surrogateescape")

    def binary(self, file: Touched) -> bool:
        """Whether the head side is no text."""
        return is_binary(self.blobs.get(file.new_oid, b""))

    def find(self, path: str) -> Touched | None:
        return next((file for file in self.files if file.path == path), None)

    def tree_of(self, commit: str) -> str:
        return self.git.tree_of(commit)


class News:
    """Which lines are new to the change as a whole, so that moved ones are nobody's doing."""

    def __init__(self, work: Work) -> None:
        self._surplus: Counter[str] = Counter()
        for file in work.files:
            self._surplus.update(_lines(work.after(file)))
            self._surplus.subtract(_lines(work.before(file)))

    def __call__(self, line: str) -> bool:
        return self._surplus[line.strip()] > 0


def _lines(text: str | None) -> list[str]:
    return [] if text is None else [line.strip() for line in text.splitlines()]


@lru_cache(maxsize=2)
def _work(clone: Path, base: str, head: str) -> Work:
    git = Git(clone)
    change = Change.of(git, base, head)
    files = tuple(_touched(change))
    sides = [(f.old_oid, f.old_mode) for f in files] + [(f.new_oid, f.new_mode) for f in files]
    wanted = {oid for oid, mode in sides if mode and mode != SUBMODULE}
    blobs = read_blobs(git, sorted(wanted))
    added = {
        f.path: _added(blobs.get(f.old_oid, b""), blobs.get(f.new_oid, b"")) for f in files if f.new_mode
    }
    unread = tuple(f.path for f in files if f.new_mode not in ("", SUBMODULE) and f.new_oid not in blobs)
    return Work(git, base, head, files, blobs, unread, added)


def _added(before: bytes, after: bytes) -> tuple[tuple[int, str], ...]:
    """Lines that the file holds more often than before, with their numbers; the last of equal ones are the new ones.

    Counted and not diffed: no attribute (``-diff``, ``binary``) can hide a line, and a line that merely moved within
    its file is not new.
    """
    if is_binary(after):
        return ()
    surplus = Counter(after.splitlines())
    surplus.subtract(before.splitlines())
    fresh: list[tuple[int, str]] = []
    lines = after.splitlines()
    for number in range(len(lines), 0, -1):
        line = lines[number - 1]
        if surplus[line] > 0:
            surplus[line] -= 1
            fresh.append((number, line.decode("utf-8", "surrogateescape")))
    return tuple(reversed(fresh))


def is_binary(raw: bytes) -> bool:
    """Whether git would call it so: a NUL among the first bytes."""
    return b"\0" in raw[:_LOOK_BYTES]


def _touched(change: Change) -> Iterator[Touched]:
    for file in change.files:
        old_mode = "" if file.old_mode == _ABSENT else file.old_mode
        new_mode = "" if file.new_mode == _ABSENT else file.new_mode
        if file.old_path and file.old_path != file.path and file.status[:1] == "R":
            yield Touched(file.old_path, old_mode, "", file.old_oid, "")
            yield Touched(file.path, "", new_mode, "", file.new_oid)
        elif file.old_path and file.old_path != file.path:
            yield Touched(file.path, "", new_mode, "", file.new_oid)
        else:
            yield Touched(file.path, old_mode, new_mode, file.old_oid, file.new_oid)


def read_blobs(git: Git, oids: list[str], limit_bytes: int = BLOB_BYTES_MAX) -> dict[str, bytes]:
    """The objects named; those over *limit_bytes*, or past ``ALL_BYTES_MAX`` together, are left out."""
    if not oids:
        return {}
    asked = "\n".join(oids).encode() + b"\n"
    sizes = git.run("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", stdin=asked).stdout
    found: dict[str, bytes] = {}
    batch, batch_bytes, room = [], 0, ALL_BYTES_MAX
    for row in map(str.split, sizes.decode().splitlines()):
        if row[1] != "blob" or int(row[2]) > min(limit_bytes, room):
            continue
        batch.append(row[0])
        batch_bytes, room = batch_bytes + int(row[2]), room - int(row[2])
        if batch_bytes > BLOB_BYTES_MAX:
            found |= _read_batch(git, batch)
            batch, batch_bytes = [], 0
    return found | _read_batch(git, batch)


def _read_batch(git: Git, oids: list[str]) -> dict[str, bytes]:
    out = git.run("cat-file", "--batch", stdin="\n".join([*oids, ""]).encode()).stdout
    found, position = {}, 0
    for oid in oids:
        end = out.index(b"\n", position)
        size = int(out[position:end].split()[2])
        found[oid] = out[end + 1 : end + 1 + size]
        position = end + 2 + size
    return found


def list_tree(git: Git, commit: str) -> Mapping[str, tuple[str, str]]:
    """Every file of *commit*: path to (mode, object name)."""
    assert git.git_dir is not None
    return _tree(git.git_dir, commit)


@lru_cache(maxsize=8)
def _tree(git_dir: Path, commit: str) -> Mapping[str, tuple[str, str]]:
    out = Git(git_dir).run("ls-tree", "-r", "-z", "--full-tree", commit).stdout
    files: dict[str, tuple[str, str]] = {}
    for row in out.split(b"\0"):
        if row:
            meta, _, path = row.partition(b"\t")
            mode, _, oid = meta.split(b" ")
            files[path.decode("utf-8", "surrogateescape")] = (mode.decode(), oid.decode())
    return MappingProxyType(files)


# --- findings ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Findings:
    """What one check objects to, bounded: past ``FINDINGS_MAX`` of one class, the rest is counted in one line."""

    section: str
    found: list[Finding] = field(default_factory=list)
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(
        self, severity: Severity, issue_class: str, description: str, at: str = "", todo: str = ""
    ) -> None:
        """One objection: how bad, of what kind, what and why, where (``path:line``), and what to do about it."""
        self._counts[severity, issue_class] += 1
        if self._counts[severity, issue_class] <= FINDINGS_MAX:
            self.found.append(
                Finding(
                    section=self.section,
                    severity=severity,
                    issue_class=issue_class,
                    description=printable(description),
                    citation=printable(at),
                    suggestion=printable(todo),
                )
            )

    def done(self) -> list[Finding]:
        """All of them, the worst first."""
        order = ("CRITICAL", "HIGH", "MEDIUM", "LOW")
        rest = [
            Finding(
                section=self.section,
                severity=severity,  # type: ignore[arg-type]
                issue_class=kind,
                description=f"{count - FINDINGS_MAX} more of this kind are not listed.",
            )
            for (severity, kind), count in self._counts.items()
            if count > FINDINGS_MAX
        ]
        return sorted([*self.found, *rest], key=lambda finding: order.index(finding.severity))


def role_of(bag: Mapping[str, Any]) -> str:
    """The student's role: the bag says it, or the bead's name begins with it."""
    return str(bag.get("student") or str(bag.get("bead", "")).partition("-")[0])

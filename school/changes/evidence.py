"""The evidence block: a change as text for whoever reviews it, the same for teachers and for the coach.

``evidence_of_commits(git, base, head)`` is the change between two commits of a repository of ours;
``evidence_of_folder(folder, base)`` what was done in somebody's working folder since *base*: commits, what is not
committed, and new files one by one (see ``folder`` for how nothing of theirs runs). The parts come in one fixed order:
stat, files changed, coverage, committed, uncommitted, new files. The first three are the header, and always whole; only
the patch below is clipped to ``max_chars``, so a clipped diff can never be taken for the whole change. Small files come
whole before large ones are begun; which are not shown, or not whole, is marked in the list of files. No line of a file or a
name can look like a part's headline: content lines begin with a sign, and odd names are quoted.

When the commits since *base* cannot be told (rebased, amended, no base), ``fell_back`` says why, and so does the text;
then only the working folder is shown. Errors: GitError and MachineError, when nothing can be said at all.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from school.changes.change import Coverage
from school.changes.folder import BIG_FILE, NewFile, Outlook, is_commit_id
from school.changes.patches import Patch, Section, read_patch
from school.errors import GitError, MachineError
from school.system.git import Git

EVIDENCE_CHARS_MAX: Final = 128_000
TIMEOUT_S: Final = 15.0
# Less of a file's beginning than this is not worth its line.
_CLIPPED_CHARS_MIN: Final = 400
_HOW: Final = ("--raw", "-p", "-z", "-M", "--no-color", "--no-ext-diff", "--no-textconv")
_LIKE_A_HEADLINE: Final = re.compile(r"^--- (?=.* ---$)", re.MULTILINE)
_ODD: Final = re.compile(r'["\\]|: ')
_CLIPPED: Final = "\n[clipped here: this file goes on]\n"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The block and what it covers; ``digest`` is of the whole change, shown or not."""

    text: str
    coverage: Coverage
    fell_back: str = ""
    digest: str = ""

    @property
    def files(self) -> int:
        return self.coverage.files

    @property
    def empty(self) -> bool:
        return not self.coverage.files


@dataclass(slots=True, eq=False)
class _Item:
    """One file of the block: what its line in the list says, and the text that stands for it below."""

    path: str
    status: str
    about: str
    text: str = ""
    beginning: str = ""
    length: int = 0

    @property
    def mark(self) -> str:
        return "" if self.text else " [beginning only]" if self.beginning else " [patch not shown]"


@dataclass(slots=True)
class _Group:
    """The files of one of the three lower parts."""

    title: str
    items: list[_Item] = field(default_factory=list)
    nothing: str = "(none)"
    added: int = 0
    deleted: int = 0


def evidence_of_commits(
    git: Git, base: str, head: str, *, max_chars: int = EVIDENCE_CHARS_MAX, timeout_s: float = 300.0
) -> Evidence:
    """The change from commit *base* to commit *head*."""
    block, digest = _block_of_commits(git, base, head, max_chars, timeout_s)
    return _assembled(block, "", [digest])


def listing_of_commits(git: Git, base: str, head: str, *, timeout_s: float = 300.0) -> str:
    """The header of that block, for whoever shows the whole patch besides: nothing is marked as not shown."""
    return _block_of_commits(git, base, head, 0, timeout_s)[0].header(marked=False)


def _block_of_commits(git: Git, base: str, head: str, max_chars: int, timeout_s: float) -> tuple[_Block, str]:
    for name in (base, head):
        if not is_commit_id(name):
            raise GitError(f"{name!r}: no commit")
    asked = ("-c", f"core.bigFileThreshold={BIG_FILE}", "diff-tree", "-r", *_HOW, base, head, "--")
    patch = read_patch(git.pieces(*asked, timeout_s=timeout_s), max_chars)
    groups = [_group("committed", patch), _Group("uncommitted"), _Group("new files")]
    since = f"stat (commits since base ({base[:12]}..{head[:12]}))"
    return _Block(since, groups, max_chars, []), patch.digest


def evidence_of_folder(
    folder: Path, base: str, *, max_chars: int = EVIDENCE_CHARS_MAX, timeout_s: float = TIMEOUT_S
) -> Evidence:
    """What was done where *folder* lies since the commit *base*: see the module."""
    with Outlook(folder, timeout_s=timeout_s) as outlook, ThreadPoolExecutor(3) as beside:
        # Nothing waits for what does not need it: git is quick, but starting it so often adds up.
        checked = beside.submit(outlook.usable, base)
        outlook.take_index()
        # Not before: every git looks at the index, and finds it half copied or torn until then.
        asked = beside.submit(_commits, outlook, base, max_chars)
        early = beside.submit(_worktree, outlook, max_chars)
        uncommitted = _worktree(outlook, max_chars) if outlook.list_files() else early.result()
        fresh = outlook.untracked()
        new = _new_files(outlook, fresh, max_chars)
        fell_back = checked.result()
        committed = Patch() if fell_back else asked.result()
        groups = [_group("committed during this turn", committed), _group("uncommitted", uncommitted), new]
        if fell_back:
            groups[0].nothing = f"(not known: {fell_back}; only the working folder is shown)"
        known = [committed.digest, uncommitted.digest, outlook.head, *map(repr, fresh)]
        since = f"stat (commits since turn start ({base[:12] or 'unknown'}..HEAD))"
        notes = [f"the commits are not shown: {fell_back}"] if fell_back else []
        block = _Block(since, groups, max_chars, [*notes, outlook.state] if outlook.state else notes)
        return _assembled(block, fell_back, known)


def _commits(outlook: Outlook, base: str, max_chars: int) -> Patch:
    if base == outlook.head or not is_commit_id(base):
        return Patch()
    asked = ("diff-tree", "-r", *_HOW, base, outlook.head, "--")
    return read_patch(outlook.git.pieces(*asked, timeout_s=outlook.left()), max_chars)


def _worktree(outlook: Outlook, max_chars: int) -> Patch:
    # Into a submodule git would go with that one's own configuration.
    asked = ("diff", *_HOW, "--ignore-submodules=dirty", "--")
    return read_patch(outlook.git.pieces(*asked, timeout_s=outlook.left()), max_chars)


# --- the parts --------------------------------------------------------------------------------------------------


def _group(title: str, patch: Patch) -> _Group:
    items = [_item(file) for file in patch.files]
    added, deleted = sum(file.added for file in patch.files), sum(file.deleted for file in patch.files)
    return _Group(title, items, added=added, deleted=deleted)


def _item(file: Section) -> _Item:
    counts = "binary" if file.binary else f"+{file.added} -{file.deleted}"
    about = f"(from {quoted(file.old_path)}) {counts}" if file.old_path else counts
    text, beginning = (
        # A line "-- x ---" that was deleted would look like a headline of ours.
        _LIKE_A_HEADLINE.sub("- -- ", part.decode("utf-8", "replace"))
        for part in (file.text, file.clipped)
    )
    return _Item(file.path, file.status, about, text, beginning, file.length)


def _new_files(outlook: Outlook, fresh: Sequence[NewFile], max_chars: int) -> _Group:
    """Every new file with its size; the small ones with their content, while there is room."""
    items = {file.path: _Item(file.path, "?", _about(file), length=file.size) for file in fresh}
    room = max_chars
    for file in sorted(fresh, key=lambda file: (file.size, file.path)):
        item = items[file.path]
        if room <= 0:
            break
        text, whole = _content(outlook, file, room)
        item.text, item.beginning = (text, "") if whole else ("", text)
        room -= len(text)
    return _Group("new files", list(items.values()))


def _about(file: NewFile) -> str:
    return {
        "link": "link",
        "folder": "a repository of its own, not looked into",
        "other": "no plain file",
    }.get(file.kind, f"{file.size} bytes")


def _content(outlook: Outlook, file: NewFile, room: int) -> tuple[str, bool]:
    """What stands for a new file, and whether that is all of it."""
    headline = f"+++ {quoted(file.path)} ({_about(file)})\n"
    if file.kind in ("folder", "other"):
        return headline, True
    try:
        raw = outlook.read_new(file.path, room + 1)
    except MachineError as cause:
        return headline + f"! cannot be read: {quoted(cause.strerror or str(cause))}\n", True
    if file.kind == "link":
        return headline + f"! it points to {quoted(os.fsdecode(raw))}\n", True
    if b"\0" in raw[:8192]:
        return headline + "! binary\n", True
    lines = raw[:room].decode("utf-8", "replace").split("\n")
    end = lines.pop() if lines[-1] == "" else None
    text = headline + "".join(f"+{line}\n" for line in lines)
    whole = len(raw) <= room and len(text) <= room
    return (text if end is not None else text + "\\ No newline at end of file\n" if whole else text), whole


# --- the block --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Block:
    """The whole text, of which only the lower parts give way."""

    since: str
    groups: Sequence[_Group]
    max_chars: int
    notes: Sequence[str]

    def __post_init__(self) -> None:
        self.items = [item for group in self.groups for item in group.items]
        self.by_path: dict[str, list[tuple[_Group, _Item]]] = {}
        for group in self.groups:
            for item in group.items:
                self.by_path.setdefault(item.path, []).append((group, item))

    items: list[_Item] = field(init=False)
    by_path: dict[str, list[tuple[_Group, _Item]]] = field(init=False)

    def fitted(self) -> str:
        """The text; what does not fit is taken out of the items."""
        whole = all(item.text for item in self.items)
        text = self.text() if whole else ""
        if whole and len(text) <= self.max_chars:
            return text
        # A list without any mark is shorter than this one, so what is chosen by it fits.
        kept = [(item.text, item.beginning) for item in self.items]
        for item in self.items:
            item.text = item.beginning = ""
        room = self.max_chars - len(self.text())
        for item, (content, beginning) in zip(self.items, kept, strict=True):
            item.text, item.beginning = content, beginning
        _choose(self.items, room)
        return self.text()

    def text(self) -> str:
        return self.header() + "".join(map(_part, self.groups))

    def header(self, *, marked: bool = True) -> str:
        stat = [f" {quoted(item.path)} | {item.about}" for item in self.groups[0].items]
        first = self.groups[0]
        total = f" {_files(len(first.items))}, +{first.added} -{first.deleted}" if stat else " (no commits)"
        return "\n".join(
            [
                _headline(self.since),
                *stat,
                total,
                _headline(f"files changed ({len(self.by_path)})"),
                *(_line(path, parts, marked=marked) for path, parts in sorted(self.by_path.items())),
                _headline("coverage"),
                *self.coverage_lines()[: None if marked else 1],
                "",
            ]
        )

    def coverage_lines(self) -> list[str]:
        committed, uncommitted, fresh = self.groups
        coverage = self.coverage()
        cut = f"CLIPPED: {len(coverage.left_out)} of them not or not wholly shown, marked above"
        counts = [
            f"{len(committed.items)} committed (+{committed.added} -{committed.deleted})",
            f"{len(uncommitted.items)} uncommitted (+{uncommitted.added} -{uncommitted.deleted})",
            f"{len(fresh.items)} new",
        ]
        shown = f"patch: {coverage.shown_bytes} of {coverage.total_bytes} bytes shown"
        return [
            f"{_files(coverage.files)}: {', '.join(counts)}",
            f"{shown}, the block at most {self.max_chars} characters; {'complete' if coverage.complete else cut}",
            *(f"note: {note}" for note in self.notes),
        ]

    def coverage(self) -> Coverage:
        left_out = [
            path for path, parts in sorted(self.by_path.items()) if not all(item.text for _, item in parts)
        ]
        total = sum(item.length for item in self.items)
        shown = sum(item.length if item.text else len(item.beginning) for item in self.items)
        return Coverage(
            len(self.by_path), len(self.by_path) - len(left_out), left_out, total, min(shown, total)
        )


def _assembled(block: _Block, fell_back: str, known: Sequence[str]) -> Evidence:
    text = block.fitted()
    digest = hashlib.sha256("\n".join(known).encode("utf-8", "surrogateescape")).hexdigest()
    return Evidence(text, block.coverage(), fell_back, digest)


def _choose(items: Sequence[_Item], room: int) -> None:
    """Keep the texts that fit into *room*, smallest first, and the beginning of one that does not."""
    begun = False
    for item in sorted(items, key=lambda item: len(item.text) or item.length):
        if item.text and len(item.text) <= room:
            room -= len(item.text)
            item.beginning = ""
            continue
        start, item.text, item.beginning = item.text or item.beginning, "", ""
        if start and not begun and room >= _CLIPPED_CHARS_MIN:
            begun = True
            item.beginning = start[: room - len(_CLIPPED)]
            room -= len(item.beginning) + len(_CLIPPED)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _headline(text: str) -> str:
    return f"--- {text} ---"


def _line(path: str, parts: Sequence[tuple[_Group, _Item]], *, marked: bool) -> str:
    said = "; ".join(
        f"{group.title.split()[0]} {item.status} {item.about}{item.mark if marked else ''}"
        for group, item in parts
    )
    return f" {quoted(path)}: {said}"


def _part(group: _Group) -> str:
    texts = [item.text or item.beginning + _CLIPPED for item in group.items if item.text or item.beginning]
    if not texts:
        texts = ["(not shown)\n" if group.items else f"{group.nothing}\n"]
    return f"{_headline(group.title)}\n" + "".join(
        text if text.endswith("\n") else f"{text}\n" for text in texts
    )


def quoted(path: str) -> str:
    """*path* on one line: as it is, or in quotes with every odd byte spelled out."""
    plain = path.isprintable() and path.strip() == path and not path.startswith("-")
    if plain and path and not _ODD.search(path):
        return path
    spelled = (char if char.isprintable() and char not in '"\\' else _spelled(char) for char in path)
    return '"' + "".join(spelled) + '"'


def _spelled(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))

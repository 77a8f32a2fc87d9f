"""A leaf's working tree, saved: one commit of ours on base, in the school clone, whatever the agent did to git.

``snapshot`` is called as soon as the agent's whole process tree has ended, on success, failure, timeout and by
whoever finds a dead leaf. It trusts nothing the agent could write: see ``collect`` for the tree and ``foreign`` for
the agent's own commits. What one commit on base cannot show, goes to ``refs/school/rescue/<bead>`` (a commit on the
snapshot): files hidden by ignore rules newer than base, files in a submodule's folder, files under names that git
cannot hold (renamed), and each nested repository's history as a bundle under ``.school-rescue/``.

Done twice it gives the same commits; a different tree the second time keeps the first under
``refs/school/earlier/<bead>/``. A tree whose making was never finished holds no agent's work and gives base's tree.

Not promised: files that git would not keep (ignored at base, sockets), empty directories, and times.

Errors: ``WorktreeError`` when the tree could not be saved; the record then says so (``salvage_failed``), nothing
removes the tree, and the next ``snapshot`` tries again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from school import settings as school_settings
from school.contracts import Snapshot, Workspace, WorktreeRecord
from school.errors import GitError, SchoolError, WorktreeError
from school.settings import Settings
from school.system import clock, faults, files, log
from school.system.git import Git
from school.worktrees import foreign, layout, submodules
from school.worktrees.clone import SchoolClone, durable, identity
from school.worktrees.collect import Collected, Collector, Entry
from school.worktrees.commits import agents_commits, commit_tree, set_refs

RESCUE_FOLDER: Final = ".school-rescue"
_SUBJECT_CHARACTERS_MAX: Final = 72
_INVALID_PATH: Final = re.compile(rb"[Ii]nvalid path '(.*?)'\n", re.DOTALL)
_INVALID_PATHS_MAX: Final = 1000

_log = log.get(__name__)


@dataclass(slots=True)
class _Work:
    """What one snapshot is made with."""

    workspace: Workspace
    clone: SchoolClone
    scratch: Path
    at: int
    git: Git
    message: str
    notes: list[str] = field(default_factory=list)


def snapshot(
    workspace: Workspace, *, bag: Mapping[str, Any], message: str = "", settings: Settings | None = None
) -> Snapshot:
    """Save the working tree of *workspace*; see the module. *message* defaults to one made from *bag*."""
    settings = settings or school_settings.current()
    record_path = layout.leaf_record_path(settings, workspace.bead)
    record = layout.read_record(record_path)
    try:
        saved = _snapshot(workspace, bag, with_trailers(message or subject(bag), bag), record)
    except (SchoolError, OSError) as cause:
        with suppress(SchoolError, OSError):  # on a full disk even this cannot be written
            _remember(record_path, record, f"{type(cause).__name__}: {cause}")
        raise WorktreeError(f"{workspace.path}: could not be saved, and is kept as it is: {cause}") from cause
    _remember(record_path, record, "")
    _log.info(
        "leaf.saved",
        bead=workspace.bead,
        ref=saved.ref,
        commit=saved.head_commit,
        files=len(saved.files_changed),
        rescue=saved.rescue_ref,
        agent=saved.agent_ref,
    )
    return saved


def _remember(path: Path, record: WorktreeRecord | None, failure: str) -> None:
    if record is not None and record.salvage_failed != failure:
        record.salvage_failed = failure
        layout.write_record(path, record)


def _snapshot(
    workspace: Workspace, bag: Mapping[str, Any], message: str, record: WorktreeRecord | None
) -> Snapshot:
    clone = SchoolClone.existing(workspace.clone)
    if record is not None and record.removing:
        return _saved_before(workspace, clone)
    at = _stamp(clone, workspace, record)
    scratch = workspace.clone / "scratch" / workspace.bead
    files.remove_tree(scratch)
    files.ensure_dir(scratch)
    try:
        git = Git(clone.path, env=identity(at), config=durable())
        work = _Work(workspace, clone, scratch, at, git, message)
        begun = record is not None and not record.made
        with faults.around("snapshot.taken"):
            return _save(work, Collected() if begun else _collect(work, bag), unchanged=begun)
    finally:
        files.remove_tree(scratch)


def _saved_before(workspace: Workspace, clone: SchoolClone) -> Snapshot:
    """A tree that is being removed was saved before; what is left of it says nothing."""
    ref = layout.snapshot_ref(workspace.bead)
    head = clone.ref(ref)
    if not head:
        raise WorktreeError(f"{workspace.path}: its removal had begun, and {ref} is not in {clone.path}")
    rescue, agent = layout.rescue_ref(workspace.bead), layout.agent_ref(workspace.bead)
    return Snapshot(
        head_commit=head,
        tree=clone.tree_of(head),
        ref=ref,
        files_changed=_changed(clone, workspace.base_commit, head),
        rescue_ref=rescue if clone.ref(rescue) else "",
        agent_ref=agent if clone.ref(agent) else "",
    )


def _stamp(clone: SchoolClone, workspace: Workspace, record: WorktreeRecord | None) -> int:
    """A time that is the same at every try, so that the same tree gives the same commit."""
    if record is not None and record.created_at:
        return int(clock.parse(record.created_at).timestamp())
    return clone.committed_at(workspace.base_commit)


def _collect(work: _Work, bag: Mapping[str, Any]) -> Collected:
    if not work.workspace.path.is_dir() or work.workspace.path.is_symlink():
        raise WorktreeError(f"{work.workspace.path}: the working tree is gone")
    collector = Collector(
        work.clone.path,
        work.workspace.path,
        work.workspace.base_commit,
        work.scratch,
        left_out=_left_out(bag),
        submodules=_put_there(work, bag),
    )
    return collector.collect()


def _put_there(work: _Work, bag: Mapping[str, Any]) -> dict[bytes, dict[bytes, tuple[str, str]]]:
    """The files of submodules that we put into the tree, so that only what differs counts as work."""
    if not (bag.get("terms") or {}).get("submodules"):
        return {}
    reader = submodules.Reader(work.scratch / "submodules")
    try:
        modules = submodules.modules_of(work.workspace.repo)
        found = submodules.of_commit(work.clone.git, work.workspace.base_commit, modules)
        return {os.fsencode(one.path): reader.entries(one) for one in found}
    except (GitError, WorktreeError) as cause:
        work.notes.append(f"the submodules could not be compared with what they were: {cause}")
        return {}


def _left_out(bag: Mapping[str, Any]) -> Iterable[str]:
    """What we put into the tree ourselves; where base tracks such a path, it is judged like any other."""
    terms = bag.get("terms") or {}
    yield from (".hermes/briefs", ".hermes/outputs")
    for name in [*(terms.get("keep") or ()), *(terms.get("copy_files") or ())]:
        plain = os.path.normpath(str(name))
        if plain != "." and not plain.startswith(("/", "..")):
            yield plain


# --- making commits -----------------------------------------------------------------------------------------


def _save(work: _Work, found: Collected, *, unchanged: bool) -> Snapshot:
    base = work.workspace.base_commit
    bead = work.workspace.bead
    tree = work.clone.tree_of(base) if unchanged else _write_tree(work, found)
    head = _made_before(work, tree) or commit_tree(work.clone, work.git, tree, [base], work.message)
    refs = {layout.snapshot_ref(bead): head}
    rescue = _rescue(work, found, tree, head)
    if rescue:
        refs[layout.rescue_ref(bead)] = rescue
    # The tree first: whatever is wrong with the agent's own git, what lies on the disk is safe from here on.
    set_refs(work.clone, work.git, bead, refs)
    agent, notes = agents_commits(work.clone, work.at, work.workspace.git_dir, bead, [base], work.scratch)
    work.notes.extend(notes)
    if agent:
        set_refs(work.clone, work.git, bead, {layout.agent_ref(bead): agent})
    for path in found.submodules:
        work.notes.append(f"submodule: work in {os.fsdecode(path)!r} is in {layout.rescue_ref(bead)}")
    return Snapshot(
        head_commit=head,
        tree=tree,
        ref=layout.snapshot_ref(bead),
        files_changed=_changed(work.clone, base, head),
        rescue_ref=layout.rescue_ref(bead) if rescue else "",
        agent_ref=layout.agent_ref(bead) if agent or work.clone.ref(layout.agent_ref(bead)) else "",
        notes=[*found.notes, *work.notes],
    )


def _write_tree(work: _Work, found: Collected) -> str:
    entries = dict(found.kept)
    for _ in range(_INVALID_PATHS_MAX):
        try:
            return _tree_from(work, entries)
        except GitError as cause:
            refused = _INVALID_PATH.search(
                getattr(cause, "stderr", "").encode("utf-8", "surrogateescape") + b"\n"
            )
            if refused is None or refused[1] not in entries:
                raise
            found.unholdable[refused[1]] = entries.pop(refused[1])
    raise WorktreeError(f"{work.workspace.path}: more than {_INVALID_PATHS_MAX} names that git cannot hold")


def _tree_from(work: _Work, entries: Mapping[bytes, Entry], onto: str = "") -> str:
    """A tree of *entries*, over the tree *onto* if there is one."""
    index = work.scratch / "tree-index"
    index.unlink(missing_ok=True)
    git = Git(work.clone.path, index=index, config=durable())
    if onto:
        git.run("read-tree", onto)
    lines = b"".join(
        f"{entry.mode} {entry.oid}\t".encode() + path + b"\0" for path, entry in sorted(entries.items())
    )
    git.run("update-index", "-z", "--replace", "--add", "--index-info", stdin=lines)
    written = index.is_file()
    tree = git.text("write-tree")
    # Without its entries the tree would say that the agent removed every file.
    if entries and (not written or tree == onto):
        raise WorktreeError(
            f"{work.clone.path}: git said that {len(entries)} entries were written, and they are not there"
        )
    return tree


def _made_before(work: _Work, tree: str) -> str:
    """The snapshot of an earlier call, if it is of this very tree on this very base; otherwise empty."""
    before = work.clone.ref(layout.snapshot_ref(work.workspace.bead))
    if not before:
        return ""
    said = work.clone.git.text("show", "-s", "--format=%T %P", before).split()
    return before if said == [tree, work.workspace.base_commit] else ""


def _rescue(work: _Work, found: Collected, tree: str, head: str) -> str:
    """A commit on *head* with what *head* cannot show; empty when there is nothing."""
    entries = {path: entry for path, entry in found.hidden.items() if not _refused(path)}
    for number, (path, entry) in enumerate(sorted(found.unholdable.items())):
        entries[f"{RESCUE_FOLDER}/names/{number}".encode()] = entry
        work.notes.append(
            f"git cannot hold the name {os.fsdecode(path)!r}: it is names/{number} in the rescue"
        )
    for number, nested in enumerate(sorted(found.nested)):
        stored = _bundle(work, nested, number)
        if stored:
            name = re.sub(rb"[^A-Za-z0-9._-]", b"_", nested)[:100]
            entries[f"{RESCUE_FOLDER}/nested/{number}-".encode() + name + b".bundle"] = Entry(
                "100644", stored
            )
    if not entries:
        return ""
    text = f"Rescue what no snapshot of {work.workspace.bead} can show\n"
    return commit_tree(work.clone, work.git, _tree_from(work, entries, tree), [head], text)


def _refused(path: bytes) -> bool:
    return any(part.lower() == b".git" for part in path.split(b"/"))


def _bundle(work: _Work, nested: bytes, number: int) -> str:
    top = work.workspace.path / os.fsdecode(nested)
    try:
        content, notes = foreign.bundle(top, work.scratch / f"nested-{number}")
    except GitError as cause:
        content, notes = b"", [f"{top}: its history could not be read: {cause}"]
    work.notes.extend(notes)
    if not content:
        return ""
    return work.git.run("hash-object", "-w", "--stdin", stdin=content).stdout.decode().strip()


def _changed(clone: SchoolClone, base: str, head: str) -> list[str]:
    asked = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", base, head)
    return [os.fsdecode(name) for name in clone.git.run(*asked).stdout.split(b"\0") if name]


# --- messages -----------------------------------------------------------------------------------------------


def subject(bag: Mapping[str, Any]) -> str:
    """The first line of the task, short, then the whole of it where that says more."""
    task = str(bag.get("task") or "").strip()
    first = " ".join((task.splitlines() or [""])[0].split())
    title = first if len(first) <= _SUBJECT_CHARACTERS_MAX else first[: _SUBJECT_CHARACTERS_MAX - 1] + "…"
    title = title or str(bag.get("task_id") or bag.get("bead") or "Work of an agent")
    return title if title == task else f"{title}\n\n{task}"


def with_trailers(message: str, bag: Mapping[str, Any]) -> str:
    """*message* ending in the trailers that name bead, task and agent."""
    agent = bag.get("agent") or {}
    said = {
        "School-Bead": bag.get("bead"),
        "School-Task": bag.get("task_id"),
        "School-Agent": agent.get("name"),
    }
    lines = [
        f"{key}: {' '.join(str(value).split())}"
        for key, value in said.items()
        if value and f"\n{key}: " not in message
    ]
    text = message.replace("\0", "").rstrip()
    return text + ("\n\n" + "\n".join(lines) if lines else "") + "\n"

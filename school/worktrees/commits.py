"""Commits of ours in the school clone, and the agent's own commits brought into it.

``commit_tree`` makes one and checks that it is there; ``set_refs`` names several at once and loses no earlier name;
``agents_commits`` gathers what an agent committed or only staged under one commit; ``save_commits`` does that for a
bead whose working tree is gone.

Errors: ``GitError`` and ``WorktreeError``; what of an agent's git cannot be read is a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from school.errors import GitError, MachineError, WorktreeError
from school.system import faults, files, log
from school.system.git import Git
from school.worktrees import foreign, layout
from school.worktrees.clone import SchoolClone, durable, identity

_log = log.get(__name__)


def commit_tree(clone: SchoolClone, git: Git, tree: str, parents: Sequence[str], message: str) -> str:
    flags = [part for parent in parents for part in ("-p", parent)]
    text = message.encode("utf-8", "backslashreplace")
    made = git.run("commit-tree", tree, *flags, stdin=text).stdout.decode().strip()
    if not clone.has(made):
        raise WorktreeError(f"{clone.path}: git said that commit {made!r} was made, and it is not there")
    return made


def agents_commits(
    clone: SchoolClone, at: int, repository: Path, bead: str, known: Sequence[str], scratch: Path
) -> tuple[str, list[str]]:
    """A commit that holds all that the agent committed or staged (empty for nothing), and notes."""
    objects = repository / "objects"
    foreign.own_alternates(objects, clone.path / "objects")
    index = _index_of(repository, bead, scratch)
    borrowed = foreign.borrowing(clone.path, objects, index=index, env=identity(at))
    try:
        found, notes = foreign.tips(borrowed, objects, known)
        failed = foreign.bring(borrowed, clone.path, found, known, scratch)
        staged = _staged(clone, borrowed, bead, found, known) if index else []
        failed.update(foreign.bring(borrowed, clone.path, staged, known, scratch))
    except GitError as cause:
        return "", [f"the agent's own commits could not be read: {cause}"]
    notes.extend(f"commit {commit} cannot be copied: {reason}" for commit, reason in failed.items())
    whole = [commit for commit in [*found, *staged] if commit not in failed]
    if len(whole) <= 1:
        return "".join(whole), notes
    text = f"Keep what the agent of {bead} committed\n"
    git = Git(clone.path, env=identity(at), config=durable())
    return commit_tree(clone, git, clone.tree_of(whole[0]), whole, text), notes


def _index_of(repository: Path, bead: str, scratch: Path) -> Path | None:
    """A copy of the agent's index, if it has one that is a plain file."""
    index = repository / "worktrees" / layout.worktree_name(bead) / "index"
    try:
        content = files.read_bytes(index, limit_bytes=foreign.INDEX_BYTES_MAX)
    except (ValueError, MachineError):
        content = None
    if content is None:
        return None
    copy = scratch / "agents-index"
    copy.write_bytes(content)
    return copy


def _staged(
    clone: SchoolClone, borrowed: Git, bead: str, found: Sequence[str], known: Sequence[str]
) -> list[str]:
    """A commit of what the agent's index holds, if that is neither a commit's tree nor the snapshot's."""
    done = borrowed.run("write-tree", check=False)
    tree = done.stdout.decode("ascii", "replace").strip()
    seen = clone.trees_of([*found, *known, clone.ref(layout.snapshot_ref(bead))])
    if done.returncode != 0 or not tree or tree in seen:
        return []
    parents = known if len(known) == 1 else ()
    return [commit_tree(clone, borrowed, tree, parents, f"Keep what the agent of {bead} staged\n")]


def set_refs(clone: SchoolClone, git: Git, bead: str, refs: Mapping[str, str]) -> None:
    """All refs at once; a commit that one of them named before keeps a name."""
    kinds = {layout.snapshot_ref(bead): "snapshot", layout.rescue_ref(bead): "rescue"}
    with clone.lock():
        lines = []
        for name, commit in refs.items():
            before = clone.ref(name)
            if before and before != commit:
                kept = f"refs/school/earlier/{bead}/{kinds.get(name, 'agent')}-{before[:12]}"
                lines.append(f"update {kept} {before}\n")
            lines.append(f"update {name} {commit}\n")
        with faults.around("snapshot.named"):
            git.run("update-ref", "--stdin", stdin="".join(lines).encode())
        for name, commit in refs.items():
            if clone.ref(name) != commit:
                raise WorktreeError(f"{clone.path}: git said that {name} names {commit}, and it does not")


def save_commits(repository: Path, bead: str, clone: SchoolClone) -> str:
    """Bring into *clone* what was committed in the bead repository *repository*; the ref, or empty for nothing."""
    SchoolClone.existing(clone.path)
    scratch = clone.path / "scratch" / f"{bead}-commits"
    files.remove_tree(scratch)
    files.ensure_dir(scratch)
    try:
        tips = clone.git.text("for-each-ref", "--format=%(objectname)").split()
        known = foreign.commits_among(clone.git, tips)
        git = Git(clone.path, config=durable())
        agent, notes = agents_commits(clone, 0, repository, bead, list(dict.fromkeys(known)), scratch)
        if notes:
            _log.warning("leaf.commits_not_all_saved", bead=bead, notes=notes)
        if agent:
            set_refs(clone, git, bead, {layout.agent_ref(bead): agent})
    finally:
        files.remove_tree(scratch)
    return layout.agent_ref(bead) if clone.ref(layout.agent_ref(bead)) else ""

"""Bringing work back: everything that was ever saved of a bead and not delivered, as branches of the user's repository.

``recover(beads, repo, settings)``: one row for each thing that was saved, ``--all`` (no beads) for every bead of the
repository, also one whose record is gone and of which only the refs of the school clone still tell. Of a bead that was
delivered ``--all`` brings only what its branch does not hold. A working tree that nobody uses and that could not be saved
before is saved first. The branches are ``recovered/<bead>``, and with ``-agent`` (the commits that the agent made itself),
``-rescue`` (what its own new ignore rules hid, or no commit of ours can hold) and ``-earlier-…`` (what a later snapshot replaced) behind it.

Work that was kept out of the repository because it holds a secret is only named by ``--all``, and brought when its bead is named.

A branch that exists is never moved: where it names the commit it is the answer, else the new one gets a suffix. Doing it twice
changes nothing. Errors: ConfigError for a bead that nobody knows; what is wrong with one bead alone is told in its row.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import bookbag
from school.errors import ConfigError, SchoolError, WorktreeError
from school.records.store import check_bead
from school.settings import Settings
from school.supervisor.board import Bag, bag_of
from school.supervisor.opening import hold, lock_file
from school.system import locks
from school.worktrees import (
    Repository,
    SchoolClone,
    branch_name_problem,
    inspect_repository,
    publish_beside,
    snapshot,
    workspace_of,
)
from school.worktrees.layout import agent_ref, rescue_ref, snapshot_ref
from school.worktrees.salvage import salvage

PREFIX: Final = "recovered"
_KINDS: Final = ("agent", "rescue", "earlier")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Saved:
    """One commit that holds work: of which kind (its suffix), and where the clone names it."""

    commit: str
    suffix: str = ""


def recover(beads: Iterable[str], repo: Path, settings: Settings) -> list[Row]:
    """Bring the work of *beads* (none: of each that has any) back; see the module."""
    repository = inspect_repository(repo)
    wanted = list(beads)
    if not lock_file(repository, settings).exists():
        _refuse_unknown(wanted, repository, settings)  # before anything is made
    with hold(repository, settings, "recover"):
        _refuse_unknown(wanted, repository, settings)
        clone = _clone(repository, settings)
        found = wanted or _known(repository, clone)
        return [row for bead in found for row in _rows(bead, repository, clone, settings, every=not wanted)]


def _clone(repository: Repository, settings: Settings) -> SchoolClone | None:
    try:
        return SchoolClone.at(repository.key, settings=settings)
    except WorktreeError:
        return None


def _refuse_unknown(beads: Iterable[str], repository: Repository, settings: Settings) -> None:
    clone = _clone(repository, settings)
    for bead in beads:
        bag = bag_of(check_bead(bead))
        if bag is None and not (clone is not None and clone.ref(snapshot_ref(bead))):
            raise ConfigError(f"recover {bead}: there is no such bead")
        if bag is not None and bag.get("repo_key") != repository.key:
            raise ConfigError(f"recover {bead}: it belongs to {bag.get('repo')}, not to {repository.path}")


def _known(repository: Repository, clone: SchoolClone | None) -> list[str]:
    """Every bead of this repository, oldest first, and those of which only refs are left."""
    every = [*bookbag.list_bookbags(archived=True), *bookbag.list_bookbags()]
    mine = [
        bead for bead in every if (bag := bag_of(bead)) is not None and bag.get("repo_key") == repository.key
    ]
    return list(dict.fromkeys([*mine, *(_named(clone) if clone is not None else [])]))


def _named(clone: SchoolClone) -> Iterator[str]:
    """The beads that the clone's own refs name."""
    for line in clone.git.text("for-each-ref", "--format=%(refname:lstrip=2)", "refs/school/").splitlines():
        kind, _, rest = line.partition("/")
        if not rest:
            yield kind
        elif kind in _KINDS:
            yield rest.partition("/")[0]


# --- one bead -----------------------------------------------------------------------------------------------


def _rows(
    bead: str, repository: Repository, clone: SchoolClone | None, settings: Settings, *, every: bool
) -> list[Row]:
    bag: Bag = bag_of(bead) or {"bead": bead}
    row: Row = {"bead": bead, "task_id": bag.get("task_id", ""), "branch": "", "ref": "", "commit": ""}
    try:
        bag, unsaved = _safe(bag, settings)
        if bag.get("status") == "running":
            return [{**row, "detail": "its student is at work"}]
        if clone is None:
            return [{**row, "detail": "the school clone is gone, and the work with it"}]
        found = _saved(bag, clone)
        if every and bag.get("withheld"):
            return [
                {
                    **row,
                    "detail": f"it holds a {bag['withheld']} and stays in our clone: `recover {bead}` brings it",
                }
            ]
        if every and bag.get("delivered"):
            found = [saved for saved in found if saved.suffix.startswith("-rescue")]
        rows = [{**row, **_brought(bead, saved, repository, clone)} for saved in found]
        if bag.get("withheld"):
            rows = [{**one, "detail": f"it holds a {bag['withheld']}; {one['detail']}"} for one in rows]
    except (SchoolError, OSError) as error:
        return [{**row, "detail": str(error)}]
    if unsaved:
        rows.append({**row, "detail": unsaved})
    if rows or (every and bag.get("delivered")):
        return rows
    return [{**row, "detail": bag.get("summary") or "it changed nothing"}]


def _safe(bag: Bag, settings: Settings) -> tuple[Bag, str]:
    """*bag* once all that lies in its tree is saved, as far as it can be; and what could not be, in a sentence."""
    bead = bag["bead"]
    if locks.held_elsewhere(settings.processes_dir / f"{bead}.leaf.lock"):
        return bag, ""
    if bag.get("status") == "running":
        return salvage(bead, reason="conductor_died", settings=settings) or bag, ""
    workspace = workspace_of(bag, settings=settings)
    if workspace is None or not workspace.path.is_dir():
        return bag, ""
    try:
        saved = snapshot(workspace, bag=bag, settings=settings)
    except WorktreeError as error:
        return bag, str(error)
    return {**bag, "head_commit": saved.head_commit}, ""


def _saved(bag: Bag, clone: SchoolClone) -> list[Saved]:
    """What the clone holds of *bag*'s bead: the snapshot first, each commit once."""
    bead = str(bag["bead"])
    found = [
        Saved(_snapshot_of(bag, clone)),
        Saved(clone.ref(agent_ref(bead)), "-agent"),
        Saved(clone.ref(rescue_ref(bead)), "-rescue"),
    ]
    how = "--format=%(objectname) %(refname:lstrip=4)"
    listed = clone.git.text("for-each-ref", how, f"refs/school/earlier/{bead}/")
    earlier = (line.partition(" ") for line in listed.splitlines())
    found += [Saved(commit, f"-earlier-{name}") for commit, _, name in earlier]
    once = {saved.commit: saved for saved in reversed(found) if saved.commit}
    return [saved for saved in found if once.get(saved.commit) is saved]


def _snapshot_of(bag: Mapping[str, Any], clone: SchoolClone) -> str:
    """The snapshot, where it holds a change; a record that is gone or lies does not hide what the ref names."""
    commit = str(bag.get("head_commit") or "")
    if not commit or not clone.has(commit):
        commit = clone.ref(snapshot_ref(str(bag["bead"])))
    if not commit:
        return ""
    changed = not clone.git.ok("diff-tree", "--quiet", f"{commit}^", commit)
    return commit if changed and commit != bag.get("base_commit") else ""


def _brought(bead: str, saved: Saved, repository: Repository, clone: SchoolClone) -> Row:
    """Make the branch of *saved*; what its row says."""
    branch = f"{PREFIX}/{bead}{saved.suffix}"
    if branch_name_problem(repository, branch):
        branch = branch.replace("/", "-", 1)  # there is a branch of the prefix' own name
    made = publish_beside(clone, repository, saved.commit, f"refs/heads/{branch}").removeprefix("refs/heads/")
    ref = (
        f"refs/heads/{made}"
        if saved.suffix
        else publish_beside(clone, repository, saved.commit, f"refs/school/{bead}")
    )
    detail = f"git -C {shlex.quote(str(repository.path))} switch {made}"
    return {"branch": made, "ref": ref, "commit": saved.commit, "detail": detail}

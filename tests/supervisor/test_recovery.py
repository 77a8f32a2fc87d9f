"""Work that was saved comes back as branches, all of it, also when its record is gone; and no branch is ever moved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.contracts import Workspace
from school.errors import ConfigError
from school.settings import Settings
from school.supervisor.recovery import recover
from school.worktrees import GitLeafWorktrees, layout, snapshot
from tests.building import State
from tests.support import git


@pytest.fixture
def state(school: Settings, repo: Path) -> State:
    return State(school, repo)


def bag_of(bead: str) -> dict[str, Any]:
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    return bag


def branches(state: State) -> dict[str, str]:
    return {name: commit for name, commit in state.branches().items() if name != "main"}


def worked(state: State, bead: str) -> Workspace:
    """A leaf's tree in which an agent committed, hid something behind its own ignore rule, and left a file."""
    workspace = GitLeafWorktrees(state.settings).create(bag_of(bead))
    (workspace.path / "committed").write_text("committed")
    git(workspace.path, "add", "committed")
    git(workspace.path, "commit", "-q", "-m", "Mine")
    (workspace.path / ".gitignore").write_text("__pycache__/\n*.pyc\nhidden\n")
    (workspace.path / "hidden").write_text("hidden")
    (workspace.path / "left").write_text("left")
    return workspace


def test_everything_that_was_saved_of_a_bead_has_its_branch(state: State):
    bead = state.running()
    workspace = worked(state, bead)
    first = snapshot(workspace, bag=bag_of(bead), settings=state.settings)
    (workspace.path / "left").write_text("left again")
    saved = snapshot(workspace, bag=bag_of(bead), settings=state.settings)
    fields = {"status": "failed", "reason": "timeout", "head_commit": saved.head_commit, "tree": saved.tree}
    bookbag.update_bookbag(bead, lambda bag: {**bag, **fields}, by="leaf")
    GitLeafWorktrees(state.settings).remove(workspace)
    rows = recover([], state.repo, state.settings)
    earlier = f"recovered/{bead}-earlier-snapshot-{first.head_commit[:12]}"
    names = [f"recovered/{bead}", f"recovered/{bead}-agent", f"recovered/{bead}-rescue"]
    assert [row["branch"] for row in rows][:3] == names
    assert len(rows) == 5  # what was rescued stood on the first snapshot, and stands on the second now
    assert branches(state) == {row["branch"]: row["commit"] for row in rows}
    assert [git(state.repo, "rev-parse", row["ref"]) for row in rows] == [row["commit"] for row in rows]
    assert rows[0]["ref"] == f"refs/school/{bead}"
    assert git(state.repo, "show", f"recovered/{bead}:left") == "left again"
    assert git(state.repo, "show", f"recovered/{bead}-rescue:hidden") == "hidden"
    assert git(state.repo, "show", f"{earlier}:left") == "left"
    assert recover([bead], state.repo, state.settings) == rows
    assert git(state.repo, "rev-parse", "HEAD") == state.base


def test_a_branch_that_is_there_is_never_moved(state: State):
    bead = state.written()
    name = f"recovered/{bead}"
    git(state.repo, "branch", name, state.base)
    (row,) = recover([bead], state.repo, state.settings)
    assert row["branch"] == f"{name}-2"
    assert branches(state) == {name: state.base, f"{name}-2": bag_of(bead)["head_commit"]}
    assert recover([bead], state.repo, state.settings) == [row]


def test_a_branch_of_the_prefix_own_name_is_in_nobodys_way(state: State):
    bead = state.written()
    git(state.repo, "branch", "recovered")
    (row,) = recover([bead], state.repo, state.settings)
    assert row["branch"] == f"recovered-{bead}"


def test_what_was_delivered_is_not_listed_among_all_but_can_be_asked_for(state: State):
    done, lost = state.accepted(), state.rejected()
    assert [row["bead"] for row in recover([], state.repo, state.settings)] == [lost]
    (row,) = recover([done], state.repo, state.settings)
    assert git(state.repo, "rev-parse", row["branch"]) == row["commit"]


def test_work_whose_record_is_gone_is_found_by_the_refs_of_the_clone(state: State):
    bead = state.written()
    head = bag_of(bead)["head_commit"]
    state.clone.set_ref(layout.snapshot_ref(bead), head)
    (state.settings.bookbag_dir / f"{bead}.json").unlink()
    (row,) = recover([], state.repo, state.settings)
    assert (row["bead"], row["task_id"], row["commit"]) == (bead, "", head)
    assert recover([bead], state.repo, state.settings) == [row]


def test_a_tree_that_could_not_be_saved_is_saved_now_or_said(state: State):
    bead = state.running()
    workspace = GitLeafWorktrees(state.settings).create(bag_of(bead))
    (workspace.path / "left").write_text("left")
    bookbag.locked_update_bookbag(bead, by="leaf", status="failed", reason="disk_full")
    record = layout.leaf_record_path(state.settings, bead)
    record.write_text(json.dumps({**json.loads(record.read_text()), "salvage_failed": "No space left"}))
    held = workspace.path / "held"
    held.symlink_to("x")
    shutil.move(workspace.git_dir, aside := workspace.git_dir.with_suffix(".aside"))
    shutil.move(state.clone.path / "objects", objects := state.clone.path / "objects.aside")
    (row,) = recover([bead], state.repo, state.settings)
    assert row["branch"] == ""
    assert row["detail"]
    shutil.move(objects, state.clone.path / "objects")
    shutil.move(aside, workspace.git_dir)
    (row,) = recover([], state.repo, state.settings)
    assert git(state.repo, "show", f"{row['branch']}:left") == "left"
    assert (workspace.path / "left").exists()


def test_what_changed_nothing_and_who_is_at_work_are_told_as_such(state: State):
    idle = state.running()
    bookbag.locked_update_bookbag(
        idle, by="leaf", status="failed", reason="exit", summary="it had changed nothing"
    )
    (row,) = recover([idle], state.repo, state.settings)
    assert (row["branch"], row["ref"], row["detail"]) == ("", "", "it had changed nothing")


@pytest.mark.parametrize("bead", ["coder-general-00000000", "coder-other-00000001"])
def test_a_bead_that_is_not_this_repositorys_is_refused_and_nothing_made(state: State, bead: str):
    bookbag.write_bookbag(
        "coder-other-00000001",
        task="x",
        student="coder",
        domain="d",
        difficulty="easy",
        repo_key="another-12345678",
    )
    with pytest.raises(ConfigError, match=r"no such bead|it belongs to"):
        recover([bead], state.repo, state.settings)
    assert not state.settings.runs_dir.exists()
    assert branches(state) == {}

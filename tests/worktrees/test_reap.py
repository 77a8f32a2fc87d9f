"""Clean-up: nothing with work in it goes unsaved, nothing in use goes at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.errors import WorktreeError
from school.review.budget import used_by
from school.settings import Settings
from school.system import files
from school.worktrees import GitLeafWorktrees, SchoolClone, TeacherTrees, layout, reap, snapshot
from school.worktrees.salvage import salvage
from tests.support import git
from tests.support_git import bag_for, opened, repository_state

ONE, TWO = "coder-python-coding-00000001", "coder-python-coding-00000002"
NEEDED = {"task": "x", "student": "coder", "domain": "python", "difficulty": "easy"}


def _nobody(bead: str) -> bool:
    return False


def _rows(
    school: Settings, *, live: Callable[[str], bool] = _nobody, dry_run: bool = False, key: str | None = None
) -> dict[str, tuple[str, str]]:
    found = reap(school, repo_key=key, dry_run=dry_run, live=live)
    assert all(set(row) == {"worktree", "action", "why", "ref"} for row in found)
    return {Path(row["worktree"]).name: (row["action"], row["ref"]) for row in found}


@pytest.fixture
def place(repo: Path, school: Settings) -> tuple[dict[str, Any], SchoolClone]:
    repository, clone = opened(repo, school)
    return bag_for(repository, ONE), clone


def test_a_dead_leafs_work_is_saved_and_its_tree_goes(
    place: tuple[dict[str, Any], SchoolClone], repo: Path, school: Settings
) -> None:
    bag, clone = place
    before = repository_state(repo)
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "work").write_text("work")
    name = workspace.path.name
    assert _rows(school, dry_run=True) == {name: ("would_remove", f"refs/school/{ONE}")}
    assert (workspace.path / "work").exists()
    assert _rows(school, live=lambda bead: bead == ONE) == {name: ("kept", "")}
    assert _rows(school, key="another-12345678") == {}
    assert _rows(school, key=str(bag["repo_key"])) == {name: ("removed", f"refs/school/{ONE}")}
    assert clone.read_file(f"refs/school/{ONE}", "work") == b"work"
    assert not workspace.path.exists()
    assert not workspace.git_dir.exists()
    assert _rows(school) == {}
    assert repository_state(repo) == before


def test_what_was_saved_is_told_before_its_tree_goes(
    place: tuple[dict[str, Any], SchoolClone], school: Settings
) -> None:
    bag, _ = place
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "work").write_text("work")
    heard = []

    def refuse(ref: str) -> None:
        heard.append((ref, (workspace.path / "work").read_text()))
        if len(heard) == 1:
            raise WorktreeError("it cannot be taken now")

    for action in ("kept", "removed"):
        rows = reap(school, repo_key=None, dry_run=False, live=_nobody, saved=refuse)
        assert [row["action"] for row in rows] == [action]
    assert heard == [(f"refs/school/{ONE}", "work")] * 2
    assert not workspace.path.exists()


def test_what_cannot_be_saved_is_kept_and_said(
    place: tuple[dict[str, Any], SchoolClone], school: Settings
) -> None:
    bag, clone = place
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "work").write_text("work")
    clone.path.rename(clone.path.with_name("away"))
    rows = reap(school, repo_key=None, dry_run=False, live=_nobody)
    mine = next(row for row in rows if row["worktree"] == str(workspace.path))
    assert mine["action"] == "kept"
    assert "could not be saved" in mine["why"]
    assert (workspace.path / "work").read_text() == "work"
    clone.path.with_name("away").rename(clone.path)
    assert _rows(school)[workspace.path.name][0] == "removed"
    assert clone.read_file(f"refs/school/{ONE}", "work") == b"work"


def test_a_vanished_tree_leaves_its_commits(
    place: tuple[dict[str, Any], SchoolClone], school: Settings
) -> None:
    bag, clone = place
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "work").write_text("work")
    git(workspace.path, "add", ".")
    git(workspace.path, "commit", "-q", "-m", "work")
    git(workspace.path, "worktree", "lock", "--reason", "pid 999999", str(workspace.path))
    shutil.rmtree(workspace.path)
    assert _rows(school) == {workspace.path.name: ("removed", f"refs/school/agent/{ONE}")}
    assert clone.read_file(f"refs/school/agent/{ONE}", "work") == b"work"
    assert not workspace.git_dir.exists()


def test_a_lost_record_loses_no_work(place: tuple[dict[str, Any], SchoolClone], school: Settings) -> None:
    bag, clone = place
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "committed").write_text("c")
    git(workspace.path, "add", ".")
    git(workspace.path, "commit", "-q", "-m", "c")
    (workspace.path / "uncommitted").write_text("u")
    layout.leaf_record_path(school, ONE).unlink()
    rows = _rows(school)
    assert rows[workspace.path.name] == ("kept", "")
    assert (workspace.path / "uncommitted").exists()
    assert rows[f"{ONE}.git"] == ("removed", f"refs/school/agent/{ONE}")
    assert clone.read_file(f"refs/school/agent/{ONE}", "committed") == b"c"


def test_an_unreadable_record_keeps_its_tree(
    place: tuple[dict[str, Any], SchoolClone], school: Settings
) -> None:
    bag, _ = place
    workspace = GitLeafWorktrees(school).create(bag)
    layout.leaf_record_path(school, ONE).write_text("{")
    rows = _rows(school)
    assert rows[f"{ONE}.json"] == ("kept", "")
    assert rows[workspace.path.name] == ("kept", "")
    assert workspace.path.is_dir()
    assert workspace.git_dir.is_dir()


def test_a_removal_that_was_killed_is_finished(
    place: tuple[dict[str, Any], SchoolClone], school: Settings
) -> None:
    """Half a tree must not be saved over the whole one."""
    bag, clone = place
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "work").write_text("work")
    saved = snapshot(workspace, bag=bag, settings=school)
    record_path = layout.leaf_record_path(school, ONE)
    for step in ("recorded", "renamed", "half gone", "tree gone"):
        if step == "recorded":
            record = layout.read_record(record_path)
            assert record is not None
            record.removing = True
            layout.write_record(record_path, record)
            (workspace.path / "work").unlink()
        elif step == "renamed":
            workspace.path.rename(workspace.path.with_name(layout.REMOVING + workspace.path.name))
        assert snapshot(workspace, bag=bag, settings=school) == saved
        assert clone.ref(saved.ref) == saved.head_commit
    assert _rows(school) == {workspace.path.name: ("removed", f"refs/school/{ONE}")}
    assert not workspace.path.parent.exists()
    assert clone.ref(saved.ref) == saved.head_commit


def test_what_nobody_made_is_kept_and_listed(
    place: tuple[dict[str, Any], SchoolClone], school: Settings
) -> None:
    bag, _ = place
    folder = school.worktrees_dir / str(bag["repo_key"])
    (folder / "full").mkdir(parents=True)
    (folder / "full" / "x").write_text("x")
    (folder / "empty").mkdir()
    (folder / (layout.REMOVING + "study-x")).mkdir()
    (folder / (layout.REMOVING + "study-x") / "rest").write_text("rest")
    (school.bead_repos_dir / f"{TWO}.git").mkdir(parents=True)
    assert _rows(school) == {
        "full": ("kept", ""),
        "empty": ("removed", ""),
        ".removing-study-x": ("removed", ""),
        f"{TWO}.git": ("removed", ""),
    }
    assert (folder / "full" / "x").exists()
    assert sorted(path.name for path in folder.iterdir()) == ["full"]


def test_teachers_stay_while_their_repository_does(
    place: tuple[dict[str, Any], SchoolClone], repo: Path, school: Settings
) -> None:
    bag, clone = place
    path = TeacherTrees("cto", school).ensure(bag)
    assert _rows(school) == {}
    assert path.is_dir()
    shutil.rmtree(path)
    assert _rows(school) == {"teacher-cto": ("removed", "")}
    assert list((clone.path / "worktrees").iterdir()) == []
    TeacherTrees("cto", school).ensure(bag)
    repo.rename(repo.with_name("moved"))
    assert _rows(school) == {"teacher-cto": ("removed", "")}
    assert not path.exists()


def test_ten_leaves_leave_nothing(place: tuple[dict[str, Any], SchoolClone], school: Settings) -> None:
    bag, clone = place
    leaves = GitLeafWorktrees(school)
    for number in range(10):
        one = {**bag, "bead": f"coder-python-coding-{number:08d}"}
        workspace = leaves.create(one)
        (workspace.path / "w").write_text(str(number))
        snapshot(workspace, bag=one, settings=school)
        leaves.remove(workspace)
    assert not school.worktrees_dir.exists() or list(school.worktrees_dir.iterdir()) == []
    assert list(school.bead_repos_dir.iterdir()) == []
    assert list(school.worktree_records_dir.iterdir()) == []
    assert list((clone.path / "scratch").iterdir()) == []


def test_what_lies_beside_the_trees_goes_when_the_bead_is_over(
    place: tuple[dict[str, Any], SchoolClone], school: Settings
) -> None:
    """A conductor that died between archive and removal, or a record that somebody took away."""
    bag, _ = place
    key = str(bag["repo_key"])

    def leave(bead: str) -> list[Path]:
        places = [school.outputs_dir / bead, school.scratch_dir / bead, school.logs_dir / f"leaf-{bead}.log"]
        places += [school.processes_dir / f"{bead}.leaf.lock{end}" for end in ("", ".owner")]
        for path in places:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("") if path.suffix else path.mkdir()
        return places

    over, living, others = leave(ONE), leave(TWO), leave("coder-python-coding-00000003")
    kept = leave("teacher-cto")[1], leave(f"conductor-{key}")[1]
    bookbag.write_bookbag(**{**bag, "bead": TWO, **NEEDED})
    foreign = {**bag, "bead": others[0].name, "repo_key": "another-12345678", "status": "failed"}
    bookbag.write_bookbag(**{**foreign, **NEEDED})
    bookbag.archive_bookbag(others[0].name)
    assert _rows(school, key=key, dry_run=True) == {ONE: ("would_remove", "")}
    assert all(path.exists() for path in over)
    assert _rows(school, key=key) == {ONE: ("removed", "")}
    assert not any(path.exists() for path in over)
    assert all(path.exists() for path in (*living, *others, *kept))


def test_a_tree_that_went_unsaved_leaves_nothing_once_its_commits_are_saved(
    place: tuple[dict[str, Any], SchoolClone], school: Settings
) -> None:
    bag, clone = place
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "own").write_text("committed")
    git(workspace.path, "add", "own")
    git(workspace.path, "commit", "-q", "-m", "Own")
    own = git(workspace.path, "rev-parse", "HEAD")
    shutil.rmtree(workspace.path)
    with pytest.raises(WorktreeError):
        snapshot(workspace, bag=bag, settings=school)
    with pytest.raises(WorktreeError, match="refused to remove: not saved"):
        GitLeafWorktrees(school).remove(workspace)
    assert set(_rows(school)) == {workspace.path.name}
    assert clone.has(own)
    assert not workspace.git_dir.exists()
    assert layout.read_record(layout.leaf_record_path(school, ONE)) is None
    assert _rows(school) == {}


@pytest.mark.parametrize("torn", ["", "{", "[]", '{"name": 3}'])
def test_a_torn_record_is_made_again_from_its_bookbag(
    place: tuple[dict[str, Any], SchoolClone], school: Settings, torn: str
) -> None:
    bag, clone = place
    bookbag.write_bookbag(**{**NEEDED, **bag, "status": "running"})
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "work").write_text("work")
    path = layout.leaf_record_path(school, ONE)
    path.write_text(torn)
    name = workspace.path.name
    assert _rows(school, dry_run=True) == {path.name: ("kept", ""), name: ("kept", "")}
    assert path.read_text() == torn
    assert _rows(school, live=lambda bead: bead == ONE) == {name: ("kept", "")}
    assert layout.read_record(path).path == str(workspace.path)  # type: ignore[union-attr]
    assert [kept.read_text() for kept in school.corrupt_dir.iterdir()] == [torn]
    assert _rows(school) == {name: ("removed", f"refs/school/{ONE}")}
    assert clone.read_file(f"refs/school/{ONE}", "work") == b"work"
    assert not workspace.path.exists()
    assert not path.exists()


def test_a_dead_leaf_with_a_torn_record_is_salvaged_like_any_other(
    place: tuple[dict[str, Any], SchoolClone], school: Settings
) -> None:
    bag, clone = place
    bookbag.write_bookbag(**{**NEEDED, **bag, "status": "running"})
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "work").write_text("work")
    layout.leaf_record_path(school, ONE).write_text("{")
    saved = salvage(ONE, reason="leaf_died", settings=school)
    assert saved is not None
    assert (saved["status"], saved["reason"], saved["files_changed"]) == ("failed", "leaf_died", ["work"])
    assert clone.read_file(saved["head_commit"], "work") == b"work"


def test_a_torn_record_of_a_bead_that_nobody_knows_is_only_listed(
    place: tuple[dict[str, Any], SchoolClone], school: Settings
) -> None:
    bag, _ = place
    workspace = GitLeafWorktrees(school).create(bag)
    path = layout.leaf_record_path(school, ONE)
    path.write_text("{")
    assert _rows(school) == {path.name: ("kept", ""), workspace.path.name: ("kept", "")}
    assert path.read_text() == "{"


@pytest.mark.parametrize(
    ("last", "output", "cost"),
    [({"cost_usd": 0.25}, 1000, 0.75), ({"cost_usd": None}, 1000, None), ({"output_tokens": "x"}, 500, 1.0)],
)
def test_what_the_model_of_a_dead_leaf_had_used_counts(
    place: tuple[dict[str, Any], SchoolClone],
    school: Settings,
    last: dict[str, Any],
    output: int,
    cost: float | None,
) -> None:
    """Else each kill would make the budget whole again."""
    bag, _ = place
    bookbag.write_bookbag(**{**NEEDED, **bag, "status": "running"})
    GitLeafWorktrees(school).create(bag)
    transcript = school.outputs_dir / ONE / "transcript.jsonl"
    files.ensure_dir(transcript.parent)
    first = {"requests": 1, "input_tokens": 3000, "output_tokens": 500, "cost_usd": 0.5}
    for usage in ({}, first, {**first, **last}):
        files.append_json_line(transcript, {"kind": "assistant", "usage": usage})
    saved = salvage(ONE, reason="conductor_died", settings=school)
    assert saved is not None
    assert saved["usage"] == {"requests": 2, "input_tokens": 6000, "output_tokens": output, "cost_usd": cost}
    assert used_by(saved) == (6000 + output, cost or 0)

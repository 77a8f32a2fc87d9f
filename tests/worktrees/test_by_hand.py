"""A working tree that somebody takes away, moves, locks or robs of its git while an agent works in it."""

from __future__ import annotations

from pathlib import Path

import pytest

import bookbag
from school.settings import Settings
from school.worktrees import GitLeafWorktrees, SchoolClone, reap, snapshot
from tests.leaves import content, new_bead, run, script
from tests.support import git
from tests.support_git import bag_for, opened, repository_state

WORK = """
import os, pathlib, shutil, subprocess
tree = pathlib.Path.cwd()
def git(*words): return subprocess.run(["git", *words], cwd=tree, check=True, capture_output=True, text=True).stdout.strip()
pathlib.Path("committed").write_text("c")
git("add", ".")
git("commit", "-q", "-m", "c")
pathlib.Path("left").write_text("l")
common = pathlib.Path(git("rev-parse", "--path-format=absolute", "--git-common-dir"))
"""


def work(repo: Path, school: Settings, by_hand: str, *, status: int = 0):
    """The bag of a student in whose tree *by_hand* happens once its work is there."""
    before = repository_state(repo)
    bead = new_bead(repo, script(WORK + by_hand), terms={"sandbox": {"mode": "off"}})
    bag = run(bead, school, status=status)
    assert repository_state(repo) == before
    return bag


@pytest.mark.parametrize(
    "by_hand",
    [
        'git("worktree", "lock", "--reason", "pid 999999", str(tree))',
        'pathlib.Path(".git").unlink()',
        'pathlib.Path(".git").write_text("gitdir: /nowhere")',
        "shutil.rmtree(common / 'worktrees')",
        "shutil.rmtree(common)",
    ],
    ids=["locked", "its git file deleted", "its git file leads away", "unregistered", "its repository gone"],
)
def test_whatever_becomes_of_its_git_the_work_is_handed_over_and_nothing_stays(
    by_hand: str, repo: Path, school: Settings
) -> None:
    bag = work(repo, school, by_hand)
    assert (bag["status"], bag["files_changed"]) == ("open", ["committed", "left"])
    assert content(bag, school, "left") == "l"
    rows = reap(school, repo_key=None, dry_run=False, live=lambda _: False)
    assert all(row["action"] == "removed" for row in rows), rows
    assert not list(school.worktrees_dir.rglob("study-*"))
    assert list(school.bead_repos_dir.iterdir()) == []


@pytest.mark.parametrize("moved", [False, True], ids=["removed", "moved"])
def test_a_tree_that_is_gone_is_said_and_its_commits_are_saved(
    moved: bool, repo: Path, school: Settings, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    by_hand = f'git("worktree", "move", str(tree), {str(elsewhere)!r})' if moved else "shutil.rmtree(tree)"
    bag = work(repo, school, by_hand, status=1)
    assert (bag["status"], bag["reason"]) == ("failed", "machine")
    assert "the working tree is gone" in bag["summary"]
    reap(school, repo_key=None, dry_run=False, live=lambda _: False)
    clone = SchoolClone.at(bag["repo_key"], settings=school)
    assert clone.read_file(f"refs/school/agent/{bag['bead']}", "committed") == b"c"
    if moved:
        assert (elsewhere / "left").read_text() == "l"


def test_a_locked_tree_of_a_dead_process_is_saved_and_goes(repo: Path, school: Settings) -> None:
    repository, clone = opened(repo, school)
    workspace = GitLeafWorktrees(school).create(bag_for(repository))
    (workspace.path / "left").write_text("l")
    git(workspace.path, "worktree", "lock", "--reason", "pid 999999", str(workspace.path))
    (row,) = reap(school, repo_key=None, dry_run=False, live=lambda _: False)
    assert (row["action"], row["ref"]) == ("removed", f"refs/school/{workspace.bead}")
    assert clone.read_file(row["ref"], "left") == b"l"
    assert not workspace.path.exists()


def test_a_link_to_the_repository_in_the_trees_place_is_not_followed_when_it_is_disposed_of(
    repo: Path, school: Settings
) -> None:
    by_hand = f"\nos.rename(tree, str(tree) + '.moved'); os.symlink({str(repo)!r}, tree)"
    bag = work(repo, school, by_hand, status=1)
    assert "the working tree is gone" in bag["summary"]
    before = repository_state(repo)
    tree = Path(bag["worktree"])
    rows = reap(school, repo_key=None, dry_run=False, live=lambda _: False)
    assert [
        (row["action"], "is a symlink" in row["why"]) for row in rows if row["worktree"] == str(tree)
    ] == [("kept", True)]
    assert repository_state(repo) == before
    # Nothing was lost by waiting: put right by hand, it is all saved.
    tree.unlink()
    tree.with_name(tree.name + ".moved").rename(tree)
    reap(school, repo_key=None, dry_run=False, live=lambda _: False)
    clone = SchoolClone.at(bag["repo_key"], settings=school)
    assert clone.read_file(f"refs/school/{bag['bead']}", "left") == b"l"
    assert clone.read_file(f"refs/school/agent/{bag['bead']}", "committed") == b"c"
    assert not tree.exists()
    assert repository_state(repo) == before


def test_a_clone_that_was_deleted_in_the_middle_keeps_the_tree_until_there_is_one_again(
    repo: Path, school: Settings
) -> None:
    bead = new_bead(repo, script(WORK), terms={"sandbox": {"mode": "off"}})
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    clone = SchoolClone.at(bag["repo_key"], settings=school)
    by_hand = f"\nshutil.rmtree({str(clone.path)!r})"
    bag = work(repo, school, by_hand, status=1)
    assert "could not be saved" in bag["summary"]
    tree = Path(bag["worktree"])
    assert (tree / "left").read_text() == "l"
    reap(school, repo_key=None, dry_run=False, live=lambda _: False)
    assert (tree / "left").read_text() == "l"
    opened(repo, school)
    rows = reap(school, repo_key=None, dry_run=False, live=lambda _: False)
    assert (str(tree), "removed") in [(row["worktree"], row["action"]) for row in rows], rows
    made = SchoolClone.at(bag["repo_key"], settings=school)
    assert made.read_file(f"refs/school/{bag['bead']}", "left") == b"l"


def test_what_an_agent_committed_before_a_crash_counts_against_the_recorded_base(
    repo: Path, school: Settings
) -> None:
    repository, clone = opened(repo, school)
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "committed").write_text("c")
    git(workspace.path, "add", ".")
    git(workspace.path, "commit", "-q", "-m", "c")
    # Nothing is left to do for who comes after: HEAD is clean, and the work is all there.
    assert git(workspace.path, "status", "--porcelain") == ""
    saved = snapshot(workspace, bag=bag, settings=school)
    assert saved.files_changed == ["committed"]
    assert clone.git.text("rev-parse", f"{saved.head_commit}^") == repository.head_commit


def test_files_that_a_status_without_untracked_ones_hides_are_work(repo: Path, school: Settings) -> None:
    repository, _ = opened(repo, school)
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    git(workspace.path, "config", "status.showUntrackedFiles", "no")
    (workspace.path / "new").write_text("n")
    assert git(workspace.path, "status", "--porcelain") == ""
    assert snapshot(workspace, bag=bag, settings=school).files_changed == ["new"]

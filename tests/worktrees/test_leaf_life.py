"""A leaf's working tree from its making to its removal, and that the user's repository never notices."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from school.errors import WorktreeError
from school.settings import Settings
from school.worktrees import (
    GitLeafWorktrees,
    inspect_repository,
    leaf_worktrees,
    publish,
    snapshot,
    workspace_of,
)
from tests.support import git
from tests.support_git import bag_for, opened, repository_state, tree_state


def test_a_tree_stands_at_base_and_leaves_no_trace(repo: Path, school: Settings) -> None:
    before = repository_state(repo)
    repository, _ = opened(repo, school)
    bag = bag_for(repository)
    workspace = leaf_worktrees("git", settings=school).create(bag)
    assert workspace.path == school.worktrees_dir / repository.key / "study-coder-a1b2c3d4"
    assert tree_state(workspace.path) == tree_state(repo)
    assert git(workspace.path, "rev-parse", "HEAD") == repository.head_commit
    assert git(workspace.path, "status", "--porcelain") == ""
    assert workspace_of(bag, settings=school) == workspace
    assert repository_state(repo) == before
    assert git(repo, "worktree", "list").count("\n") == 0


def test_work_is_saved_published_and_removed(repo: Path, school: Settings) -> None:
    before = repository_state(repo)
    repository, clone = opened(repo, school)
    bag = bag_for(repository)
    leaves = GitLeafWorktrees(school)
    workspace = leaves.create(bag)
    (workspace.path / "calc" / "core.py").write_text("def add(a, b):\n    return a + b\n")
    (workspace.path / "new file.txt").write_text("new\n")
    (workspace.path / "README.md").unlink()
    saved = snapshot(workspace, bag=bag, settings=school)
    assert saved.files_changed == ["README.md", "calc/core.py", "new file.txt"]
    assert saved.ref == "refs/school/coder-python-coding-a1b2c3d4"
    assert (saved.rescue_ref, saved.agent_ref, saved.notes) == ("", "", [])
    assert publish(clone, repository, saved.head_commit, saved.ref) is True
    assert publish(clone, repository, saved.head_commit, saved.ref) is False
    assert git(repo, "show", f"{saved.ref}:new file.txt") == "new"
    assert git(
        repo, "show", "-s", "--format=%an <%ae>|%P|%s|%(trailers:key=School-Bead,valueonly)", saved.ref
    ) == (
        f"School <school@localhost>|{repository.head_commit}|Make add quicker|coder-python-coding-a1b2c3d4\n"
    ).rstrip("\n")
    leaves.remove(workspace)
    leaves.remove(workspace)
    assert not workspace.path.exists()
    assert not workspace.git_dir.exists()
    assert list(school.worktree_records_dir.glob("*.json")) == []
    assert list(school.bead_repos_dir.iterdir()) == []
    assert repository_state(repo) == before


def test_saving_twice_gives_the_same_commit(repo: Path, school: Settings) -> None:
    repository, clone = opened(repo, school)
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "a").write_text("1")
    first = snapshot(workspace, bag=bag, settings=school)
    assert snapshot(workspace, bag=bag, message="Another message", settings=school) == first
    (workspace.path / "a").write_text("2")
    second = snapshot(workspace, bag=bag, settings=school)
    assert second.head_commit != first.head_commit
    earlier = f"refs/school/earlier/{workspace.bead}/snapshot-{first.head_commit[:12]}"
    assert clone.ref(earlier) == first.head_commit


def test_an_unchanged_tree_is_one_commit_without_a_change(repo: Path, school: Settings) -> None:
    repository, clone = opened(repo, school)
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    saved = snapshot(workspace, bag=bag, settings=school)
    assert saved.files_changed == []
    assert saved.tree == clone.tree_of(repository.head_commit)


def test_nothing_unsaved_is_removed(repo: Path, school: Settings) -> None:
    repository, _ = opened(repo, school)
    bag = bag_for(repository)
    leaves = GitLeafWorktrees(school)
    workspace = leaves.create(bag)
    (workspace.path / "precious").write_text("work")
    with pytest.raises(WorktreeError, match="no snapshot of it yet"):
        leaves.remove(workspace)
    assert (workspace.path / "precious").read_text() == "work"


@pytest.mark.parametrize(
    "where", ["", ".", "/", "the repository", "a symlink", "above", "the folder", "outside"]
)
def test_what_is_no_leaf_is_never_removed(where: str, repo: Path, school: Settings, tmp_path: Path) -> None:
    repository, _ = opened(repo, school)
    leaves = GitLeafWorktrees(school)
    bag = bag_for(repository)
    workspace = leaves.create(bag)
    snapshot(workspace, bag=bag, settings=school)
    link = workspace.path.with_name("study-link")
    link.symlink_to(repo)
    (tmp_path / "elsewhere").mkdir()
    place = {
        "the repository": repo,
        "a symlink": link,
        "above": school.worktrees_dir,
        "the folder": workspace.path.parent,
        "outside": tmp_path / "elsewhere",
    }.get(where, Path(where))
    before = repository_state(repo)
    wrong = type(workspace)(
        **{**{name: getattr(workspace, name) for name in workspace.__slots__}, "path": place}
    )
    with pytest.raises(WorktreeError, match="refused to remove"):
        leaves.remove(wrong)
    assert repository_state(repo) == before
    assert workspace.path.is_dir()
    assert os.path.lexists(place)


def test_git_that_fails_leaves_nothing(
    repo: Path, school: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, _ = opened(repo, school)
    real = shutil.which("git")
    for verdict in ("exit 1", "exit 0"):
        shim = tmp_path / verdict.replace(" ", "") / "git"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\ncase "$*" in *"worktree add"*) {verdict};; esac\nexec {real} "$@"\n')
        shim.chmod(0o755)
        with monkeypatch.context() as patched:
            patched.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
            with pytest.raises(WorktreeError, match="could not be made"):
                GitLeafWorktrees(school).create(bag_for(repository))
        assert list(school.bead_repos_dir.iterdir()) == []
        assert list(school.worktree_records_dir.iterdir()) == []
        assert not (school.worktrees_dir / repository.key / "study-coder-a1b2c3d4").exists()


def test_an_existing_directory_is_not_taken_over(repo: Path, school: Settings) -> None:
    repository, _ = opened(repo, school)
    place = school.worktrees_dir / repository.key / "study-coder-a1b2c3d4"
    place.mkdir(parents=True)
    (place / "somebody's").write_text("work")
    with pytest.raises(WorktreeError, match="was not made for"):
        GitLeafWorktrees(school).create(bag_for(repository))
    assert (place / "somebody's").read_text() == "work"


def test_two_leaves_share_nothing(repo: Path, school: Settings) -> None:
    repository, _ = opened(repo, school)
    leaves = GitLeafWorktrees(school)
    one = leaves.create(bag_for(repository, "coder-python-coding-00000001"))
    two = leaves.create(bag_for(repository, "coder-python-coding-00000002"))
    git(one.path, "checkout", "-q", "-b", "mine")
    (one.path / "x").write_text("x")
    git(one.path, "stash", "-u")
    git(one.path, "config", "user.name", "Somebody Else")
    git(one.path, "gc", "-q", "--prune=now")
    assert git(two.path, "branch", "--list", "mine") == ""
    assert git(two.path, "stash", "list") == ""
    assert git(two.path, "config", "user.name") == "Student"
    assert git(two.path, "log", "-1", "--format=%s") == "Begin"


def test_many_at_once(repo: Path, school: Settings) -> None:
    repository, clone = opened(repo, school)

    def live(number: int) -> str:
        bag = bag_for(repository, f"coder-python-coding-{number:08d}")
        leaves = GitLeafWorktrees(school)
        workspace = leaves.create(bag)
        (workspace.path / "mine").write_text(str(number))
        git(workspace.path, "add", ".")
        git(workspace.path, "commit", "-q", "-m", str(number))
        saved = snapshot(workspace, bag=bag, settings=school)
        publish(clone, repository, saved.head_commit, saved.ref)
        leaves.remove(workspace)
        return git(repo, "show", f"{saved.ref}:mine") + clone.git.text("show", f"{saved.agent_ref}:mine")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(live, range(12))) == [f"{number}{number}" for number in range(12)]
    assert not list(school.worktrees_dir.rglob("mine"))


def test_the_repository_is_found_by_its_common_directory(repo: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked tree ü"
    git(repo, "worktree", "add", "-q", "-b", "side", str(linked))
    one, two = inspect_repository(repo), inspect_repository(linked)
    assert one.key == two.key
    assert one.key == f"calc-repo-{one.hash8}"
    assert (two.path, two.head_ref) == (linked, "refs/heads/side")
    assert inspect_repository(repo / "calc").path == repo

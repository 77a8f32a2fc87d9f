"""What the user's repository gains, and that nothing else in it moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from school.errors import GitError, MachineError, WorktreeError
from school.settings import Settings
from school.worktrees import (
    GitLeafWorktrees,
    Repository,
    SchoolClone,
    branch_name_ok,
    branch_name_problem,
    create_branch,
    inspect_repository,
    publish,
    snapshot,
)
from tests.support import git
from tests.support_git import bag_for, opened, repository_state

REF = "refs/school/coder-python-coding-a1b2c3d4"


@pytest.fixture
def work(repo: Path, school: Settings) -> tuple[Repository, SchoolClone, str]:
    repository, clone = opened(repo, school)
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "x").write_text("x")
    return repository, clone, snapshot(workspace, bag=bag, settings=school).head_commit


def test_dirty_mid_rebase_and_on_another_branch(
    work: tuple[Repository, SchoolClone, str], repo: Path
) -> None:
    git(repo, "checkout", "-q", "-b", "feature")
    (repo / "README.md").write_text("theirs\n")
    git(repo, "commit", "-q", "-am", "theirs")
    git(repo, "checkout", "-q", "main")
    (repo / "README.md").write_text("ours\n")
    git(repo, "commit", "-q", "-am", "ours")
    (repo / "README.md").write_text("stashed\n")
    git(repo, "stash", "-q")
    (repo / ".git" / "rebase-merge").mkdir()
    (repo / "README.md").write_text("dirty\n")
    (repo / "untracked").write_text("u")
    git(repo, "add", "untracked")
    git(repo, "config", "core.logAllRefUpdates", "always")
    git(repo, "config", "fetch.writeCommitGraph", "true")
    before = repository_state(repo)
    repository, clone, head = work
    publish(clone, repository, head, REF)
    assert create_branch(repository, "school/quick-add", head) is True
    assert create_branch(repository, "school/quick-add", head) is True
    assert repository_state(repo) == before
    assert git(repo, "rev-parse", "school/quick-add", REF).split() == [head, head]
    assert git(repo, "diff", "--stat", repository.head_commit, head).endswith("1 insertion(+)")
    git(repo, "fsck", "--strict", "--connectivity-only")


def test_what_exists_is_never_moved(work: tuple[Repository, SchoolClone, str], repo: Path) -> None:
    repository, clone, head = work
    git(repo, "branch", "school/taken")
    git(repo, "update-ref", REF, "HEAD")
    before = repository_state(repo)
    with pytest.raises(WorktreeError, match="is there already"):
        publish(clone, repository, head, REF)
    assert create_branch(repository, "school/taken", repository.head_commit) is True
    git(repo, "update-ref", "-d", REF)
    publish(clone, repository, head, REF)
    assert create_branch(repository, "school/taken", head) is False
    assert git(repo, "rev-parse", "school/taken") == repository.head_commit
    assert repository_state(repo) == before


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("school/x", ""),
        ("school/team-団", ""),
        ("taken", ""),
        ("blocked/x", "there is a branch 'blocked'"),
        ("blocked/x/y", "there is a branch 'blocked'"),
        ("deep", "there is a branch 'deep/er'"),
        ("school/..", "git allows no such name"),
        ("-rf", "git allows no such name"),
        ("a b", "git allows no such name"),
        ("a\nb", "git allows no such name"),
        ("a\0b", "git allows no such name"),
        ("", "git allows no such name"),
        ("HEAD", "git allows no such name"),
        ("x.lock", "git allows no such name"),
        ("school/" + "x" * 251, "longer than"),
    ],
)
def test_which_branches_git_can_have(name: str, problem: str, repo: Path) -> None:
    for branch in ("blocked", "deep/er", "taken"):
        git(repo, "branch", branch)
    repository = inspect_repository(repo)
    said = branch_name_problem(repository, name)
    assert problem in said
    assert bool(said) == bool(problem)
    assert branch_name_ok(repository, name) is not bool(problem)


def test_a_branch_named_school_is_said(work: tuple[Repository, SchoolClone, str], repo: Path) -> None:
    repository, clone, head = work
    git(repo, "branch", "school")
    publish(clone, repository, head, REF)
    with pytest.raises(WorktreeError, match="there is a branch 'school'"):
        create_branch(repository, "school/quick-add", head)


def test_a_crash_between_objects_and_ref_is_made_good(
    work: tuple[Repository, SchoolClone, str], repo: Path
) -> None:
    repository, clone, head = work
    git(repo, "fetch", "-q", "--no-write-fetch-head", str(clone.path), head)
    assert publish(clone, repository, head, REF) is True
    assert git(repo, "rev-parse", REF) == head


def test_a_commit_that_is_nowhere(work: tuple[Repository, SchoolClone, str], repo: Path) -> None:
    repository, clone, _ = work
    before = repository_state(repo)
    with pytest.raises(WorktreeError, match="did not take commit"):
        publish(clone, repository, "1" * 40, REF)
    with pytest.raises((WorktreeError, GitError)):
        create_branch(repository, "school/x", "1" * 40)
    assert repository_state(repo) == before


def test_a_repository_that_is_gone(work: tuple[Repository, SchoolClone, str], repo: Path) -> None:
    repository, clone, head = work
    repo.rename(repo.with_name("moved"))
    with pytest.raises(MachineError, match="is gone"):
        publish(clone, repository, head, REF)

"""A git that fails, or that says it did what it did not: a clear error, nothing accepted, nothing lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from school.errors import MachineError, SchoolError, WorktreeError
from school.settings import Settings
from school.worktrees import (
    GitLeafWorktrees,
    SchoolClone,
    TeacherTrees,
    create_branch,
    inspect_repository,
    publish,
    reap,
    snapshot,
)
from tests.support import git
from tests.support_git import bag_for, opened, repository_state, tree_state

BEAD = "coder-python-coding-a1b2c3d4"
VERDICTS = {"lies": "cat > /dev/null; exit 0", "fails": "cat > /dev/null; echo broken >&2; exit 1"}


@pytest.fixture(params=VERDICTS)
def spoil_git(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``spoil_git("fetch")``: from then on that command of git does nothing; ``spoil_git("")`` heals it."""
    real = shutil.which("git")
    folder = tmp_path / "earlier-on-path"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def spoil(command: str) -> None:
        refused = f'case "$*" in {command}*) {VERDICTS[request.param]};; esac\n' if command else ""
        (folder / "new").write_text(f'#!/bin/sh\n{refused}exec {real} "$@"\n')
        (folder / "new").chmod(0o755)
        (folder / "new").rename(folder / "git")

    spoil("")  # where git lies may be looked up once
    return spoil


def live(repo: Path, school: Settings, spoil=lambda _: None, command: str = "") -> None:
    """A leaf's whole life and its delivery; the agent has committed one file and left another as it is."""
    repository, clone = opened(repo, school)
    bag = bag_for(repository)
    leaves = GitLeafWorktrees(school)
    workspace = leaves.create(bag)
    (workspace.path / "committed").write_text("c")
    git(workspace.path, "add", ".")
    git(workspace.path, "commit", "-q", "-m", "c")
    (workspace.path / "committed").unlink()
    (workspace.path / "left").write_text("l")
    spoil(command)
    saved = snapshot(workspace, bag=bag, settings=school)
    publish(clone, repository, saved.head_commit, saved.ref)
    create_branch(repository, "school/quick-add", saved.head_commit)
    leaves.remove(workspace)


@pytest.mark.parametrize(
    "command",
    ["clone", "init", "worktree", "rev-parse"],
)
def test_where_the_tree_cannot_be_made_nothing_is(
    command: str, repo: Path, school: Settings, spoil_git
) -> None:
    before = repository_state(repo)
    spoil_git(command)
    with pytest.raises(SchoolError):
        live(repo, school)
    assert not list(school.worktrees_dir.rglob("study-*"))
    spoil_git("")
    assert repository_state(repo) == before
    live(repo, school)
    assert git(repo, "show", "school/quick-add:left") == "l"


@pytest.mark.parametrize(
    "command", ["hash-object", "update-index", "write-tree", "commit-tree", "update-ref"]
)
def test_work_that_was_not_really_saved_stays_where_it_is(
    command: str, repo: Path, school: Settings, spoil_git
) -> None:
    before = repository_state(repo)
    with pytest.raises(WorktreeError, match="could not be saved, and is kept as it is"):
        live(repo, school, spoil_git, command)
    (tree,) = school.worktrees_dir.rglob("study-*")
    assert (tree / "left").read_text() == "l"
    spoil_git("")
    assert repository_state(repo) == before
    rows = reap(school, repo_key=None, dry_run=False, live=lambda _: False)
    assert [row["action"] for row in rows] == ["removed"]
    clone = SchoolClone.at(inspect_repository(repo).key, settings=school)
    assert clone.read_file(f"refs/school/{BEAD}", "left") == b"l"
    assert clone.read_file(f"refs/school/agent/{BEAD}", "committed") == b"c"


@pytest.mark.parametrize("command", ["fetch", '"update-ref --stdin"'])
def test_what_the_users_repository_did_not_really_take_is_not_delivered(
    command: str, repo: Path, school: Settings, spoil_git
) -> None:
    repository, clone = opened(repo, school)
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "left").write_text("l")
    saved = snapshot(workspace, bag=bag, settings=school)
    before = repository_state(repo)
    spoil_git(command)
    with pytest.raises(WorktreeError):
        publish(clone, repository, saved.head_commit, saved.ref)
    if command != "fetch":
        with pytest.raises(WorktreeError, match="could not be created"):
            create_branch(repository, "school/quick-add", repository.head_commit)
    spoil_git("")
    assert repository_state(repo) == before
    assert git(repo, "for-each-ref", "refs/school", "refs/heads/school") == ""
    assert publish(clone, repository, saved.head_commit, saved.ref)
    assert git(repo, "show", f"{saved.ref}:left") == "l"


@pytest.mark.parametrize("command", ["reset", "read-tree", '"worktree add"'])
def test_a_teacher_never_stands_elsewhere_than_at_the_commit_that_it_was_told(
    command: str, repo: Path, school: Settings, spoil_git
) -> None:
    opened(repo, school)
    (repo / "calc" / "core.py").write_text("SECOND = 1\n")
    git(repo, "commit", "-q", "-a", "-m", "Second")
    repository = inspect_repository(repo)
    SchoolClone.open(repository, commits=[repository.head_commit], settings=school)
    bag, cto = bag_for(repository), TeacherTrees("cto", school)
    if command != '"worktree add"':
        tree = cto.ensure(bag)
        cto.checkout(tree, git(repo, "rev-parse", "HEAD~"))
        (tree / "left by a test").write_text("x")
    spoil_git(command)
    with pytest.raises(SchoolError):
        cto.checkout(cto.ensure(bag), repository.head_commit)
    spoil_git("")
    tree = cto.ensure(bag)
    cto.checkout(tree, repository.head_commit)
    assert tree_state(tree) == tree_state(repo)


def test_a_repository_of_which_git_says_nothing_is_not_taken_for_the_folder_we_stand_in(
    repo: Path, spoil_git
) -> None:
    for command in ('"rev-parse --show-toplevel"', '"rev-parse --path-format"'):
        spoil_git(command)
        with pytest.raises(
            MachineError, match=r"git does not say|not in a working tree|not a git repository"
        ):
            inspect_repository(repo)

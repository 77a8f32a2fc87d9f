"""Submodules: empty unless asked for, out of the user's own copies, and never a place where work is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from school.errors import WorktreeError
from school.settings import Settings
from school.worktrees import GitLeafWorktrees, TeacherTrees, snapshot
from tests.support import git, write_tree
from tests.support_git import bag_for, opened, repository_state, tree_state


def _repository(root: Path, files: dict[str, str]) -> Path:
    root.mkdir()
    write_tree(root, files)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "begin")
    return root


def _add(repo: Path, inner: Path, path: str) -> None:
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), path)
    git(repo, "commit", "-q", "-m", f"add {path}")


@pytest.fixture
def nested(repo: Path, tmp_path: Path) -> Path:
    """``repo`` with submodule ``third party/lib``, which has one of its own."""
    deep = _repository(tmp_path / "deep", {"deep.txt": "deep\n"})
    inner = _repository(
        tmp_path / "inner", {"lib.c": "int x;\n", ".gitignore": "*.o\n", ".gitattributes": "*.c eol=crlf\n"}
    )
    (inner / "run").write_text("#!/bin/sh\n")
    (inner / "run").chmod(0o755)
    (inner / "link").symlink_to("lib.c")
    git(inner, "add", ".")
    git(inner, "commit", "-q", "-m", "more")
    _add(inner, deep, "sub/deep")
    _add(repo, inner, "third party/lib")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init", "--recursive")
    return repo


def test_they_are_empty_and_work_in_one_is_rescued(nested: Path, school: Settings) -> None:
    repository, clone = opened(nested, school)
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    folder = workspace.path / "third party" / "lib"
    assert list(folder.iterdir()) == []
    (workspace.path / "x").write_text("x")
    saved = snapshot(workspace, bag=bag, settings=school)
    assert (saved.files_changed, saved.notes, saved.rescue_ref) == (["x"], [], "")
    (folder / "work").write_text("work")
    saved = snapshot(workspace, bag=bag, settings=school)
    assert saved.files_changed == ["x"]
    assert clone.read_file(saved.rescue_ref, "third party/lib/work") == b"work"
    assert [note for note in saved.notes if note.startswith("submodule: ")] == saved.notes != []


def test_one_that_is_gone_is_a_change_and_one_that_became_a_file_is_kept(
    nested: Path, school: Settings
) -> None:
    repository, clone = opened(nested, school)
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    folder = workspace.path / "third party" / "lib"
    folder.rmdir()
    saved = snapshot(workspace, bag=bag, settings=school)
    assert (saved.files_changed, saved.notes) == (["third party/lib"], [])
    folder.write_text("now a file")
    saved = snapshot(workspace, bag=bag, settings=school)
    assert saved.files_changed == []
    assert clone.read_file(saved.rescue_ref, "third party/lib") == b"now a file"
    assert len(saved.notes) == 1


def test_asked_for_they_are_the_users_own(nested: Path, school: Settings) -> None:
    before = repository_state(nested)
    repository, clone = opened(nested, school)
    bag = bag_for(repository, terms={"submodules": True})
    workspace = GitLeafWorktrees(school).create(bag)
    folder = workspace.path / "third party" / "lib"
    assert set(tree_state(folder)) == {
        ".gitattributes", ".gitignore", ".gitmodules", "lib.c", "link", "run", "sub/deep/deep.txt",
    }  # fmt: skip
    assert (folder / "lib.c").read_bytes() == b"int x;\n"
    assert (folder / "run").stat().st_mode & 0o111
    (folder / "built.o").write_text("ignored by its own rules")
    saved = snapshot(workspace, bag=bag, settings=school)
    assert (saved.files_changed, saved.notes, saved.rescue_ref) == ([], [], "")
    (folder / "sub" / "deep" / "deep.txt").write_text("changed")
    saved = snapshot(workspace, bag=bag, settings=school)
    assert saved.files_changed == []
    assert clone.read_file(saved.rescue_ref, "third party/lib/sub/deep/deep.txt") == b"changed"
    assert saved.notes[0].startswith("submodule: ")
    shutil.rmtree(folder / "sub")
    assert snapshot(workspace, bag=bag, settings=school).notes[0].startswith("submodule: ")
    teachers = TeacherTrees("coo", school)
    path = teachers.ensure(bag)
    for _ in range(2):
        teachers.checkout(path, repository.head_commit)
        assert (path / "third party" / "lib" / "sub" / "deep" / "deep.txt").read_text() == "deep\n"
        (path / "third party" / "lib" / "left").write_text("left")
    teachers.ensure(bag_for(repository))
    teachers.checkout(path, repository.head_commit)
    assert list((path / "third party" / "lib").iterdir()) == []
    assert repository_state(nested) == before


def test_a_commit_that_the_user_does_not_have_stops_it(nested: Path, school: Settings) -> None:
    shutil.rmtree(nested / ".git" / "modules")
    repository, _ = opened(nested, school)
    with pytest.raises(WorktreeError, match="git submodule update --init --recursive"):
        GitLeafWorktrees(school).create(bag_for(repository, terms={"submodules": True}))
    assert list(school.bead_repos_dir.iterdir()) == []
    assert list(school.worktree_records_dir.iterdir()) == []

"""A teacher's tree: the commit and nothing else, whatever ran in it before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from school.errors import WorktreeError
from school.settings import Settings
from school.worktrees import SchoolClone, TeacherTrees, inspect_repository
from tests.support import git, write_tree
from tests.support_git import bag_for, opened, repository_state, tree_state


@pytest.fixture
def bag(repo: Path, school: Settings) -> dict[str, Any]:
    repository, _ = opened(repo, school)
    return bag_for(repository)


def test_it_is_found_again_and_made_again(bag: dict[str, Any], repo: Path, school: Settings) -> None:
    before = repository_state(repo)
    cto = TeacherTrees("cto", school)
    path = cto.ensure(bag)
    assert path == school.worktrees_dir / bag["repo_key"] / "teacher-cto"
    cto.checkout(path, bag["base_commit"])
    assert tree_state(path) == tree_state(repo)
    (path / "kept").write_text("kept")
    assert cto.ensure(bag) == path
    assert (path / "kept").exists()
    os.system(f"rm -rf '{path}'")  # noqa: S605 - a user's hand
    cto.checkout(cto.ensure(bag), bag["base_commit"])
    assert tree_state(path) == tree_state(repo)
    assert TeacherTrees("coo", school).ensure(bag) != path
    cto.remove_all()
    cto.remove_all()
    assert not path.exists()
    assert (path.parent / "teacher-coo").is_dir()
    assert repository_state(repo) == before


@pytest.mark.parametrize("name", ["index.lock", "school-index.lock", "HEAD.lock", "ORIG_HEAD.lock"])
def test_what_a_killed_git_held_holds_up_no_later_checkout(
    name: str, bag: dict[str, Any], repo: Path, school: Settings
) -> None:
    cto = TeacherTrees("cto", school)
    path = cto.ensure(bag)
    cto.checkout(path, bag["base_commit"])
    (Path((path / ".git").read_text().removeprefix("gitdir: ").strip()) / name).touch()
    (path / "left").write_text("left")
    cto.checkout(path, bag["base_commit"])
    assert tree_state(path) == tree_state(repo)


def test_each_checkout_is_exact_but_for_what_is_kept(
    bag: dict[str, Any], repo: Path, school: Settings
) -> None:
    write_tree(repo, {"calc/extra.py": "x = 1\n", ".gitattributes": "*.txt text eol=crlf\n", "a.txt": "a\n"})
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "link").symlink_to("README.md")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "more")
    repository, _ = opened(repo, school)
    cto = TeacherTrees("cto", school)
    path = cto.ensure(bag)
    cto.checkout(path, repository.head_commit)
    assert tree_state(path) == tree_state(repo)
    write_tree(
        path,
        {
            ".venv/bin/python": "env",
            "node_modules/m/x.js": "m",
            "sub/.venv/x": "nested keep",
            "sub/other": "left",
            "junk/deep/er": "left",
            "calc/__pycache__/core.pyc": "ignored, and left",
            "README.md": "changed",
        },
    )
    git(path, "init", "-q", "nested")
    (path / "calc" / "extra.py").unlink()
    (path / "run.sh").chmod(0o644)
    cto.checkout(path, bag["base_commit"], keep=[".venv", "node_modules", "sub/.venv", "/etc", "..", "."])
    left = {name for name in tree_state(path) if name.startswith((".venv", "node_modules", "sub"))}
    assert left == {".venv/bin/python", "node_modules/m/x.js", "sub/.venv/x"}
    assert set(tree_state(path)) - left == set(
        git(repo, "ls-tree", "-r", "--name-only", bag["base_commit"]).split()
    )
    cto.checkout(path, repository.head_commit, keep=[])
    assert tree_state(path) == tree_state(repo)


def _lying_index(path: Path, admin: Path, repo: Path) -> None:
    target = path / "calc" / "core.py"
    content, seen = bytearray(target.read_bytes()), target.stat()
    content[0] ^= 1
    target.write_bytes(bytes(content))
    git(path, "update-index", "--assume-unchanged", "calc/core.py")
    git(path, "update-index", "--skip-worktree", "README.md")
    (path / "README.md").write_text("changed")
    os.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _marker_elsewhere(path: Path, admin: Path, repo: Path) -> None:
    (path / ".git").write_text(f"gitdir: {repo / '.git'}\n")


def _marker_is_a_folder(path: Path, admin: Path, repo: Path) -> None:
    (path / ".git").unlink()
    git(path, "init", "-q")


def _marker_is_gone(path: Path, admin: Path, repo: Path) -> None:
    (path / ".git").unlink()


def _index_is_locked_and_wrecked(path: Path, admin: Path, repo: Path) -> None:
    (admin / "index.lock").write_text("")
    (admin / "index").write_bytes(b"junk")


def _entry_is_locked(path: Path, admin: Path, repo: Path) -> None:
    git(path, "worktree", "lock", "--reason", "pid 999999", str(path))
    os.system(f"rm -rf '{path}'")  # noqa: S605 - a user's hand


def _head_is_wrecked(path: Path, admin: Path, repo: Path) -> None:
    (admin / "HEAD").write_text("ref: refs/heads/nowhere\n")


def _tree_is_a_link(path: Path, admin: Path, repo: Path) -> None:
    os.system(f"rm -rf '{path}'")  # noqa: S605 - a hostile check
    path.symlink_to(repo)


def _on_a_branch(path: Path, admin: Path, repo: Path) -> None:
    git(path, "checkout", "-q", "-b", "mine")
    git(path, "commit", "-q", "--allow-empty", "-m", "mine")


def _folders_for_files(path: Path, admin: Path, repo: Path) -> None:
    (path / "README.md").unlink()
    write_tree(path, {"README.md/x": "x"})
    os.system(f"rm -rf '{path}/calc'")  # noqa: S605 - a hostile check
    (path / "calc").symlink_to(repo / "calc")


@pytest.mark.parametrize(
    "attack",
    [
        _lying_index,
        _marker_elsewhere,
        _marker_is_a_folder,
        _marker_is_gone,
        _index_is_locked_and_wrecked,
        _entry_is_locked,
        _head_is_wrecked,
        _tree_is_a_link,
        _on_a_branch,
        _folders_for_files,
    ],
)
def test_no_bead_leaves_anything_to_the_next(
    attack: Any, bag: dict[str, Any], repo: Path, school: Settings
) -> None:
    cto = TeacherTrees("cto", school)
    path = cto.ensure(bag)
    cto.checkout(path, bag["base_commit"])
    before = repository_state(repo)
    clone = SchoolClone.at(bag["repo_key"], settings=school)
    attack(path, clone.path / "worktrees" / "teacher-cto", repo)
    cto.checkout(cto.ensure(bag), bag["base_commit"])
    assert tree_state(path) == tree_state(repo)
    assert git(path, "rev-parse", "HEAD") == bag["base_commit"]
    assert git(path, "status", "--porcelain", "--ignored") == ""
    assert repository_state(repo) == before


def test_only_its_own_tree_is_touched(
    bag: dict[str, Any], repo: Path, school: Settings, tmp_path: Path
) -> None:
    cto = TeacherTrees("cto", school)
    coo_path = TeacherTrees("coo", school).ensure(bag)
    for wrong in (repo, tmp_path, coo_path, school.worktrees_dir):
        with pytest.raises(WorktreeError, match="not a working tree of cto"):
            cto.checkout(wrong, bag["base_commit"])
    assert inspect_repository(repo).dirty == 0


def test_an_unknown_commit_is_an_error(bag: dict[str, Any], school: Settings) -> None:
    cto = TeacherTrees("cto", school)
    with pytest.raises((WorktreeError, OSError)):
        cto.checkout(cto.ensure(bag), "1" * 40)


def test_submodules_stay_empty_and_are_no_difference(
    bag: dict[str, Any], repo: Path, school: Settings
) -> None:
    inner = repo.parent / "inner"
    inner.mkdir()
    write_tree(inner, {"i": "i"})
    git(inner, "init", "-q")
    git(inner, "add", ".")
    git(inner, "commit", "-q", "-m", "inner")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(repo, "commit", "-q", "-m", "with a submodule")
    repository, _ = opened(repo, school)
    cto = TeacherTrees("cto", school)
    path = cto.ensure(bag)
    cto.checkout(path, repository.head_commit)
    assert list((path / "sub").iterdir()) == []
    (path / "sub" / "left").write_text("left")
    cto.checkout(path, repository.head_commit)
    assert list((path / "sub").iterdir()) == []

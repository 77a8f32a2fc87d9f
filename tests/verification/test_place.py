from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from school.contracts import Terms
from school.errors import WorktreeError
from school.verification.environment import Environment
from school.verification.place import Place, copies_from
from tests.support import git, write_tree
from tests.verification.support import Case


@pytest.fixture
def place(case: Case) -> Place:
    case.stand(case.head({"calc/core.py": "def add(a, b):\n    return b + a\n", "new.txt": "n"}))
    return Place.find(case.worktree, case.root / "scratch")


def test_the_tree_is_brought_to_a_commit_whatever_was_done_to_it(case: Case, place: Place) -> None:
    head = git(case.worktree, "rev-parse", "HEAD")
    tree = case.worktree
    git(tree, "update-index", "--assume-unchanged", "calc/core.py")
    git(tree, "checkout", "-q", "-b", "mine")
    write_tree(
        tree,
        {"calc/core.py": "broken", "junk/a/b": "x", "sub/.git/config": "", "calc/__pycache__/x.pyc": "x"},
    )
    (tree / "new.txt").unlink()
    (tree / "new.txt").mkdir()
    (tree / "tests/test_core.py").unlink()
    (tree / "tests/test_core.py").symlink_to(case.repo / "calc/core.py")
    place.go(head)
    assert (tree / "calc/core.py").read_text() == "def add(a, b):\n    return b + a\n"
    assert (tree / "new.txt").read_text() == "n"
    assert not (tree / "tests/test_core.py").is_symlink()
    assert (case.repo / "calc/core.py").read_text().startswith("def add")
    place.settle(head)
    assert case.is_clean_at(head)
    assert git(tree, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"


def test_it_goes_back_and_forth(case: Case, place: Place) -> None:
    head = git(case.worktree, "rev-parse", "HEAD")
    place.go(case.base)
    assert not (case.worktree / "new.txt").exists()
    assert "return a + b" in (case.worktree / "calc/core.py").read_text()
    place.settle(head)
    assert case.is_clean_at(head)


@pytest.mark.parametrize("kind", ["other", "missing", "folder"])
def test_a_rewritten_git_file_leads_nowhere_and_is_put_back(case: Case, place: Place, kind: str) -> None:
    head = git(case.worktree, "rev-parse", "HEAD")
    dot_git = case.worktree / ".git"
    dot_git.unlink()
    if kind == "other":
        dot_git.write_text(f"gitdir: {case.repo / '.git'}\n")
    elif kind == "folder":
        shutil.copytree(case.repo / ".git", dot_git)
    before = git(case.repo, "rev-parse", "HEAD")
    place.go(case.base)
    place.settle(head)
    assert case.is_clean_at(head)
    assert git(case.repo, "rev-parse", "HEAD") == before


def test_what_is_kept_stays_and_everything_else_goes(case: Case, place: Place) -> None:
    place.keep = [".venv", "a b/node_modules"]
    write_tree(
        case.worktree, {".venv/x": "1", "a b/node_modules/y": "2", "a b/other": "3", "sub/.venv/z": "4"}
    )
    place.go(case.base)
    assert (case.worktree / ".venv/x").exists()
    assert (case.worktree / "a b/node_modules/y").exists()
    assert not (case.worktree / "a b/other").exists()
    assert not (case.worktree / "sub").exists()


def test_copies_are_there_after_every_move(case: Case, place: Place) -> None:
    (case.repo / ".env").write_text("KEY=1\n")
    (case.repo / ".env").chmod(0o600)
    (case.repo / "link").symlink_to("/etc/passwd")
    place.copies = copies_from(case.repo, [".env", "link", "../../etc/passwd", "/etc/passwd", "none"])
    assert list(place.copies) == [".env"]
    (case.worktree / ".env").write_text("spoiled")
    place.go(case.base)
    assert (case.worktree / ".env").read_text() == "KEY=1\n"


def test_nothing_is_removed_or_written_behind_a_link_that_a_commit_has_where_a_folder_was(
    case: Case, place: Place, tmp_path: Path
) -> None:
    write_tree(tmp_path / "others", {"made/precious": "1"})
    head = case.head({"calc/core.py": "def add(a, b):\n    return b + a\n"})
    write_tree(case.repo, {"config/.env": "KEY=1\n"})
    for name in ("out", "config"):
        (case.worktree / name).symlink_to(tmp_path / "others")
    git(case.clone, "fetch", "-q", str(case.repo), head)
    git(case.worktree, "checkout", "-q", "--detach", head)
    git(case.worktree, "add", "out", "config")
    git(case.worktree, "commit", "-q", "-m", "Links")
    place.copies = copies_from(case.repo, ["config/.env"])
    environment = Environment(
        place=place,
        terms=Terms(setup=[["mkdir", "-p", "out/made"]], keep=["out/made"]),
        store=tmp_path / "store",
        bead="coder-python-coding-00000001",
        commits={"base": case.base, "head": git(case.worktree, "rev-parse", "HEAD")},
        env=os.environ,
        marker="links",
        progress=lambda _: None,
    )
    environment.go("base")
    assert (case.worktree / "config/.env").read_text() == "KEY=1\n"
    environment.go("head")
    assert (case.worktree / "out").is_symlink()
    found = sorted(str(path.relative_to(tmp_path / "others")) for path in (tmp_path / "others").rglob("*"))
    assert found == ["made", "made/precious"]


def test_a_pipe_in_the_place_of_rules_keeps_nobody_waiting(case: Case, place: Place) -> None:
    place.go(case.base)
    write_tree(case.worktree, {"nested/.git/objects/x": "", "nested/.git/refs/x": ""})
    for name in (".gitattributes", "calc/.gitattributes", ".gitignore", "nested/.git/HEAD"):
        os.mkfifo(case.worktree / name)
    (case.worktree / "calc").chmod(0o300)
    (place.index.parent / "place.index.lock").touch()
    began = time.monotonic()
    place.settle(case.base)
    assert time.monotonic() - began < 20
    assert case.is_clean_at(case.base)


def test_folders_without_permissions_do_not_stop_it(case: Case, place: Place) -> None:
    write_tree(case.worktree, {"junk/deep/file": "x"})
    (case.worktree / "junk/deep").chmod(0)
    (case.worktree / "calc").chmod(0o500)
    try:
        place.go(case.base)
        assert not (case.worktree / "junk").exists()
    finally:
        for path in (case.worktree / "junk/deep", case.worktree / "calc"):
            if path.exists():
                path.chmod(0o700)


def test_what_is_no_worktree_is_refused(case: Case, place: Place, tmp_path: Path) -> None:
    with pytest.raises(WorktreeError, match="not a linked git worktree"):
        Place.find(case.repo, tmp_path / "s")
    # A worktree that claims the git directory of another.
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").write_bytes((case.worktree / ".git").read_bytes())
    with pytest.raises(WorktreeError, match="belongs to"):
        Place.find(other, tmp_path / "s")


def test_a_left_lock_does_not_stop_it(case: Case, place: Place) -> None:
    (place.git_dir / "index.lock").write_text("")
    place.go(case.base)
    place.settle(case.base)
    assert not os.path.lexists(place.git_dir / "index.lock")


def test_an_index_that_a_test_wrote_does_not_say_where_the_tree_stands(case: Case, place: Place) -> None:
    head = git(case.worktree, "rev-parse", "HEAD")
    place.go(head)
    write_tree(case.worktree, {"calc/core.py": "forged\n", "made/x": "x"})
    place.git.run("add", "-A")  # the private index now agrees with the forged tree
    assert place.git.ok("diff-files", "--quiet")
    Place.find(case.worktree, place.index.parent).go(head)
    assert (case.worktree / "calc/core.py").read_text() == "def add(a, b):\n    return b + a\n"
    assert not (case.worktree / "made").exists()


def test_what_is_empty_or_ignored_is_cleaned_too(case: Case, place: Place) -> None:
    head = git(case.worktree, "rev-parse", "HEAD")
    for _ in range(2):
        place.go(head)
        (case.worktree / "calc" / "empty" / "deep").mkdir(parents=True)
        (case.worktree / ".gitignore").write_text("*\n")
        (case.worktree / "calc" / "hidden.txt").write_text("x")
    place.go(head)
    assert git(case.worktree, "status", "--porcelain", "--ignored") == ""
    assert not (case.worktree / "calc" / "empty").exists()

from __future__ import annotations

import os
from pathlib import Path

import pytest

from school.verification.tree_now import Seen, look
from tests.support import git, write_tree
from tests.support_git import repository_state


def test_a_clean_tree_is_its_commit(repo: Path) -> None:
    seen = look(repo / "calc")
    assert (seen.commit, seen.tree) == (git(repo, "rev-parse", "HEAD"), git(repo, "rev-parse", "HEAD^{tree}"))
    assert not seen.changed


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        ({"calc/core.py": "x = 1\n"}, True),
        ({"new.py": ""}, True),
        ({"left.pyc": "ignored"}, False),
        ({".venv/lib/x.py": "", "web/node_modules/a/index.js": ""}, False),
    ],
)
def test_what_counts_as_a_change(repo: Path, files: dict[str, str], counts: bool) -> None:
    before = look(repo)
    write_tree(repo, files)
    state = repository_state(repo)
    after = look(repo)
    assert (after != before, after.changed) == (counts, counts)
    assert before.paths_that_differ(after) == (list(files) if counts else [])
    assert repository_state(repo) == state  # nothing in the repository was written


def test_a_removed_file_and_a_commit_are_changes(repo: Path) -> None:
    before = look(repo)
    (repo / "README.md").unlink()
    assert before.paths_that_differ(look(repo)) == ["README.md"]
    git(repo, "checkout", "-q", "README.md")
    git(repo, "commit", "-q", "--allow-empty", "-m", "Nothing")
    after = look(repo)
    assert (after == before, after.tree == before.tree) == (False, True)


def test_what_git_cannot_take_is_no_clean_tree(repo: Path) -> None:
    write_tree(repo, {"inner/file": ""})
    git(repo / "inner", "init", "-q")
    seen = look(repo)
    assert (seen.tree, seen.changed) == (git(repo, "rev-parse", "HEAD^{tree}"), True)


def test_where_there_is_no_repository_or_no_commit(tmp_path: Path, repo: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert look(tmp_path / "plain") == Seen()
    git(tmp_path / "plain", "init", "-q")
    assert look(tmp_path / "plain") == Seen()
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    assert look(tmp_path / "linked") == look(repo)


def test_an_inherited_repository_is_not_looked_at(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").mkdir()
    monkeypatch.setenv("GIT_DIR", os.fspath(repo / ".git"))
    assert look(tmp_path / "plain") == Seen()

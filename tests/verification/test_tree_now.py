from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from school.verification.tree_now import Seen, TreeNow, look
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
    assert (seen.tree != git(repo, "rev-parse", "HEAD^{tree}"), seen.changed) == (True, True)


@pytest.mark.parametrize("bit", ["--assume-unchanged", "--skip-worktree"])
def test_what_the_index_says_of_a_file_is_not_believed(repo: Path, bit: str) -> None:
    before = look(repo)
    git(repo, "update-index", bit, "calc/core.py")
    (repo / "calc" / "core.py").write_text("x = 1\n")
    assert git(repo, "status", "--porcelain") == ""
    after = look(repo)
    assert (after.changed, before.paths_that_differ(after)) == (True, ["calc/core.py"])


def test_no_filter_runs(repo: Path, tmp_path: Path) -> None:
    (repo / ".gitattributes").write_text("*.py filter=spy\n")
    git(repo, "config", "filter.spy.clean", f"touch {tmp_path / 'ran'}; cat")
    git(repo, "config", "core.fsmonitor", f"touch {tmp_path / 'ran'}; true")
    assert look(repo).changed
    assert not (tmp_path / "ran").exists()


def test_what_git_converts_on_checkout_is_no_change(repo: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n"
    oid = hashlib.sha256(b"large").hexdigest()
    write_tree(repo, {"notes.bat": "a\nb\n", "big.bin": pointer.format(oid)})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Add")
    (repo / "notes.bat").write_bytes(b"a\r\nb\r\n")
    (repo / "big.bin").write_bytes(b"large")
    assert not look(repo).changed
    (repo / "big.bin").write_bytes(b"largf")
    assert look(repo).changed


def test_a_clean_submodule_is_no_change(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "inner")
    git(tmp_path / "inner", "commit", "-q", "--allow-empty", "-m", "a")
    write_tree(tmp_path / "inner", {"a.py": "a"})
    git(tmp_path / "inner", "add", "-A")
    git(tmp_path / "inner", "commit", "-qm", "b")
    git(
        repo,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(tmp_path / "inner"),
        "inner",
    )
    git(repo, "commit", "-qm", "Add inner")
    assert not look(repo).changed
    (repo / "inner" / "a.py").write_text("b")
    assert look(repo).changed
    git(repo / "inner", "checkout", "-q", "--", "a.py")
    git(repo / "inner", "checkout", "-q", "--detach", "HEAD~1")
    assert look(repo).changed


def test_what_the_user_ignores_everywhere_does_not_count(repo: Path, own_home: Path) -> None:
    write_tree(own_home, {".config/git/ignore": "*.swp\n"})
    write_tree(repo, {"a.swp": "a"})
    assert not look(repo).changed


def test_a_second_look_reads_only_what_changed(repo: Path) -> None:
    place = TreeNow(repo)
    assert place.look() == look(repo)
    (repo / "calc" / "core.py").write_text("x = 1\n")
    assert place.look() == look(repo)


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

"""The orca adapter, driven against a real executable that speaks Orca's command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from school.errors import ConfigError, OrcaUnavailableError, WorktreeError
from school.settings import Settings
from school.worktrees import leaf_worktrees, snapshot
from school.worktrees.orca import find_orca
from tests.support import git
from tests.support_git import bag_for, opened, repository_state, tree_state

FAKE = Path(__file__).parent / "bin" / "orca"


@pytest.fixture
def orca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCA_CLI_COMMAND", str(FAKE))
    monkeypatch.setenv("FAKE_ORCA_HOME", str(tmp_path / "orca home"))
    return tmp_path / "orca home"


def test_a_leaf_lives_in_a_tree_that_orca_made(orca: Path, repo: Path, school: Settings) -> None:
    before = repository_state(repo)
    repository, clone = opened(repo, school)
    bag = bag_for(repository)
    leaves = leaf_worktrees("orca", settings=school)
    workspace = leaves.create(bag)
    assert workspace.path == school.worktrees_dir / repository.key / "study-coder-a1b2c3d4"
    assert tree_state(workspace.path) == tree_state(repo)
    assert git(workspace.path, "rev-parse", "HEAD") == repository.head_commit
    assert git(workspace.path, "branch", "--show-current") == ""
    (workspace.path / "x").write_text("x")
    saved = snapshot(workspace, bag=bag, settings=school)
    assert saved.files_changed == ["x"]
    assert clone.read_file(saved.ref, "x") == b"x"
    leaves.remove(workspace)
    assert not workspace.path.exists()
    assert not workspace.git_dir.exists()
    calls = json.loads((orca / "orca.json").read_text())["calls"]
    bead_repository = str(workspace.git_dir)
    assert calls == [
        ["status", "--json"],
        ["repo", "add", "--path", bead_repository, "--json"],
        [
            "worktree", "create", "--repo", f"path:{bead_repository}", "--name", "study-coder-a1b2c3d4",
            "--base-branch", "school-base", "--no-parent", "--setup", "skip", "--json",
        ],
        ["worktree", "rm", "--worktree", f"path:{workspace.path}", "--force", "--json"],
    ]  # fmt: skip
    assert repository_state(repo) == before


@pytest.mark.parametrize(
    ("mode", "error", "said"),
    [
        ("refuse", OrcaUnavailableError, "branch_conflict"),
        ("noise", OrcaUnavailableError, "no JSON"),
        ("down", OrcaUnavailableError, "exit 1"),
        ("lie", WorktreeError, "git knows nothing of it"),
    ],
)
def test_what_orca_does_not_do_leaves_nothing(
    mode: str, error: type[Exception], said: str, orca: Path, repo: Path, school: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("FAKE_ORCA", mode)
    repository, _ = opened(repo, school)
    with pytest.raises(error, match=said):
        leaf_worktrees("orca", settings=school).create(bag_for(repository))
    assert list(school.worktree_records_dir.iterdir()) == []
    assert not school.bead_repos_dir.exists() or list(school.bead_repos_dir.iterdir()) == []
    assert not (school.worktrees_dir / repository.key / "study-coder-a1b2c3d4").exists()


def test_without_it_it_says_so(tmp_path: Path, school: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ORCA_CLI_COMMAND", raising=False)
    with pytest.raises(OrcaUnavailableError, match="the orca command line is not installed"):
        leaf_worktrees("orca", settings=school)
    with pytest.raises(ConfigError, match="expected git or orca"):
        leaf_worktrees("other", settings=school)


def test_an_orca_that_is_not_there_any_more(
    orca: Path, repo: Path, school: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCA_CLI_COMMAND", "/nonexistent/orca")
    repository, _ = opened(repo, school)
    with pytest.raises(OrcaUnavailableError, match="not_found"):
        leaf_worktrees("orca", settings=school).create(bag_for(repository))


@pytest.mark.skipif(
    not os.uname().sysname.startswith("Linux"), reason="the screen reader called orca is on Linux"
)
def test_the_screen_reader_is_not_taken_for_it(tmp_path: Path) -> None:
    reader = tmp_path / "orca"
    reader.write_text("#!/usr/bin/python3\nimport gi\nfrom gi.repository import Gio\n")
    reader.chmod(0o755)
    with pytest.raises(OrcaUnavailableError):
        find_orca({"PATH": str(tmp_path)})
    (tmp_path / "orca-ide").write_text("#!/bin/sh\n")
    (tmp_path / "orca-ide").chmod(0o755)
    assert find_orca({"PATH": str(tmp_path)}) == [str(tmp_path / "orca-ide")]
    assert find_orca({"PATH": "", "ORCA_CLI_COMMAND": "orca-dev --x 'a b'"}) == ["orca-dev", "--x", "a b"]

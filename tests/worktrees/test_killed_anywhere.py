"""Killed at any call of git between the making of a leaf's tree and its removal: nothing lost, nothing left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from school.settings import Settings
from school.worktrees import inspect_repository, reap
from school.worktrees.clone import SchoolClone
from tests.support import ROOT, git
from tests.support_git import repository_state

pytestmark = pytest.mark.crash

# How many calls apart one test's kills are; 4 would be every call, and takes minutes.
STRIDE = 23
# Each call of git is counted; at the one asked for, the process that called it is killed, before or after git ran.
_SHIM = """#!/bin/sh
count=$(( $(cat "$SHIM_COUNT" 2>/dev/null || echo 0) + 1 ))
echo $count > "$SHIM_COUNT"
[ "$count" = "$SHIM_BEFORE" ] && kill -9 $PPID
{git} "$@"
status=$?
[ "$count" = "$SHIM_AFTER" ] && kill -9 $PPID
exit $status
"""

_LIFE = """
import sys
from pathlib import Path
from school.settings import Settings, configure
from school.worktrees import *
from tests.support_git import bag_for
home, repo = Path(sys.argv[1]), Path(sys.argv[2])
settings = Settings.from_env({"HOME": str(home), "HERMES_HOME": str(home / ".hermes")})
configure(settings)
repository = inspect_repository(repo)
clone = SchoolClone.open(repository, settings=settings)
bag = bag_for(repository)
leaves = GitLeafWorktrees(settings)
workspace = leaves.create(bag)
(workspace.path / "work").write_text("work")
(workspace.path / "nested").mkdir()
(workspace.path / "nested" / "x").write_text("x")
(home / "worked").write_text("yes")
saved = snapshot(workspace, bag=bag, settings=settings)
publish(clone, repository, saved.head_commit, saved.ref)
create_branch(repository, "school/quick-add", saved.head_commit)
leaves.remove(workspace)
(home / "done").write_text("yes")
"""


def _live(home: Path, repo: Path, **shim: str) -> int:
    """One whole life in a process of its own; its exit status."""
    env = {**os.environ, **shim, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", _LIFE, str(home), str(repo)], env=env, cwd=ROOT, check=False
    ).returncode


@pytest.fixture
def shim(tmp_path: Path) -> dict[str, str]:
    real = shutil.which("git")
    assert real is not None
    folder = tmp_path / "shim"
    folder.mkdir()
    (folder / "git").write_text(_SHIM.format(git=real))
    (folder / "git").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "SHIM_COUNT": str(tmp_path / "count")}


@pytest.mark.parametrize("when", ["SHIM_BEFORE", "SHIM_AFTER"])
@pytest.mark.parametrize("part", range(4))
def test_killed_anywhere(
    when: str, part: int, shim: dict[str, str], own_home: Path, repo: Path, school: Settings
) -> None:
    before = repository_state(repo)
    bead = "coder-python-coding-a1b2c3d4"
    call = 5 + part  # the first few only look at the repository
    while True:
        shutil.rmtree(own_home / ".hermes", ignore_errors=True)
        for left in ("done", "worked"):
            (own_home / left).unlink(missing_ok=True)
        for name in git(
            repo, "for-each-ref", "--format=%(refname)", "refs/school", "refs/heads/school"
        ).split():
            git(repo, "update-ref", "-d", name)
        Path(shim["SHIM_COUNT"]).unlink(missing_ok=True)
        status = _live(own_home, repo, **shim, **{when: str(call)})
        if status == 0:
            assert (own_home / "done").exists()
            break
        assert status == -signal.SIGKILL
        rows = reap(school, repo_key=None, dry_run=False, live=lambda _: False)
        assert all(row["action"] == "removed" for row in rows), (call, rows)
        assert not school.worktrees_dir.exists() or not list(school.worktrees_dir.rglob("*")), call
        for folder in (school.bead_repos_dir, school.worktree_records_dir):
            assert not folder.exists() or not list(folder.iterdir()), call
        if (own_home / "worked").exists():
            clone = SchoolClone.at(inspect_repository(repo).key, settings=school)
            assert clone.read_file(f"refs/school/{bead}", "work") == b"work", call
            assert clone.read_file(f"refs/school/{bead}", "nested/x") == b"x", call
        kept = {name: what for name, what in repository_state(repo).items() if "tmp_pack" not in name}
        assert kept == before, call
        call += STRIDE

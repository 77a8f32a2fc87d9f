"""What others' users reported of programs like this one, played on whole commands of ours."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.settings import Settings
from school.system import clock, files, identity
from school.system.processes import owner_fields
from school.worktrees import GitLeafWorktrees, SchoolClone, reap, snapshot
from tests import leaves
from tests.e2e.projects import conduct, environment
from tests.leaves import content, new_bead, run, script
from tests.support import ROOT, git, write_tree
from tests.support_git import bag_for, opened, repository_state

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EDIT = "python3 -c \"import pathlib; pathlib.Path('calc/extra.py').write_text('EXTRA = 1' + chr(10))\""


def until(true: Callable[[], object], what: str, limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"never saw {what}"
        time.sleep(0.02)


def trees(school: Settings) -> list[Path]:
    return sorted(school.worktrees_dir.glob("*/study-*"))


# --- working trees --------------------------------------------------------------------------------------------


def test_clean_up_saves_the_untracked_files_of_a_dead_leaf_whose_process_records_are_gone(
    repo: Path, school: Settings, own_home: Path
) -> None:
    bead = new_bead(repo, script("import time; open('untracked', 'w').write('u'); time.sleep(600)"))
    leaf = leaves.start(bead, school)
    until(lambda: any((tree / "untracked").exists() for tree in trees(school)), "its work")
    leaf.kill()
    leaf.communicate()
    for path in [*school.processes_dir.iterdir()]:
        path.unlink()
    code, _, told = conduct("--clean-worktrees", "--repo", str(repo), env=environment(own_home))
    assert code == 0, told
    clone = SchoolClone.at(bookbag.read_bookbag(bead)["repo_key"], settings=school)  # type: ignore[index]
    assert clone.read_file(f"refs/school/{bead}", "untracked") == b"u"
    assert trees(school) == []


def test_clean_up_beside_two_leaves_at_work_touches_neither(
    repo: Path, school: Settings, own_home: Path
) -> None:
    hold = own_home / "go"
    code = f"import os, time; open('work', 'w').write('w')\nwhile not os.path.exists({str(hold)!r}): time.sleep(0.02)"
    beads = [new_bead(repo, script(code)) for _ in range(2)]
    at_work = [leaves.start(bead, school) for bead in beads]
    until(lambda: [tree for tree in trees(school) if (tree / "work").exists()][1:], "two at work")
    before = trees(school)
    conduct("--clean-worktrees", "--repo", str(repo), env=environment(own_home))
    assert trees(school) == before
    assert all((tree / "work").exists() for tree in before)
    hold.touch()
    for bead, leaf in zip(beads, at_work, strict=True):
        out, err = leaf.communicate(timeout=60)
        assert leaf.returncode == 0, out + err
        assert content(bookbag.read_bookbag(bead) or {}, school, "work") == "w"


def test_a_command_that_is_not_there_fails_twice_alike_and_leaves_nothing(
    repo: Path, school: Settings, own_home: Path
) -> None:
    env, said = environment(own_home), []
    for _ in range(2):
        code, document, told = conduct(
            "--repo", str(repo), "--task", "x", "--run", "no-such-program-anywhere", env=env
        )
        assert code in (1, 3), told
        said.append("no-such-program-anywhere" in json.dumps(document) + told)
    assert said == [True, True]
    conduct("--clean-worktrees", "--repo", str(repo), env=env)
    assert not school.worktrees_dir.exists() or trees(school) == []
    assert git(repo, "for-each-ref", "refs/heads/school") == ""
    code, rows, _ = conduct("check", env=env)
    assert code == 0, [row for row in rows if not row["ok"]]


def test_twelve_leaves_commit_at_once_beside_a_slow_hook_of_the_users(repo: Path, school: Settings) -> None:
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nsleep 1\nexit 1\n")
    hook.chmod(0o755)
    before = repository_state(repo)
    repository, _ = opened(repo, school)
    maker, works = GitLeafWorktrees(school), []
    for number in range(12):
        bag = bag_for(repository, f"coder-python-coding-{number:08d}")
        works.append((bag, maker.create(bag)))
        (works[-1][1].path / "mine").write_text(str(number))
    commits = [
        subprocess.Popen(["sh", "-c", "git add . && git commit -q -m mine"], cwd=workspace.path)
        for _, workspace in works
    ]
    assert [commit.wait() for commit in commits] == [0] * 12
    for bag, workspace in works:
        saved = snapshot(workspace, bag=bag, settings=school)
        assert (saved.files_changed, bool(saved.agent_ref)) == (["mine"], True)
    rows = reap(school, repo_key=None, dry_run=False, live=lambda _: False)
    assert [row["action"] for row in rows] == ["removed"] * 12
    assert repository_state(repo) == before


def test_instructions_that_are_a_tracked_link_are_neither_followed_nor_changed(
    repo: Path, school: Settings
) -> None:
    write_tree(repo, {"AGENTS.md": "Be brief.\n", ".github/x": "x\n"})
    (repo / "CLAUDE.md").symlink_to("AGENTS.md")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "Instruct")
    bag = run(new_bead(repo, script("open('new', 'w').write('n')")), school)
    assert (bag["status"], bag["files_changed"]) == ("open", ["new"])


def test_a_filter_that_is_required_and_not_installed_stops_nobody(repo: Path, school: Settings) -> None:
    write_tree(repo, {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    pointer = "version 1\noid sha256:00\nsize 5\n"
    (repo / "large.bin").write_text(pointer)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "Large")
    for key in ("smudge", "clean", "process"):
        git(repo, "config", f"filter.lfs.{key}", f"git-lfs-that-nobody-has {key}")
    git(repo, "config", "filter.lfs.required", "true")
    code = f"assert open('large.bin').read() == {pointer!r}; open('other.bin', 'wb').write(bytes(9))"
    bag = run(new_bead(repo, script(code)), school)
    assert (bag["status"], bag["files_changed"]) == ("open", ["other.bin"])


# --- state ----------------------------------------------------------------------------------------------------


def accepted(repo: Path, env: dict[str, str], cwd: Path = ROOT) -> dict[str, Any]:
    command = [
        sys.executable,
        str(ROOT / "conductor.py"),
        "--repo",
        str(repo),
        "--task",
        "Extra",
        "--run",
        EDIT,
    ]
    done = subprocess.run(
        [*command, "--json"], env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert git(repo, "show", "school/extra:calc/extra.py") == "EXTRA = 1"
    return dict(json.loads(done.stdout))


def test_started_from_a_hook_of_another_repository_it_works_in_its_own(
    repo: Path, tmp_path: Path, own_home: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    git(victim, "init", "-q")
    (victim / "a").write_text("1\n")
    git(victim, "add", ".")
    hook = victim / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    command = shlex.join(
        [
            sys.executable,
            f"{ROOT}/conductor.py",
            "--repo",
            str(repo),
            "--task",
            "Extra",
            "--run",
            EDIT,
            "--json",
        ]
    )
    hook.write_text(f"#!/bin/sh\nenv | grep -q ^GIT_ || exit 9\n{command} > {tmp_path}/said\n")
    hook.chmod(0o755)
    done = subprocess.run(
        ["git", "commit", "-q", "-m", "Mine"],
        cwd=victim, env=environment(own_home), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + (tmp_path / "said").read_text()
    assert git(victim, "log", "--all", "--format=%s") == "Mine"
    assert git(victim, "ls-files") == "a"
    assert git(repo, "show", "school/extra:calc/extra.py") == "EXTRA = 1"


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_state_directory_behind_a_link_with_blanks_in_its_name(
    repo: Path, own_home: Path, umask: int
) -> None:
    real = own_home / "real státe 団"
    real.mkdir(mode=0o700)
    (own_home / "link to it").symlink_to(real)
    before = os.umask(umask)
    try:
        accepted(repo, environment(own_home, HERMES_HOME=str(own_home / "link to it")))
    finally:
        os.umask(before)
    open_to_others = [path for path in real.rglob("*.json") if path.is_file() and path.stat().st_mode & 0o077]
    assert open_to_others == []
    code, rows, _ = conduct("check", env=environment(own_home, HERMES_HOME=str(real)))
    assert code == 0, [row for row in rows if not row["ok"]]


def test_without_a_home_the_state_is_where_it_is_told(repo: Path, own_home: Path, tmp_path: Path) -> None:
    env = environment(own_home, HERMES_HOME=str(tmp_path / "state"))
    del env["HOME"]
    accepted(repo, env)


def test_on_a_read_only_disk_it_can_be_looked_at_and_a_run_says_why_not(
    repo: Path, school: Settings, own_home: Path
) -> None:
    new_bead(repo, None)
    state = school.hermes_home
    bound = subprocess.run(["mount", "--bind", str(state), str(state)], capture_output=True, check=False)
    if bound.returncode:
        pytest.skip(f"nothing can be mounted here: {bound.stderr.decode().strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(state)], check=True)
        env = environment(own_home)
        code, status, told = conduct("status", env=env)
        assert (code, status["queue"]["running"]) == (0, 1), told
        code, document, told = conduct("--repo", str(repo), "--task", "x", "--run", "true", env=env)
        assert code == 3
        assert "Read-only file system" in document["error"], told
        assert "Traceback" not in told
    finally:
        subprocess.run(["umount", str(state)], check=True)


# --- processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["an earlier start", "another boot"])
def test_stop_spares_an_innocent_process_that_has_a_dead_ones_number(
    repo: Path, school: Settings, own_home: Path, kind: str
) -> None:
    repository, _ = opened(repo, school)
    innocent = subprocess.Popen(["sleep", "300"])
    fields = owner_fields(identity.identity(innocent.pid))
    fields |= {"start": "1"} if kind == "an earlier start" else {"boot": "another"}
    record = {
        "kind": "conductor",
        "name": f"conductor-{repository.key}",
        "repo": str(repo),
        "since": clock.now(),
    }
    for name in (f"conductor-{repository.key}", "teacher-cto"):
        files.write_json(school.processes_dir / f"{name}.json", {**record, **fields, "name": name})
    files.write_json(school.teachers_dir / "cto.json", {**fields, "role": "cto", "state": "idle"})
    try:
        code, rows, told = conduct("stop", "--repo", str(repo), env=environment(own_home))
        assert (code, rows) == (0, []), told
        assert innocent.poll() is None
        # Nor is a run kept from starting by it.
        accepted(repo, environment(own_home))
        assert innocent.poll() is None
    finally:
        innocent.send_signal(signal.SIGKILL)
        innocent.wait()

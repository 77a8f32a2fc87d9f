"""A leaf that is told to end, killed, or left by its conductor: no process stays, and every file is in a commit."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import bookbag
from school.contracts import AgentSpec
from school.settings import Settings
from school.system import foreign, locks, processes
from school.worktrees import GitLeafWorktrees, salvage, workspace_of
from tests import leaves
from tests.leaves import content, demo, new_bead, script
from tests.support import ROOT, git, require_confinement

pytestmark = pytest.mark.crash

WORK = """
import os, subprocess, time
from pathlib import Path
Path("calc/core.py").write_text("CHANGED = 1\\n")
Path("untracked.txt").write_text("untracked")
Path("deep/er").mkdir(parents=True)
Path("deep/er/file").write_bytes(bytes(range(256)))
Path("tool.sh").write_text("#!/bin/sh\\n"); os.chmod("tool.sh", 0o755)
os.symlink("tool.sh", "link")
os.symlink("/nowhere/at/all", "dangling")
Path(os.fsdecode(b"not-utf8-\\xff\\xfe.txt")).write_text("bytes")
Path("crlf.txt").write_bytes(b"a\\r\\nb\\r\\n")
with open("large.bin", "wb") as large:
    for n in range(4):
        large.write(bytes([n]) * (1 << 20))
Path("nested").mkdir()
for argv in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "inner"]):
    subprocess.run(["git", *argv], cwd="nested", check=True)
Path("nested/inner.txt").write_text("inner")
os.unlink("README.md")
Path("ready.pyc").write_text("ignored, and the last one")
print("ready", flush=True)
"""
HUNDRED_MB = WORK.replace("range(4)", "range(100)")
STAY = "time.sleep(600)\n"
CHILD = """
subprocess.Popen(["sleep", "600"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
"""


def until(true: Callable[[], Any], what: str, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.01)


def tree_of(bead: str, settings: Settings) -> Path:
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    workspace = workspace_of(bag, settings=settings)
    return workspace.path if workspace else Path("/nonexistent")


def working(bead: str, settings: Settings) -> Callable[[], bool]:
    """The agent has written everything and stays."""

    def written() -> bool:
        return (tree_of(bead, settings) / "ready.pyc").exists()

    return written


def manifest(root: Path) -> dict[bytes, str]:
    """What git would keep below *root*, by a walk of our own: name to kind and content digest."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in (".git", ".hermes")]
        for name in names:
            path = Path(folder) / name
            if name == ".git" or name.endswith(".pyc"):
                continue
            if path.is_symlink():
                kind, content = "120000", os.fsencode(path.readlink())
            else:
                kind = "100755" if path.stat().st_mode & 0o100 else "100644"
                content = path.read_bytes()
            found[os.fsencode(path.relative_to(root))] = f"{kind} {hashlib.sha256(content).hexdigest()}"
    return found


def committed(bag: dict[str, Any], settings: Settings) -> dict[bytes, str]:
    """The same of the bead's commit."""
    clone = leaves.clone_of(bag, settings)
    listing = subprocess.run(
        ["git", "ls-tree", "-r", "-z", bag["head_commit"]], cwd=clone, capture_output=True, check=True
    ).stdout
    found = {}
    for line in listing.split(b"\0")[:-1]:
        meta, name = line.split(b"\t", 1)
        mode, _, oid = meta.decode().split()
        blob = subprocess.run(
            ["git", "cat-file", "blob", oid], cwd=clone, capture_output=True, check=True
        ).stdout
        found[name] = f"{mode} {hashlib.sha256(blob).hexdigest()}"
    return found


def assert_all_saved(bag: dict[str, Any], settings: Settings) -> None:
    written = manifest(Path(bag["worktree"]))
    assert len(written) >= 13
    assert committed(bag, settings) == written
    assert bag["ref"] in bag["summary"]
    assert "README.md" in bag["files_changed"]


def nothing_left(bead: str, settings: Settings) -> bool:
    return processes.marked(bead) == {} and not locks.held_elsewhere(
        settings.processes_dir / f"{bead}.leaf.lock"
    )


# --- told to end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_agent_and_saves_its_work(
    number: signal.Signals, repo: Path, school: Settings
) -> None:
    bead = new_bead(repo, script(WORK + CHILD + STAY))
    leaf = leaves.start(bead, school)
    until(working(bead, school), "the agent works")
    leaf.send_signal(number)
    _, err = leaf.communicate(timeout=60)
    assert leaf.returncode == 128 + number, err
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    assert (bag["status"], bag["reason"], bag["claim"]) == ("failed", "interrupted", "")
    assert bag["output"] == "ready\n"
    assert_all_saved(bag, school)
    assert nothing_left(bead, school)
    assert not bookbag.BookbagSignal(bead).check()


def test_a_second_signal_ends_it_at_once_and_the_work_is_salvaged(repo: Path, school: Settings) -> None:
    bead = new_bead(
        repo, script("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WORK + STAY)
    )
    leaf = leaves.start(bead, school)
    until(working(bead, school), "the agent works")
    leaf.send_signal(signal.SIGTERM)
    until(lambda: os.kill(leaf.pid, 0) is None, "it lives")
    until(lambda: not _pending(leaf.pid, signal.SIGTERM), "the first signal is taken")
    leaf.send_signal(signal.SIGTERM)
    before = time.monotonic()
    leaf.communicate(timeout=60)
    assert time.monotonic() - before < 3
    assert leaf.returncode == 128 + signal.SIGTERM
    until(lambda: nothing_left(bead, school), "the agent ends", 5)
    bag = salvage.salvage(bead, reason="interrupted", settings=school)
    assert bag is not None
    assert (bag["status"], bag["reason"]) == ("failed", "interrupted")
    assert_all_saved(bag, school)


def _pending(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [
        int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))
    ]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_nohup_is_respected(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, script(WORK + "while not Path('go').exists(): time.sleep(0.01)\nos.unlink('go')"))
    argv = ["nohup", sys.executable, str(ROOT / "leaf.py"), "--bead", bead]
    leaf = subprocess.Popen(
        argv,
        env=leaves.environment(school),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until(working(bead, school), "the agent works")
    leaf.send_signal(signal.SIGHUP)
    until(lambda: not _pending(leaf.pid, signal.SIGHUP), "the signal is taken")
    (tree_of(bead, school) / "go").touch()
    _, err = leaf.communicate(timeout=60)
    assert leaf.returncode == 0, err


# --- killed ---------------------------------------------------------------------------------------------------


def test_kill_9_of_a_leaf_loses_nothing(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, script(HUNDRED_MB + CHILD + STAY))
    leaf = leaves.start(bead, school)
    until(working(bead, school), "the agent works")
    assert salvage.salvage(bead, reason="leaf_died", settings=school) is None
    leaf.kill()
    leaf.communicate()
    until(lambda: processes.marked(bead) == {}, "its agent ends with it", 2)

    bag = salvage.salvage(bead, reason="leaf_died", settings=school)
    assert bag is not None
    assert (bag["status"], bag["reason"], bag["output"]) == ("failed", "leaf_died", "ready\n")
    assert bag["history"][-1]["by"] == "salvage"
    assert not (school.scratch_dir / bead).exists()
    assert_all_saved(bag, school)
    assert nothing_left(bead, school)

    assert salvage.salvage(bead, reason="leaf_died", settings=school) == bag
    workspace = workspace_of(bag, settings=school)
    assert workspace is not None
    GitLeafWorktrees(school).remove(workspace)
    assert content(bag, school, "untracked.txt") == "untracked"


@pytest.mark.parametrize("step", ["booting", "briefing", "running", "snapshot"])
def test_kill_9_at_each_step_ends_in_a_salvaged_record(step: str, repo: Path, school: Settings) -> None:
    bead = new_bead(
        repo, script("from pathlib import Path\nPath('a').write_text('a')\nprint('ready', flush=True)")
    )
    leaf = leaves.start(bead, school)
    assert leaf.stderr is not None
    for line in leaf.stderr:
        if f"step={step}" in line:
            break
    leaf.kill()
    leaf.communicate()
    bag = salvage.salvage(bead, reason="leaf_died", settings=school)
    assert bag is not None
    assert bag["status"] in ("failed", "open")
    if bag["status"] == "failed":
        assert bag["reason"] == "leaf_died"
    if step == "snapshot":
        assert content(bag, school, "a") == "a"
    workspace = workspace_of(bag, settings=school)
    if workspace is not None:
        GitLeafWorktrees(school).remove(workspace)
    assert list(school.worktrees_dir.glob("*/*")) == []
    assert nothing_left(bead, school)


def test_the_death_of_its_conductor_ends_a_leaf_within_two_seconds(repo: Path, school: Settings) -> None:
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    for number, code in enumerate((WORK + STAY, stubborn + WORK + STAY)):
        bead = new_bead(repo, script(code), task=f"task {number}")
        child = processes.spawn(
            [sys.executable, ROOT / "leaf.py", "--bead", bead],
            record=school.processes_dir / f"{bead}.json",
            record_fields={"name": bead, "kind": "leaf"},
            cwd=ROOT,
            env=leaves.environment(school),
        )
        until(working(bead, school), "the agent works")
        begun = time.monotonic()
        child.close()  # all that the death of the conductor does to it
        until(lambda child=child: child.poll() is not None, "the leaf ends", 5)
        until(lambda bead=bead: nothing_left(bead, school), "the agent ends", 5)
        assert time.monotonic() - begun < 2.5
        bag = salvage.salvage(bead, reason="conductor_died", settings=school)
        assert bag is not None
        assert (bag["status"], bag["reason"]) == ("failed", "conductor_died")
        assert_all_saved(bag, school)


# --- salvage --------------------------------------------------------------------------------------------------


def test_only_one_leaf_at_a_time(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, script(WORK + STAY))
    first = leaves.start(bead, school)
    until(working(bead, school), "the agent works")
    second = leaves.start(bead, school)
    _, err = second.communicate(timeout=60)
    assert second.returncode == 4
    assert "another leaf" in err
    assert first.poll() is None
    first.kill()
    first.communicate()


def test_a_leaf_that_never_had_a_tree(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, demo("good"))
    bag = salvage.salvage(bead, reason="conductor_died", settings=school)
    assert bag is not None
    assert (bag["status"], bag["reason"]) == ("failed", "conductor_died")
    assert "nothing was lost" in bag["summary"]


def test_salvage_leaves_what_is_not_running_alone(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, demo("idler"))
    bag = leaves.run(bead, school)
    assert salvage.salvage(bead, reason="leaf_died", settings=school) == bag
    assert salvage.salvage("coder-x-00000000", reason="leaf_died", settings=school) is None


def test_stray_processes_of_a_dead_leaf_are_ended_before_the_snapshot(repo: Path, school: Settings) -> None:
    """As where no warden could end them: a process with the bead's mark still writes."""
    bead = new_bead(repo, script(WORK + STAY))
    leaf = leaves.start(bead, school)
    until(working(bead, school), "the agent works")
    leaf.kill()
    leaf.communicate()
    tree = tree_of(bead, school)
    loop = "import pathlib, time\nfor n in range(60000):\n    pathlib.Path('stray.txt').write_text(str(n)); time.sleep(0.01)"
    stray = subprocess.Popen(
        [sys.executable, "-c", loop],
        cwd=tree,
        env={**os.environ, processes.MARKER_VARIABLE: bead},
        start_new_session=True,
    )
    until((tree / "stray.txt").exists, "the stray writes")
    bag = salvage.salvage(bead, reason="leaf_died", settings=school)
    assert stray.wait(5) != 0
    assert bag is not None
    assert content(bag, school, "stray.txt") == (tree / "stray.txt").read_text()


def test_work_that_cannot_be_saved_is_never_removed(repo: Path, school: Settings) -> None:
    other = new_bead(repo, AgentSpec(name="x", kind="run", argv=["sleep", "600"]))
    leaf = leaves.start(other, school)
    until(lambda: processes.marked(other), "the agent runs")
    leaf.kill()
    leaf.communicate()
    clone = leaves.clone_of(bookbag.read_bookbag(other) or {}, school)
    (tree_of(other, school) / "precious.txt").write_text("precious")
    clone.rename(clone.with_suffix(".away"))
    bag = salvage.salvage(other, reason="leaf_died", settings=school)
    assert bag is not None
    assert (bag["status"], bag["reason"]) == ("failed", "leaf_died")
    assert "could not be saved" in bag["summary"]
    shutil.rmtree(clone, ignore_errors=True)
    clone.with_suffix(".away").rename(clone)
    workspace = workspace_of(bag, settings=school)
    assert workspace is not None
    with pytest.raises(OSError, match="refused to remove"):
        GitLeafWorktrees(school).remove(workspace)
    assert (workspace.path / "precious.txt").read_text() == "precious"


def test_the_users_repository_is_as_it_was(repo: Path, school: Settings) -> None:
    before = (
        git(repo, "for-each-ref")
        + git(repo, "status", "--porcelain")
        + (repo / ".git" / "config").read_text()
    )
    bead = new_bead(repo, script(WORK + STAY))
    leaf = leaves.start(bead, school)
    until(working(bead, school), "the agent works")
    leaf.kill()
    leaf.communicate()
    assert salvage.salvage(bead, reason="leaf_died", settings=school)
    assert (
        git(repo, "for-each-ref")
        + git(repo, "status", "--porcelain")
        + (repo / ".git" / "config").read_text()
        == before
    )


def test_a_killed_warden_of_a_confined_agent_is_the_machines_fault_and_loses_nothing(
    repo: Path, school: Settings
) -> None:
    require_confinement()
    bead = new_bead(repo, script(WORK + STAY))
    leaf = leaves.start(bead, school)
    until(working(bead, school), "the agent works")
    (warden,) = [child for child in psutil.Process(leaf.pid).children() if foreign.WARDEN in child.cmdline()]
    warden.kill()
    leaf.communicate(timeout=30)
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    assert (bag["status"], bag["reason"]) == ("failed", "machine")
    assert "its warden was killed" in bag["summary"]
    assert content(bag, school, "untracked.txt") == "untracked"

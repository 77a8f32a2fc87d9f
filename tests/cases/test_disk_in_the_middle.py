"""Whole runs whose disk or clock turns bad while a student works: a clear end, nothing lost, and the next run goes on.

The student itself makes it bad, unconfined, so that it always happens at the same place.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.preload import DISK, NO_FLOCK, Clock, build
from tests.support import ROOT, git, small_disk

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

MACHINE = 3


class Case:
    """A run of one task; *trouble* is what its student does after its work, in shell, the first time."""

    def __init__(self, repo: Path, home: Path) -> None:
        self.repo, self.home, self.state = repo, home, home / "state"
        self.env = {**os.environ, "HERMES_HOME": str(self.state)}
        self.before: list[str] = []

    def run(self, trouble: str) -> subprocess.CompletedProcess[str]:
        once = shlex.quote(str(self.home / "once"))
        script = shlex.join(["sh", "-c", f"echo new > added.txt; mkdir {once} && {{ {trouble}; }}; true"])
        return self.conduct("--task", "Add a file", "--run", script, "--sandbox", "off")

    def conduct(self, *argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "conductor.py"), *argv, "--repo", str(self.repo), "--json"]
        return subprocess.run(
            [*self.before, *command],
            cwd=ROOT, env=self.env, capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip

    def ends(self, done: subprocess.CompletedProcess[str], says: str) -> None:
        assert done.returncode == MACHINE, done.stdout + done.stderr[-2000:]
        assert says in json.loads(done.stdout)["error"], done.stdout
        assert "Traceback" not in done.stderr
        assert git(self.repo, "for-each-ref", "refs/heads/school") == ""

    def goes_on(self) -> None:
        """With what was wrong put right, the work is there and is accepted, and all is in order."""
        again = self.conduct("--resume")
        assert again.returncode == 0, again.stdout + again.stderr[-2000:]
        assert json.loads(again.stdout)["counts"]["accepted"] == 1
        assert git(self.repo, "show", "school/add-a-file:added.txt") == "new"
        checked = self.conduct("check")
        assert checked.returncode == 0, [row for row in json.loads(checked.stdout) if not row["ok"]]


@pytest.fixture
def case(repo: Path, own_home: Path) -> Case:
    return Case(repo, own_home)


@pytest.mark.parametrize("call", ["fsync", "close"])
@pytest.mark.parametrize("below", ["bookbag", "school"])
def test_an_input_output_error_while_a_record_is_written(
    case: Case, tmp_path: Path, call: str, below: str
) -> None:
    library = build(DISK, tmp_path / "preload")
    trigger = tmp_path / "bad"
    case.env |= {"LD_PRELOAD": library, "FAIL_CALL": call, "FAIL_WHEN": str(trigger)}
    case.env["FAIL_BELOW"] = str(case.state / below) + "/"
    case.ends(case.run(f"touch {shlex.quote(str(trigger))}"), "Input/output error")
    trigger.unlink()
    case.goes_on()


@pytest.fixture
def mounted(case: Case) -> Iterator[Case]:
    with small_disk(case.state, 64):
        yield case


def test_a_disk_that_becomes_read_only(mounted: Case) -> None:
    where = shlex.quote(str(mounted.state))
    # Lazily, for files are open for writing there: a disk with errors is made read-only by the kernel all the same.
    done = mounted.run(f"mount -o remount,ro {where} || mount --bind {where} {where} -o ro")
    mounted.ends(done, "Read-only file system")
    subprocess.run(["mount", "-o", "remount,rw", str(mounted.state)], check=True)
    mounted.goes_on()


def test_a_permission_that_is_lost(case: Case, tmp_path: Path) -> None:
    if os.geteuid() == 0:  # whom permissions do not bind
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("setpriv is not installed: root cannot become somebody whom permissions bind")
        case.before = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]
        subprocess.run(["chown", "-R", "65534:65534", str(tmp_path)], check=True)
        for above in (tmp_path, *tmp_path.parents):
            if above.stat().st_uid == 0 and above != Path("/") and str(above).startswith("/tmp/"):
                above.chmod(above.stat().st_mode | 0o055)
        subprocess.run(["git", "config", "--global", "--add", "safe.directory", "*"], check=True)
        starts = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
        if subprocess.run([*case.before, sys.executable, "-c", starts], check=False).returncode:
            pytest.skip("nobody but root can start this Python here")
    bags = case.state / "bookbag"
    case.ends(case.run(f"chmod 500 {shlex.quote(str(bags))}"), "Permission denied")
    bags.chmod(0o700)
    case.goes_on()


@pytest.mark.parametrize("days", [400, -400])
def test_a_clock_that_is_set_by_more_than_a_year(case: Case, tmp_path: Path, days: int) -> None:
    clock = Clock(tmp_path / "preload")
    case.env |= clock.env
    code = f"import struct; open({str(clock.file)!r}, 'r+b').write(struct.pack('q', {days * 86400}))"
    done = case.run(shlex.join([sys.executable, "-c", code]))
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert git(case.repo, "show", "school/add-a-file:added.txt") == "new"
    checked = case.conduct("check")
    assert checked.returncode == 0, checked.stdout
    clock.set(-days * 86400)
    for argv in (["status"], ["list", "--all"], ["check"], ["prune", "--days", "30", "--apply"]):
        assert case.conduct(*argv).returncode == 0, argv
    # Accepted and not merged: no clock makes it old enough to go.
    assert (
        git(case.repo, "for-each-ref", "--format=%(refname:short)", "refs/heads/school")
        == "school/add-a-file"
    )
    assert case.conduct("recover", "--all").returncode == 0


def test_a_file_system_whose_locks_keep_nobody_out_is_refused(case: Case, tmp_path: Path) -> None:
    case.env["LD_PRELOAD"] = build(NO_FLOCK, tmp_path / "preload")
    case.ends(
        case.run("true"), "locks: this file system grants a kernel lock to two at once; choose another folder"
    )
    rows = json.loads(case.conduct("doctor").stdout)
    assert [row["ok"] for row in rows if row["check"] == "kernel-locks"] == [False]

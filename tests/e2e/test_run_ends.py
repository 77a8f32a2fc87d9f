"""How a run ends when something keeps it from ending well: teachers that die, one that stands still, ``stop``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bookbag
from tests.e2e.projects import environment
from tests.support import ROOT, git, small_disk

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ADD = "python3 -c \"open('calc/extra.py', 'w').write('x = 1\\n')\""


def until(true: Callable[[], object], what: str, limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"never saw {what}"
        time.sleep(0.02)


@contextmanager
def started(*argv: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, *argv], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()


def conduct(*argv: str, env: dict[str, str]) -> tuple[int, Any, str]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "conductor.py"), *argv, "--json"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def test_five_deaths_of_a_teacher_in_a_minute_end_the_run_resumable(school, repo, own_home):
    env = environment(own_home)
    (school.teachers_dir / "cto.lock").mkdir(parents=True)  # no process can ever hold this
    code, document, stderr = conduct("--repo", str(repo), "--task", "Extra", "--run", ADD, env=env)
    assert (code, document["exit"]) == (3, 3)
    assert "teacher cto died 5 times in 60 s" in document["error"]
    assert "teacher-cto.log" in stderr
    assert document["tasks"][0]["outcome"] == "expired"
    assert list(school.worktrees_dir.glob("*/study-*")) == []
    (school.teachers_dir / "cto.lock").rmdir()
    code, document, _ = conduct("--repo", str(repo), "--resume", env=env)
    assert (code, document["tasks"][0]["outcome"], document["tasks"][0]["attempts"]) == (0, "accepted", 1)


def test_a_teacher_that_stands_still_expires_the_bead_and_the_next_run_takes_it_up(school, repo, own_home):
    env = environment(own_home)
    with started("teacher.py", "--role", "cto", env=env) as cto:
        until((school.teachers_dir / "cto.json").exists, "the CTO")
        until(
            lambda: json.loads((school.teachers_dir / "cto.json").read_text())["state"] == "idle", "it idle"
        )
        cto.send_signal(signal.SIGSTOP)
        code, document, _ = conduct(
            "--repo", str(repo), "--task", "Extra", "--run", ADD, "--handoff-timeout", "8", env=env
        )
        (row,) = document["tasks"]
        assert (code, row["outcome"], row["reason"]) == (1, "expired", "no progress by cto for 8 s")
        assert document["counts"]["expired"] == 1
        assert bookbag.bookbag_state(bookbag.read_bookbag(row["bead"])) == "COO_REVIEWED"
        assert bookbag.BookbagSignal(row["bead"]).check()
        assert list(school.worktrees_dir.glob("*/study-*")) == []
        cto.send_signal(signal.SIGCONT)
        code, document, _ = conduct("--repo", str(repo), "--task", "Extra", "--run", ADD, env=env)
        assert (code, document["tasks"][0]["outcome"], document["tasks"][0]["bead"]) == (
            0,
            "accepted",
            row["bead"],
        )
        cto.terminate()
        cto.wait(30)


def test_stop_ends_the_conductor_its_teachers_and_its_student(school, repo, own_home):
    env = environment(own_home)
    argv = ("conductor.py", "--repo", str(repo), "--task", "Sleep", "--run", "sleep 60")
    with started(*argv, env=env) as conductor:
        until(lambda: list(school.worktrees_dir.glob("*/study-*")), "a student at work")
        code, rows, _ = conduct("stop", "--repo", str(repo), env=env)
        assert (code, rows[0]["pid"], rows[0]["action"]) == (0, conductor.pid, "stopped")
        assert conductor.wait(10) == 128 + signal.SIGTERM
    archived = [bookbag.read_archived(bead) for bead in bookbag.list_bookbags(archived=True)]
    assert [(bag["outcome"], bag["reason"]) for bag in archived] == [("failed", "interrupted")]
    assert list(school.worktrees_dir.glob("*/study-*")) == []
    assert conduct("status", env=env)[1]["conductor"] is None
    assert conduct("stop", "--repo", str(repo), env=env)[:2] == (0, [])


def test_a_second_signal_ends_it_at_once_and_the_next_run_puts_it_right(school, repo, own_home):
    env = environment(own_home)
    stubborn = "python3 -c \"import signal, time; signal.signal(15, signal.SIG_IGN); open('calc/half.py', 'w').write('x\\n'); time.sleep(60)\""
    argv = ("conductor.py", "--repo", str(repo), "--task", "Stubborn", "--run", stubborn)
    with started(*argv, env=env) as conductor:
        until(lambda: list(school.worktrees_dir.glob("*/study-*/calc/half.py")), "half of the work")
        conductor.send_signal(signal.SIGINT)
        time.sleep(0.3)
        begun = time.monotonic()
        conductor.send_signal(signal.SIGTERM)
        assert conductor.wait(10) == 128 + signal.SIGTERM
        assert time.monotonic() - begun < 2
    (bead,) = bookbag.list_bookbags()
    code, document, _ = conduct("--repo", str(repo), "--task", "Extra", "--run", ADD, env=env)
    taken = next(row for row in document["tasks"] if row["bead"] == bead)
    assert (code, taken["outcome"], taken["attempts"]) == (1, "failed", 0)
    assert taken["reason"] in ("interrupted", "conductor_died")
    shown = subprocess.run(
        ["git", "show", f"{taken['ref']}:calc/half.py"], cwd=repo, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "x\n"


def test_a_plain_run_by_its_command_line_with_teachers_as_processes(repo, own_home):
    """No ``--sync``, nothing in this process: what a user does."""
    env = environment(own_home)
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "conductor.py"),
            "--task",
            "Extra",
            "--run",
            ADD,
            "--loop",
            "--rounds",
            "2",
        ],
        cwd=repo,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "accepted 1, rejected 0, failed 0, expired 0, blocked 0, no_change 0"
    assert any(f"git -C {repo} merge school/extra" in line for line in lines)
    assert Path(repo / ".git/refs/heads/school/extra").is_file()


FILL = """
import errno, os, sys
room, full = sys.argv[1:]
if os.path.exists(full + ".once"):
    sys.exit(0)
open(full + ".once", "w").close()
with open(full, "wb", buffering=0) as file:
    for size in (1 << 20, 1 << 12, 1):
        try:
            while True:
                file.write(bytes(size))
        except OSError as error:
            assert error.errno == errno.ENOSPC
"""


def test_a_disk_that_fills_while_only_teachers_write_ends_the_run_resumable(repo, own_home, tmp_path):
    """What fills it is run by a teacher; the bead is neither taken for slow nor left to a human."""
    with small_disk(tmp_path / "small", 64) as small:
        fills = tmp_path / "fills.py"
        fills.write_text(FILL)
        verify = [sys.executable, str(fills), str(small), str(small / "full")]
        suite = ["python3", "-m", "unittest", "discover"]
        loose = '[sandbox]\nmode = "off"\n'  # confined it could write nowhere near that disk
        (repo / "school.toml").write_text(f"[verify]\ncommands = {json.dumps([verify, suite])}\n{loose}")
        git(repo, "commit", "-q", "-a", "-m", "Fill")
        env = environment(own_home, HERMES_HOME=str(small / "h"))
        check = 'python3 -c "import calc.extra as e; assert e.x == 1"'
        argv = ("--task", "Extra", "--run", ADD, "--accept", "x is 1", "--check", check)
        code, document, stderr = conduct("--repo", str(repo), *argv, env=env)
        assert (code, document["exit"]) == (3, 3), stderr
        assert "the disk is full" in document["error"]
        (row,) = document["tasks"]
        assert (row["outcome"], row["attempts"]) == ("expired", 0)
        # They are gone, and could not even write it down.
        assert {row["state"] for row in conduct("status", env=env)[1]["teachers"]} <= {"dead"}
        (small / "full").unlink()
        code, document, stderr = conduct("--repo", str(repo), "--resume", env=env)
        (again,) = document["tasks"]
        assert again["bead"] == row["bead"], stderr
        assert (code, again["outcome"], again["attempts"]) == (0, "accepted", 1), stderr


FILLS = """\
import pathlib, tempfile, unittest
class FillTest(unittest.TestCase):
    def test_fill(self):
        place = pathlib.Path(tempfile.mkdtemp())
        for number in range(100):
            (place / str(number)).write_bytes(bytes(8_000_000))
"""


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_work_whose_tests_fill_the_disk_is_not_accepted_and_the_run_goes_on(
    repo, own_home, tmp_path, sandbox
):
    with small_disk(tmp_path / "roomy", 400) as roomy:
        (repo / "school.toml").write_text(
            f'[verify]\ncommands = [["python3", "-m", "unittest", "discover"]]\n[sandbox]\nmode = "{sandbox}"\n'
        )
        git(repo, "commit", "-q", "-a", "-m", "Say how it is verified")
        (tmp_path / "student.py").write_text(f"open('tests/test_fill.py', 'w').write({FILLS!r})")
        hostile = f"{ADD} && python3 {tmp_path / 'student.py'}"
        task = {"accept": [{"text": "x is 1", "check": ["python3", "-c", "import calc.extra"]}]}
        tasks = [
            {"id": "hostile", "task": "Fill", "run": ["sh", "-c", hostile], "max_attempts": 1, **task},
            {"id": "good", "task": "Extra", "run": ["sh", "-c", ADD], **task},
        ]
        (repo / "tasks.json").write_text(json.dumps({"version": 1, "tasks": tasks}))
        env = environment(own_home, HERMES_HOME=str(roomy / "h"), TMPDIR=str(roomy))
        code, document, stderr = conduct(
            "--repo", str(repo), "--tasks", str(repo / "tasks.json"), "--loop", env=env
        )
        assert "tasks" in document, document
        outcomes = {row["id"]: row["outcome"] for row in document["tasks"]}
        assert (code, outcomes) == (1, {"hostile": "rejected", "good": "accepted"}), (document, stderr)
        (said,) = [row for row in document["tasks"] if row["id"] == "hostile"]
        assert "it filled the disk" in json.dumps(said), said

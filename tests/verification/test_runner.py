from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from school.errors import MachineError
from school.verification.reports import COMMAND
from school.verification.runner import RECEIPT_OUTPUT_BYTES, CheckRun, run_check
from tests.support import small_disk, write_tree
from tests.verification.support import PYTEST, UNITTEST


def run(root: Path, argv: list[str], *, timeout_s: float = 30, **more: object) -> CheckRun:
    scratch = root.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
    return run_check(
        argv,
        worktree=root,
        env=env,
        timeout_s=timeout_s,
        marker="test-runner",
        check="verification",
        progress=lambda _: None,
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    return root


def test_pytest_names_its_tests(tree: Path) -> None:
    text = (
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0\n@pytest.mark.skip\ndef test_c(): pass\n"
    )
    write_tree(tree, {"test_it.py": text})
    done = run(tree, PYTEST, at="base", commit="c" * 40, tree="t" * 40)
    assert (done.outcome, done.exit_code, done.at, done.scope) == ("failed", 1, "base", "full")
    assert done.tests == {"passed": 1, "failed": 1, "errors": 0, "skipped": 1}
    assert done.tests_by_name == {
        "test_it::test_a": "passed",
        "test_it::test_b": "failed",
        "test_it::test_c": "skipped",
    }
    assert done.argv == PYTEST
    assert "1 failed, 1 passed, 1 skipped" in done.output
    assert "_outcomes" not in done.model_dump()


def test_unittest_names_its_tests_whatever_they_print(tree: Path) -> None:
    write_tree(
        tree,
        {
            "test_it.py": "import sys, unittest\nclass T(unittest.TestCase):\n"
            "    def test_a(self):\n        'A docstring'\n        print('ok', file=sys.stderr)\n"
            "    def test_b(self):\n        with self.subTest(1): self.fail()\n        with self.subTest(2): self.fail()\n"
            "    @unittest.skip('no')\n    def test_c(self): pass\n"
            "    @unittest.expectedFailure\n    def test_d(self): self.fail()\n",
        },
    )
    done = run(tree, UNITTEST)
    assert done.outcome == "failed"
    assert done.tests_by_name == {
        "test_it.T.test_a": "passed",
        "test_it.T.test_b": "failed",
        "test_it.T.test_c": "skipped",
        "test_it.T.test_d": "skipped",
    }


def test_unittest_finds_what_it_would_find_without_us(tree: Path) -> None:
    """The current directory is first on the path, as with -m, and not the folder of the script that records."""
    write_tree(
        tree,
        {
            "helper.py": "X = 1\n",
            "tests/test_it.py": "import sys, os, unittest, helper\nclass T(unittest.TestCase):\n"
            "    def test_a(self):\n        assert os.getcwd() in sys.path\n"
            "        assert not any('report-' in p for p in sys.path)\n",
        },
    )
    assert run(tree, [*UNITTEST, "-s", "tests"]).outcome == "passed"


@pytest.mark.parametrize("argv", [PYTEST, UNITTEST])
def test_a_run_that_collected_nothing_is_no_pass(tree: Path, argv: list[str]) -> None:
    write_tree(tree, {"test_it.py": "X = 1\n"})
    assert run(tree, argv).outcome == "no_tests"


@pytest.mark.parametrize("option", ["--collect-only", "--version"])
def test_pytest_that_runs_no_test_is_no_pass(tree: Path, option: str) -> None:
    write_tree(tree, {"test_it.py": "def test_a(): pass\n"})
    assert run(tree, [*PYTEST, option]).outcome in ("no_tests", "failed")


@pytest.mark.parametrize("argv", [PYTEST, UNITTEST])
@pytest.mark.parametrize("ending", ["import sys; sys.exit(0)", "import os; os._exit(0)"])
def test_code_that_ends_the_run_with_0_does_not_pass(tree: Path, argv: list[str], ending: str) -> None:
    write_tree(
        tree,
        {
            "pkg.py": f"{ending}\n",
            "test_it.py": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        import pkg\n",
        },
    )
    assert run(tree, argv).outcome == "failed"


def test_exit_at_import_does_not_pass(tree: Path) -> None:
    write_tree(tree, {"pkg.py": "import os\nos._exit(0)\n", "test_it.py": "import pkg\ndef test_a(): pass\n"})
    done = run(tree, PYTEST)
    assert (done.outcome, done.exit_code, done.tests_by_name) == ("failed", 0, None)
    assert "did not come to its own end" in done.detail


def test_an_exit_status_forced_to_0_does_not_hide_a_failed_test(tree: Path) -> None:
    write_tree(
        tree,
        {
            "conftest.py": "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n",
            "test_it.py": "def test_a(): assert 0\n",
        },
    )
    done = run(tree, PYTEST)
    assert done.exit_code == 0
    assert done.outcome == "failed"
    assert done.tests_by_name == {"test_it::test_a": "failed"}


def test_a_status_that_says_failure_stands_beside_passing_tests(tree: Path) -> None:
    write_tree(
        tree,
        {
            "conftest.py": "def pytest_sessionfinish(session):\n    session.exitstatus = 1\n",
            "test_it.py": "def test_a(): pass\n",
        },
    )
    done = run(tree, PYTEST)
    assert done.outcome == "failed"
    assert done.tests_by_name == {"test_it::test_a": "passed", COMMAND: "failed"}
    assert done.tests["failed"] == 0


FORGER = """
import atexit, sys
path = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("--junitxml="))
def forge():
    with open(path, "w") as out:
        out.write('<testsuites><testcase classname="test_it" name="test_a"/></testsuites>')
    import os
    os._exit(0)
atexit.register(forge)
"""


def test_a_forged_report_is_contradicted_by_what_pytest_printed(tree: Path) -> None:
    write_tree(tree, {"pkg.py": FORGER, "test_it.py": "import pkg\ndef test_a(): assert 0\n"})
    done = run(tree, PYTEST)
    assert done.exit_code == 0
    assert done.outcome == "failed"
    assert "1 failed" in done.detail


def test_a_report_that_is_a_link_or_a_fifo_counts_as_none(tree: Path) -> None:
    text = (
        "import atexit, os, sys\n"
        "path = next(a.split('=', 1)[1] for a in sys.argv if a.startswith('--junitxml='))\n"
        "def swap():\n    os.unlink(path)\n    os.mkfifo(path)\n"
        "atexit.register(swap)\ndef test_a(): pass\n"
    )
    write_tree(tree, {"test_it.py": text})
    assert run(tree, PYTEST).outcome == "failed"


def test_a_hanging_check_is_ended_at_its_limit_with_its_whole_tree(tree: Path) -> None:
    text = (
        "import subprocess, sys, os, signal\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal,time; "
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'], start_new_session=True)\n"
        "open('pid', 'w').write(str(child.pid))\n"
        "child.wait()\n"
    )
    write_tree(tree, {"hang.py": text})
    done = run(tree, [sys.executable, "hang.py"], timeout_s=0.7)
    assert done.outcome == "timed_out"
    assert not psutil.pid_exists(int((tree / "pid").read_text()))


def test_a_test_that_kills_its_parent_does_not_pass(tree: Path) -> None:
    text = "import os, signal\ndef test_a(): os.kill(os.getppid(), signal.SIGKILL)\n"
    write_tree(tree, {"test_it.py": text})
    assert run(tree, PYTEST, timeout_s=20).outcome in ("failed", "timed_out")


def test_a_test_that_kills_itself_does_not_pass(tree: Path) -> None:
    write_tree(tree, {"test_it.py": "import os\ndef test_a(): os.kill(os.getpid(), 9)\n"})
    done = run(tree, PYTEST)
    assert (done.outcome, done.exit_code) == ("failed", 137)


def test_a_flood_of_output_is_bounded(tree: Path) -> None:
    write_tree(
        tree, {"flood.py": "import sys\nfor _ in range(2000): sys.stdout.write('x' * 50_000)\nprint('END')\n"}
    )
    done = run(tree, [sys.executable, "flood.py"])
    assert done.outcome == "passed"
    assert len(done.output.encode()) <= RECEIPT_OUTPUT_BYTES
    assert done.output.rstrip().endswith("END")


def test_what_cannot_be_started_was_not_run(tree: Path) -> None:
    done = run(tree, ["no-such-program-anywhere"])
    assert (done.outcome, done.exit_code) == ("not_run", None)
    assert done.detail


def test_a_cancelled_run_says_so(tree: Path) -> None:
    done = run(tree, [sys.executable, "-c", "import time; time.sleep(600)"], cancelled=lambda: True)
    assert done.cancelled
    assert done.outcome == "not_run"


def test_nothing_is_left_in_the_scratch(tree: Path) -> None:
    write_tree(tree, {"test_it.py": "def test_a(): pass\n"})
    run(tree, PYTEST)
    assert list((tree.parent / "scratch").iterdir()) == []


def test_a_script_that_says_it_ran_no_test_is_no_pass(tree: Path) -> None:
    line = "import unittest; unittest.main(argv=['x'], exit=False)"
    assert run(tree, [sys.executable, "-c", line]).outcome == "no_tests"


def test_other_tests_still_run_where_one_module_cannot_be_collected(tree: Path) -> None:
    write_tree(tree, {"test_a.py": "import nothing_of_that_name\n", "test_b.py": "def test_b(): pass\n"})
    done = run(tree, [*PYTEST, "-x"])
    assert done.tests_by_name == {"::test_a": "error", "test_b::test_b": "passed"}


@pytest.mark.parametrize(
    ("printed", "outcome"),
    [
        ("running 2 tests\ntest result: ok. 2 passed\n", "passed"),
        ("running 2 tests\n", "failed"),
        ("running 1 test\ntest result: ok. 1 passed\n\nrunning 3 tests\n", "failed"),
        ("running 2 tests from ./a.ts\n", "passed"),
    ],
)
def test_a_run_of_cargo_that_ends_before_its_own_end(tree: Path, printed: str, outcome: str) -> None:
    assert run(tree, [sys.executable, "-c", f"print({printed!r})"]).outcome == outcome


def test_what_fails_on_a_full_disk_shows_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 2) as small:
        (small / "full").write_bytes(bytes(1536 * 1024))
        with pytest.raises(MachineError, match=r"^verification: failed, and .*/small is full$"):
            run(small, ["false"])
        assert run(small, ["true"]).outcome == "passed"


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Path]:
    """A working tree on a disk of 400 MiB, which a command fills in less than a second."""
    with small_disk(tmp_path / "roomy", 400) as place:
        yield place


@pytest.mark.parametrize("pause", ["", "; sleep 0.02"])
def test_who_fills_the_disk_by_many_files_did_not_come_to_an_end(roomy: Path, pause: str) -> None:
    line = f"n=0; while [ $n -lt 60 ]; do n=$((n+1)); head -c 8000000 /dev/zero > f$n || exit 3{pause}; done"
    done = run(roomy, ["sh", "-c", line])
    assert (done.outcome, done.detail.partition(": ")[0]) == ("timed_out", "it filled the disk")
    # Whoever judges it has room to write that down.
    assert os.statvfs(roomy).f_bavail * os.statvfs(roomy).f_frsize > 300 * 1024 * 1024
    assert run(roomy, ["true"]).outcome == "passed"


def test_one_file_takes_no_more_than_half_of_what_is_free(roomy: Path) -> None:
    done = run(roomy, ["sh", "-c", "head -c 900000000 /dev/zero > big"])
    assert done.outcome == "failed"
    assert (roomy / "big").stat().st_size == 200 * 1024 * 1024


def test_a_disk_that_somebody_else_fills_is_not_held_against_a_check(roomy: Path) -> None:
    elsewhere, tree, begin = roomy / "elsewhere", roomy / "tree", roomy / "begin"
    elsewhere.mkdir()
    tree.mkdir()
    os.mkfifo(begin)
    other = 'read go < "$0"; for n in 1 2 3 4 5 6; do head -c 60000000 /dev/zero > "$1/$n"; done'
    with subprocess.Popen(["sh", "-c", other, str(begin), str(elsewhere)]) as filler:
        with pytest.raises(MachineError, match=r"^verification: ended before the disk was full: "):
            run(tree, ["sh", "-c", 'echo go > "$0"; sleep 30', str(begin)])
        assert filler.wait(30) == 0

"""Teachers with the checks that they really have, on a real project: good work passes, bad work does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.contracts import TEACHER_ROLES
from school.settings import Settings
from school.system import processes
from teacher import TeacherWorktree, checks_for
from tests.support import CALC_FILES, ROOT, git
from tests.teacher_support import hand_over, record_of, until

VERIFY = [["python3", "-m", "unittest", "discover", "-v"]]
RAISES = {
    "calc/core.py": CALC_FILES["calc/core.py"].replace(
        "    return [int(part)",
        '    if not text.strip():\n        raise ValueError("nothing to parse")\n    return [int(part)',
    ),
    "tests/test_parse.py": (
        "import unittest\n\nfrom calc import parse\n\n\nclass ParseTest(unittest.TestCase):\n"
        "    def test_empty(self):\n        with self.assertRaises(ValueError):\n            parse('')\n"
    ),
}
CRITERION = [
    {"id": "a1", "text": "parse('') raises", "check": ["python3", "-m", "unittest", "tests.test_parse"]}
]


def judged(repo: Path, files: dict[str, str], **fields: Any) -> dict[str, Any]:
    fields = {"acceptance": CRITERION, "terms": {"verify": VERIFY, "allow": []}} | fields
    bead = hand_over(repo, files=files, **fields)
    for role in TEACHER_ROLES:
        TeacherWorktree(role).review(bead)
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    return bag


def classes(bag: dict[str, Any]) -> set[str]:
    return {
        finding["issue_class"] for finding in bag["findings"] if finding["severity"] in ("CRITICAL", "HIGH")
    }


def test_good_work_is_accepted_on_evidence_of_both(school: Settings, repo: Path) -> None:
    before = git(repo, "for-each-ref"), git(repo, "status", "--porcelain=v2", "--branch")
    bag = judged(repo, RAISES)
    assert (bag["cto_verdict"], bag["coo_verdict"], bag["accepted"]) == ("PASS", "PASS", True), bag[
        "cto_review"
    ]
    assert bag["ac_met"] == ["parse('') raises"]
    for role in TEACHER_ROLES:
        receipts = [receipt for lens in bag[f"{role}_review"]["lenses"] for receipt in lens["receipts"]]
        assert any(receipt["at"] == "head" and receipt["outcome"] == "passed" for receipt in receipts), role
    assert (git(repo, "for-each-ref"), git(repo, "status", "--porcelain=v2", "--branch")) == before


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({**RAISES, "calc/core.py": RAISES["calc/core.py"].replace("left + right", "left - right")}, "tests_broken"),
        ({**RAISES, "tests/test_core.py": ""}, "test_deleted"),
        ({"calc/core.py": CALC_FILES["calc/core.py"] + "\n# done\n", "tests/test_parse.py": RAISES["tests/test_parse.py"]}, "criterion_unmet"),
    ],
)  # fmt: skip
def test_bad_work_is_not(school: Settings, repo: Path, files: dict[str, str], reason: str) -> None:
    bag = judged(repo, files)
    assert "FAIL" in (bag["cto_verdict"], bag["coo_verdict"]), (bag["cto_review"], bag["coo_review"])
    assert bag["accepted"] is False
    assert reason in classes(bag)


@pytest.mark.parametrize("role", TEACHER_ROLES)
def test_every_lens_has_a_check(role: str) -> None:
    lenses = {"cto": {"CORRECTNESS", "SECURITY"}, "coo": {"COMPLETENESS"}}[role]
    checks = checks_for(role)  # type: ignore[arg-type]
    assert {check.lens for check in checks} == lenses
    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    if role == "cto":
        assert names.index("verification") < names.index("tampering")


# --- the real process -------------------------------------------------------------------------------------


def stand(school: Settings, role: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "teacher.py"), "--role", role, *args],
        env={**os.environ, **school.environment()},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def waits_for(gate: Path) -> list[list[str]]:
    """A verify command that runs until *gate* is there, with a grandchild that would not end by itself."""
    code = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    )
    return [["python3", "-c", code]]


def busy(school: Settings) -> bool:
    return record_of(school, "cto").get("check", "").startswith("verification")


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_told_to_stop_by_hand_it_ends_the_check_and_says_which_signal(
    school: Settings, repo: Path, tmp_path: Path, number: int, exit_code: int
) -> None:
    bead = hand_over(repo, terms={"verify": waits_for(tmp_path / "never")})
    teacher = stand(school, "cto")
    until(lambda: busy(school))
    until(lambda: processes.marked(f"{bead}-cto"))
    teacher.send_signal(number)
    out, _ = teacher.communicate(timeout=20)
    assert teacher.returncode == exit_code, out
    assert not processes.marked(f"{bead}-cto")
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    assert (bag["cto_verdict"], bag["cto_review"]["attempts"]) == ("", 0)


def test_killed_in_a_check_it_leaves_no_process_and_the_next_one_judges(
    school: Settings, repo: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    bead = hand_over(repo, terms={"verify": waits_for(gate)})
    teacher = stand(school, "cto")
    until(lambda: processes.marked(f"{bead}-cto"))
    teacher.kill()
    teacher.communicate(timeout=20)
    until(lambda: not processes.marked(f"{bead}-cto"), 5.0)
    gate.touch()
    again = stand(school, "cto", "--once")
    out, _ = again.communicate(timeout=60)
    assert again.returncode == 0, out
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    assert bag["cto_verdict"] in ("PASS", "FAIL")
    assert bag["cto_review"]["attempts"] == 1
    assert not processes.marked(f"{bead}-cto")

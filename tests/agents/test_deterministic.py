"""The deterministic agents, run as programs in a folder, each with its own way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from school.agents.deterministic import edits_of
from school.agents.registry import resolve
from school.contracts import ProjectConfig
from tests.support import CALC_FILES, write_tree

TASK = "Make add wrong.\n\nAPPLY: calc/core.py :: return left + right -> return left - right\n"


def start(root: Path, behaviour: str, task: str = TASK, **brief: Any) -> subprocess.Popen[bytes]:
    write_tree(root, CALC_FILES)
    record = {"task": task, "acceptance": [{"id": "ac1", "text": "it is wrong"}], "findings": [], **brief}
    (root / "brief.json").write_text(json.dumps(record))
    env = {
        "PATH": os.environ["PATH"],
        "SCHOOL_BRIEF": str(root / "brief.json"),
        "SCHOOL_RESULT": str(root / "result.json"),
        "SCHOOL_FLOOD_BYTES": "1000000",
    }
    argv = resolve(f"demo-{behaviour}", ProjectConfig()).argv
    return subprocess.Popen(
        argv, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run(root: Path, behaviour: str, task: str = TASK, **brief: Any) -> tuple[int, dict[str, Any], bytes]:
    process = start(root, behaviour, task, **brief)
    out, err = process.communicate(timeout=20)
    result = root / "result.json"
    return process.returncode, json.loads(result.read_text()) if result.exists() else {}, out + err


def core(root: Path) -> str:
    return (root / "calc" / "core.py").read_text()


def test_good_does_as_told(tmp_path: Path) -> None:
    code, claim, _ = run(tmp_path, "good")
    assert (code, claim["status"], claim["ac_met"]) == (0, "done", ["ac1"])
    assert core(tmp_path) == CALC_FILES["calc/core.py"].replace("left + right", "left - right")


def test_learner_is_wrong_until_it_has_findings(tmp_path: Path) -> None:
    code, claim, _ = run(tmp_path, "learner")
    assert (code, claim["status"]) == (0, "done")
    assert core(tmp_path).startswith(CALC_FILES["calc/core.py"])
    assert core(tmp_path) != CALC_FILES["calc/core.py"]
    run(tmp_path, "learner", findings=[{"description": "still adds"}])
    assert "left - right" in core(tmp_path)


def test_test_deleter_leaves_no_test(tmp_path: Path) -> None:
    assert run(tmp_path, "test-deleter")[1]["status"] == "done"
    assert "left - right" in core(tmp_path)
    assert not (tmp_path / "tests" / "test_core.py").exists()
    assert (tmp_path / "tests" / "__init__.py").exists()


def test_idler_claims_and_does_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "idler")[1]["status"] == "done"
    assert core(tmp_path) == CALC_FILES["calc/core.py"]


def test_hanger_works_and_does_not_hear_a_request_to_end(tmp_path: Path) -> None:
    process = start(tmp_path, "hanger")
    deadline = time.monotonic() + 10
    while "left - right" not in core(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "left - right" in core(tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.kill()
    process.communicate()


def test_flooder_prints_all_it_should_and_works(tmp_path: Path) -> None:
    code, claim, out = run(tmp_path, "flooder")
    assert (code, claim["status"]) == (0, "done")
    assert 1_000_000 <= len(out) < 1_001_000


def test_dier_dies_with_half_the_work_done(tmp_path: Path) -> None:
    code, claim, out = run(tmp_path, "dier", TASK + "APPLY: calc/new.py ::  -> x = 1\n")
    assert (code, claim) == (-signal.SIGKILL, {})
    assert b"about to die" in out
    assert "left - right" in core(tmp_path)
    assert not (tmp_path / "calc" / "new.py").exists()


@pytest.mark.parametrize(
    ("line", "edit"),
    [
        ("APPLY: a.py :: x = 1 -> x = 2", ("a.py", "x = 1", "x = 2")),
        ("  APPLY: a b.py :: x -> y  ", ("a b.py", "x", "y")),
        ("APPLY: a.py ::  -> x = 1\\ny = 2", ("a.py", "", "x = 1\ny = 2")),
        ("APPLY: a.py :: -> x = 1", ("a.py", "", "x = 1")),
        ("APPLY: a.py :: gone -> ", ("a.py", "gone", "")),
        ("APPLY: a.py :: def f() -> int: -> def f() -> str:", ("a.py", "def f() -> int:", "def f() -> str:")),
    ],
)
def test_lines_that_say_what_to_do(line: str, edit: tuple[str, str, str]) -> None:
    assert edits_of(f"Do it.\n{line}\nThanks, and APPLY: nothing else.") == [edit]


@pytest.mark.parametrize("task", ["APPLY: a.py", "APPLY: calc/core.py :: no such text -> x"])
def test_a_line_that_cannot_be_applied_is_an_error(task: str, tmp_path: Path) -> None:
    code, claim, said = run(tmp_path, "good", task)
    assert (code, claim) == (1, {})
    assert b"cannot be applied" in said or b"does not hold" in said


def test_a_new_file_is_made_with_its_folders(tmp_path: Path) -> None:
    run(tmp_path, "good", "APPLY: docs/new/a.md ::  -> # A\\n\\nText.")
    assert (tmp_path / "docs" / "new" / "a.md").read_text() == "# A\n\nText.\n"

"""A real teacher process that asks a model or a command: told to stop or killed in the middle, it loses and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.settings import Settings
from school.system import processes
from tests.endpoint import HANG, FakeEndpoint, say
from tests.support import ROOT
from tests.teacher_support import hand_over, record_of, until

PASSED = json.dumps({"outcome": "PASS", "findings": []})
VERIFY = [["python3", "-m", "unittest", "discover"]]


def stand(school: Settings, *args: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "teacher.py"), "--role", "cto", *args],
        env={**os.environ, **school.environment(), "JUDGE": "key-for-the-judge", **env},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def handed(repo: Path, agent: dict[str, Any]) -> str:
    terms = {"verify": VERIFY, "reviewers": {"cto": {"agent": {"name": "judge", **agent}}}}
    return hand_over(repo, terms=terms)


def asking(endpoint: FakeEndpoint) -> dict[str, Any]:
    return {"kind": "model", "model": "openai:j", "base_url": endpoint.base_url, "api_key_env": "JUDGE"}


def review_of(bead: str) -> dict[str, Any]:
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    return {"verdict": bag["cto_verdict"], **{k: bag["cto_review"][k] for k in ("attempts", "reason")}}


def works_on(school: Settings, step: str) -> bool:
    return str(record_of(school, "cto").get("check", "")).startswith(step)


def test_told_to_stop_while_a_model_hangs_it_counts_nothing(school: Settings, repo: Path) -> None:
    with FakeEndpoint([HANG]) as endpoint:
        bead = handed(repo, asking(endpoint))
        teacher = stand(school)
        until(lambda: works_on(school, "model-correctness"), 60)
        until(lambda: endpoint.requests, 30)
        teacher.send_signal(signal.SIGTERM)
        out, _ = teacher.communicate(timeout=20)
    assert teacher.returncode == 143, out
    assert review_of(bead) == {"verdict": "", "attempts": 0, "reason": ""}


def test_killed_while_a_command_judges_nothing_runs_on_and_the_next_one_judges(
    school: Settings, repo: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    code = (
        "import os, subprocess, sys, time\n"
        f"if not os.path.exists({str(gate)!r}):\n"
        "    subprocess.Popen(['sleep', '600'], start_new_session=True)\n    time.sleep(600)\n"
        f"print({PASSED!r})"
    )
    bead = handed(repo, {"kind": "command", "argv": [sys.executable, "-c", code]})
    teacher = stand(school)
    until(lambda: works_on(school, "model-correctness"), 60)
    until(lambda: processes.marked(f"{bead}-cto"), 30)
    teacher.kill()
    teacher.communicate(timeout=20)
    until(lambda: not processes.marked(f"{bead}-cto"), 5)
    gate.touch()
    again = stand(school, "--once")
    out, _ = again.communicate(timeout=100)
    assert again.returncode == 0, out
    assert review_of(bead) == {"verdict": "PASS", "attempts": 1, "reason": ""}


@pytest.mark.parametrize("variable", [{"DEFAULT_REVIEW_TIMEOUT": "1"}, {"JUDGE": ""}])
def test_what_it_cannot_honour_it_says_and_passes_nothing(
    school: Settings, repo: Path, variable: dict[str, str]
) -> None:
    with FakeEndpoint([HANG] if "JUDGE" not in variable else [say(PASSED)]) as endpoint:
        bead = handed(repo, asking(endpoint))
        teacher = stand(school, "--once", **variable)
        out, _ = teacher.communicate(timeout=100)
    assert teacher.returncode == 0, out
    review = review_of(bead)
    assert (review["verdict"], review["attempts"]) == ("", 1)
    assert ("timeout: " if "JUDGE" not in variable else "JUDGE") in review["reason"]

"""``python conductor.py demo``: every student ends as it should, nothing of it is left running or lying about."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.e2e.projects import environment
from tests.support import ROOT, git

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """One demonstration for all tests here: exit status, document, and what went to stderr."""
    place = tmp_path_factory.mktemp("demo")
    env = environment(place, TMPDIR=str(place))
    done = subprocess.run(
        [sys.executable, str(ROOT / "conductor.py"), "demo", "--json"],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture
def state(shown) -> Path:
    return Path(shown[1]["directory"]) / "hermes"


def task(shown, name):
    return next(row for row in shown[1]["run"]["tasks"] if row["id"] == name)


def findings(shown, state, name):
    bag = json.loads((state / "bookbag/archive" / task(shown, name)["bead"] / "bookbag.json").read_text())
    return {finding["section"] for finding in bag["findings"] if finding["severity"] in ("CRITICAL", "HIGH")}


def test_each_student_ends_as_it_should(shown):
    code, document, stderr = shown
    assert {row["student"]: row["outcome"] for row in document["students"]} == {
        "good": "accepted",
        "learner": "accepted",
        "hanger": "failed",
        "test-deleter": "rejected",
        "idler": "rejected",
        "api-breaker": "rejected",
    }, stderr
    assert all(row["as_expected"] for row in document["students"]), document["students"]
    assert (code, document["exit"]) == (0, 0)


def test_it_says_that_its_students_are_simulated(shown):
    assert "simulated" in shown[2]


def test_the_learner_needed_its_findings(shown, state):
    assert task(shown, "learner")["attempts"] == 2
    archive = state / "bookbag/archive"
    brief = json.loads((archive / task(shown, "learner")["bead"] / "brief.json").read_text())
    assert [finding["issue_class"] for finding in brief["findings"]] == ["criterion_unmet"]


@pytest.mark.parametrize(
    ("student", "section"),
    [("test-deleter", "tampering"), ("idler", "artifact"), ("api-breaker", "preservation")],
)
def test_the_finding_says_why(shown, state, student, section):
    assert section in findings(shown, state, student)
    assert task(shown, student)["branch"] == ""


def test_accepted_work_is_on_branches_and_nothing_else_moved(shown):
    repo = Path(shown[1]["repo"])
    assert git(repo, "branch", "--format=%(refname:short)").split() == [
        "main",
        "school/good",
        "school/learner",
    ]
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "rev-parse", "main") == shown[1]["run"]["base"]
    assert "{number:,d}" in git(repo, "show", "school/learner:tally/report.py")


def test_the_work_of_the_hanging_student_is_kept(shown):
    repo, row = Path(shown[1]["repo"]), task(shown, "hanger")
    assert row["reason"] == "stalled"
    assert "the mean of nothing" in git(repo, "show", f"{row['ref']}:tally/numbers.py")


def test_nothing_is_left(shown, state):
    running = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if str(state) in " ".join(process.info["cmdline"] or ())
    ]
    assert running == []
    for folder in ("signals", "locks", "worktrees", "school/beads", "school/processes", "school/worktrees"):
        left = [
            str(path)
            for path in (state / folder).rglob("*")
            if path.is_file() and path.name not in (".guard", ".guard.turn")
        ]
        assert left == [], folder
    assert [path.name for path in (state / "bookbag").glob("*.json")] == []


def test_every_attempt_is_in_the_archive_with_its_evidence(shown, state):
    beads = sorted(path.name for path in (state / "bookbag/archive").iterdir())
    assert len(beads) == 7
    for bead in beads:
        names = {path.name for path in (state / "bookbag/archive" / bead).iterdir()}
        assert {"bookbag.json", "brief.json", "output.json", "diff.patch"} <= names, bead

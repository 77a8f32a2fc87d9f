"""The main job on real projects: chores are accepted, a spelling chore that breaks things is not.

Each project comes from the package index; its suite's size is asserted, so that a receipt for fewer tests than the
project has cannot pass for the whole.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.projects import bag_of, classes, conduct, environment, project, receipts
from tests.support import git
from tests.support_git import repository_state

pytestmark = [pytest.mark.e2e, pytest.mark.network, pytest.mark.timeout(560)]

PYTEST = ["env", "PYTHONPATH=src", "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
CHORES = ("unused-imports", "safe-lint", "format", "docstrings")
TASK_FILE = """version: 1
tasks:
"""
TASK = """  - id: {chore}
    role: executor
    task: Run the chore {chore} over the package.
    chore: {chore}
"""
# Tests in each suite, skipped ones included, counted by running it by hand at that version.
SIZES = {("inflection", "0.5.1"): 455, ("tabulate", "0.9.0"): 284, ("humanize", "4.4.0"): 458}


@pytest.fixture
def cache(pytestconfig: pytest.Config) -> Path:
    return Path(pytestconfig.cache.mkdir("sdists"))


def count(receipt: dict[str, dict[str, int]]) -> int:
    return sum(receipt["tests"].values())


@pytest.mark.parametrize(("name", "version"), SIZES)
def test_four_chores_are_accepted(
    name: str, version: str, tmp_path: Path, own_home: Path, cache: Path
) -> None:
    root = project(name, version, tmp_path, cache, verify=PYTEST)
    tasks = root.parent / "tasks.yaml"
    tasks.write_text(TASK_FILE + "".join(TASK.format(chore=chore) for chore in CHORES))
    before = repository_state(root)
    env = environment(own_home)

    code, run, stderr = conduct(
        "--repo", str(root), "--tasks", str(tasks), "--loop", "--rounds", "2", "--leaves", "2", env=env
    )

    assert (code, run["counts"]["accepted"]) == (0, 4), (run, stderr[-3000:])
    assert [task["id"] for task in run["tasks"]] == list(CHORES)
    for task in run["tasks"]:
        assert git(root, "diff", "--stat", run["base"], task["branch"]) != ""
        heads = [r for r in receipts(bag_of(task["bead"], env), "cto", "verification") if r["at"] == "head"]
        assert [count(receipt) for receipt in heads] == [SIZES[name, version]]
        elsewhere = tmp_path / f"branch-{task['id']}"
        git(root, "clone", "-q", "--branch", task["branch"], str(root), str(elsewhere))
        suite = subprocess.run(
            [sys.executable, *PYTEST[3:]],
            cwd=elsewhere,
            env={**env, "PYTHONPATH": "src"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert suite.returncode == 0, suite.stdout[-2000:]
    after = repository_state(root)
    gained = {name for name in after if name not in before}
    assert {key: after[key] for key in before} == before
    assert all("school/" in name for name in gained), gained


@pytest.mark.parametrize(("name", "version"), [("toolz", "0.12.0"), ("humanize", "4.4.0")])
def test_a_spelling_tool_let_loose_is_rejected_by_more_than_one_check(
    name: str, version: str, tmp_path: Path, own_home: Path, cache: Path
) -> None:
    root = project(name, version, tmp_path, cache, verify=PYTEST)
    env = environment(own_home)
    code, run, stderr = conduct(
        "--repo",
        str(root),
        "--task",
        "Correct the spelling",
        "--run",
        "codespell -w",
        "--role",
        "executor",
        env=env,
    )
    (task,) = run["tasks"]
    assert (code, task["outcome"], task["branch"]) == (1, "rejected", ""), stderr[-3000:]
    assert len(classes(bag_of(task["bead"], env))) > 1, bag_of(task["bead"], env)["findings"]


RED = """

def test_red_before_anybody_came():
    assert len("ab") == 3
"""
BREAK = "python -c \"import re,pathlib; p=pathlib.Path('inflection/__init__.py'); s=p.read_text(); p.write_text(s.replace('return word', 'return word + chr(33)'))\""
HARMLESS = "python -c \"import pathlib; p=pathlib.Path('inflection/__init__.py'); p.write_text(p.read_text() + 'HARMLESS = True' + chr(10))\""


def test_red_at_base_is_compared_not_blamed(tmp_path: Path, own_home: Path, cache: Path) -> None:
    root = project("inflection", "0.5.1", tmp_path, cache, verify=PYTEST)
    with (root / "test_inflection.py").open("a") as suite:
        suite.write(RED)
    git(root, "commit", "-q", "-a", "-m", "A red test")
    env = environment(own_home)
    args = ("--repo", str(root), "--role", "executor", "--rounds", "1")

    code, run, stderr = conduct(*args, "--task", "Add a constant", "--run", HARMLESS, env=env)
    assert (code, run["tasks"][0]["outcome"]) == (0, "accepted"), stderr[-3000:]
    code, run, stderr = conduct(*args, "--task", "Return something else", "--run", BREAK, env=env)
    assert (code, run["tasks"][0]["outcome"]) == (1, "rejected"), stderr[-3000:]

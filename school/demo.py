"""A small example project, and the demonstration that runs six students on it.

``make_example(directory)`` creates a git repository with a package, its tests, ``school.toml`` and
``school-tasks.yaml``: the tasks of an ordinary run, all of which end accepted. ``make_demo(directory)`` is the same
project with one task for each way a student can go wrong. Nothing is installed for it and nothing is fetched: its
own checks are ``python3 -m unittest``. The students named ``demo-*`` are programs and no models, and say so.

``judge(run)`` compares how each student ended with how it should have: the demonstration proves something, so it can
fail. Errors: MachineError where the directory cannot be used, GitError where git cannot.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import bookbag
from school import settings
from school.contracts import TEACHER_ROLES
from school.errors import MachineError
from school.settings import Settings
from school.supervisor.request import Request
from school.supervisor.result import Result
from school.system.git import Git
from school.worktrees import TeacherTrees

LEAVES: Final = 3
IDENTITY: Final = {
    "GIT_AUTHOR_NAME": "Example",
    "GIT_AUTHOR_EMAIL": "example@example.invalid",
    "GIT_COMMITTER_NAME": "Example",
    "GIT_COMMITTER_EMAIL": "example@example.invalid",
}

PROJECT: Final[dict[str, str]] = {
    "tally/__init__.py": (
        '"""Small sums."""\n\nfrom tally.numbers import mean, parse, total\nfrom tally.report import amount, line\n\n'
        '__all__ = ["amount", "line", "mean", "parse", "total"]\n'
    ),
    "tally/numbers.py": (
        '"""Sums, means, and reading numbers."""\n\nimport sys\nimport os\nfrom typing import List\n\n\n'
        'def total(numbers):\n    """The sum of *numbers*."""\n    return sum(numbers)\n\n\n'
        'def mean(numbers):\n    """The arithmetic mean of *numbers*."""\n    return total(numbers) / len(numbers)\n\n\n'
        'def parse(text):\n    """The whole numbers in *text*, separated by commas."""\n'
        '    return [int(part) for part in text.split(",") if part.strip()]\n\n\n'
        'def spread(numbers):\n    """How far apart the largest and the smallest of *numbers* are."""\n'
        "    return max(numbers) - min(numbers)\n"
    ),
    "tally/report.py": (
        '"""Numbers as people read them."""\n\nimport json\n\n\n'
        'def line(label, number):\n    """One line of a report."""\n    return "%s: %s" % (label, number)\n\n\n'
        'def amount(number):\n    """A number as it is written."""\n    return str(number)\n'
    ),
    "tests/__init__.py": "",
    "tests/test_numbers.py": (
        "import unittest\n\nfrom tally import mean, parse, total\n\n\nclass NumbersTest(unittest.TestCase):\n"
        "    def test_total(self):\n        self.assertEqual(total([1, 2, 3]), 6)\n\n"
        "    def test_mean(self):\n        self.assertEqual(mean([2, 4]), 3)\n\n"
        '    def test_parse(self):\n        self.assertEqual(parse("1, 2,3"), [1, 2, 3])\n'
    ),
    "tests/test_report.py": (
        "import unittest\n\nfrom tally import line\n\n\nclass ReportTest(unittest.TestCase):\n"
        '    def test_line(self):\n        self.assertEqual(line("apples", 3), "apples: 3")\n'
    ),
    ".gitignore": "__pycache__/\n*.pyc\n",
    "README.md": "# tally\n\nSmall sums: an example project to try the school on.\n",
}

VERIFY: Final = '[verify]\ncommands = [["python3", "-m", "unittest", "discover", "-v"]]\n'
# A student that is silent, burns no CPU and changes no file for three seconds is given up.
DEMO_LIMITS: Final = "\n[limits]\nstartup_timeout_s = 10.0\nstall_timeout_s = 3.0\nagent_timeout_s = 30.0\n"

EXAMPLE_TASKS: Final = """\
# What the school is to do on this repository. Try it:  conductor.py --loop --rounds 2
version: 1
defaults: {domain: python-coding, difficulty: easy, max_attempts: 3}
tasks:
  - id: unused-imports
    role: executor
    task: Remove unused imports and sort the rest.
    chore: unused-imports
    accept:
      - text: no unused or unsorted import is left
        check: [ruff, check, --isolated, --select, "F401,I001", tally]
  - id: f-strings
    role: executor
    task: Write f-strings in place of % formatting.
    chore: f-strings
    needs: [unused-imports]
  - id: mean-of-nothing
    role: coder
    agent: demo-good
    task: |
      mean([]) must raise ValueError with a message that says so, and a test must show it.
      {mean}
      {mean_test}
    accept:
      - text: mean of nothing raises ValueError
        check: [python3, -m, unittest, -v, tests.test_mean_of_nothing]
  - id: thousands
    role: coder
    agent: demo-learner
    task: |
      amount(1234567) must be "1,234,567".
      {thousands}
    accept:
      - text: thousands are separated by commas
        check: {thousands_check}
"""

DEMO_TASKS: Final = """\
# One task for each way a student can end; `conductor.py demo` runs them.
version: 1
defaults: {domain: python-coding, difficulty: easy, max_attempts: 1}
tasks:
  - id: good
    role: coder
    agent: demo-good
    task: |
      mean([]) must raise ValueError with a message that says so, and a test must show it.
      {mean}
      {mean_test}
    accept:
      - text: mean of nothing raises ValueError
        check: [python3, -m, unittest, -v, tests.test_mean_of_nothing]
  - id: learner
    role: coder
    agent: demo-learner
    max_attempts: 2
    task: |
      amount(1234567) must be "1,234,567".
      {thousands}
    accept:
      - text: thousands are separated by commas
        check: {thousands_check}
  - id: hanger
    role: coder
    agent: demo-hanger
    task: |
      mean([]) must raise ValueError with a message that says so.
      {mean}
  - id: test-deleter
    role: coder
    agent: demo-test-deleter
    task: |
      total() of nothing must be 0.0.
      APPLY: tally/numbers.py :: return sum(numbers) -> return sum(numbers, 0.0)
  - id: idler
    role: coder
    agent: demo-idler
    task: spread() of nothing must raise ValueError with a message that says so.
  - id: api-breaker
    role: executor
    task: Remove functions that nothing calls.
    run: [python3, -c, {breaker}]
    preserve: [api]
"""

_FILLS: Final = {
    "{mean}": (
        'APPLY: tally/numbers.py :: """The arithmetic mean of *numbers*.""" -> '
        '"""The arithmetic mean of *numbers*; ValueError where there are none."""\\n'
        '    if not numbers:\\n        raise ValueError("the mean of nothing")'
    ),
    "{mean_test}": (
        "APPLY: tests/test_mean_of_nothing.py :: -> import unittest\\n\\nfrom tally import mean\\n\\n\\n"
        "class MeanOfNothingTest(unittest.TestCase):\\n    def test_it_is_refused(self):\\n"
        "        with self.assertRaises(ValueError):\\n            mean([])"
    ),
    "{thousands}": 'APPLY: tally/report.py :: return str(number) -> return f"{number:,d}"',
    "{thousands_check}": (
        "[python3, -c, 'from tally import amount; assert amount(1234567) == \"1,234,567\", amount(1234567)']"
    ),
    "{breaker}": (
        '\'import pathlib; p = pathlib.Path("tally/numbers.py"); s = p.read_text(); '
        'p.write_text(s[:s.index("def spread")].rstrip() + chr(10))\''
    ),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """How a student should end: outcome, charged attempts, and for a rejected one a finding that says why."""

    outcome: str
    attempts: int
    finding: str = ""
    what: str = ""


EXPECTED: Final[dict[str, Expected]] = {
    "good": Expected("accepted", 1, what="does what it was asked"),
    "learner": Expected("accepted", 2, what="is wrong until it has read its findings"),
    "hanger": Expected("failed", 1, what="never ends; is ended, its work kept"),
    "test-deleter": Expected("rejected", 1, "tampering", "removes the tests that are in its way"),
    "idler": Expected("rejected", 1, "artifact", "claims and does nothing"),
    "api-breaker": Expected("rejected", 1, "preservation", "a chore that removes a public function"),
}


def make_example(directory: Path) -> Path:
    """The example project with tasks that all end accepted; returns its repository."""
    return _make(directory, VERIFY, EXAMPLE_TASKS)


def make_demo(directory: Path) -> Path:
    """The example project with one task for each way of ending; returns its repository."""
    return _make(directory, VERIFY + DEMO_LIMITS, DEMO_TASKS)


def _make(directory: Path, config: str, tasks: str) -> Path:
    if directory.exists() and any(directory.iterdir()):
        raise MachineError(f"{directory}: is not empty, so no example is made in it")
    for mark, text in _FILLS.items():
        tasks = tasks.replace(mark, text)
    content = {**PROJECT, "school.toml": config, "school-tasks.yaml": tasks}
    for name, text in content.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git = Git(cwd=directory, env=IDENTITY)
    git.run("init", "-q", "-b", "main")
    git.run("add", "--all")
    git.run("commit", "-q", "-m", "Begin the example")
    return directory


def demonstrate(
    execute: Callable[[Request, Settings], Result], *, json_: bool, emit: Callable[[object], None]
) -> int:
    """Run the students by *execute*, in a temporary directory that stays; 0 when each ended as it should."""
    place = Path(tempfile.mkdtemp(prefix="school-demo-"))
    repo = make_demo(place / "tally")
    here = Settings.from_env({"HOME": str(place), "HERMES_HOME": str(place / "hermes")})
    settings.configure(here)
    said = f"{len(EXPECTED)} students without a model (each is simulated by a program) on a repository of their own: {repo}"
    print(said, file=sys.stderr if json_ else sys.stdout, flush=True)
    result = execute(Request(repo=str(repo), loop=True, rounds=2, leaves=LEAVES), here)
    for role in TEACHER_ROLES:
        TeacherTrees(role, here).remove_all()
    rows = judge(result.document)
    code = result.exit if result.exit > 1 else int(not all(row["as_expected"] for row in rows))
    if json_:
        emit(
            {
                "directory": str(place),
                "repo": str(repo),
                "students": rows,
                "run": result.document,
                "exit": code,
            }
        )
        return code
    show(rows)
    print(
        f"The repository and every record stay in {place}; look with: git -C {repo} log --oneline --all --graph"
    )
    return code


def judge(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a student: ``{"student", "what", "outcome", "as_expected", "detail"}``; *run* is a result document."""
    tasks = {task["id"]: task for task in run["tasks"]}
    return [_row(name, expected, tasks.get(name)) for name, expected in EXPECTED.items()]


def _row(name: str, expected: Expected, task: Mapping[str, Any] | None) -> dict[str, Any]:
    row = {
        "student": name,
        "what": expected.what,
        "outcome": "",
        "as_expected": False,
        "detail": "no such task",
    }
    if task is None:
        return row
    findings = (bookbag.read_archived(task["bead"]) or {}).get("findings", [])
    why = [f for f in findings if f["section"] == expected.finding and f["severity"] in ("CRITICAL", "HIGH")]
    right = (task["outcome"], task["attempts"]) == (expected.outcome, expected.attempts)
    right = right and (bool(why) or not expected.finding) and (name != "hanger" or bool(task["ref"]))
    detail = why[0]["description"] if why else _detail(task)
    return {**row, "outcome": task["outcome"], "as_expected": right, "detail": detail}


def _detail(task: Mapping[str, Any]) -> str:
    if task["branch"]:
        return (
            f"branch {task['branch']} after {task['attempts']} attempt{'s' if task['attempts'] > 1 else ''}"
        )
    kept = f"; its work is at {task['ref']}" if task["ref"] else ""
    return f"{task['reason'] or task['outcome']}{kept}"


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows for people."""
    print("\nHow each student ended:")
    for row in rows:
        mark = "as it should" if row["as_expected"] else "NOT AS IT SHOULD"
        print(f"  {row['student']:<13} {row['outcome'] or 'missing':<9} {mark}: {row['what']}")
        print(f"                {row['detail']}")

"""``init``: the two files that a repository needs to be worked on, written where they are not yet.

An existing file is never touched. What it writes is a beginning that runs as it is: one chore, and the verify
commands that the repository plainly declares. Errors: MachineError where a file cannot be written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from school.config import FILE_NAME
from school.supervisor.plan import TASKS_FILE
from school.system import files
from school.system.git import Git
from school.verification.facts import GitTree, facts
from school.worktrees import inspect_repository

TASKS: Final = """\
# What the school is to do on this repository; run it with:  conductor.py --loop --rounds 2
version: 1
defaults: {domain: python-coding, difficulty: easy, max_attempts: 3}
tasks:
  - id: unused-imports
    role: executor
    task: Remove unused imports and sort the rest.
    chore: unused-imports
#  - id: my-task
#    role: coder
#    agent: mine                      # see [agents.mine] in school.toml
#    task: parse("") must raise ValueError.
#    accept:
#      - text: parse("") raises ValueError
#        check: [python, -m, pytest, -q, tests/test_parse.py]
"""

CONFIG: Final = """\
# How this repository wants to be worked on. It is read from the base commit, so commit it.
[verify]
commands = {commands}

[setup]
# commands = [["python3", "-m", "venv", ".venv"], [".venv/bin/pip", "install", "-e", ".[test]"]]

[limits]
leaves = 2

# [agents.mine]
# argv = ["my-agent", "--yes"]        # gets the prompt on stdin, works in the current directory
# env = ["MY_AGENT_API_KEY"]
"""


def init(repo: Path) -> list[dict[str, Any]]:
    """Write what is missing; one row a file."""
    repository = inspect_repository(repo)
    found = facts(GitTree(Git(git_dir=repository.common_dir), repository.head_commit)).verify_commands
    config = CONFIG.format(commands=json.dumps([list(c) for c in found], ensure_ascii=False))
    return [_write(repository.path / FILE_NAME, config), _write(repository.path / TASKS_FILE, TASKS)]


def _write(path: Path, text: str) -> dict[str, Any]:
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        return {"file": str(path), "action": "kept"}
    except OSError as error:
        raise files.machine_error("write", path, error) from error
    try:
        with file:
            file.write(text)
    except OSError as error:
        # Half a file would be "kept" the next time, and mean something else.
        path.unlink(missing_ok=True)
        raise files.machine_error("write", path, error) from error
    return {"file": str(path), "action": "written"}

"""Limits of one student, in a real leaf, confined and not: a clear reason, and the work saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from school.settings import Settings
from school.worktrees import SchoolClone
from tests.leaves import new_bead, run, script
from tests.support import git, require_confinement

MIB = 1024 * 1024
EATS = "open('work', 'w').write('x'); import time; eaten = [b'x' * 30_000_000 for _ in range(10)]; time.sleep(60)"
FORKS = "open('work', 'w').write('x'); import os, time\nfor n in range(40):\n    os.fork() or time.sleep(60)\ntime.sleep(60)"


@pytest.mark.parametrize("mode", ["auto", "off"])
@pytest.mark.parametrize(
    ("code", "limits", "reason", "says"),
    [
        (EATS, {"memory_bytes": 120 * MIB}, "memory_limit", f"bytes of memory, {120 * MIB} are allowed"),
        (FORKS, {"processes": 8}, "process_limit", "processes, 8 are allowed"),
    ],
    ids=["memory", "processes"],
)
def test_a_student_that_uses_too_much_is_ended_with_that_reason_and_its_work_is_saved(
    repo: Path, school: Settings, mode: str, code: str, limits: dict[str, Any], reason: str, says: str
) -> None:
    if mode == "auto":
        require_confinement()
    bead = new_bead(repo, script(code), limits=limits, terms={"sandbox": {"mode": mode}})
    bag = run(bead, school, status=1)
    assert (bag["status"], bag["reason"]) == ("failed", reason), bag["summary"]
    assert says in bag["summary"]
    assert (bag["confinement"] == "bubblewrap") == (mode == "auto")
    clone = SchoolClone.at(bag["repo_key"], settings=school)
    assert git(clone.path, "show", f"{bag['ref']}:work") == "x"

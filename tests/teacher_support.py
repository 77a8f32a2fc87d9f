"""A bead handed over on a real repository, checks that say what they are told, and a teacher process that has them.

Run as a program: ``python tests/teacher_support.py ROLE GATE [--once]`` stands as a teacher whose one check notes its bead
in ``GATE.ran`` and passes once the file GATE exists.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bookbag
from school.contracts import CheckContext, CheckResult, Finding, Receipt, Severity, TeacherRole
from school.settings import Settings
from school.worktrees.clone import SchoolClone
from school.worktrees.repository import inspect_repository
from tests.records_support import FIELDS
from tests.support import ROOT, git, write_tree

_numbers = itertools.count(1)


def hand_over(repo: Path, *, bead: str = "", files: dict[str, str] | None = None, **fields: Any) -> str:
    """A bead whose leaf wrote *files* and handed over; returns its name."""
    number = next(_numbers)
    bead = bead or f"coder-python-{number:08x}"
    base = git(repo, "rev-parse", "HEAD")
    write_tree(repo, files or {"calc/extra.py": f"NUMBER = {number}\n"})
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "work")
    head = git(repo, "rev-parse", "HEAD")
    git(repo, "reset", "-q", "--hard", base)
    repository = inspect_repository(repo)
    SchoolClone.open(repository, commits=[base, head])
    bookbag.write_bookbag(
        bead,
        **{
            **FIELDS,
            "status": "running",
            "repo": str(repo),
            "repo_key": repository.key,
            "base_commit": base,
            "acceptance": [{"id": "a1", "text": "it is there", "check": ["test", "-e", "calc/extra.py"]}],
            **fields,
        },
    )
    bag = bookbag.locked_update_bookbag(
        bead,
        by="leaf",
        status="open",
        head_commit=head,
        tree=git(repo, "rev-parse", f"{head}^{{tree}}"),
        claim="done",
        files_changed=["calc/extra.py"],
        summary="added a number",
    )
    assert bag is not None
    bookbag.BookbagSignal(bead).ready()
    return bead


@dataclass
class Says:
    """A check that answers what it was told to, and remembers what it was asked."""

    lens: str
    name: str = "says"
    severity: Severity | None = None
    no_verdict: str = ""
    raises: Exception | None = None
    then: Callable[[CheckContext], None] = lambda _: None
    seen: list[str] = field(default_factory=list)
    memories: list[str] = field(default_factory=list)

    def __call__(self, context: CheckContext) -> CheckResult:
        self.seen.append(context.bag["bead"])
        self.memories.append(context.memory)
        assert git(context.worktree, "rev-parse", "HEAD") == context.bag["head_commit"]
        context.progress(f"{self.name}: asked")
        self.then(context)
        if self.raises:
            raise self.raises
        finding = Finding(
            section=self.lens,
            severity=self.severity or "LOW",
            issue_class="too_late",
            description="it came late",
        )
        receipt = Receipt(
            check=self.name, argv=["true"], outcome="passed", exit_code=0, tree=context.bag["tree"]
        )
        return CheckResult(
            name=self.name,
            lens=self.lens,
            findings=[finding] if self.severity else [],
            receipts=[receipt],
            no_verdict=self.no_verdict,
        )


def passing(role: TeacherRole) -> list[Says]:
    """One check a lens, each content."""
    lenses = {"cto": ("CORRECTNESS", "SECURITY"), "coo": ("COMPLETENESS",)}[role]
    return [Says(lens, name=f"says-{lens.lower()}") for lens in lenses]


# --- a teacher process ------------------------------------------------------------------------------------


def start_teacher(school: Settings, role: str, gate: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "teacher_support.py"), role, str(gate), *args],
        env={**os.environ, **school.environment(), "PYTHONPATH": str(ROOT), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until(true: Callable[[], Any], limit_s: float = 20.0) -> Any:
    """Look until it holds, and say what it was."""
    deadline = time.monotonic() + limit_s
    while not (found := true()):
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)
    return found


def record_of(school: Settings, role: str) -> dict[str, Any]:
    path = school.teachers_dir / f"{role}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _main(role: TeacherRole, gate: Path, *args: str) -> int:
    from school.errors import SchoolError
    from school.system import processes
    from teacher import TeacherWorktree

    def wait(context: CheckContext) -> None:
        with Path(f"{gate}.ran").open("a") as file:
            file.write(f"{context.bag['bead']} {os.getpid()}\n")
        assert context.cancelled is not None
        while not gate.exists() and not context.cancelled():
            time.sleep(0.01)

    checks = passing(role)
    checks[0].then = wait
    processes.hold_lifeline()
    try:
        teacher = TeacherWorktree(role, checks=checks)
        teacher.run_loop(once="--once" in args)
    except SchoolError as error:
        print(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))  # type: ignore[arg-type]

"""A bead to judge: a repository, its bare clone, a teacher's worktree on it, and the context of a check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from school import settings
from school.confinement import for_checks
from school.contracts import CheckContext, CheckResult, Terms
from school.system.confine import Policy
from school.verification import checks
from school.verification.environment import variables
from school.verification.reports import Outcomes
from school.verification.runner import CheckRun
from tests.support import git, write_tree

PYTHON = str(Path(sys.executable).resolve(strict=False))
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
UNITTEST = [sys.executable, "-m", "unittest", "discover"]

Files = Mapping[str, str | None]

PACKAGE = {
    "calc/__init__.py": "from calc.core import add\n",
    "calc/core.py": "def add(a, b):\n    return a + b\n",
    "calc/unused.py": "VALUE = 1\n",
    "tests/__init__.py": "",
    "tests/test_core.py": (
        "import unittest\n\nfrom calc import add\n\n\nclass CoreTest(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n\n"
        "    def test_zero(self):\n        self.assertEqual(add(0, 0), 0)\n"
    ),
}


class Case:
    """One repository with a teacher's worktree; ``bead(files)`` makes a head and the context to judge it in."""

    def __init__(self, root: Path, base: Mapping[str, str]) -> None:
        self.root = root
        self.repo = root / "repo"
        self.repo.mkdir(parents=True)
        git(self.repo, "init", "-q")
        self.base = self.commit(base, "base")
        self.clone = root / "clone.git"
        self.worktree = root / "worktrees" / "teacher-cto"
        self.count = 0

    def commit(self, files: Files, message: str) -> str:
        write_tree(self.repo, {name: text for name, text in files.items() if text is not None})
        for name, text in files.items():
            if text is None:
                (self.repo / name).unlink()
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "--allow-empty", "-m", message)
        return git(self.repo, "rev-parse", "HEAD")

    def head(self, files: Files) -> str:
        git(self.repo, "checkout", "-q", "--detach", self.base)
        return self.commit(files, "head")

    def stand(self, commit: str) -> None:
        if not self.clone.exists():
            git(self.root, "clone", "-q", "--bare", str(self.repo), str(self.clone))
            git(self.clone, "worktree", "add", "-q", "--detach", str(self.worktree), self.base)
        git(self.clone, "fetch", "-q", str(self.repo), commit)
        git(self.worktree, "checkout", "-q", "-f", "--detach", commit)

    def context(
        self,
        files: Files,
        verify: Sequence[Sequence[str]] = (UNITTEST,),
        *,
        cancelled: Callable[[], bool] | None = None,
        acceptance: Sequence[Mapping[str, Any]] = (),
        **terms: object,
    ) -> CheckContext:
        head = self.head(files)
        self.stand(head)
        self.count += 1
        given = Terms(verify=[list(argv) for argv in verify], **terms)  # type: ignore[arg-type]
        tmpdir = self.root / "scratch" / "tmp"
        tmpdir.mkdir(parents=True, exist_ok=True)
        bag = {
            "bead": f"coder-python-coding-{self.count:08d}",
            "repo": str(self.repo),
            "base_commit": self.base,
            "head_commit": head,
            "terms": given.model_dump(),
            "acceptance": list(acceptance),
        }
        return CheckContext(
            bag=bag,
            role="cto",
            worktree=self.worktree,
            clone=self.clone,
            scratch=self.root / "scratch",
            baselines=self.root / "baselines" / "cto",
            environment="",
            env=variables(self.worktree, given, tmpdir),
            progress=lambda _: None,
            cancelled=cancelled,
            confinement=self.confined(given, tmpdir),
        )

    def confined(self, terms: Terms, tmpdir: Path) -> Policy | None:
        """What a teacher's checks run within; None where nothing can be confined."""
        places = {"worktree": self.worktree, "clone": self.clone, "repo": self.repo}
        return for_checks(terms.sandbox, tmpdir=tmpdir, settings=settings.current(), **places).policy

    def verification(self, files: Files, *args: Any, **terms: Any) -> CheckResult:
        return checks.verification(self.context(files, *args, **terms))

    def wrong_tree(self, files: Files, *args: Any, **terms: Any) -> CheckResult:
        return checks.wrong_tree(self.context(files, *args, **terms))

    def is_clean_at(self, commit: str) -> bool:
        return (
            git(self.worktree, "rev-parse", "HEAD") == commit
            and git(self.worktree, "status", "--porcelain", "--ignored") == ""
        )


def ran(outcome: str, tests: dict[str, str] | None = None, **fields: Any) -> CheckRun:
    run = CheckRun(check="v", argv=["x"], outcome=outcome, **fields)  # type: ignore[arg-type]
    run._outcomes = None if tests is None else Outcomes(tests)
    return run


def unit(name: str, body: str, head: str = "") -> str:
    """A test module with one test, ``name``, whose body is one line."""
    return f"import unittest\n{head}\n\nclass T(unittest.TestCase):\n    def {name}(self):\n        {body}\n"


def classes(result: CheckResult) -> dict[str, str]:
    """Each finding's class with its severity."""
    return {finding.issue_class: finding.severity for finding in result.findings}

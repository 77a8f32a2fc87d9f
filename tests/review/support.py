"""A change to judge: a base, an edit of it as one commit, a bare clone, a teacher's worktree, and the checks."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from school import settings
from school.confinement import for_checks
from school.contracts import CheckContext, CheckResult, Finding, TeacherRole, Terms
from school.review.checks import for_role
from school.verification.bench import Bench
from school.verification.compare import compare
from school.verification.environment import variables
from school.verification.spoil import spoil
from tests.support import git

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
UNITTEST = [sys.executable, "-m", "unittest", "discover"]

CALC = {
    "calc/__init__.py": '"""A calculator."""\n\nfrom calc.core import add, parse\n',
    "calc/core.py": (
        '"""Sums."""\n\nimport os\n\n\ndef add(left, right):\n    """The sum."""\n    return left + right\n\n\n'
        'def parse(text):\n    return [int(part) for part in text.split("+") if part]\n'
    ),
    "tests/test_core.py": (
        "import pytest\n\nfrom calc import add, parse\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
        "    assert add(0, 0) == 0\n\n\ndef test_parse():\n    assert parse('1+2') == [1, 2]\n"
    ),
    "README.md": "# calc\n\nA calculator.\n",
    "scripts/check.sh": "#!/bin/sh\nexec python -m pytest -q\n",
    "Makefile": "check:\n\tsh scripts/check.sh\n",
    ".gitignore": "__pycache__/\nbuild/\n",
}
CORE = CALC["calc/core.py"]
TESTS = CALC["tests/test_core.py"]

Edit = Mapping[str, str | bytes | None] | Callable[[Path], None]


class Judged:
    """One repository; ``judge`` makes an edit of its base and gives what each check of a role says."""

    def __init__(self, root: Path, base: Mapping[str, str] | Path = CALC) -> None:
        self.root = root
        self.repo = root / "repo"
        if isinstance(base, Path):
            shutil.copytree(base, self.repo, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        else:
            self.repo.mkdir(parents=True)
            self._apply(base)
        git(self.repo, "init", "-q")
        git(self.repo, "add", "-A", "-f")
        git(self.repo, "commit", "-q", "-m", "base")
        self.base = git(self.repo, "rev-parse", "HEAD")
        self.clone = root / "clone.git"
        self.worktree = root / "teacher"

    def _apply(self, edit: Edit) -> None:
        if callable(edit):
            edit(self.repo)
            return
        for name, content in edit.items():
            path = self.repo / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(
                content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
            )

    def context(
        self, edit: Edit, role: TeacherRole = "cto", *, confined: bool = False, **bag: Any
    ) -> CheckContext:
        """The context of *edit*; keywords are the bag's fields, those of ``Terms`` among them."""
        git(self.repo, "checkout", "-q", "--force", "--detach", self.base)
        git(self.repo, "clean", "-ffdxq")
        self._apply(edit)
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "--allow-empty", "-m", "head")
        head = git(self.repo, "rev-parse", "HEAD")
        if not self.clone.exists():
            git(self.root, "clone", "-q", "--bare", str(self.repo), str(self.clone))
            git(self.clone, "worktree", "add", "-q", "--detach", str(self.worktree), self.base)
        git(self.clone, "fetch", "-q", str(self.repo), head)
        git(self.worktree, "checkout", "-q", "--force", "--detach", head)
        terms = Terms.model_validate(
            {name: bag.pop(name) for name in list(bag) if name in Terms.model_fields}
        )
        tmpdir = self.root / "tmp"
        tmpdir.mkdir(exist_ok=True)
        return CheckContext(
            bag={
                "bead": "coder-python-coding-00000001",
                "student": "coder",
                "task": "Do what is asked.",
                "claim": "done",
                "repo": str(self.repo),
                "base_commit": self.base,
                "head_commit": head,
                "tree": git(self.repo, "rev-parse", "HEAD^{tree}"),
                "acceptance": [],
                "terms": terms.model_dump(),
                **bag,
            },
            role=role,
            worktree=self.worktree,
            clone=self.clone,
            scratch=self.root / "scratch",
            baselines=self.root / "baselines",
            environment="",
            # Plugins of the machine that runs the tests would only cost time here.
            env={**variables(self.worktree, terms, tmpdir), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            progress=lambda _: None,
            # As a teacher runs them; None where nothing can be confined.
            confinement=for_checks(
                terms.sandbox,
                worktree=self.worktree,
                clone=self.clone,
                repo=self.repo,
                tmpdir=tmpdir,
                settings=settings.current(),
            ).policy
            if confined
            else None,
        )

    def judge(self, edit: Edit, role: TeacherRole = "cto", **bag: Any) -> dict[str, CheckResult]:
        """What each check of *role* says of *edit*; the worktree must be left clean at head by each."""
        context = self.context(edit, role, confined=True, **bag)
        results: dict[str, CheckResult] = {}
        for check in for_role(role, bench=Bench.of, compare=compare, spoil=spoil):
            results[check.name] = check(context)
            assert git(self.worktree, "rev-parse", "HEAD") == context.bag["head_commit"]
            assert git(self.worktree, "status", "--porcelain", "--ignored") == "", check.name
        return results

    def one(self, check: str, edit: Edit, **bag: Any) -> CheckResult:
        """What the one check named says."""
        role: TeacherRole = "coo" if check in ("acceptance", "completeness") else "cto"
        context = self.context(edit, role, **bag)
        found = next(
            c for c in for_role(role, bench=Bench.of, compare=compare, spoil=spoil) if c.name == check
        )
        result = found(context)
        assert git(self.worktree, "rev-parse", "HEAD") == context.bag["head_commit"]
        assert git(self.worktree, "status", "--porcelain", "--ignored") == ""
        return result


def objections(results: Mapping[str, CheckResult] | CheckResult) -> list[str]:
    """``check/class`` of everything that makes a FAIL."""
    given = {results.name: results} if isinstance(results, CheckResult) else results
    return sorted({f"{n}/{f.issue_class}" for n, r in given.items() for f in r.findings if is_bad(f)})


def is_bad(finding: Finding) -> bool:
    return finding.severity in ("CRITICAL", "HIGH")


def classes(result: CheckResult) -> dict[str, str]:
    """Each finding's class with its severity, the worst of each."""
    return {f.issue_class: f.severity for f in reversed(result.findings)}


def link(repo: Path, name: str, target: str) -> None:
    """A symbolic link at *name*."""
    path = repo / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)

"""Telling what commands are evidence of against splitting them plainly; facts and digest of a large tree against git.

100,000 commands of the kinds that agents really write, each with its own words; a repository of 10,000 files.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

from _common import SHORT, Goals, scratch, timed
from school.verification.classify import classify_command
from school.verification.digest import TreeDigest
from school.verification.facts import facts
from school.verification.trees import DirectoryTree

COMMANDS = 10_000 if SHORT else 100_000
FILES = 2_000 if SHORT else 10_000
ROUNDS = 3 if SHORT else 5
CANONICAL = ["python3 -m pytest", "npm run test", "make lint", "bash scripts/run_tests.sh"]
WRITTEN = (
    "pytest -q tests/test_{n}.py",
    "cd /home/me/project{n} && python -m pytest -x -k 'name{n} and not slow' 2>&1",
    "set -euo pipefail\nexport CI=1\nuv run pytest -n auto --tb=short > /tmp/log{n}.txt 2>&1",
    "git status --short && git diff --stat HEAD~{n}",
    "sed -n '{n},+20p' school/verification/facts.py | head -40",
    "npm test -- --testPathPattern=part{n}",
    "grep -rn \"def name{n}\" --include='*.py' . || echo none",
    "FOO={n} make lint; echo done",
    "cat <<'EOF' > file{n}.py\nprint('a')\nprint('b')\nEOF\npython file{n}.py",
    "ls -la && timeout 60 .venv/bin/pytest -q  # round {n}",
)


def repository(root: Path) -> None:
    """A Python project of ``FILES`` files in one commit."""
    for number in range(FILES - 2):
        folder = root / "src" / f"package{number // 100}"
        if number % 100 == 0:
            folder.mkdir(parents=True)
        (folder / f"module{number}.py").write_text(f'"""Module {number}."""\n\nVALUE = {number}\n' * 10)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (root / "Makefile").write_text("test:\n\tpytest\nlint:\n\truff check\n")
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=b", "-c", "user.email=b@x", "commit", "-qm", "b"],
    ):
        subprocess.run(["git", *words], cwd=root, check=True)


def classified(goals: Goals) -> None:
    commands = [WRITTEN[number % len(WRITTEN)].format(n=number) for number in range(COMMANDS)]
    begun = time.perf_counter()
    for command in commands:
        shlex.split(command)
    raw_s = time.perf_counter() - begun
    begun = time.perf_counter()
    evidence = sum(
        classify_command(command, exit_code=0, canonical=CANONICAL) is not None for command in commands
    )
    ours_s = time.perf_counter() - begun
    assert evidence == COMMANDS // len(WRITTEN) * 5, evidence
    goals.add(f"classifying {COMMANDS} commands, against shlex.split", ours_s, 3.0, unit="s", raw=raw_s)


def looked_at(goals: Goals) -> None:
    with scratch() as name:
        root = Path(name)
        repository(root)
        time.sleep(2.5)  # what was changed just now is read again, by git and by us

        def status() -> None:
            subprocess.run(["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True)

        digest = TreeDigest(root)
        first_s = min(timed(digest.take, 1))
        raw_s, facts_s, again_s = (
            min(timed(work, ROUNDS)) for work in (status, lambda: facts(DirectoryTree(root)), digest.take)
        )
        goals.add(
            f"facts of {FILES} files, against git status", facts_s * 1e3, 3.0, unit="ms", raw=raw_s * 1e3
        )
        goals.add(
            "their digest, nothing changed, against git status",
            again_s * 1e3,
            5.0,
            unit="ms",
            raw=raw_s * 1e3,
        )
        goals.add("their digest, nothing known, in seconds", first_s, 3.0, unit="s")


def main() -> None:
    goals = Goals("verification")
    classified(goals)
    looked_at(goals)
    goals.close()


if __name__ == "__main__":
    sys.exit(main())

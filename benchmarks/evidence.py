"""The evidence block of a 100,000-line diff against plain ``git diff`` of it, and the memory that it takes.

Many files and one file, committed and not, and for a teacher. Memory is the most that was held at once.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from _common import SHORT, Goals, alternated, scratch
from school.changes import evidence_of_commits, evidence_of_folder
from school.system.git import Git

LINES = 100_000
ROUNDS = 5 if SHORT else 15


def _git(repo: Path, *args: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    named = ("-c", "user.name=b", "-c", "user.email=b@example.invalid")
    done = subprocess.run(
        ["git", *named, *args], cwd=repo, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _write(repo: Path, count: int, word: str) -> None:
    each = LINES // 2 // count
    for number in range(count):
        folder = repo / f"d{number % 20}"
        folder.mkdir(exist_ok=True)
        lines = (f"{word} = {line}  # of file {number}, as it is" for line in range(each))
        (folder / f"f{number}.py").write_text("\n".join(lines) + "\n")


def _repository(place: Path, count: int) -> None:
    place.mkdir()
    _git(place, "init", "-q")
    _write(place, count, "old")
    _git(place, "add", ".")
    _git(place, "commit", "-q", "-m", "base")


def _plain(repo: Path, *args: str) -> None:
    with subprocess.Popen(["git", "diff", *args], cwd=repo, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while process.stdout.read(1024 * 1024):
            continue


def _memory_mb(repo: Path, base: str) -> float:
    tracemalloc.start()
    evidence_of_folder(repo, base, timeout_s=120)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1024 / 1024


def _against_plain(goals: Goals, what: str, plain: Callable[[], object], ours: Callable[[], object]) -> None:
    raw, measured = (
        statistics.median(times) * 1e3 for times in alternated(plain, ours, rounds=ROUNDS, block=1)
    )
    goals.add(what, measured, 1.5, unit="ms", raw=raw)


def _shape(goals: Goals, shape: str, repo: Path, count: int) -> None:
    _repository(repo, count)
    base = _git(repo, "rev-parse", "HEAD")
    _write(repo, count, "new")

    def ours() -> object:
        return evidence_of_folder(repo, base, timeout_s=120)

    _against_plain(goals, f"{shape}, not committed", lambda: _plain(repo, base), ours)
    _git(repo, "add", ".")
    _git(repo, "commit", "-q", "-m", "head")
    head = _git(repo, "rev-parse", "HEAD")
    clone = Git(repo / ".git")
    _against_plain(goals, f"{shape}, committed", lambda: _plain(repo, base, head), ours)
    _against_plain(
        goals,
        f"{shape}, for a teacher",
        lambda: _plain(repo, base, head),
        lambda: evidence_of_commits(clone, base, head),
    )
    goals.add(f"{shape}, memory", _memory_mb(repo, base), 100, unit="MB")


def main() -> None:
    goals = Goals("evidence")
    with scratch() as name:
        for shape, count in (("200 files", 200), ("one file", 1)):
            _shape(goals, shape, Path(name) / f"repository-{count}", count)
    goals.close()


if __name__ == "__main__":
    main()

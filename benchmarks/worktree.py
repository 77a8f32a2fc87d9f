"""A leaf's working tree of 10,000 files, bead repository and all, against ``git worktree add`` on the same repository.

Goal: at most 0.9 times plain git, which writes one file after the other.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

from _common import SHORT, Goals, scratch

FILES = 10_000
ROUNDS = 3 if SHORT else 9


def git(cwd: Path, *args: str) -> str:
    identity = ["-c", "user.name=B", "-c", "user.email=b@example.invalid"]
    done = subprocess.run(["git", *identity, *args], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(place: Path) -> Path:
    place.mkdir()
    for number in range(FILES):
        folder = place / f"d{number // 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{number}.py").write_text(f"VALUE = {number}\n" * 40)
    git(place, "init", "-q", "-b", "main")
    git(place, "config", "gc.auto", "0")  # what is measured is not git's own housekeeping
    git(place, "add", ".")
    git(place, "commit", "-q", "-m", "Begin")
    return place


def main() -> None:
    from school import settings as school_settings
    from school.worktrees import SchoolClone, inspect_repository, leaf_worktrees
    from school.worktrees.snapshot import snapshot

    goals = Goals("worktree")
    with scratch() as folder:
        place = Path(folder)
        repository = make_repository(place / "large")
        settings = school_settings.Settings.from_env({"HOME": folder, "HERMES_HOME": str(place / ".hermes")})
        school_settings.configure(settings)
        known = inspect_repository(repository)
        base = git(repository, "rev-parse", "HEAD")
        SchoolClone.open(known, commits=[base], settings=settings)
        trees = leaf_worktrees("git", settings=settings)
        plain: list[float] = []
        ours: list[float] = []
        for number in range(ROUNDS):
            tree = place / f"plain-{number}"
            begun = time.perf_counter()
            git(repository, "worktree", "add", "--detach", "-q", str(tree), base)
            plain.append(time.perf_counter() - begun)
            git(repository, "worktree", "remove", "--force", str(tree))
            bead = f"coder-python-coding-{number:08x}"
            bag = {"bead": bead, "student": "coder", "repo": str(repository), "repo_key": known.key}
            bag |= {"base_commit": base, "terms": {}}
            begun = time.perf_counter()
            workspace = trees.create(bag)
            ours.append(time.perf_counter() - begun)
            snapshot(workspace, bag=bag, settings=settings)
            trees.remove(workspace)
        goals.add(f"{FILES} files", statistics.median(ours), 0.9, unit="s", raw=statistics.median(plain))
    goals.close()


if __name__ == "__main__":
    main()

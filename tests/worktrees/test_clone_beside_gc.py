"""The user's repository may be repacked while it is cloned: loose objects go away under the copy."""

from __future__ import annotations

import threading
from pathlib import Path

from school.settings import Settings
from school.worktrees import SchoolClone, inspect_repository
from tests.support import git


def test_a_repository_that_is_repacked_meanwhile_is_cloned_whole(school: Settings, repo: Path) -> None:
    for number in range(60):
        (repo / f"file-{number}.txt").write_text(f"{number}\n" * 200)
        git(repo, "add", ".")
        git(repo, "commit", "-q", "-m", f"Commit {number}")
    head = git(repo, "rev-parse", "HEAD")
    stop = threading.Event()

    def repack() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            blob = git(repo, "hash-object", "-w", "--stdin", stdin=f"{number}\n")
            git(repo, "update-ref", f"refs/loose/{number % 5}", blob)
            git(repo, "gc", "-q", "--prune=now")

    busy = threading.Thread(target=repack)
    busy.start()
    try:
        clone = SchoolClone.open(inspect_repository(repo), commits=[head], settings=school)
    finally:
        stop.set()
        busy.join()
    assert clone.has(head)
    assert len(git(clone.path, "rev-list", head).split()) == 61

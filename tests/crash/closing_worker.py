"""Ends one bead as the conductor would, and dies by ``kill -9`` at the N-th lasting effect of it (0: at none).

``python closing_worker.py REPO BEAD N``. An effect is a file opened for writing, renamed, linked or removed, a
directory made or removed, a process started; the last line says how many there were.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import bookbag
from school import delivery
from school import settings as school_settings
from school.settings import Settings
from school.supervisor.closing import Closing
from school.supervisor.opening import sweep
from school.tasks import TaskLedger
from school.worktrees import SchoolClone, inspect_repository, reap

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EFFECTS = {"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.utime"}


class Killer:
    """An audit hook; it cannot be taken out again."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and bool(args[2] & _WRITING)
        if writes or event in _EFFECTS or event == "subprocess.Popen":
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)


def main(repo: str, bead: str, at: str) -> None:
    settings = Settings.from_env(os.environ)
    school_settings.configure(settings)
    repository = inspect_repository(Path(repo))
    clone = SchoolClone.open(repository, settings=settings)
    ledger = TaskLedger(settings, repository.key)
    closing = Closing(settings, repository, clone, delivery.deliver, ledger, print)
    killer = Killer(int(at))
    sys.addaudithook(killer)
    # What every run begins with, then what the table says.
    sweep(settings)
    live = bookbag.Shelf().scan()
    reap(settings, repo_key=repository.key, dry_run=False, live=live.__contains__, saved=closing.rescue)
    steps = {"REVIEWED": closing.score, "BLOCKED": closing.park}
    while (bag := bookbag.Shelf().scan().get(bead)) is not None and bag.get("outcome") != "blocked":
        assert steps.get(bookbag.bookbag_state(bag), closing.close)(bag)
    print(killer.count)


if __name__ == "__main__":
    main(*sys.argv[1:])

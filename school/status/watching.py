"""``conductor.py status --watch``: the status again whenever a flag changes, at least every second, until Ctrl-C.

``watch(settings, repo)`` returns only when it is interrupted. Errors: those of ``status``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from school.settings import Settings
from school.status.documents import status_document
from school.status.render import watch_status
from school.system.watch import Watcher


def watch(settings: Settings, repo: Path) -> None:
    """Show the status of *repo* on stdout again and again."""

    def wait() -> bool:
        watcher.wait(1.0)
        return True

    with Watcher(settings.signal_dir, rescan_s=1.0) as watcher:
        watch_status(sys.stdout, lambda: status_document(settings, repo=repo), wait)

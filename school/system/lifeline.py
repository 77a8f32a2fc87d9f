"""The pipe that a child of ours hangs on: its end says that the parent is gone, even by ``kill -9``.

``hold()`` is the first thing that a child does, before it loads what it needs: that takes seconds on a busy machine, and a
parent can die meanwhile. From then on the process is killed when the parent goes, for nothing was begun yet; ``then``
says what is to be done instead, once there is something to end in order. Without a lifeline (a child that was started by hand)
both do nothing, and ``hold`` says so. Loads next to nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Final

VARIABLE: Final = "SCHOOL_LIFELINE_FD"


class _Lifeline:
    """What this process does at its parent's end."""

    def __init__(self) -> None:
        self.held = False
        self._guard = threading.Lock()
        self._on_eof: Callable[[], None] = _end_at_once

    def hold(self) -> bool:
        text = os.environ.pop(VARIABLE, "")
        if self.held or not text.isdigit():
            return self.held
        fd = int(text)
        try:
            os.set_inheritable(fd, False)
        except OSError:
            return False  # started by hand with a stale variable
        self.held = True
        threading.Thread(target=self._wait, args=(fd,), name="lifeline", daemon=True).start()
        return True

    def then(self, on_eof: Callable[[], None]) -> None:
        with self._guard:
            self._on_eof = on_eof

    def _wait(self, fd: int) -> None:
        while os.read(fd, 64):
            continue
        with self._guard:
            on_eof = self._on_eof
        on_eof()


def _end_at_once() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_own: Final = _Lifeline()


def hold() -> bool:
    """Hang on the lifeline that the environment names, if it does; whether there is one. Twice is fine.

    The variable is taken out of the environment: the children of a child hang on lifelines of their own.
    """
    return _own.hold()


def then(on_eof: Callable[[], None]) -> None:
    """From now on call *on_eof* (in a thread) when the parent is gone."""
    _own.then(on_eof)

"""Why a leaf must end before its work is done: a signal, or the death of the conductor that started it.

One ``Stop`` a process. ``install()`` once, in the main thread; then ``stop()`` is asked wherever a leaf waits, and
``reason`` is ``interrupted`` or ``conductor_died``. The first signal only sets it; a second one ends the process at
once with 128+n, and so does the conductor's death after ``ORPHANED_S``: what is lost then is nothing, for the work
lies in the worktree and is salvaged by whoever finds it. SIGHUP stays ignored where it was (nohup).
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Final

from school.system import log, processes

# All that a conductor spawned is gone within two seconds of its death.
ORPHANED_S: Final = 1.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_log = log.get("leaf")


class Stop:
    """Asked as a function: whether to end now."""

    def __init__(self) -> None:
        self.reason = ""
        self.signal = 0

    def __call__(self) -> bool:
        return bool(self.reason)

    @property
    def exit_code(self) -> int:
        """What the process ends with: 128+n for a signal, as for one that killed it."""
        return 128 + (self.signal or signal.SIGTERM)

    def install(self) -> None:
        """Catch the signals of this process and hold the lifeline to its parent, if it was given one."""
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        processes.hold_lifeline(self._on_orphaned)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.signal:
            os._exit(128 + number)
        self.signal = number
        self.reason = self.reason or "interrupted"

    def _on_orphaned(self) -> None:
        self.reason = self.reason or "conductor_died"
        threading.Event().wait(ORPHANED_S)
        signal.raise_signal(signal.SIGKILL)

"""Signals of a run: the first asks it to end in order, the second ends it at once; a child's end wakes the loop.

A handler only sets a flag and wakes the watcher; everything that has to be done is done by the loop. SIGHUP that was
ignored when we started (``nohup``) stays ignored. The second signal leaves without any cleaning up: what is on disk is
enough for the next run, and the ends of the pipes that our children hold tell them to end too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """While this context is open, ``received`` is the number of the signal that asked us to end, or 0."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.received = 0
        self._wake = wake
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in ENDING:
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._end)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, self._child)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        if self.received:
            os._exit(128 + number)
        self.received = number
        self._wake()

    def _child(self, _number: int, _frame: FrameType | None) -> None:
        self._wake()

"""One background thread, one piece of work in flight, and room for one more: the newest.

``Worker(work).queue(item)`` replaces what waits, if anything does, and returns at once. The thread is daemonic and begins with
the first item. ``idle(timeout_s)`` waits until nothing is left; ``close()`` drops what waits and never waits for what is
in flight. *work* must not raise: whoever makes the worker isolates it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Worker(Generic[_T]):
    """See the module."""

    def __init__(self, work: Callable[[_T], object]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._next: list[_T] = []
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self.replaced = 0

    def queue(self, item: _T) -> None:
        """Let *item* be the next; what has not begun is forgotten for it."""
        with self._changed:
            if self._closed:
                return
            self.replaced += len(self._next)
            self._next = [item]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="coach", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def idle(self, timeout_s: float) -> bool:
        """Whether all work was done within *timeout_s*."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._next and not self._busy, timeout_s)

    def close(self) -> None:
        """Take no more work."""
        with self._changed:
            self._closed = True
            self._next = []
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._next))
                if self._closed:
                    return
                item = self._next.pop()
                self._busy = True
            try:
                self._work(item)
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

"""Patience: call what may hang, wait for it so long and no longer.

``Patience().call(function, timeout_s=...)`` runs *function* in a thread of its own and returns what it returned. One
that does not come back in time is abandoned: its thread, daemonic, is never waited for again, and what it says later is
dropped. At most ``abandoned_max`` abandoned threads are left behind; while there are that many nothing more is tried.
``close()`` lets the idle threads end and refuses every later call.

Not promised: that an abandoned function stops (Python cannot stop a thread), nor that one which never lets go of the
interpreter (a C extension that holds its lock) can be waited for at all.

Errors: ``TookTooLong``, ``Crowded`` (nothing was run), ``Failed`` with the cause, whatever was raised: also SystemExit
and KeyboardInterrupt, which would otherwise end a thread in silence.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

ABANDONED_MAX: Final = 8
IDLE_MAX: Final = 4
_T = TypeVar("_T")


class TookTooLong(Exception):  # noqa: N818 - it says what happened
    """It did not come back in time."""


class Crowded(Exception):  # noqa: N818 - it says what is the matter
    """Too many abandoned calls have not come back yet."""


class Failed(Exception):  # noqa: N818 - it says what happened
    """The function raised; ``cause`` is what."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(type(cause).__name__)  # not its own text: making that may raise too
        self.cause = cause


class _Call:
    """One call on its way: the answer comes through a queue of its own, so a late one reaches nobody."""

    __slots__ = ("abandoned", "answer", "finished", "function")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.answer: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self.abandoned = False
        self.finished = False

    def run(self) -> None:
        try:
            self.answer.put((True, self.function()))
        except BaseException as cause:  # noqa: BLE001 - handed over to whoever waits, all of it
            self.answer.put((False, cause))


class Patience:
    """A few daemonic threads that calls are handed to."""

    def __init__(self, *, abandoned_max: int = ABANDONED_MAX, name: str = "patience") -> None:
        self._abandoned_max = abandoned_max
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[_Call | None]] = []
        self._abandoned = 0
        self._closed = False

    @property
    def abandoned(self) -> int:
        """How many abandoned calls have not come back."""
        with self._lock:
            return self._abandoned

    def call(self, function: Callable[[], _T], *, timeout_s: float) -> _T:
        """What *function* returns, within *timeout_s*."""
        context = contextvars.copy_context()
        call = _Call(lambda: context.run(function))
        self._hand_over(call)
        came = False
        try:
            good, value = call.answer.get(timeout=timeout_s)
            came = True
        except queue.Empty:
            raise TookTooLong from None
        finally:
            if not came:  # also when a signal's exception ends the waiting
                self._abandon(call)
        if good:
            return value  # type: ignore[no-any-return]
        raise Failed(value)

    def close(self) -> None:
        """Let the idle threads end; the others end when, and if, their call comes back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _hand_over(self, call: _Call) -> None:
        with self._lock:
            if self._closed or self._abandoned >= self._abandoned_max:
                raise Crowded
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name=self._name, daemon=True).start()
        inbox.put(call)

    def _abandon(self, call: _Call) -> None:
        with self._lock:
            if not call.finished:
                call.abandoned = True
                self._abandoned += 1

    def _work(self, inbox: queue.SimpleQueue[_Call | None]) -> None:
        while (call := inbox.get()) is not None:
            call.run()
            if not self._free_again(call, inbox):
                return

    def _free_again(self, call: _Call, inbox: queue.SimpleQueue[_Call | None]) -> bool:
        with self._lock:
            call.finished = True
            if call.abandoned:
                self._abandoned -= 1
            if self._closed or call.abandoned or len(self._idle) >= IDLE_MAX:
                return False
            self._idle.append(inbox)
            return True

"""Conversing with an agent's process: its standard streams stay open, and a thread of ours speaks with it.

``converse(job, argv, speak, timeout_s=…)`` starts *argv* as every agent (below the warden, confined, within the limits
of the job) and runs the coroutine ``speak(wire)`` in an event loop of a thread beside it. ``wire.read_line()`` gives the
next line, None when the agent's output has ended; ``wire.write(data)`` waits no longer than ``WRITE_S`` for an agent
that does not read. The process is watched by the caller's thread meanwhile: whatever *speak* waits for, the limits
and a cancellation end the process, its output then ends, and so does *speak*. When *speak* returns first, the agent
gets the end of its input and ``LINGER_S`` to go; then it is ended. A cancellation ends it at once, or after *cancel_s*,
for a *speak* that asks the agent to stop first.

A line longer than ``LINE_BYTES_MAX`` is a LineTooLong, and all together may not exceed ``TALK_BYTES_MAX``: memory is
bounded whatever an agent writes. While ``wire.at_work()`` is held (advisers and gates are asked), the agent waits for us
and its silence is no stall. An error of *speak* itself is raised by ``converse`` once the process is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, SupportsIndex

from school.agents.process import Job
from school.contracts import AgentOutcome
from school.errors import MachineError
from school.system.foreign import Streams

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
TALK_BYTES_MAX: Final = 512 * 1024 * 1024
WRITE_S: Final = 30.0
LINGER_S: Final = 3.0
# When the process is gone, what the thread may still do: an adviser or gate that is asked just then.
JOIN_S: Final = 60.0


class LineTooLong(Exception):  # noqa: N818 - what the agent did
    """The agent wrote a line, or altogether more, than anybody reads."""


class _Heard(asyncio.StreamReader):
    """A reader that knows how much came."""

    total = 0

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        super().feed_data(data)
        self.total += len(data)  # type: ignore[arg-type]  # asyncio feeds bytes, its stub is wider


class Wire:
    """Our ends of the agent's standard streams. Its coroutines belong to the thread's event loop."""

    def __init__(self, reader_fd: int, writer_fd: int) -> None:
        self.error: BaseException | None = None
        # Each is closed by its transport, and once more when all is over.
        self._ends = [os.fdopen(reader_fd, "rb", buffering=0), os.fdopen(writer_fd, "wb", buffering=0)]
        self._over_at = float("inf")
        self._busy = 0
        self._guard = threading.Lock()
        self._asked = 0
        self._reader: _Heard | None = None
        self._writer: asyncio.StreamWriter | None = None

    # --- for the one who watches the process ---

    def heard(self) -> bool:
        """Whether the agent said anything since the last question, or waits for us."""
        total = self._reader.total if self._reader is not None else 0
        since, self._asked = total != self._asked, total
        return since or self._busy > 0

    def over(self) -> bool:
        """Whether all is said and the agent has had its time to go by itself."""
        return time.monotonic() >= self._over_at

    # --- for the one who speaks ---

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """While held, it is we who let the agent wait; in any thread."""
        with self._guard:
            self._busy += 1
        try:
            yield
        finally:
            with self._guard:
                self._busy -= 1

    async def read_line(self) -> bytes | None:
        """The next line with its end, None at the end of all; LineTooLong."""
        assert self._reader is not None
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            return end.partial or None
        except asyncio.LimitOverrunError:
            raise LineTooLong(f"it wrote a line of more than {LINE_BYTES_MAX} bytes") from None
        except OSError:
            return None
        if self._reader.total > TALK_BYTES_MAX:
            raise LineTooLong(f"it wrote more than {TALK_BYTES_MAX} bytes")
        return line

    async def write(self, data: bytes) -> None:
        """Send *data*; BrokenPipeError when the agent is gone, TimeoutError when it does not read."""
        assert self._writer is not None
        self._writer.write(data)
        try:
            async with asyncio.timeout(WRITE_S):
                await self._writer.drain()
        except ConnectionResetError as error:
            raise BrokenPipeError(str(error)) from error

    # --- the thread ---

    def serve(self, speak: Callable[[Wire], Coroutine[Any, Any, None]]) -> None:
        try:
            asyncio.run(self._serve(speak))
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for this thread
            self.error = error
        finally:
            # Its output may end a little before its process does, whose exit status is worth waiting for.
            self._over_at = min(self._over_at, time.monotonic() + LINGER_S)
            for end in self._ends:
                end.close()

    async def _serve(self, speak: Callable[[Wire], Coroutine[Any, Any, None]]) -> None:
        loop = asyncio.get_running_loop()
        self._reader = reader = _Heard(limit=LINE_BYTES_MAX)
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._ends[0]
        )
        outgoing, protocol = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop=loop), self._ends[1]
        )
        self._writer = asyncio.StreamWriter(outgoing, protocol, reader, loop)
        try:
            await speak(self)
        finally:
            outgoing.close()
            await self._farewell(reader)
            if outgoing.get_write_buffer_size():
                outgoing.abort()
            incoming.close()

    async def _farewell(self, reader: _Heard) -> None:
        """Take what still comes, so that the agent can go by itself; then let it be ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await _to_the_end(reader)
                return
        self._over_at = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(JOIN_S):
                await _to_the_end(reader)


async def _to_the_end(reader: asyncio.StreamReader) -> None:
    while await reader.read(1024 * 1024):
        continue


class _Cancelled:
    """Whether the process is to be ended: all is said, or the job was cancelled *cancel_s* ago."""

    def __init__(self, job: Job, wire: Wire, cancel_s: float) -> None:
        self.job, self.wire, self.cancel_s = job, wire, cancel_s
        self.since: float | None = None

    def __call__(self) -> bool:
        if self.since is None and self.job.cancelled():
            self.since = time.monotonic()
        due = self.since is not None and time.monotonic() - self.since >= self.cancel_s
        return due or self.wire.over()


def converse(
    job: Job,
    argv: Sequence[str],
    speak: Callable[[Wire], Coroutine[Any, Any, None]],
    *,
    timeout_s: float,
    cancel_s: float = 0.0,
) -> AgentOutcome:
    """Run *argv* to its end while *speak* talks with it."""
    their_input, our_output = os.pipe()
    our_input, their_output = os.pipe()
    wire = Wire(our_input, our_output)
    streams = Streams(their_input, their_output, wire.heard)
    thread = threading.Thread(target=wire.serve, args=(speak,), name="talk", daemon=True)
    thread.start()
    try:
        cancelled = _Cancelled(job, wire, cancel_s)
        watched = replace(job, cancelled=cancelled)
        outcome = watched.run(argv, stdin=b"", timeout_s=timeout_s, streams=streams)
    finally:
        streams.close()
        thread.join(JOIN_S)
    if thread.is_alive():
        raise MachineError(
            f"{job.spec.name}: its process has ended, and who spoke with it does not come back"
        )
    if wire.error is not None:
        raise wire.error
    if outcome.reason == "interrupted" and not job.cancelled():
        outcome.reason = outcome.detail = ""
    return outcome

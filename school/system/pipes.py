"""Talk to a short-lived child over its pipes, bounded in time and in memory.

``pump`` feeds standard input and gathers both outputs at once, so that neither side can block the other; it ends
the child's process group when time or bytes run out. It waits for the child, not for the ends of its pipes: what
a grandchild keeps open blocks nobody. ``pieces`` hands out what a child prints as it comes, for outputs of any size.
For commands that are not ours there is ``processes.run``.

Errors: none of ``pump``'s own; what ran out is said in ``Pumped``. TimeoutError from ``pieces``.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

CHUNK_BYTES: Final = 256 * 1024
STDERR_BYTES_MAX: Final = 1024 * 1024
# How long an output may stay open after the child itself has ended.
LINGER_S: Final = 0.5
REAP_S: Final = 5.0


@dataclass(slots=True)
class Pumped:
    """Both outputs, and what ran out."""

    out: bytes = b""
    err: bytes = b""
    timed_out: bool = False
    overflowed: bool = False


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the session that *process* leads, unless it is already waited for."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
        # Even a killed process stays while a hung disk holds it; it is not waited for longer than that.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(REAP_S)


class _Pump:
    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes | None, limit_bytes: int) -> None:
        self.process = process
        self.left = memoryview(stdin or b"")
        self.limit_bytes = limit_bytes
        self.buffers: dict[IO[bytes], bytearray] = {}
        self.selector = selectors.DefaultSelector()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self.buffers[stream] = bytearray()
                self.selector.register(stream, selectors.EVENT_READ)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            self.selector.register(process.stdin, selectors.EVENT_WRITE)

    def feed(self, stream: IO[bytes]) -> None:
        try:
            if self.left:
                self.left = self.left[os.write(stream.fileno(), self.left[:CHUNK_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.left = memoryview(
                b""
            )  # it does not want the rest; its exit status says whether that is well
        if not self.left:
            self.selector.unregister(stream)
            stream.close()

    def drain(self, stream: IO[bytes]) -> None:
        try:
            chunk = os.read(stream.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self.selector.unregister(stream)
            return
        buffer = self.buffers[stream]
        buffer += chunk
        if stream is self.process.stderr and len(buffer) > STDERR_BYTES_MAX:
            del buffer[: len(buffer) - STDERR_BYTES_MAX]

    def overflowed(self) -> bool:
        out = self.process.stdout
        return out is not None and len(self.buffers[out]) > self.limit_bytes

    def turn(self, timeout_s: float) -> None:
        for key, _ in self.selector.select(timeout_s):
            stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
            if stream is self.process.stdin:
                self.feed(stream)
            else:
                self.drain(stream)

    def result(self, *, timed_out: bool) -> Pumped:
        over = self.overflowed()
        out, err = self.process.stdout, self.process.stderr
        return Pumped(
            bytes(self.buffers[out][: self.limit_bytes]) if out is not None else b"",
            bytes(self.buffers[err]) if err is not None else b"",
            timed_out=timed_out and not over,
            overflowed=over,
        )


def pump(
    process: subprocess.Popen[bytes], stdin: bytes | None, *, timeout_s: float, limit_bytes: int
) -> Pumped:
    """Feed *stdin*, gather the outputs, wait for the end; kill the process group when something runs out."""
    pumping = _Pump(process, stdin, limit_bytes)
    deadline = time.monotonic() + timeout_s
    closing: float | None = None
    try:
        while pumping.selector.get_map():
            now = time.monotonic()
            # The child's own end sets the clock for outputs that somebody else still holds.
            if closing is None and process.poll() is not None:
                closing = now + LINGER_S
            until = deadline if closing is None else min(deadline, closing)
            if now >= until or pumping.overflowed():
                break
            pumping.turn(min(until - now, LINGER_S))
        timed_out = _wait(process, deadline, give_up=pumping.overflowed())
        return pumping.result(timed_out=timed_out)
    finally:
        end_group(process)
        pumping.selector.close()


def pieces(process: subprocess.Popen[bytes], errors: bytearray, *, timeout_s: float) -> Iterator[bytes]:
    """What *process* prints, as it comes; its stderr goes to *errors*, bounded. TimeoutError when time runs out.

    However the reading ends, by an error or because nobody wants more, the process group is ended with it.
    """
    pumping = _Pump(process, None, CHUNK_BYTES)
    out, err = pumping.buffers[_pipe(process.stdout)], pumping.buffers[_pipe(process.stderr)]
    deadline = time.monotonic() + timeout_s
    last = time.monotonic()
    try:
        while pumping.selector.get_map():
            ended = process.poll() is not None
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            pumping.turn(min(left, LINGER_S))
            if out:
                piece = bytes(out)
                out.clear()
                yield piece
                last = time.monotonic()
            elif ended and time.monotonic() - last >= LINGER_S:
                break  # looked at after reading, so that however slow the reader is nothing is left in the pipe
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    finally:
        errors += err
        end_group(process)
        pumping.selector.close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "started without a pipe for each output"
    return stream


def _wait(process: subprocess.Popen[bytes], deadline: float, *, give_up: bool) -> bool:
    if not give_up:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        else:
            return False
    end_group(process)
    return not give_up

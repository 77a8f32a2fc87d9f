"""Run a command that is not ours (an agent, a check, a set-up step) to its end, and its whole tree with it.

The command runs below a warden (see ``warden``), in a session of its own, with standard input closed or holding
*stdin*. Its output is always drained, into bounded sinks, so that two gigabytes of it are as good as two lines,
and a grandchild that keeps a pipe open delays nothing. However the run ends, by itself too, no process of its
tree is left; how many could not be ended is ``survivors``. When the caller dies, the warden ends the tree.

With a *confinement* (see ``confine``) the command runs inside it and all of the above holds as well; only what the
command leaves behind when it has ended by itself gets no time to end politely: its PID namespace ends at once.

With *streams* somebody converses with the command: its standard input and output are the given ends, both are closed
here once the command has them, and only its standard error is kept.

Errors: how the command ended is data (``Finished``), never an exception. MachineError is what our side lacks: no
such working directory, no room for the output, no more processes, no confinement to be had, or its warden, where the
command's PID namespace kept that out of its reach; elsewhere the command may have killed it, and counts as killed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from school.errors import MachineError
from school.system import confine, files, markers, redaction
from school.system.gauge import Bounds, Gauge
from school.system.progress import Progress
from school.system.sinks import Sink

WARDEN: Final = str(Path(__file__).with_name("warden.py"))
OUTPUT_BYTES: Final = 8 * 1024 * 1024
TICK_S: Final = 0.25
ON_TICK_S: Final = 0.5
READ_BYTES: Final = 1024 * 1024
# After the tree has ended, what is still in the pipes is taken, within this.
DRAIN_S: Final = 1.0
# The warden's own patience with processes that the kernel holds, and some air.
WARDEN_PATIENCE_S: Final = 10.0
# A confinement's monitor, and the first process of its PID namespace.
CONFINING_PROCESSES: Final = 2
# A bound that is crossed: whoever does that is not asked politely first.
OVER: Final = frozenset({"memory", "processes", "disk", "disk_full"})
_NOT_FOUND: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


_UNBOUNDED: Final = Bounds()


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How long and how much. ``stall``: no output, no processor time, no file changed; ``startup``: none ever.

    ``bounds`` are what its whole tree may use, as far as looking now and then can tell (see ``gauge``); a single file may
    not grow beyond ``bounds.disk_bytes`` or ``bounds.file_bytes`` even for a moment.
    """

    timeout_s: float
    startup_timeout_s: float | None = None
    stall_timeout_s: float | None = None
    output_bytes: int = OUTPUT_BYTES
    grace_s: float = 5.0
    bounds: Bounds = _UNBOUNDED


@dataclass(slots=True)
class Finished:
    """How a command ended. ``reason`` is empty when it ended by itself, then ``exit_code`` is its own.

    Otherwise ``timeout``, ``stalled``, ``startup``, ``cancelled``, ``not_found``, ``not_executable``, or the bound that was
    crossed: ``memory``, ``processes``, ``disk``, ``disk_full``. Death by signal n is exit code 128 + n. ``stdout`` and
    ``stderr`` are head and tail within the limit. ``left`` are those, by PID and command, whom it had left running when it
    ended by itself, ten at most; they were ended. ``filled`` says so when it left less than the reserve on the disk itself.
    """

    exit_code: int | None
    reason: str = ""
    detail: str = ""
    duration_s: float = 0.0
    cpu_s: float = 0.0
    stdout: bytes = b""
    stderr: bytes = b""
    output_bytes: int = 0
    output_sha256: str = ""
    last_line: str = ""
    survivors: int = 0
    left: list[str] = field(default_factory=list)
    filled: str = ""


@dataclass(slots=True)
class Streams:
    """The command's ends of a conversation; *heard* tells whether it has said anything since it was asked last."""

    stdin: int
    stdout: int
    heard: Callable[[], bool]

    def close(self) -> None:
        """Let go of both ends; twice is fine."""
        for fd in {self.stdin, self.stdout} - {-1}:
            os.close(fd)
        self.stdin = self.stdout = -1


def run(  # noqa: PLR0913 - one command has that many sides; all are keywords
    argv: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes | None = None,
    limits: RunLimits,
    output_path: Path | None = None,
    stderr_path: Path | None = None,
    marker: str,
    watch_dir: Path | None = None,
    cancelled: Callable[[], bool] | None = None,
    on_tick: Callable[[], None] | None = None,
    confinement: confine.Policy | None = None,
    streams: Streams | None = None,
) -> Finished:
    """Run *argv* to its end within *limits*; see the module. Without *stderr_path* both outputs are one."""
    command = [os.fspath(word) for word in argv]
    if not cwd.is_dir():
        raise MachineError(f"{cwd}: no such directory to run {command[:1]} in")
    running = _Running(limits, marker, output_path, stderr_path, streams)
    progress = Progress(watch_dir, limits.startup_timeout_s, limits.stall_timeout_s)
    try:
        within = None if confinement is None else confine.wrap(confinement, cwd, command)
        refused = running.start(command, cwd, env, stdin, within)
        if refused is not None:
            return refused
        progress.pid = running.warden_pid
        running.attend(progress, cancelled, on_tick)
        return running.finished()
    finally:
        running.close()


class _Running:
    """One run's pipes, sinks and warden."""

    def __init__(
        self,
        limits: RunLimits,
        marker: str,
        output_path: Path | None,
        stderr_path: Path | None,
        streams: Streams | None = None,
    ) -> None:
        self.limits = limits
        self.streams = streams
        self.marker = marker
        # Two runs may share a marker (two beads that prepare alike); only this one is ended when its warden is lost.
        self.run_mark = os.urandom(8).hex()
        self.sinks: dict[int, Sink] = {}
        self.merged = stderr_path is None
        self.paths = [output_path] if stderr_path is None else [output_path, stderr_path]
        self.selector = selectors.DefaultSelector()
        self.readers: list[int] = []
        self.lifeline = -1
        self.report = -1
        self.said = b""
        self.warden: subprocess.Popen[bytes] | None = None
        self.begun = time.monotonic()
        self.gauge = Gauge(limits.bounds) if limits.bounds.any() else None
        self.out_of_reach = False  # the warden, for the command
        self.reason = ""
        self.detail = ""
        self.disk_error: MachineError | None = None

    @property
    def warden_pid(self) -> int:
        return self.warden.pid if self.warden is not None else 0

    # --- start ---

    def start(
        self,
        argv: list[str],
        cwd: Path,
        env: Mapping[str, str],
        stdin: bytes | None,
        within: confine.Wrapping | None = None,
    ) -> Finished | None:
        """Start the command; how it "ended" if it cannot even be handed to the kernel."""
        self.out_of_reach = within is not None and within.monitored
        if self.gauge is not None and self.out_of_reach:
            self.gauge.not_counted = CONFINING_PROCESSES
        writers = [self._open_sink(path) for path in self.paths]
        given, self.lifeline = os.pipe()
        self.report, told = os.pipe()
        source = _as_file(stdin)
        talk = self.streams
        try:
            self.warden = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    WARDEN,
                    str(given),
                    str(told),
                    str(self.limits.grace_s),
                    *_size_limit(self.limits.bounds),
                    *_confined(within),
                    *argv,
                ],
                cwd=cwd,
                env={**env, markers.VARIABLE: self.marker, markers.RUN_VARIABLE: self.run_mark},
                stdin=talk.stdin if talk else source if source is not None else subprocess.DEVNULL,
                stdout=talk.stdout if talk else writers[0],
                stderr=writers[-1],
                pass_fds=(given, told),
                start_new_session=True,
            )
        except (OSError, ValueError) as cause:
            if isinstance(cause, OSError) and cause.errno != errno.E2BIG:
                raise files.machine_error("start a process", argv[0], cause) from cause
            return Finished(None, "not_executable", f"{argv[0]}: {cause}")
        finally:
            for fd in (given, told, *writers):
                os.close(fd)
            if source is not None:
                source.close()
            if talk is not None:
                talk.close()
        self.selector.register(self.report, selectors.EVENT_READ)
        return None

    def _open_sink(self, path: Path | None) -> int:
        try:
            if path is not None:
                files.ensure_dir(path.parent)
            sink = Sink(path, self.limits.output_bytes, redaction.stream())
        except OSError as cause:
            raise (
                cause if isinstance(cause, MachineError) else files.machine_error("write", path, cause)
            ) from cause
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self.sinks[reader] = sink
        self.readers.append(reader)
        self.selector.register(reader, selectors.EVENT_READ)
        return writer

    # --- the run ---

    def attend(
        self, progress: Progress, cancelled: Callable[[], bool] | None, on_tick: Callable[[], None] | None
    ) -> None:
        """Drain, watch and bound, until the warden has told how it ended."""
        deadline = self.begun + self.limits.timeout_s
        give_up = float("inf")
        next_tick = self.begun + ON_TICK_S
        while not self.said.endswith(b"\n"):
            now = time.monotonic()
            if now >= give_up:
                self._lose_patience()
                return
            if not self._turn(
                progress,
                min(self._look_s(), max(0.0, min(deadline if not self.reason else give_up, next_tick) - now)),
            ):
                return
            now = time.monotonic()
            if on_tick is not None and now >= next_tick:
                on_tick()
            next_tick = now + ON_TICK_S if now >= next_tick else next_tick
            if not self.reason and self._limit_reached(progress, now >= deadline, cancelled):
                give_up = now + self.limits.grace_s + WARDEN_PATIENCE_S
                self._tell_warden(b"K" if self.reason in OVER else b"T")

    def _look_s(self) -> float:
        return TICK_S if self.gauge is None else min(TICK_S, self.gauge.look_s)

    def _turn(self, progress: Progress, timeout_s: float) -> bool:
        """Take what there is; False when the warden is gone without a word."""
        for key, _ in self.selector.select(timeout_s):
            if key.fd == self.report:
                told = os.read(self.report, 4096)
                self.said += told
                if not told:
                    self.selector.unregister(self.report)
                    return False
            elif self._drain(key.fd):
                progress.said()
        if self.streams is not None and self.streams.heard():
            progress.said()
        return True

    def _drain(self, reader: int) -> bool:
        try:
            chunk = os.read(reader, READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            if reader in self.selector.get_map():
                self.selector.unregister(reader)
            return False
        try:
            self.sinks[reader].write(chunk)
        except OSError as cause:
            self.disk_error = files.machine_error(
                "keep the output", self.paths[self.readers.index(reader)], cause
            )
        return True

    def _limit_reached(self, progress: Progress, over: bool, cancelled: Callable[[], bool] | None) -> bool:
        if over:
            self.reason, self.detail = "timeout", f"not ended after {self.limits.timeout_s:g} s"
        elif self.disk_error is not None:
            self.reason, self.detail = "cancelled", str(self.disk_error)
        elif cancelled is not None and cancelled():
            self.reason, self.detail = "cancelled", "cancelled"
        elif self.gauge is not None and (crossed := self.gauge.verdict(self.warden_pid))[0]:
            self.reason, self.detail = crossed
        elif verdict := progress.verdict():
            self.reason = verdict
            limit = self.limits.startup_timeout_s if verdict == "startup" else self.limits.stall_timeout_s
            self.detail = f"no output, no processor time and no file changed for {limit:g} s"
        return bool(self.reason)

    def _tell_warden(self, word: bytes) -> None:
        try:
            os.write(self.lifeline, word)
        except BrokenPipeError:
            return  # it has just ended by itself; its report says how

    def _lose_patience(self) -> None:
        """The warden does not answer or is gone: end it, and by their mark those whom it guarded."""
        if self.warden is not None and self.warden.poll() is None:
            self.warden.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.warden.wait(markers.END_WITHIN_S)
        markers.end_marked(self.run_mark, markers.RUN_VARIABLE)

    # --- the end ---

    def finished(self) -> Finished:
        """Everything that is known; the sinks are in their final form afterwards."""
        report: dict[str, Any] = json.loads(self.said) if self.said.endswith(b"\n") else {}
        if not report:
            self._lose_patience()
        self._drain_rest()
        contents = self._finish_sinks()
        if self.disk_error is not None:
            raise self.disk_error
        if report.get("refused") and not self.reason:
            said = contents[-1].decode("utf-8", "replace").strip().splitlines()
            raise MachineError(
                f"it cannot be confined: {said[-1] if said else 'the confinement did not start'}"
            )
        result = Finished(report.get("exit", 128 + signal.SIGKILL), self.reason, self.detail)
        if report.get("errno"):
            result.exit_code = None
            result.reason = "not_found" if report["errno"] in _NOT_FOUND else "not_executable"
            result.detail = os.strerror(report["errno"])
        elif not report and not self.reason:
            result.detail = "its warden was killed; the process tree was ended"
            if self.out_of_reach:
                raise MachineError(result.detail)
        elif self.gauge is not None and not self.reason:
            # Who fills a disk and ends at once is met by no look in between.
            self.reason, self.detail = result.reason, result.detail = self.gauge.at_the_end()
        if self.gauge is not None:
            result.filled = self.gauge.whose_fault()
        first = self.sinks[self.readers[0]]
        result.duration_s = time.monotonic() - self.begun
        result.cpu_s = report.get("cpu_s", 0.0)
        result.survivors = report.get("survivors", 0)
        result.left = report.get("left", [])
        result.stdout, result.stderr = contents[0], b"" if self.merged else contents[1]
        result.output_bytes = sum(sink.total for sink in self.sinks.values())
        result.output_sha256 = first.sha256
        result.last_line = first.last_line() or self.sinks[self.readers[-1]].last_line()
        return result

    def _drain_rest(self) -> None:
        until = time.monotonic() + DRAIN_S
        for reader in self.readers:
            while time.monotonic() < until and self._drain(reader):
                continue

    def _finish_sinks(self) -> list[bytes]:
        contents = []
        for reader, path in zip(self.readers, self.paths, strict=True):
            try:
                contents.append(self.sinks[reader].finish())
            except OSError as cause:
                self.disk_error = files.machine_error("keep the output", path, cause)
                contents.append(self.sinks[reader].content())
        return contents

    def close(self) -> None:
        """Let go of everything. The lifeline's end makes the warden end what may still run."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
        if self.warden is not None:
            try:
                self.warden.wait(WARDEN_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._lose_patience()
        if self.report >= 0:
            os.close(self.report)
        self.lifeline = self.report = -1
        self.selector.close()
        for reader in self.readers:
            self.sinks[reader].close()
            os.close(reader)
        self.readers = []


def _confined(within: confine.Wrapping | None) -> list[str]:
    """The warden's words up to the command itself."""
    if within is None:
        return ["--"]
    monitored = ["monitored"] if within.monitored else []
    return [f"within={len(within.words)}", *monitored, "--", *within.words]


def _size_limit(bounds: Bounds) -> list[str]:
    limits = [limit for limit in (bounds.disk_bytes, bounds.file_bytes) if limit is not None]
    return [f"file={min(limits)}"] if limits else []


def _as_file(data: bytes | None) -> IO[bytes] | None:
    """*data* as an open file without a name: no pipe that somebody must keep feeding."""
    if data is None:
        return None
    stream: IO[bytes]
    if hasattr(os, "memfd_create"):
        stream = os.fdopen(os.memfd_create("stdin"), "w+b")
    else:
        stream = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    stream.write(data)
    stream.flush()
    stream.seek(0)
    return stream

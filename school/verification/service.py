"""Start a service, see it answer over HTTP, end it and everything that it started.

``Service(...).check() -> Readiness``. The port must be free before: whoever answers there already is not what is to
be proven. Ready is a response, of whatever status, from a socket on which a process listens that we started, or one
below it; the kernel is asked whose socket it is, and its address is the one that is asked. A service whose recipe
names no port is asked on whichever it opens. Its early end is seen at once, its output is drained all the time and
kept within bounds, and nothing of it lives when this returns, Ctrl-C included.

Not promised: that what answers is right; and for Compose, whose containers are no children of ours, the word of
``docker compose ps`` stands in for the kernel's. Errors: MachineError where no process can be had.
"""

from __future__ import annotations

import errno
import http.client
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from school.system import processes
from school.verification import compose
from school.verification.recipe import Recipe

READY_S: Final = 60.0
REQUEST_S: Final = 5.0
LOOK_S: Final = 0.2
COMPOSE_LOOK_S: Final = 2.0
TICK_S: Final = 0.5
GRACE_S: Final = 10.0
OUTPUT_BYTES: Final = 256 * 1024
TAIL_CHARS: Final = 2000
# The warden's patience and ours, beyond the grace that the service has to end by itself.
JOIN_S: Final = GRACE_S + 15.0
_LOOPBACK: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_ANY: Final = ((socket.AF_INET, ""), (socket.AF_INET6, ""))


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the service answered; ``error`` says why it did not."""

    command: str
    url: str = ""
    ready: bool = False
    status: int | None = None
    duration_s: float = 0.0
    error: str = ""
    output: str = ""
    pid: int | None = None

    def document(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "url": self.url,
            "ready": self.ready,
            "statusCode": self.status,
            "duration": round(self.duration_s, 3),
            "error": self.error,
            "outputTail": self.output,
            "pid": self.pid,
        }


@dataclass(frozen=True, slots=True)
class _Answer:
    url: str
    status: int | None
    error: str = ""
    pid: int | None = None


class Service:
    """One start of *recipe*'s service. *port* is the user's wish, and the service is told."""

    def __init__(
        self,
        recipe: Recipe,
        root: Path,
        env: Mapping[str, str],
        *,
        port: int | None,
        ready_s: float,
        marker: str,
        output: Path,
    ) -> None:
        self.line = _on_port(recipe.start, recipe.port, port)
        self.port = port or recipe.port
        self.path = recipe.readiness_path
        self.root = root
        self.env = {**env, "PORT": str(port)} if port else dict(env)
        self.ready_s = ready_s
        self.marker = marker
        self.output = output
        self.by_compose = any(subcommand == "up" for _, subcommand in compose.calls(self.line))
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._finished: processes.Finished | None = None
        self._failure: BaseException | None = None

    def check(self, on_tick: Callable[[], None]) -> Readiness:
        """Start it, wait for its answer, end it; *on_tick* is called twice a second meanwhile."""
        refused = compose.refusal(self.line, cwd=self.root, env=self.env, marker=self.marker)
        if not refused and self.port and (holder := taken(self.port)):
            refused = (
                f"port {self.port} is taken already, by {holder}; what answers there would prove nothing"
            )
        if refused:
            return Readiness(self.line, self._url("127.0.0.1", self.port), error=refused)
        begun = time.monotonic()
        thread = threading.Thread(target=self._run, name="service", daemon=True)
        thread.start()
        try:
            answer = self._wait(begun, on_tick)
            took = time.monotonic() - begun
        finally:
            self._stop.set()
            thread.join(JOIN_S)
        if self._failure is not None:
            raise self._failure
        return self._told(answer, took)

    # --- the process ---

    def _run(self) -> None:
        try:
            self._finished = processes.run(
                ["/bin/sh", "-c", self.line],
                cwd=self.root,
                env=self.env,
                # It ends when it has answered, or when it is told; this limit is only the last resort.
                limits=processes.RunLimits(self.ready_s + 10 * REQUEST_S, None, None, OUTPUT_BYTES, GRACE_S),
                marker=self.marker,
                output_path=self.output,
                cancelled=self._stop.is_set,
            )
        except BaseException as cause:  # noqa: BLE001 - carried over into the thread that waits
            self._failure = cause
        finally:
            self._ended.set()

    def _told(self, answer: _Answer, duration_s: float) -> Readiness:
        finished = self._finished
        output = finished.stdout.decode("utf-8", "replace")[-TAIL_CHARS:] if finished else ""
        error = answer.error
        if finished is None or finished.survivors:
            error = "; ".join(part for part in (error, "not all of its processes could be ended") if part)
        ready = answer.status is not None and not error
        return Readiness(self.line, answer.url, ready, answer.status, duration_s, error, output, answer.pid)

    # --- waiting ---

    def _wait(self, begun: float, on_tick: Callable[[], None]) -> _Answer:
        deadline, next_tick, seen = begun + self.ready_s, begun + TICK_S, _Answer("", None)
        look_s = COMPOSE_LOOK_S if self.by_compose else LOOK_S
        while not self._ended.wait(look_s):
            now = time.monotonic()
            if now >= next_tick:
                on_tick()
                next_tick = now + TICK_S
            seen = self._look() or seen
            if seen.status is not None:
                return seen
            if time.monotonic() >= deadline:
                return self._too_late(seen)
        how = "not started" if self._finished is None else f"exit {self._finished.exit_code}"
        after = time.monotonic() - begun
        return _Answer(
            seen.url or self._url("127.0.0.1", self.port),
            None,
            f"it ended by itself ({how}) after {after:.1f} s, before it had answered",
        )

    def _too_late(self, seen: _Answer) -> _Answer:
        waited = f"no answer within {self.ready_s:g} s"
        url = seen.url or self._url("127.0.0.1", self.port)
        if seen.error:
            return _Answer(url, None, f"{waited}: {seen.error}")
        others = sorted({at[1] for at, _ in self._sockets()})
        if others:
            return _Answer(url, None, f"{waited}: it listens on {', '.join(map(str, others))} instead")
        if self.port and (holder := taken(self.port)):
            return _Answer(
                url, None, f"{waited} from what was started; the port is served by {holder} instead"
            )
        return _Answer(url, None, f"{waited}: nothing that was started listens on a port")

    def _look(self) -> _Answer | None:
        """Ask what we started, wherever it listens; None where it does not yet."""
        answer = None
        for (host, port), pid in self._sockets():
            for reached in _reached_at(host) if self.port in (None, port) else ():
                answer = self._ask(reached, port, pid)
                if answer.status is not None:
                    return answer
        if answer is None and self.by_compose and self.port and self._published():
            return self._ask("127.0.0.1", self.port, None)
        return answer

    def _published(self) -> bool:
        assert self.port is not None
        return compose.publishes(self.line, self.port, cwd=self.root, env=self.env, marker=self.marker)

    def _sockets(self) -> list[tuple[tuple[str, int], int]]:
        """Where the processes listen that we started, and which of them."""
        return sorted({found for pid in processes.marked(self.marker) for found in _listening(pid)})

    def _ask(self, host: str, port: int, pid: int | None) -> _Answer:
        url = self._url(host, port)
        connection = http.client.HTTPConnection(host, port, timeout=REQUEST_S)
        try:
            connection.request("GET", self.path, headers={"User-Agent": "schoolhouse-verify"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as cause:
            return _Answer(url, None, f"{url}: {str(cause) or type(cause).__name__}", pid)
        finally:
            connection.close()
        return _Answer(url, status, "", pid)

    def _url(self, host: str, port: int | None) -> str:
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}{self.path}" if port else ""


def _on_port(line: str, usual: int | None, wanted: int | None) -> str:
    """*line* with the wanted port where it names its usual one."""
    if not wanted or not usual or wanted == usual:
        return line
    return re.sub(rf"(?<![\w.]){usual}(?![\w.])", str(wanted), line)


def _reached_at(host: str) -> tuple[str, ...]:
    """The addresses at which a socket bound to *host* answers on this machine."""
    everywhere = {"0.0.0.0": ("127.0.0.1",), "::": ("127.0.0.1", "::1")}  # noqa: S104 - read, not bound
    return everywhere.get(host, (host,))


def _listening(pid: int) -> Iterable[tuple[tuple[str, int], int]]:
    try:
        found = psutil.Process(pid).net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return []
    return [((c.laddr.ip, c.laddr.port), pid) for c in found if c.status == psutil.CONN_LISTEN]


def taken(port: int) -> str:
    """Who holds *port* on this machine, in words; empty when it is free."""
    if any(_answers(family, host, port) for family, host in _LOOPBACK) or not all(
        _can_be_bound(family, host, port) for family, host in _ANY
    ):
        return _holder(port)
    return ""


def _answers(family: int, host: str, port: int) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.settimeout(1.0)
            return tried.connect_ex((host, port)) == 0
    except OSError:
        return False


def _can_be_bound(family: int, host: str, port: int) -> bool:
    """False only where somebody listens; no right to the port, or no IPv6, is another matter."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            tried.bind((host, port))
    except OSError as cause:
        return cause.errno != errno.EADDRINUSE
    return True


def _holder(port: int) -> str:
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr[1:2] == (port,)
                and connection.pid
            ):
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError):
        return "another process"
    return "another process"

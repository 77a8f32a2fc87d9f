"""Start, know and end processes: our own children, commands that are not ours, orphans that fall to us.

Our own (a teacher, a leaf): ``spawn`` writes the child's record before there is a child, starts it in a session of
its own and holds the other end of its *lifeline*, a pipe whose end tells the child that its parent is gone, even
by ``kill -9``. The child calls ``hold_lifeline`` early. Foreign commands: ``run`` (see ``foreign``), with the
environment that ``child_environment`` reduces. ``end_marked`` finds what a killed run left (see ``markers``).

Not promised: that a child which never calls ``hold_lifeline`` ends with its parent.
Errors: MachineError for what the system refuses; how a command ended is data.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from school.system import clock, faults, files, lifeline
from school.system.foreign import Finished, RunLimits, run
from school.system.identity import Owner, alive, identity, is_dead, look, owner_of
from school.system.markers import VARIABLE as MARKER_VARIABLE
from school.system.markers import end_marked, marked, signal_exactly
from school.system.progress import children_of
from school.system.warden import become_subreaper

__all__ = [
    "LIFELINE_VARIABLE",
    "MARKER_VARIABLE",
    "Child",
    "Finished",
    "Owner",
    "RunLimits",
    "alive",
    "become_subreaper",
    "child_environment",
    "end_marked",
    "hold_lifeline",
    "identity",
    "is_dead",
    "marked",
    "owner_of",
    "reap_orphans",
    "run",
    "spawn",
]

LIFELINE_VARIABLE: Final = lifeline.VARIABLE
# After SIGTERM, an orphaned child of ours has this long; with its warden's patience it is well below 2 s, also where the
# machine is so busy that a process waits for its turn.
ORPHAN_GRACE_S: Final = 0.7
# Even a killed process stays while a hung disk holds it; it is not waited for longer than that.
REAP_S: Final = 5.0
_PASSED: Final = frozenset(
    {"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "SHELL", "TERM"}
    | {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"}
)


# --- children of ours -----------------------------------------------------------------------------------------


class Child:
    """A child process of ours, and the lifeline it hangs on. ``close`` lets go: the child ends by itself."""

    def __init__(self, process: subprocess.Popen[bytes], line: int, record: Path) -> None:
        self.process = process
        self.pid = process.pid
        self.start = look(process.pid).start
        self.record = record
        self._lifeline = line

    def poll(self) -> int | None:
        """Its exit code (128 + n for signal n), None while it runs."""
        code = self.process.poll()
        return code if code is None or code >= 0 else 128 - code

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, or None when it still runs after *timeout_s*."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        return self.poll()

    def terminate(self) -> None:
        """Ask it to end; it finishes nothing new and leaves its records whole. One that stands still is woken."""
        if self.process.poll() is None:
            ask_to_end(self.pid, self.start)

    def kill_tree(self, grace_s: float) -> None:
        """End it, politely first, then it and everything that is below it."""
        # Seen before the polite word: who loses its parent to it cannot be found afterwards.
        below = _descendants(self.pid)
        self.terminate()
        if grace_s > 0:
            self.wait(grace_s)
        below |= _descendants(self.pid)
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.process.kill()
            self.wait(REAP_S)
        for pid, start in below.items():
            signal_exactly(pid, start, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Let go of the lifeline; twice is fine."""
        fd, self._lifeline = self._lifeline, -1
        if fd >= 0:
            os.close(fd)


def ask_to_end(pid: int, start: str) -> None:
    """SIGTERM to that very process, and SIGCONT: one that was stopped would never hear of it."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        signal_exactly(pid, start, number)


def _descendants(pid: int) -> dict[int, str]:
    found: dict[int, str] = {}
    todo = children_of(pid)
    while todo:
        child = todo.pop()
        seen = look(child)
        if child not in found and seen.exists and seen.start:
            found[child] = seen.start
            todo += children_of(child)
    return found


def spawn(
    argv: Sequence[str | Path],
    *,
    record: Path,
    record_fields: Mapping[str, Any],
    cwd: Path,
    env: Mapping[str, str],
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
) -> Child:
    """Start a child of ours; its *record* says ``starting`` before it exists, and who it is before we return."""
    fields = {**record_fields, "pid": 0, "step": "starting", "since": clock.now()}
    with faults.around("process.announced"):
        files.write_json(record, fields)
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [os.fspath(word) for word in argv],
            cwd=cwd,
            env={**env, LIFELINE_VARIABLE: str(reader)},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(reader,),
            start_new_session=True,
        )
    except OSError as cause:
        os.close(writer)
        files.discard(record)
        raise files.machine_error("start a process", argv[0], cause) from cause
    finally:
        os.close(reader)
    child = Child(process, writer, record)
    try:
        files.write_json(record, {**fields, **owner_fields(identity(child.pid)), "since": clock.now()})
    except BaseException:
        child.kill_tree(0)
        raise
    return child


def owner_fields(owner: Owner) -> dict[str, Any]:
    """*owner* as fields of a JSON record."""
    return {
        "pid": owner.pid,
        "start": owner.start,
        "boot": owner.boot,
        "host": owner.host,
        "pidns": owner.pidns,
    }


def hold_lifeline(on_eof: Callable[[], None] | None = None) -> bool:
    """In a child: call *on_eof* (in a thread) when the parent is gone; False where there is no lifeline.

    Without *on_eof* the process gets SIGTERM, so that it ends in order, and SIGKILL ``ORPHAN_GRACE_S`` later.
    """
    lifeline.then(on_eof or _end_self)
    return lifeline.hold()


def _end_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


# --- orphans --------------------------------------------------------------------------------------------------

_zombies_seen: dict[int, float] = {}
# A Popen's own wait comes within milliseconds of its child's end. Who is a zombie for longer is nobody's.
_UNCLAIMED_S: Final = 2.0


def reap_orphans(known: Collection[int] = ()) -> list[int]:
    """Collect ended processes that fell to us (see ``become_subreaper``); never one in *known*."""
    now = clock.monotonic()
    zombies = {pid for pid in children_of(os.getpid()) if pid not in known and look(pid).zombie}
    for pid in set(_zombies_seen) - zombies:
        del _zombies_seen[pid]
    reaped = []
    for pid in zombies:
        if now - _zombies_seen.setdefault(pid, now) >= _UNCLAIMED_S:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            del _zombies_seen[pid]
            reaped.append(pid)
    return reaped


# --- environment ----------------------------------------------------------------------------------------------


def child_environment(
    *,
    environ: Mapping[str, str] | None = None,
    pass_names: Iterable[str] = (),
    set_values: Mapping[str, str] | None = None,
    tmpdir: Path,
    path_first: Iterable[str | Path] = (),
    path_last: Iterable[str | Path] = (),
) -> dict[str, str]:
    """The reduced environment of a foreign command: what programs need, what is named, nothing of ``GIT_*``."""
    source = os.environ if environ is None else environ
    wanted = _PASSED | set(pass_names)
    env = {
        name: value
        for name, value in source.items()
        if (name in wanted or name.startswith("LC_")) and not name.startswith("GIT_")
    }
    path = [
        *map(str, path_first),
        *env.get("PATH", os.defpath).split(os.pathsep),
        *map(str, path_last),
    ]
    # An empty entry would mean the current directory: the tree that an agent writes.
    env["PATH"] = os.pathsep.join(dict.fromkeys(entry for entry in path if entry))
    env["TMPDIR"] = os.fspath(tmpdir)
    env["GIT_TERMINAL_PROMPT"] = "0"
    env.update(set_values or {})
    return env

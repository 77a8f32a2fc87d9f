"""Know when something in a directory may have changed: events where the system has them, looks where not.

A ``Watcher`` arms its watch before it returns from ``__enter__``, so that a first scan afterwards misses nothing.
``wait`` says True when it is worth looking: at the first call, after an event, after ``wake``, and every
``rescan_s`` regardless, because events can be lost. Where inotify cannot be had (limits reached, a network file
system) ``mode`` is ``poll`` with ``reason`` in words, and it is worth looking every second. A directory that is
removed is made again and watched again.

Not promised: that an event tells what changed, or that each change is one event. The disk is the truth.
Use it in one thread; ``wake`` may be called from any thread and from signal handlers. Never fork afterwards.
Errors: MachineError when the directory can neither be had nor made.
"""

# The os functions, on plain strings: the loop around this runs for ever.
# ruff: noqa: PTH116
from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from school.system import files

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

POLL_S: Final = 1.0
STOP_WITHIN_S: Final = 2.0
# File systems on which another host's writes make no event here.
REMOTE_TYPES: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "vboxsf", "afs", "ncpfs", "glusterfs", "ceph"}
)
# Events of watchdog that say that somebody has read, which is no change; our own scans would wake us for ever.
_READING: Final = frozenset({"opened", "closed_no_write"})


def file_system_type(path: Path) -> str:
    """The type of the file system that holds *path*; empty where it cannot be told."""
    if not sys.platform.startswith("linux"):
        return ""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        head, _, tail = line.partition(" - ")
        if head.split()[2] == wanted:
            return tail.split()[0]
    return ""


class Watcher:
    """Watches one directory, not what is below it."""

    def __init__(self, directory: Path, *, rescan_s: float) -> None:
        self.directory = directory
        self.rescan_s = rescan_s
        self.mode = "poll"
        self.reason = "not armed"
        self._observer: BaseObserver | None = None
        self._identity: tuple[int, int] | None = None
        self._reader = self._writer = -1
        self._looked = float("-inf")

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        try:
            self._arm()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching; twice is fine."""
        self._disarm()
        # The writer goes first and for good: a signal handler may still call wake.
        reader, writer, self._reader, self._writer = self._reader, self._writer, -1, -1
        for fd in (writer, reader):
            if fd >= 0:
                os.close(fd)

    def wake(self) -> None:
        """Make the present or next ``wait`` return True; from any thread, and from signal handlers."""
        if self._writer >= 0:
            # A full pipe holds wakes enough.
            with contextlib.suppress(BlockingIOError):
                os.write(self._writer, b"w")

    def wait(self, timeout_s: float) -> bool:
        """Wait at most *timeout_s*; whether something may have changed since it was last said so."""
        deadline = time.monotonic() + max(0.0, timeout_s)
        while True:
            now = time.monotonic()
            due = self._looked + (self.rescan_s if self.mode == "inotify" else min(POLL_S, self.rescan_s))
            # A directory that is moved away makes no event: it is looked after once a second.
            ready = self._wakened(max(0.0, min(deadline - now, due - now, POLL_S)))
            renewed = self._see_to_directory()
            now = time.monotonic()
            if ready or renewed or now >= due:
                self._looked = now
                return True
            if now >= deadline:
                return False

    def _wakened(self, timeout_s: float) -> bool:
        if not select.select([self._reader], [], [], timeout_s)[0]:
            return False
        with contextlib.suppress(BlockingIOError):
            while os.read(self._reader, 4096):
                continue
        return True

    # --- arming ---

    def _see_to_directory(self) -> bool:
        if self._identity_now() == self._identity:
            return False
        self._disarm()
        self._arm()
        return True

    def _identity_now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.directory)
        except FileNotFoundError:
            return None
        except OSError as cause:
            raise files.machine_error("watch", self.directory, cause) from cause
        return status.st_dev, status.st_ino

    def _arm(self) -> None:
        files.ensure_dir(self.directory)
        self._identity = self._identity_now()
        kind = file_system_type(self.directory)
        if kind in REMOTE_TYPES or kind.startswith("fuse"):
            self.mode, self.reason = "poll", f"{kind}: changes by others make no events here"
            return
        try:
            self._observe()
        except OSError as cause:
            self._disarm()
            self.mode, self.reason = "poll", _why_not(cause)
        else:
            self.mode, self.reason = "inotify", ""

    def _observe(self) -> None:
        from watchdog.events import FileSystemEvent, FileSystemEventHandler
        from watchdog.observers import Observer

        woken = self.wake

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                if event.event_type not in _READING:
                    woken()

        observer: Any = Observer()
        self._observer = observer
        # The real path: on macOS events come for /private/tmp, never for /tmp.
        observer.schedule(Handler(), os.path.realpath(self.directory), recursive=False)
        observer.start()

    def _disarm(self) -> None:
        observer, self._observer = self._observer, None
        self._identity = None
        if observer is None:
            return
        observer.unschedule_all()
        if observer.is_alive():
            observer.stop()
            observer.join(STOP_WITHIN_S)


def _why_not(cause: OSError) -> str:
    limits = {errno.EMFILE: "fs.inotify.max_user_instances", errno.ENOSPC: "fs.inotify.max_user_watches"}
    name = limits.get(cause.errno or 0)
    return f"inotify cannot be had: {cause.strerror or cause}" + (f" (see {name})" if name else "")

"""Two locks: one that says who owns it, one that the kernel holds.

``OwnedLock`` is a file that appears with its owner already in it (written aside, then ``link(2)``), so it is never
seen empty. A lock of the dead is taken over; of the living, never. Death is proven (``identity.is_dead``); a file
that is empty or garbled names nobody and is taken by age alone, after ``GARBLED_AGE_S`` without change. A
takeover happens under a kernel lock on a permanent guard file: read again, prove again, replace. ``release``
removes only what this very holder wrote; otherwise it raises ``LockLost`` and leaves the file alone. A forked
child does not hold its parent's lock. Hold it for milliseconds only; it is not reentrant.

``KernelLock`` is ``flock`` on a file that stays: held until released or until the process dies, whatever kills
it. Its owner's text lies beside it as ``<path>.owner`` for display; it proves nothing.

Not promised: exclusion between hosts that share a directory, except that a foreign record is never taken; nor, where
another hand empties a held lock, that its owner's release spares a successor, if that owner is stopped for
``GARBLED_AGE_S`` between the two system calls of the release.

Calling: ``acquire(timeout)`` tries once before it looks at the clock, so timeout 0 tries exactly once; ``with``
waits ``TIMEOUT_S`` and raises LockTimeout. Errors: LockTimeout, LockLost, and MachineError for what the
file system refuses (no hard links, no flock, no space, read-only).
"""

# The os functions, on plain strings: a Path built per call costs more than the system call.
# ruff: noqa: PTH104, PTH106, PTH118, PTH114, PTH108, PTH112
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from school.errors import LockLost, LockTimeout, MachineError
from school.system import files
from school.system.identity import Owner, alive, identity, is_dead, this_process
from school.system.turns import Burst, Place, Turn

if TYPE_CHECKING:
    from filelock import FileLock

__all__ = [
    "KernelLock",
    "OwnedLock",
    "Owner",
    "alive",
    "exclude",
    "held_elsewhere",
    "holder",
    "identity",
    "is_dead",
    "refuse_unfit",
    "this_process",
]

TIMEOUT_S: Final = 10.0
GARBLED_AGE_S: Final = 5.0
GUARD_TIMEOUT_S: Final = 1.0
GUARD_LEAST_S: Final = 0.02
WAIT_MIN_S: Final = 0.001
WAIT_MAX_S: Final = 0.050
TURN_PAUSE_S: Final = 0.0001
# Some looks long, of whoever has the turn.
GIVE_WAY_S: Final = 0.0003
RECORD_BYTES_MAX: Final = 4096
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


_burst = Burst()


class OwnedLock:
    """The lock file *path*; *guard* is the permanent file under whose kernel lock takeovers happen."""

    def __init__(self, path: Path | str, guard: Path | str) -> None:
        self.path = os.fspath(path)
        self.guard = os.fspath(guard)
        self._turn = f"{self.guard}.turn"
        self._held: Owner | None = None
        self._temporary = ""
        self._record = b""
        # What this waiter saw last of a garbled file, and since when it has been so.
        self._seen: tuple[int, ...] = ()
        self._seen_since = 0.0

    @property
    def held(self) -> bool:
        """Whether this object, in this process, holds the lock (a forked child holds nothing)."""
        return self._held is not None and self._held.pid == os.getpid()

    def owner(self) -> Owner | None:
        """Who is written in the lock; None when it is free or names nobody."""
        text = self._read()
        return Owner.parse(text) if text else None

    def acquire(self, timeout: float = TIMEOUT_S, purpose: str = "") -> bool:
        """Take the lock within *timeout* seconds; whether it was had."""
        assert not self.held, f"{self.path}: not reentrant"
        if _burst.over(self.path, self._turn, time.monotonic()):
            time.sleep(GIVE_WAY_S)
        mine = this_process(purpose)
        self._record = mine.text.encode()
        self._write_record()
        try:
            if self._link() or self._wait(timeout):
                self._held = mine
        except BaseException:
            # A signal's exception may come between the link and our knowing of it.
            self._forget(mine)
            raise
        finally:
            files.discard(self._temporary)
        return self.held

    def release(self) -> None:
        """Give the lock back; LockLost when it is not this holder's any more."""
        mine, self._held = self._held, None
        if mine is None or mine.pid != os.getpid():
            raise LockLost(f"{self.path}: not held by this process")
        text = self._read()
        if text != mine.text:
            found = Owner.parse(text or "")
            raise LockLost(
                f"{self.path}: lost to {_who(found) if text is not None else 'nobody: it is gone'}"
            )
        os.unlink(self.path)
        _burst.release(self.path, time.monotonic())

    def __enter__(self) -> Self:
        if not self.acquire(TIMEOUT_S):
            raise LockTimeout(f"{self.path}: not had within {TIMEOUT_S:g} s; held by {_who(self.owner())}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    # --- how ---

    def _write_record(self) -> None:
        self._temporary = files.temporary_name(self.path)
        try:
            try:
                fd = os.open(self._temporary, files.CREATE_FLAGS, files.FILE_MODE)
            except FileNotFoundError:
                files.ensure_dir(Path(self.path).parent)
                fd = os.open(self._temporary, files.CREATE_FLAGS, files.FILE_MODE)
            try:
                os.write(fd, self._record)
            finally:
                os.close(fd)
        except OSError as cause:
            files.discard(self._temporary)
            raise files.machine_error("write a lock", self.path, cause) from cause

    def _link(self) -> bool:
        try:
            try:
                os.link(self._temporary, self.path, follow_symlinks=False)
            except FileNotFoundError:
                # The directory was removed and made again under us, and our record went with it.
                self._write_record()
                os.link(self._temporary, self.path, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as cause:
            doing = "lock (hard links are needed)" if cause.errno in _NO_LINKS else "lock"
            raise files.machine_error(doing, self.path, cause) from cause
        return True

    def _forget(self, mine: Owner) -> None:
        if self._read() == mine.text:
            files.discard(self.path)

    def _wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        pause = WAIT_MIN_S
        proven = float("-inf")
        with Turn(self._turn, time.monotonic()) as turn:
            while True:
                now = time.monotonic()
                # A look disturbs nobody; a link that fails keeps the holder waiting for the directory.
                if not os.path.lexists(self.path) and self._link():
                    return True
                if now - proven >= WAIT_MIN_S:
                    proven = now
                    if self._takeable(self._read()) and self._take_over(deadline - now):
                        return True
                if now >= deadline:
                    return False
                place = turn.place(now)
                if place is Place.BEHIND:
                    # Jitter spreads the waiters out.
                    time.sleep(min(deadline - now, pause * (0.5 + os.urandom(1)[0] / 512)))
                    pause = min(WAIT_MAX_S, pause * 1.5)
                else:
                    time.sleep(min(deadline - now, TURN_PAUSE_S if place is Place.MINE else WAIT_MIN_S))

    def _read(self) -> str | None:
        """The lock's text; None when absent, empty for what cannot be read as a record at all."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as cause:
            if cause.errno == errno.ELOOP:
                return ""
            raise files.machine_error("read a lock", self.path, cause) from cause
        try:
            return os.read(fd, RECORD_BYTES_MAX).decode("utf-8", "replace")
        except OSError:
            return ""  # a directory, or a device: it names nobody
        finally:
            os.close(fd)

    def _takeable(self, text: str | None) -> bool:
        if text is None:
            return False  # free: the next link tells
        owner = Owner.parse(text)
        return is_dead(owner) if owner is not None else self._garbled_long_enough()

    def _garbled_long_enough(self) -> bool:
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return False
        seen = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if seen != self._seen:
            self._seen, self._seen_since = seen, time.monotonic()
        # A time stamp in the future says nothing; then only what this waiter has watched itself counts.
        age = time.time() - status.st_mtime
        return age >= GARBLED_AGE_S or time.monotonic() - self._seen_since >= GARBLED_AGE_S

    def _take_over(self, left: float) -> bool:
        guard = KernelLock(self.guard, show_owner=False)
        # Others hold the guard for less than a millisecond, unless they are stopped in it.
        if not guard.acquire(min(max(left, GUARD_LEAST_S), GUARD_TIMEOUT_S)):
            return False
        try:
            if not self._takeable(self._read()):
                return False
            if os.path.isdir(self.path) and not os.path.islink(self.path):
                _put_aside(self.path)
            else:
                # Not a rename over it: some file systems then wait for the disk. A newcomer's link may come in
                # between and win; no more than one link ever does.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path)
            return self._link()
        except MachineError:
            raise
        except OSError as cause:
            raise files.machine_error("take over a lock", self.path, cause) from cause
        finally:
            guard.release()


def _put_aside(directory: str) -> None:
    """A directory has the lock's name: away with it, but what somebody put into it is kept."""
    try:
        os.rmdir(directory)
    except OSError:
        head, tail = os.path.split(directory)
        os.rename(directory, os.path.join(head, f".{tail}.{os.urandom(4).hex()}.taken"))


def _who(owner: Owner | None) -> str:
    if owner is None:
        return "nobody that it names"
    where = f" on {owner.host}" if owner.host else ""
    return f"process {owner.pid}{where}" + (f" ({owner.purpose})" if owner.purpose else "")


# --- kernel locks ---------------------------------------------------------------------------------------------

_held_here: dict[str, int] = {}
os.register_at_fork(after_in_child=_held_here.clear)
# A look from ``held_elsewhere`` shares the lock for microseconds; a taker must not mistake it for a holder.
_TRY_AGAIN_S: Final = 0.02


class KernelLock:
    """An exclusive ``flock`` on *path*, which is made and stays. Freed by the kernel when the process dies."""

    def __init__(self, path: Path | str, *, show_owner: bool = True) -> None:
        self.path = os.fspath(path)
        self._show_owner = show_owner
        self._lock: FileLock | None = None

    @property
    def held(self) -> bool:
        return self._lock is not None and self._lock.is_locked

    def try_acquire(self, purpose: str = "") -> bool:
        """Take it if it is free; whether it was had. The holder's text is written beside it for display."""
        return self._take(_TRY_AGAIN_S, purpose)

    def acquire(self, timeout: float, purpose: str = "") -> bool:
        """Take it within *timeout* seconds; whether it was had."""
        return self._take(max(timeout, 0.0), purpose)

    def _take(self, timeout: float, purpose: str) -> bool:
        from filelock import FileLock, Timeout

        files.ensure_dir(Path(self.path).parent)
        lock = FileLock(
            self.path,
            timeout=timeout,
            poll_interval=0.001 if timeout <= GUARD_TIMEOUT_S else 0.02,
            mode=files.FILE_MODE,
            thread_local=False,
            fallback_to_soft=False,
        )
        try:
            lock.acquire()
        except Timeout:
            return False
        except OSError as cause:
            raise files.machine_error("lock with flock", self.path, cause) from cause
        self._lock = lock
        _held_here[os.path.realpath(self.path)] = os.getpid()
        if self._show_owner:
            files.write_plain(f"{self.path}.owner", this_process(purpose).text.encode())
        return True

    def release(self) -> None:
        """Give it back; the file stays, so that all who wait wait for the same one."""
        lock, self._lock = self._lock, None
        if lock is None or not lock.is_locked:
            raise LockLost(f"{self.path}: not held by this process")
        _held_here.pop(os.path.realpath(self.path), None)
        if self._show_owner:
            files.discard(f"{self.path}.owner")
        lock.release()

    def __enter__(self) -> Self:
        if not self.acquire(TIMEOUT_S):
            raise LockTimeout(
                f"{self.path}: not had within {TIMEOUT_S:g} s; held by {_who(holder(self.path))}"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def exclude(directory: Path) -> bool:
    """Whether kernel locks keep anybody out in *directory*: some network file systems grant each to everybody."""
    probe = Path(files.temporary_name(directory / "probe"))
    first, second = (KernelLock(probe, show_owner=False) for _ in range(2))
    try:
        with first:
            granted_twice = second.acquire(0.0)
            if granted_twice:
                second.release()
        return not granted_twice
    finally:
        files.discard(probe)


def refuse_unfit(directory: Path) -> None:
    """MachineError where the locks of *directory* would keep nobody out."""
    if not files.hard_links_work(directory):
        raise MachineError(f"{directory}: this file system has no hard links, which bead locks need")
    if not exclude(directory):
        raise MachineError(
            f"{directory}: this file system grants a kernel lock to two at once; choose another folder"
        )


def held_elsewhere(path: Path | str) -> bool:
    """Whether a process other than this one holds the kernel lock *path* right now."""
    if os.path.realpath(path) in _held_here:
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as cause:
        raise files.machine_error("look at a lock", path, cause) from cause
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as cause:
        raise files.machine_error("look at a lock", path, cause) from cause
    finally:
        os.close(fd)
    return False


def holder(path: Path | str) -> Owner | None:
    """Who last said to hold the kernel lock *path*; for display, None when unknown or dead."""
    try:
        raw = files.read_bytes(f"{os.fspath(path)}.owner", limit_bytes=RECORD_BYTES_MAX)
    except (ValueError, MachineError):
        return None
    owner = Owner.parse(raw.decode("utf-8", "replace")) if raw else None
    return owner if owner is not None and alive(owner) else None

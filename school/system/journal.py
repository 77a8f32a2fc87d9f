"""Journals: one JSON object a line, each line durable before the call returns.

Writers take turns by ``flock`` on the journal itself, for the length of one line. A last line that a crash cut is
closed off by the next writer and passed over by every reader; a line that the disk refused is taken back.

Errors: MachineError, with the path, for what the machine refuses or when another writer holds on too long.
"""

# The os functions, on plain strings: a Path built per call costs more than the system call.
# ruff: noqa: PTH105
from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from school.errors import MachineError
from school.system import clock, documents, durable

LOCK_TIMEOUT_S: Final = 10.0


def append_json_line(path: Path, obj: Any, *, rotate_bytes: int | None = None) -> None:  # noqa: ANN401
    """Add *obj* as one durable line; a last line that a crash cut gets its newline first.

    Past *rotate_bytes* the file becomes ``<name>.1``, replacing the one before it.
    """
    line = documents.dumps(obj, indent=None)
    try:
        while not _add(path, line, rotate_bytes):
            continue
    except MachineError:
        raise
    except OSError as cause:
        raise durable.machine_error("append to", path, cause) from cause


def _add(path: Path, line: bytes, rotate_bytes: int | None) -> bool:
    """Add *line*; False when the journal was full and has been put aside instead."""
    fd = _open_locked(path)
    try:
        size = os.fstat(fd).st_size
        if rotate_bytes is not None and size and size + len(line) > rotate_bytes:
            os.replace(path, f"{path}.1")
            return False
        _append(fd, size, line)
    finally:
        os.close(fd)
    if not size:
        durable.fsync_dir(path.parent)
    return True


def _append(fd: int, size: int, line: bytes) -> None:
    if size and os.pread(fd, 1, size - 1) != b"\n":
        line = b"\n" + line
    try:
        durable.write_all(fd, line)
    except OSError:
        os.ftruncate(fd, size)  # half a line would be taken for damage by every later reader
        raise
    durable.sync(fd)


def _open_locked(path: Path) -> int:
    """The journal, locked for this writer."""
    import fcntl

    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    deadline = clock.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fd = os.open(path, flags, durable.FILE_MODE)
        except FileNotFoundError:
            durable.ensure_dir(path.parent)
            fd = os.open(path, flags, durable.FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A rotation in between leaves us with the old file; the journal is what has the name.
            if _same_file(fd, path):
                return fd
        except BlockingIOError as cause:
            if clock.monotonic() > deadline:
                os.close(fd)
                raise MachineError(f"{path}: another writer holds it for {LOCK_TIMEOUT_S:.0f} s") from cause
            time.sleep(0.001)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Each object in the journal, oldest first; torn and foreign lines are passed over."""
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as cause:
        raise durable.machine_error("read", path, cause) from cause
    with stream:
        for line in stream:
            try:
                value = documents.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value

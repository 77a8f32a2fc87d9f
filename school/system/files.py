"""Files that are whole or absent: durable atomic writes, JSON records, journals, quarantine, removal.

A write serialises first, writes a temporary file in the same directory, syncs it, puts it in place and syncs the
directory (see ``durable``): a reader sees the old content or the new, never part of one.

Not promised: that two writers of one file do not overwrite each other (that is what locks are for), nor that a
directory on a network file system keeps its order of operations.

Errors: what the machine refuses (no space, read-only, no permission, ...) is ``MachineError`` that names path
and cause and keeps ``errno``; the old file is intact and the temporary one gone. Absent is ``None`` or
FileNotFoundError, an existing one FileExistsError, an unreadable record ValueError with the path.
"""

# The os functions, on plain strings: a Path built per call costs more than the system call.
# ruff: noqa: PTH101, PTH116, PTH118
from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any, Final

from school.errors import MachineError
from school.system import clock
from school.system.documents import dumps, loads, well_formed
from school.system.durable import (
    CREATE_FLAGS,
    DIR_MODE,
    FILE_MODE,
    create_atomic,
    discard,
    ensure_dir,
    fsync_dir,
    left_temporaries,
    machine_error,
    sweep_temporaries,
    sync,
    temporary_name,
    write_atomic,
    write_plain,
)
from school.system.journal import append_json_line, read_json_lines

__all__ = [
    "CREATE_FLAGS",
    "DIR_MODE",
    "FILE_MODE",
    "RECORD_BYTES_MAX",
    "append_json_line",
    "create_atomic",
    "create_json",
    "discard",
    "dumps",
    "ensure_dir",
    "fsync_dir",
    "hard_links_work",
    "left_temporaries",
    "loads",
    "machine_error",
    "quarantine",
    "read_bytes",
    "read_json",
    "read_json_lines",
    "read_object",
    "remove_pipes",
    "remove_tree",
    "sweep_temporaries",
    "sync",
    "temporary_name",
    "well_formed",
    "write_atomic",
    "write_json",
    "write_plain",
]

RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def read_bytes(
    path: Path | str, *, limit_bytes: int = RECORD_BYTES_MAX, follow: bool = False
) -> bytes | None:
    """What *path* holds, None when absent; ValueError when it is no plain file, a symlink, or too large."""
    try:
        fd = os.open(path, _READ if follow else _READ | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as cause:
        if cause.errno == errno.ELOOP:
            raise ValueError(f"{path}: it is a symlink") from None
        raise machine_error("read", path, cause) from cause
    try:
        return _read_plain(fd, path, limit_bytes)
    except OSError as cause:
        raise machine_error("read", path, cause) from cause
    finally:
        os.close(fd)


def _read_plain(fd: int, path: Path | str, limit_bytes: int) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path}: it is no plain file")
    if status.st_size > limit_bytes:
        raise ValueError(f"{path}: {status.st_size} bytes, more than the {limit_bytes} a record may have")
    chunks: list[bytes] = []
    left = limit_bytes + 1
    while left > 0 and (chunk := os.read(fd, min(left, max(status.st_size + 1, 4096)))):
        chunks.append(chunk)
        left -= len(chunk)
    if left <= 0:
        raise ValueError(f"{path}: more than the {limit_bytes} bytes a record may have")
    return b"".join(chunks)


def read_json(path: Path | str, *, limit_bytes: int = RECORD_BYTES_MAX, follow: bool = False) -> Any | None:  # noqa: ANN401
    """The JSON value at *path*; None when absent, ValueError (with the path) when it is not one."""
    raw = read_bytes(path, limit_bytes=limit_bytes, follow=follow)
    return None if raw is None else loads(raw, path)


def read_object(path: Path | str) -> dict[str, Any] | None:
    """The JSON object at *path*, for those to whom an unreadable one is none; ``read_json`` tells the two apart."""
    try:
        value = read_json(path)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path | str, obj: Any) -> None:  # noqa: ANN401
    """Write *obj* durably at *path*, replacing what is there."""
    write_atomic(path, dumps(obj))


def create_json(path: Path | str, obj: Any) -> None:  # noqa: ANN401
    """Write *obj* durably at *path*; FileExistsError when there is something already."""
    create_atomic(path, dumps(obj))


def quarantine(path: Path, into: Path) -> Path:
    """Move *path* into the directory *into* under a name that nothing has yet; where it lies now."""
    ensure_dir(into)
    stamp = re.sub(r"[^0-9]", "", clock.now())[:20]
    for count in range(1000):
        target = into / (f"{path.name}.{stamp}" + (f"-{count}" if count else ""))
        try:
            _move_exclusive(path, target)
        except FileExistsError:
            continue
        except FileNotFoundError:
            raise
        except OSError as cause:
            raise machine_error(f"move into {into}", path, cause) from cause
        fsync_dir(into)
        fsync_dir(path.parent)
        return target
    raise MachineError(f"{path}: cannot move into {into}: every name for it is taken")


def _move_exclusive(path: Path, target: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "there is one already", str(target))
        path.rename(target)
        return
    try:
        os.link(path, target, follow_symlinks=False)
    except OSError as cause:
        if cause.errno != errno.EXDEV:
            raise
        create_atomic(target, path.read_bytes())
    path.unlink()


def hard_links_work(directory: Path) -> bool:
    """Whether *directory*'s file system can link, tried with two files that are removed again."""
    source = temporary_name(directory / "link-probe")
    target = temporary_name(directory / "link-probe")
    try:
        os.close(os.open(source, CREATE_FLAGS, FILE_MODE))
        os.link(source, target)
        return os.stat(source).st_nlink == 2  # noqa: PLR2004 - two names
    except OSError:
        return False
    finally:
        discard(source)
        discard(target)


def place_of(path: Path) -> Path:
    """*path* with its folder resolved and its own name as it is: one name for one place, whichever links lead there."""
    return Path(os.path.realpath(path.parent)) / path.name


def remove_tree(path: Path) -> None:
    """Remove *path* and all below it; copes with read-only directories, never follows a symlink out of it."""
    if path.is_symlink():
        raise MachineError(f"{path}: refused to remove: it is a symlink")
    for attempt in range(3):
        try:
            if not os.path.lexists(path):
                return
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        except FileNotFoundError:
            continue  # something else removes below it at the same time; look again
        except OSError as cause:
            if attempt == 2:  # noqa: PLR2004 - the last one
                raise machine_error("remove", cause.filename or path, cause) from cause
            _make_removable(path)


def remove_pipes(root: Path) -> list[str]:
    """Remove what is neither file, folder nor link below *root*, which nobody may be changing; their paths.

    Whoever opens a pipe to read waits for a writer, git too: under the name of its rules, say.
    """
    found: list[str] = []
    pending = [os.fspath(root)]
    while pending:
        folder = pending.pop()
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                discard(entry.path)
                found.append(entry.path)
    return found


def _entries(folder: str) -> list[os.DirEntry[str]]:
    for _ in range(2):
        try:
            with os.scandir(folder) as entries:
                return list(entries)
        except PermissionError:
            _make_removable(
                Path(folder)
            )  # a folder that can be entered and not listed hides nothing from git
        except OSError:
            break
    return []


def _make_removable(path: Path) -> None:
    for directory, names, _ in os.walk(path, onerror=None):
        for name in [".", *names]:
            entry = os.path.normpath(os.path.join(directory, name))
            try:
                mode = os.lstat(entry).st_mode
                if stat.S_ISDIR(mode) and mode & DIR_MODE != DIR_MODE:
                    os.chmod(entry, stat.S_IMODE(mode) | DIR_MODE)
            except OSError:
                continue  # the removal that follows names what could not be changed

"""Durable atomic writes, and the temporary files that they leave when they are killed.

A write goes to a temporary file in the same directory (exclusive, no-follow), is synced, put in place by one
rename or link, and the directory is synced: a reader sees the old content or the new, never part of one, and
after a power cut too. Temporary files are named ``.<name>.<pid>.<nonce>.tmp``; the nonce holds who made them, so
that ``sweep_temporaries`` removes those of the dead and no others. Use ``files``; this is its lower half.

Errors: see ``files``.
"""

# The os functions, on plain strings: a Path built per call costs more than the system call.
# ruff: noqa: PTH102, PTH105, PTH108, PTH112, PTH118, PTH120, PTH208
from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import time
import zlib
from pathlib import Path
from typing import Final

from school.errors import MachineError
from school.system import identity

DIR_MODE: Final = 0o700
FILE_MODE: Final = 0o600
# A temporary file lives for milliseconds. One whose maker cannot be judged from here (another host or PID
# namespace on a shared directory) is kept this long before it counts as left behind.
FOREIGN_TEMPORARY_AGE_S: Final = 3600.0
CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY: Final = re.compile(r"^\..+\.(?P<pid>\d+)\.(?P<nonce>[0-9a-zA-Z-]+)\.tmp$")


def machine_error(doing: str, path: object, cause: OSError) -> MachineError:
    """*cause* as a sentence with the path in it; ``errno`` is kept."""
    # Only errno is set: with a file name OSError would build its own message instead of ours.
    error = MachineError(f"{path}: cannot {doing}: {cause.strerror or cause}")
    error.errno = cause.errno
    return error


def ensure_dir(path: Path) -> Path:
    """Make *path* and its parents (0700) unless they are there; refuse what is not a directory."""
    try:
        os.mkdir(path, DIR_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise machine_error(
                "use as a directory", path, NotADirectoryError(errno.ENOTDIR, "it is a file")
            ) from None
    except FileNotFoundError:
        if path.parent == path:
            raise
        ensure_dir(path.parent)
        return ensure_dir(path)
    except OSError as cause:
        raise machine_error("make this directory", path, cause) from cause
    return path


def sync(fd: int) -> None:
    """Bring *fd* to the disk itself; on macOS plain fsync stops at the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError:
            os.fsync(fd)
    else:
        os.fsync(fd)


def fsync_dir(path: Path | str) -> None:
    """Make names that were made, moved or removed in *path* last."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    except OSError as cause:
        # Some file systems cannot sync a directory and say so; there is nothing better to be had there.
        if cause.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def _maker() -> str:
    owner = identity.this_process(nonce="-")
    place = zlib.crc32(f"{owner.host}/{owner.pidns}".encode())
    return f"{place:08x}-{zlib.crc32(owner.boot.encode()):08x}-{owner.start.replace('.', '')}"


_makers: dict[int, str] = {}


def temporary_name(path: Path | str) -> str:
    """A name beside *path* that nobody else has, and that says who made it."""
    pid = os.getpid()
    maker = _makers.get(pid)
    if maker is None:
        _makers.clear()
        maker = _makers[pid] = _maker()
    head, tail = os.path.split(path)
    # A name may have 255 bytes; what is cut of the record's own name is not needed to find the maker.
    tail = os.fsdecode(os.fsencode(tail)[:120])
    return os.path.join(head, f".{tail}.{pid}.{maker}-{os.urandom(4).hex()}.tmp")


def discard(path: str | Path) -> None:
    """Remove *path* if it is there; what cannot be removed is left to the next sweep."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError:
        return  # the sweep finds it again; the first error is the one to report


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _open_temporary(path: Path | str, mode: int) -> tuple[int, str]:
    temporary = temporary_name(path)
    try:
        return os.open(temporary, CREATE_FLAGS, mode), temporary
    except FileNotFoundError:
        ensure_dir(Path(path).parent)
        return os.open(temporary, CREATE_FLAGS, mode), temporary


def _fill(path: Path | str, data: bytes, mode: int) -> str:
    fd, temporary = _open_temporary(path, mode)
    try:
        try:
            write_all(fd, data)
            if mode != FILE_MODE:
                os.fchmod(fd, mode)  # what open() was given is cut by the umask
            sync(fd)
        finally:
            os.close(fd)
    except BaseException:
        discard(temporary)
        raise
    return temporary


def write_atomic(path: Path | str, data: bytes, *, mode: int = FILE_MODE) -> None:
    """Put *data* at *path* durably, replacing what is there; missing parent directories are made."""
    try:
        temporary = _fill(path, data, mode)
        try:
            os.replace(temporary, path)
        except BaseException:
            discard(temporary)
            raise
        fsync_dir(os.path.dirname(path) or ".")
    except MachineError:
        raise
    except OSError as cause:
        raise machine_error("write", path, cause) from cause


def write_plain(path: Path | str, data: bytes) -> None:
    """Put *data* at *path* whole, but without waiting for the disk: for hints that may be lost."""
    try:
        fd, temporary = _open_temporary(path, FILE_MODE)
        try:
            try:
                write_all(fd, data)
            finally:
                os.close(fd)
            os.replace(temporary, path)
        except BaseException:
            discard(temporary)
            raise
    except MachineError:
        raise
    except OSError as cause:
        raise machine_error("write", path, cause) from cause


def create_atomic(path: Path | str, data: bytes, *, mode: int = FILE_MODE) -> None:
    """Put *data* at *path* durably; FileExistsError when there is something already."""
    try:
        temporary = _fill(path, data, mode)
        try:
            os.link(temporary, path, follow_symlinks=False)
        finally:
            discard(temporary)
        fsync_dir(os.path.dirname(path) or ".")
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "there is one already", str(path)) from None
    except MachineError:
        raise
    except OSError as cause:
        raise machine_error("create", path, cause) from cause


def sweep_temporaries(directory: Path) -> int:
    """Remove temporary files and folders in *directory* whose maker is dead; how many went."""
    left = left_temporaries(directory)
    for path in left:
        # A folder that was being built aside; what cannot be removed of it is found again next time.
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            discard(path)
    return len(left)


def left_temporaries(directory: Path) -> list[Path]:
    """The temporary files and folders in *directory* whose maker is dead."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as cause:
        raise machine_error("list", directory, cause) from cause
    found = ((directory / name, _TEMPORARY.match(name)) for name in names)
    return [path for path, match in found if match and _left_behind(path, int(match["pid"]), match["nonce"])]


def _left_behind(path: Path, pid: int, nonce: str) -> bool:
    place, _, rest = nonce.partition("-")
    boot, _, rest = rest.partition("-")
    start = rest.partition("-")[0]
    here, _, mine = _maker().partition("-")
    if place != here or not start:
        try:
            return time.time() - path.lstat().st_mtime > FOREIGN_TEMPORARY_AGE_S
        except OSError:
            return False
    if boot != mine.partition("-")[0] or not 0 < pid <= identity.PID_MAX:
        return True
    seen = identity.look(pid)
    return not seen.exists or seen.zombie or (bool(seen.start) and seen.start.replace(".", "") != start)

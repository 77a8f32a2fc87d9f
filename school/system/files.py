"""Files that are whole or absent: durable atomic writes, JSON records, journals, quarantine, removal.

A write serialises first, writes a temporary file in the same directory (exclusive, no-follow), syncs it, puts it
in place with ``os.replace`` and syncs the directory: a reader sees the old content or the new, never part of
one, and after a power cut too. Temporary files are named ``.<name>.<pid>.<nonce>.tmp``; the nonce holds who made
them, so that ``sweep_temporaries`` removes those of the dead and no others.

Not promised: that two writers of one file do not overwrite each other (that is what locks are for), nor that a
directory on a network file system keeps its order of operations.

Errors: what the machine refuses (no space, read-only, no permission, ...) is ``MachineError`` that names path
and cause and keeps ``errno``; the old file is intact and the temporary one gone. Absent is ``None`` or
FileNotFoundError, an existing one FileExistsError, an unreadable record ValueError with the path.
"""

# The os functions, on plain strings: a Path built per call costs more than the system call.
# ruff: noqa: PTH101, PTH102, PTH105, PTH108, PTH112, PTH116, PTH118, PTH120, PTH208
from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from school.errors import MachineError
from school.system import clock, identity

DIR_MODE: Final = 0o700
FILE_MODE: Final = 0o600
RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
JOURNAL_LOCK_TIMEOUT_S: Final = 10.0
# A temporary file lives for milliseconds. One whose maker cannot be judged from here (another host or PID
# namespace on a shared directory) is kept this long before it counts as left behind.
FOREIGN_TEMPORARY_AGE_S: Final = 3600.0
CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_TEMPORARY: Final = re.compile(r"^\..+\.(?P<pid>\d+)\.(?P<nonce>[0-9a-zA-Z-]+)\.tmp$")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def machine_error(doing: str, path: object, cause: OSError) -> MachineError:
    """*cause* as a sentence with the path in it; ``errno`` is kept."""
    # Only errno is set: with a file name OSError would build its own message instead of ours.
    error = MachineError(f"{path}: cannot {doing}: {cause.strerror or cause}")
    error.errno = cause.errno
    return error


# --- directories --------------------------------------------------------------------------------------------


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
                raise machine_error("remove", path, cause) from cause
            _make_removable(path)


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


# --- atomic writes --------------------------------------------------------------------------------------------


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
    return os.path.join(head, f".{tail}.{pid}.{maker}-{secrets.token_hex(4)}.tmp")


def discard(path: str | Path) -> None:
    """Remove *path* if it is there; what cannot be removed is left to the next sweep."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError:
        return  # the sweep finds it again; the first error is the one to report


def _write_all(fd: int, data: bytes) -> None:
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
            _write_all(fd, data)
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
                _write_all(fd, data)
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
    """Remove temporary files in *directory* whose maker is dead; how many went."""
    removed = 0
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return 0
    except OSError as cause:
        raise machine_error("list", directory, cause) from cause
    for name in names:
        match = _TEMPORARY.match(name)
        if match and _left_behind(directory / name, int(match["pid"]), match["nonce"]):
            discard(directory / name)
            removed += 1
    return removed


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


# --- JSON records ---------------------------------------------------------------------------------------------


def well_formed(text: str) -> str:
    """*text* with lone surrogates (undecodable bytes, broken escapes) spelled out, so that it is valid UTF-8."""
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def dumps(obj: Any, *, indent: int | None = 1) -> bytes:  # noqa: ANN401 - JSON is any of them
    """*obj* as valid UTF-8 JSON with a newline at its end; keys keep their order."""
    text = json.dumps(obj, ensure_ascii=False, indent=indent, allow_nan=False)
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        # They can only stand inside strings, where a doubled backslash spells the escape out as plain text.
        return _LONE_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text).encode("utf-8") + b"\n"


def _no_constant(name: str) -> Any:  # noqa: ANN401 - never returns
    raise ValueError(f"{name} is no JSON value")


def loads(raw: bytes, name: object = "JSON") -> Any:  # noqa: ANN401
    """The value in *raw*; ValueError, with *name*, for what is not one whole JSON document in UTF-8."""
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise ValueError(f"{name}: not readable as JSON: nested too deep") from None
    except ValueError as cause:
        raise ValueError(f"{name}: not readable as JSON: {cause}") from None
    return _well_formed_value(value) if b"\\ud" in raw or b"\\uD" in raw else value


def _well_formed_value(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_well_formed_value(item) for item in value]
    if isinstance(value, dict):
        return {well_formed(key): _well_formed_value(item) for key, item in value.items()}
    return value


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


# --- journals -------------------------------------------------------------------------------------------------


def append_json_line(path: Path, obj: Any, *, rotate_bytes: int | None = None) -> None:  # noqa: ANN401
    """Add *obj* as one durable line; a last line that a crash cut gets its newline first.

    Past *rotate_bytes* the file becomes ``<name>.1``, replacing the one before it.
    """
    line = dumps(obj, indent=None)
    try:
        fd, fresh = _open_journal(path)
        try:
            size = os.fstat(fd).st_size
            if rotate_bytes is not None and size and size + len(line) > rotate_bytes:
                os.replace(path, f"{path}.1")
                os.close(fd)
                fd, fresh = _open_journal(path)
                size = os.fstat(fd).st_size
            _append(fd, size, line)
        finally:
            os.close(fd)
        if fresh:
            fsync_dir(path.parent)
    except MachineError:
        raise
    except OSError as cause:
        raise machine_error("append to", path, cause) from cause


def _append(fd: int, size: int, line: bytes) -> None:
    if size and os.pread(fd, 1, size - 1) != b"\n":
        line = b"\n" + line
    try:
        _write_all(fd, line)
    except OSError:
        os.ftruncate(fd, size)  # half a line would be taken for damage by every later reader
        raise
    sync(fd)


def _open_journal(path: Path) -> tuple[int, bool]:
    """The journal, locked for this writer, and whether it is a new one."""
    import fcntl

    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    deadline = clock.monotonic() + JOURNAL_LOCK_TIMEOUT_S
    while True:
        try:
            fd = os.open(path, flags, FILE_MODE)
        except FileNotFoundError:
            ensure_dir(path.parent)
            fd = os.open(path, flags, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A rotation in between leaves us with the old file; the journal is what has the name.
            if _same_file(fd, path):
                return fd, os.fstat(fd).st_size == 0
        except BlockingIOError as cause:
            if clock.monotonic() > deadline:
                os.close(fd)
                raise MachineError(
                    f"{path}: another writer holds it for {JOURNAL_LOCK_TIMEOUT_S:.0f} s"
                ) from cause
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
        raise machine_error("read", path, cause) from cause
    with stream:
        for line in stream:
            try:
                value = loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value

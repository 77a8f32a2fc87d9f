"""Files of a working tree, for tools that a model uses: inside it and nowhere else, plain files, bounded.

``inside(path, *roots)`` is the file that *path* means (relative to the first root), all links followed, None where it lies
in none of the roots. ``read_plain`` and ``write_plain`` touch regular files only and follow no link in the last step, so
that a FIFO or a device blocks nobody; OSError and ValueError say what is wrong.

The agent may be at work meanwhile, confined as we are not, and put a link where a folder was when ``inside`` looked. So
from the root on each folder is entered by itself, and none that is a link.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ENTER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def inside(path: str, *roots: Path) -> Path | None:
    """The file that *path* means, if it lies in one of *roots*, which are resolved themselves."""
    try:
        place = (roots[0] / path).resolve()
    except (OSError, ValueError, RuntimeError):
        return None
    return place if any(place.is_relative_to(root) for root in roots) else None


def read_plain(place: Path) -> bytes:
    """What the regular file *place* holds, at most ``FILE_BYTES_MAX``."""
    with open(_regular(place, _READ), "rb") as stream:
        raw = stream.read(FILE_BYTES_MAX + 1)
    if len(raw) > FILE_BYTES_MAX:
        raise ValueError(f"{place.name}: it has more than {FILE_BYTES_MAX} bytes")
    return raw


def write_plain(place: Path, raw: bytes) -> int:
    """Put *raw* into the regular file *place*, which keeps its mode; folders are made. The number of bytes."""
    if len(raw) > FILE_BYTES_MAX:
        raise ValueError(f"{len(raw)} bytes; at most {FILE_BYTES_MAX} are written at once")
    with open(_regular(place, _WRITE), "wb") as stream:
        stream.truncate(0)
        stream.write(raw)
    return len(raw)


def _regular(place: Path, flags: int) -> int:
    folder = _folder(place.parent, make=bool(flags & os.O_CREAT))
    try:
        fd = os.open(place.name, flags, 0o644, dir_fd=folder)
    finally:
        os.close(folder)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise ValueError(f"{place.name}: it is no regular file")


def _folder(place: Path, *, make: bool) -> int:
    """The folder *place*, reached through no link; with *make* what lacks is made."""
    fd = os.open(place.anchor, _ENTER)
    for part in place.parts[1:]:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
            below = os.open(part, _ENTER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd

"""Output of any length in bounded space: its head and its tail, on disk and in memory.

A ``Sink`` takes every byte, so that whoever writes never blocks. The file grows until the limit and can be
followed while it grows; what exceeds it is counted and hashed, and at the end the file holds the first third and
the last bytes with a line between them that says how much is left out. *mask*, where there is one, sees every byte
first, and may hold some back until it knows what follows; what it gives back is what is kept, counted and hashed.

Errors: OSError from the disk, once, from ``write`` or ``finish``; the sink keeps taking bytes afterwards.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from pathlib import Path
from typing import Final

from school.system.redaction import Stream

_BLOCK_BYTES: Final = 64 * 1024
_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LINE_CHARS_MAX: Final = 400


class Sink:
    """Head and tail of what is written, within *limit_bytes*, in *path* if there is one."""

    def __init__(self, path: Path | None, limit_bytes: int, mask: Stream | None = None) -> None:
        self.total = 0
        self.limit_bytes = max(limit_bytes, 3)
        self._digest = hashlib.sha256()
        self._head = bytearray()
        self._head_bytes = self.limit_bytes // 3
        self._tail: deque[bytearray] = deque()
        self._tail_size = 0
        self._fd = -1
        self._mask = mask
        if path is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Take *chunk*."""
        self._take(chunk if self._mask is None else self._mask(chunk))

    def _take(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        to_disk = chunk[: max(0, self.limit_bytes - self.total)]
        self.total += len(chunk)
        self._keep(chunk)
        if to_disk:
            self._save(to_disk)

    def _keep(self, chunk: bytes) -> None:
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if not chunk:
            return
        # Many tiny writes share a block: each object of its own would cost many times its content.
        if self._tail and len(self._tail[-1]) < _BLOCK_BYTES:
            self._tail[-1] += chunk
        else:
            self._tail.append(bytearray(chunk))
        self._tail_size += len(chunk)
        while self._tail_size - len(self._tail[0]) >= self.limit_bytes - self._head_bytes:
            self._tail_size -= len(self._tail.popleft())

    def _save(self, data: bytes | bytearray | memoryview) -> None:
        if self._fd < 0:
            return
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self.close()
            raise

    def content(self) -> bytes:
        """What is kept; the whole when it fitted."""
        tail = b"".join(self._tail)
        if self.total <= self.limit_bytes:
            return bytes(self._head) + tail
        tail = tail[len(tail) - (self.limit_bytes - self._head_bytes) :]
        left_out = self.total - len(self._head) - len(tail)
        return bytes(self._head) + b"\n[... %d bytes left out ...]\n" % left_out + tail

    def last_line(self) -> str:
        """The last line that says something, without control characters."""
        recent = (bytes(self._head) if not self._tail else b"".join(list(self._tail)[-2:]))[-_BLOCK_BYTES:]
        for line in reversed(re.split(r"[\r\n]+", recent.decode("utf-8", "replace"))):
            shown = _CONTROL.sub("", _ESCAPE.sub("", line)).strip()
            if shown:
                return shown[-LINE_CHARS_MAX:]
        return ""

    def finish(self) -> bytes:
        """Bring the file into its final form; what is kept."""
        if self._mask is not None:
            mask, self._mask = self._mask, None
            self._take(mask(b"", final=True))
        content = self.content()
        if self._fd >= 0 and self.total > self.limit_bytes:
            os.ftruncate(self._fd, self._head_bytes)
            os.lseek(self._fd, self._head_bytes, os.SEEK_SET)
            self._save(memoryview(content)[self._head_bytes :])
        self.close()
        return content

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

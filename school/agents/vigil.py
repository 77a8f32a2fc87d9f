"""Watching a CLI that runs: whether all that it tells of is that its model's endpoint fails.

Some CLIs wait for an endpoint without end, and tell of each try; that is neither silence nor progress, so no limit on
either would end them before the time of the whole attempt is gone. ``Vigil()`` is asked often; it looks at the ends of
what the turn has said, when that has grown, at most once a second, and is True once ``patience_s`` have passed since the first
of a row of errors that nothing else interrupted. ``fired`` stays True from then on. Never raises.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from school.agents.presets.base import Preset, Said
from school.system import clock

PATIENCE_S: Final = 90.0
LOOK_S: Final = 1.0
TAIL_BYTES: Final = 64 * 1024


class Vigil:
    """One turn's watch over *files*: ``stdout``, ``stderr`` and the preset's results, by name."""

    def __init__(self, preset: Preset, files: Mapping[str, Path], patience_s: float = PATIENCE_S) -> None:
        self.fired = False
        self.patience_s = patience_s
        self._preset = preset
        self._files = files
        self._sizes: dict[str, int] = {}
        self._looked_at = clock.monotonic()
        self._failing_since: float | None = None

    def __call__(self) -> bool:
        now = clock.monotonic()
        if self.fired or now - self._looked_at < LOOK_S:
            return self.fired
        self._looked_at = now
        sizes = {name: _size(path) for name, path in self._files.items()}
        if sizes != self._sizes:
            self._sizes = sizes
            if not self._fails():
                self._failing_since = None
            elif self._failing_since is None:
                self._failing_since = now
        self.fired = self._failing_since is not None and now - self._failing_since >= self.patience_s
        return self.fired

    def _fails(self) -> bool:
        ends = {name: _tail(path) for name, path in self._files.items()}
        out, err = ends.pop("stdout", b""), ends.pop("stderr", b"")
        said = Said(now=clock.parse(clock.now()), stdout=out, stderr=err, exit_code=None, files=ends)
        reading = self._preset.read(said)
        return bool(reading.errors) and not reading.ended


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _tail(path: Path) -> bytes:
    """The end of a file that may be the agent's; nothing of a link, a pipe or a folder."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            size = os.fstat(fd).st_size
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES)
    return b""

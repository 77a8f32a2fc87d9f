"""Watching a CLI that runs: what it does, as soon as it tells of it, and whether all it tells is that its endpoint fails.

``Vigil(preset, files, heard)`` is asked often, as a function. When *files* have grown, at most every ``LOOK_S``, it reads
them as the preset reads a whole turn. *heard* is given each tool use that is new, in order, with the seconds since before it can
have begun: reckoned from when it was first seen at work, else from the duration that was told, else from the use before
it. ``rest(reading)`` gives *heard* what only the end of the turn told. More than ``FOLLOW_BYTES`` are followed no longer.

Some CLIs wait for an endpoint without end and tell of each try. That is neither silence nor progress, so no limit on
either would end them. A vigil is True once ``patience_s`` have passed since the first of a row of errors that nothing else
interrupted; ``fired`` stays True from then on. ``quiet_s`` is how long nothing has been told. Nothing here raises for what
an agent wrote.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from school.agents.presets.base import Preset, Reading, Said, ToolUse
from school.system import clock

PATIENCE_S: Final = 90.0
LOOK_S: Final = 0.4
FOLLOW_BYTES: Final = 4 * 1024 * 1024
Heard = Callable[[ToolUse, float], None]


class Vigil:
    """One turn's watch over *files*: ``stdout``, ``stderr`` and the preset's results, by name."""

    def __init__(
        self, preset: Preset, files: Mapping[str, Path], heard: Heard, patience_s: float = PATIENCE_S
    ) -> None:
        self.fired = False
        self.patience_s = patience_s
        self._preset = preset
        self._files = files
        self._heard = heard
        self._sizes: dict[str, int] = {}
        self._looked_at = self._used_at = self._grew_at = clock.monotonic()
        self._failing_since: float | None = None
        self._at_work: dict[str, float] = {}
        self._told = 0
        self._follows = True

    def __call__(self) -> bool:
        now = clock.monotonic()
        if self.fired or now - self._looked_at < LOOK_S:
            return self.fired
        sizes = {name: _size(path) for name, path in self._files.items()}
        if sizes != self._sizes:
            self._sizes, self._grew_at = sizes, now
            self._follows = self._follows and max(sizes.values()) <= FOLLOW_BYTES
            reading = self._read()
            if self._follows:
                self._hear(reading)
            if reading.ended or not reading.errors:
                self._failing_since = None
            elif self._failing_since is None:
                self._failing_since = now
        self._looked_at = now
        self.fired = self._failing_since is not None and now - self._failing_since >= self.patience_s
        return self.fired

    @property
    def quiet_s(self) -> float:
        """Seconds since a look last saw something new."""
        return clock.monotonic() - self._grew_at

    def rest(self, reading: Reading) -> None:
        """Tell of what only *reading*, that of the whole turn, has."""
        self._hear(reading)

    def _hear(self, reading: Reading) -> None:
        for call_id in reading.at_work:
            self._at_work.setdefault(call_id, self._looked_at)
        # Of a result file that is just being written anew nothing can be read: then there are fewer than before.
        for use in reading.tools[self._told :]:
            began = self._at_work.pop(use.call_id, None)
            if began is None and use.duration_ms:
                began = self._looked_at - use.duration_ms / 1000
            self._heard(use, clock.monotonic() - (self._used_at if began is None else began))
            self._used_at = self._looked_at
        self._told = max(self._told, len(reading.tools))

    def _read(self) -> Reading:
        ends = {name: _tail(path) for name, path in self._files.items()}
        out, err = ends.pop("stdout", b""), ends.pop("stderr", b"")
        said = Said(now=clock.parse(clock.now()), stdout=out, stderr=err, exit_code=None, files=ends)
        return self._preset.read(said)


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
            file.seek(max(0, os.fstat(fd).st_size - FOLLOW_BYTES))
            return file.read(FOLLOW_BYTES)
    return b""

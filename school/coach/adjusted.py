"""The terms in force: what the configuration says, under what a user has set with ``/coach set``.

What was set lies in one file, for this and all later sessions. It is read at the beginning and again at a turn's when it
is another file than before. What of it cannot be used (all of it, or a key: one that there is not, one that only the
configuration sets, an impossible value) is passed over and said in ``troubles``; for that the configuration holds. ``set`` keeps
what can be used. Errors: ConfigError from ``set``, also where the disk refuses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from school.coach.terms import CoachTerms, changed, set_over
from school.errors import ConfigError, MachineError
from school.system import files

TROUBLES_MAX: Final = 5


class Adjusted:
    """See the module; without *path* nothing can be set."""

    def __init__(self, terms: CoachTerms, path: Path | None) -> None:
        self._configured = terms
        self._path = path
        self._seen: tuple[int, ...] = (-1,)
        self._usable: dict[str, Any] = {}
        self.terms = terms
        self.troubles: tuple[str, ...] = ()
        self.refresh()

    def refresh(self) -> None:
        """Read again what was set, if the file is another one than last time."""
        seen = self._signature()
        if seen != self._seen:
            self._seen = seen
            self._read()

    def set(self, key: str, text: str) -> object:
        """Set *key*, and keep it."""
        if self._path is None:
            raise ConfigError(f"{key}: this coach is set by its configuration only")
        self.refresh()
        terms, value = changed(self.terms, key, text)
        try:
            files.ensure_dir(self._path.parent)
            files.write_json(self._path, {**self._usable, key: value})
        except (MachineError, OSError) as cause:
            raise ConfigError(f"{key}: it cannot be kept: {cause}") from cause
        self.refresh()
        return terms.model_dump()[key]

    def _signature(self) -> tuple[int, ...]:
        if self._path is None:
            return ()
        try:
            status = self._path.stat(follow_symlinks=False)
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> None:
        self.terms, self.troubles, self._usable = self._configured, (), {}
        if self._path is None or not self._seen:
            return
        kept: dict[str, Any] | None = None
        try:
            kept = files.read_object(self._path)
        except (MachineError, OSError) as cause:
            self.troubles = (f"not used: {cause}",)
            return
        if kept is None:
            self.troubles = (f"{self._path.name}: not used: it is no JSON object",)
            return
        wrong: list[str] = []
        for key, value in kept.items():
            try:
                self.terms = set_over(self.terms, key, value, where=self._path.name)
                self._usable[key] = value
            except ConfigError as cause:
                wrong.append(f"not used: {cause}")
        self.troubles = tuple(wrong[:TROUBLES_MAX])

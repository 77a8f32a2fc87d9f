"""The terms in force: what the configuration says, under what a user has set with ``/coach set``.

What was set lies in one file, for this and all later sessions. A file that cannot be used, wholly or by one key, is passed
over and said in ``trouble``; the configuration then holds. Errors: ConfigError from ``set``; MachineError for the disk.
"""

from __future__ import annotations

from pathlib import Path

from school.coach.terms import CoachTerms, changed, read_terms
from school.errors import ConfigError
from school.system import files


class Adjusted:
    """See the module; without *path* nothing can be set."""

    def __init__(self, terms: CoachTerms, path: Path | None) -> None:
        self._configured = terms
        self._path = path
        self._seen: tuple[int, ...] = (-1,)
        self.terms = terms
        self.trouble = ""
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
        self.terms, value = changed(self.terms, key, text)
        kept = files.read_object(self._path) or {}
        files.ensure_dir(self._path.parent)
        files.write_json(self._path, {**kept, key: value})
        self._seen = self._signature()
        return value

    def _signature(self) -> tuple[int, ...]:
        if self._path is None:
            return ()
        try:
            status = self._path.stat(follow_symlinks=False)
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> None:
        self.terms, self.trouble = self._configured, ""
        if self._path is None or not self._seen:
            return
        kept = files.read_object(self._path)
        if kept is None:
            self.trouble = f"{self._path.name}: not used: it is no JSON object"
            return
        try:
            self.terms = read_terms({**self._configured.model_dump(), **kept}, where=self._path.name)
        except ConfigError as cause:
            self.trouble = f"not used: {cause}"

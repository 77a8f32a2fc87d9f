"""Named steps at which tests put in a crash or a disk that fails; off, and next to free, in every other process.

``with faults.around("review.file"):`` stands around one durable step. ``SCHOOL_FAULTS`` arms it, read once at start::

    SCHOOL_FAULTS=kill@review.file:before       kill -9 of this process before the step
    SCHOOL_FAULTS=enospc@review.file:after#3    after the third such step of a process: no space left on device
    SCHOOL_FAULTS=eio@review.file:after@cto     only in a process that has this word in its command line

Several are separated by commas. Each strikes once in the folder ``SCHOOL_FAULTS_DIR``, however many processes pass:
``<folder>/<fault>`` is made first, and holds the command line that was struck. ``note`` among the faults notes what is
passed, a line a step in ``<folder>/passed``, with the command line. What is armed wrongly is a ConfigError, for a crash
test that strikes nowhere proves nothing.

It cannot put a fault *inside* a step: the write of one file is torn in tests of its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ContextManager, Final  # noqa: UP035 - the type of nullcontext, too

from school.errors import ConfigError, MachineError

VARIABLE: Final = "SCHOOL_FAULTS"
FOLDER_VARIABLE: Final = "SCHOOL_FAULTS_DIR"
_FORM: Final = re.compile(
    r"(kill|enospc|eio|eacces|erofs)@([a-z_.]+):(before|after)(?:@([\w.]+))?(?:#([1-9][0-9]{0,5}))?"
)


class Armed:
    """The faults that one process was told of."""

    def __init__(self, text: str, folder: Path) -> None:
        self.folder = folder
        self.words = [Path(sys.argv[0]).name, *sys.argv[1:]]
        told = [word.strip() for word in text.split(",")]
        self.notes = "note" in told
        self.passed: Counter[str] = Counter()
        self.faults: dict[str, list[tuple[int, str, str]]] = {}
        for word in told:
            if word != "note":
                self._arm(word)

    def _arm(self, word: str) -> None:
        found = _FORM.fullmatch(word)
        if not found:
            raise ConfigError(
                f"{VARIABLE}={word!r}: expected kind@step:before or :after, with @WORD and #N or without"
            )
        kind, step, side, whose, count = found.groups()
        if whose is None or whose in self.words:
            self.faults.setdefault(f"{step}:{side}", []).append((int(count or 1), kind, word))

    @contextlib.contextmanager
    def around(self, step: str) -> Iterator[None]:
        self._pass(f"{step}:before")
        yield
        self._pass(f"{step}:after")

    def _pass(self, place: str) -> None:
        self.passed[place] += 1
        if self.notes:
            with (self.folder / "passed").open("a") as file:
                file.write(f"{place} {' '.join(self.words)}\n")
        for count, kind, fault in self.faults.get(place, ()):
            if count == self.passed[place] and self._first(fault):
                self._strike(kind, place)

    def _first(self, fault: str) -> bool:
        try:
            with (self.folder / fault).open("x") as file:
                file.write(" ".join(self.words))
        except FileExistsError:
            return False
        return True

    def _strike(self, kind: str, place: str) -> None:
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        number = getattr(errno, kind.upper())
        raise MachineError(f"{place}: {os.strerror(number)}") from OSError(number, os.strerror(number), place)


def armed(environ: Mapping[str, str]) -> Armed | None:
    """What *environ* arms; None for nothing."""
    text = environ.get(VARIABLE, "")
    return Armed(text, Path(environ.get(FOLDER_VARIABLE, "."))) if text else None


_ARMED: Final = armed(os.environ)
_NOTHING: Final = contextlib.nullcontext()


def around(step: str) -> ContextManager[None]:
    """A context for one durable step."""
    return _NOTHING if _ARMED is None else _ARMED.around(step)

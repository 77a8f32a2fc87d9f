"""A run of a recipe as evidence: what ``verify`` found, entered into the ledger for whoever asked for it.

``with Record(root, settings) as record: …; record.of(result, selection)`` looks at the files before and after, and says
what was entered: ``{"session", "kind", "scope", "status"}``, ``status`` empty where the files changed meanwhile; None where
nothing ran, or where the ledger could not be used (the run is no worse for it; the log says why). The session is the
bead of the student whose environment this is, else ``default``.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from school.errors import MachineError
from school.settings import Settings
from school.system import log
from school.verification.classify import HERMES_VERIFY
from school.verification.evidence import DEFAULT_SESSION, Event, Ledger, Run
from school.verification.phases import Result, Selection
from school.verification.recipe import PHASES

SESSION_VARIABLE: Final = "SCHOOL_BEAD"
_T = TypeVar("_T")

_log = log.get("status.recording")


class Record:
    """One run of a recipe in *root*."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root = root
        self.session = os.environ.get(SESSION_VARIABLE) or DEFAULT_SESSION
        self._ledger = Ledger(settings.evidence_db)
        self._run: Run | None = None

    def __enter__(self) -> Self:
        self._run = self._safely(lambda: self._ledger.begin(self.session, self.root), None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ledger.close()

    def of(self, result: Result, selection: Selection) -> dict[str, Any] | None:
        """Enter *result*; what was entered."""
        if not result.phases and result.readiness is None:
            return None
        nothing: list[Event] = []

        def enter() -> list[Event]:
            return self._ledger.record(
                self._run,
                command_of(selection),
                exit_code=0 if result.ok else 1,
                output=_told(result),
                canonical=[],
            )

        made = self._safely(enter, nothing)
        if not made:
            return None
        event = made[-1]
        status = event.status if event.tree else ""
        return {"session": self.session, "kind": event.kind, "scope": event.scope, "status": status}

    def _safely(self, work: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return work()
        except MachineError as error:
            _log.warning("verify.unrecorded", root=str(self.root), why=str(error))
            return otherwise


def command_of(selection: Selection) -> str:
    """The command line of a run of that part of a recipe."""
    words = HERMES_VERIFY.split()
    if set(selection.phases) != set(PHASES):
        words += [word for phase in selection.phases for word in ("--phase", phase)]
    return shlex.join([*words, *(["--skip-start"] if selection.skip_start else [])])


def _told(result: Result) -> str:
    """How each line of it went; where one failed, what that one said."""
    lines = [
        f"{'ok' if run.ok else 'failed'}: {run.phase}: {run.command} {run.note}".rstrip()
        for run in result.phases
    ]
    if result.readiness is not None:
        lines.append(f"{'ok' if result.readiness.ready else 'failed'}: start")
    return "\n".join([*lines, *(run.output for run in result.phases if not run.ok)])

"""What a student's agent really ran, as its session of the evidence ledger; the session's name is the bead.

``SessionEvidence(bead, root, terms_verify, settings)`` looks at the files once, before the agent begins. It then hears
of every tool call that its host sees (``post_tool_call``, with Hermes' arguments: ``terminal`` with its command and
result, ``write_file`` and ``patch`` with their path); ``ran(command, …)`` tells it of a command that the leaf ran
itself. ``standing()`` says how the files stand, ``edited()`` what differs from the beginning, ``document()`` both for
the bookbag, in words too.

A command counts for the files that lay there from before it began until after it ended. From a host that is ``live``,
and tells of each call as it ends, when it began is reckoned from the ``duration_ms`` that it names; where no look at the
files is as old as that, it counts for none. From one that tells of a turn's calls only when the turn is over, a check
counts where nothing at all changed in that turn: what it ran before or after an edit, nobody saw. *lives_on* is a host
whose shell may keep ``cd`` and its like from call to call.

A ledger that cannot be used keeps nobody from work: then the status is ``disabled``, and ``fault`` says why.
"""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from school.contracts import bounded
from school.errors import SchoolError
from school.settings import Settings
from school.study.shells import Shell
from school.system import clock, log
from school.verification.digest import TreeState, changed
from school.verification.evidence import Event, Ledger, Run, Standing
from school.verification.stop import edits

SHELL_TOOLS: Final = frozenset({"terminal"})
EDIT_TOOLS: Final = frozenset({"write_file", "patch"})
LOOKS_MAX: Final = 16
PATHS_MAX: Final = 50
PATHS_IN_WORDS: Final = 3
COMMAND_BYTES: Final = 1000
COMMAND_IN_WORDS: Final = 200
# What a host reckons a call's duration with is not our clock.
_SLACK_S: Final = 0.05
_T = TypeVar("_T")

_log = log.get("study.evidence")


class SessionEvidence:
    """The evidence of one bead's session in the working tree *root*."""

    def __init__(
        self,
        bead: str,
        root: Path,
        declared: Sequence[Sequence[str]],
        settings: Settings,
        *,
        live: bool = True,
        lives_on: bool = False,
    ) -> None:
        self.session = bead
        self.live = live
        self.root = root.resolve()
        self.commands = canonical(self.root, declared)
        self.fault = ""
        self.checks: list[Event] = []
        self._ledger = Ledger(settings.evidence_db)
        self._guard = threading.RLock()
        self._shell_there = Shell(self.root, lives_on=lives_on)
        self._looks: deque[tuple[float, Run]] = deque(maxlen=LOOKS_MAX)
        self._look()
        self._start = self._looks[0][1].state if self._looks else None

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    # --- what happens -----------------------------------------------------------------------------------

    def post_tool_call(self, *, tool_name: str = "", args: Any = None, **event: Any) -> None:  # noqa: ANN401
        """Hear of a tool call that ended; an adviser's callback."""
        given = args if isinstance(args, Mapping) else {}
        if tool_name in EDIT_TOOLS:
            self._edit(given)
        elif tool_name in SHELL_TOOLS:
            self._shell(given, event)

    def pre_llm_call(self, **_event: Any) -> None:  # noqa: ANN401
        """Hear that a turn begins: the files may have changed since the one before."""
        self._look()

    def ran(self, command: str, *, exit_code: int | None, output: str = "") -> None:
        """Tell of a command that was the whole of the session."""
        with self._guard:
            if self._looks:
                self._record(self._looks[0][1], command, exit_code, output, self.root)

    def _edit(self, given: Mapping[str, Any]) -> None:
        several = given.get("paths")
        named = [given.get("path"), given.get("file_path"), *(several if isinstance(several, list) else [])]
        paths = [path for name in named if isinstance(name, str) and (path := self._inside(name))]
        self._safely(lambda: self._ledger.edited(self.session, self.root, paths, landed=True), False)
        if self.live:
            self._look()

    def _inside(self, name: str) -> str:
        """*name* relative to the root; '' where it lies elsewhere."""
        path = os.path.relpath(self.root / name, self.root)
        return "" if path == ".." or path.startswith("../") else path

    def _shell(self, given: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        command, said = given.get("command"), _result(event.get("result"))
        if isinstance(command, str):
            code, place = said.get("exit_code"), self._place(given)
            run = self._look_before(_seconds(event.get("duration_ms")))
            ended = type(code) is int and not given.get("background") and not said.get("error")
            if run is not None and place is not None and ended:
                self._record(run, command, code, str(said.get("output") or ""), place)
            self._shell_there.ran(command)
        if self.live:
            self._look()

    def _place(self, given: Mapping[str, Any]) -> Path | None:
        """Where a command ran: where its host says, else where its shell was."""
        named = given.get("workdir") or given.get("cwd")
        here = self._shell_there.place()
        if named is None or here is None:
            return here
        return self.root / named if isinstance(named, str) else None

    def _record(self, run: Run, command: str, exit_code: int | None, output: str, cwd: Path) -> None:
        def record() -> list[Event]:
            return self._ledger.record(
                run, command, exit_code=exit_code, output=output, cwd=cwd, canonical=self.commands
            )

        nothing: list[Event] = []
        made = self._safely(record, nothing)
        self.checks += made
        for check in made:
            _log.info(
                "check.recorded", bead=self.session, command=check.canonical_command, status=check.status
            )

    def _look(self) -> None:
        """Look at the files as they are now."""
        run = self._safely(lambda: self._ledger.begin(self.session, self.root), None)
        if run is None:
            return
        with self._guard:
            last = self._looks[-1][1].state if self._looks else None
            if last is not None and last.tree == run.state.tree:
                run = replace(run, state=last)  # one copy of what is the same
            self._looks.append((clock.monotonic(), run))

    def _look_before(self, seconds: float) -> Run | None:
        """The newest look that was over before a call of that many seconds began; None without any."""
        began = clock.monotonic() - seconds + _SLACK_S
        with self._guard:
            return next((run for at, run in reversed(self._looks) if at <= began), None)

    def _safely(self, work: Callable[[], _T], otherwise: _T) -> _T:
        """What *work* gives; *otherwise* from the first time that the ledger cannot be used."""
        if self.fault:
            return otherwise
        try:
            return work()
        except (SchoolError, OSError) as error:
            self.fault = str(error)
            _log.warning("evidence.lost", bead=self.session, why=self.fault)
            return otherwise

    # --- how it stands ------------------------------------------------------------------------------------

    def standing(self) -> Standing:
        """What is known of the files as they are now."""
        return self._safely(
            lambda: self._ledger.status(self.session, self.root, canonical=self.commands),
            Standing("disabled"),
        )

    def changed(self) -> list[str]:
        """Every path that is not as it was when the session began."""
        self._look()
        return self._differing(changed)

    def edited(self) -> list[str]:
        """Those of them that a check could tell something about."""
        self._look()
        return self._differing(edits)

    def _differing(self, how: Callable[[TreeState, TreeState], list[str]]) -> list[str]:
        with self._guard:
            if self._start is None or not self._looks:
                return []
            return how(self._start, self._looks[-1][1].state)

    def document(self) -> dict[str, Any]:
        """How the session stands, for the bookbag; ``words`` is a sentence for people."""
        edited, touched, standing = self.edited(), self._differing(changed), self.standing()
        status = standing.status
        if status != "disabled" and not edited:
            status = "not_applicable"
        event = standing.event if edited else None
        return {
            "status": status,
            "kind": event.kind if event else "",
            "scope": event.scope if event else "",
            "command": bounded(event.command, COMMAND_BYTES) if event else "",
            "exit_code": event.exit_code if event else None,
            "commit": event.commit if event else "",
            "tree": event.tree if event else "",
            "at": event.created_at if event else "",
            "paths": edited[:PATHS_MAX],
            "checks": len(self.checks),
            "words": self._words(status, event, edited, touched),
        }

    def _words(self, status: str, event: Event | None, edited: list[str], touched: list[str]) -> str:
        if status == "disabled":
            return f"unverified: the evidence ledger could not be used: {self.fault}"
        if not edited:
            return "only documentation was changed, no check is due" if touched else "no file was changed"
        if event is not None:
            return (
                f"{status}: `{event.command}` ({event.scope}, exit {event.exit_code}), on exactly these files"
            )
        shown = ", ".join(edited[:PATHS_IN_WORDS])
        more = f" and {len(edited) - PATHS_IN_WORDS} more" if len(edited) > PATHS_IN_WORDS else ""
        return f"unverified: no check of the project was seen to end after the last edit of {shown}{more}"


def canonical(root: Path, declared: Sequence[Sequence[str]]) -> list[str]:
    """The check commands of the project in *root* as one would type them: those *declared*, else those found."""
    from school.verification.facts import DirectoryTree, facts
    from school.verification.recipe import load

    if declared:
        return [line_of(argv) for argv in declared]
    saved, _ = load(root)
    if saved is not None and saved.test:
        return list(saved.test)
    return [shlex.join(argv) for argv in facts(DirectoryTree(root)).verify_commands]


def line_of(argv: Sequence[str]) -> str:
    """*argv* as a command line; of ``sh -c LINE`` the line."""
    if len(argv) == 3 and argv[0].rpartition("/")[2] in ("sh", "bash") and argv[1] == "-c":  # noqa: PLR2004
        return argv[2]
    return shlex.join(argv)


def _result(raw: object) -> Mapping[str, Any]:
    """What a tool said, which is JSON in a text; whatever else it is says nothing."""
    try:
        value = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}


def _seconds(duration_ms: object) -> float:
    known = isinstance(duration_ms, int | float) and not isinstance(duration_ms, bool) and duration_ms > 0
    return float(duration_ms) / 1000 if known else 0.0  # type: ignore[arg-type]

"""The leaf processes of one run: started, watched, ended. One process a bead, at most ``limit`` at once.

Whether a leaf lives is asked of two witnesses: our own child, and the kernel lock that a leaf holds for its life
(``processes/<bead>.leaf.lock``), so that a leaf of a conductor that died is not mistaken for a dead one while it is
still salvaging. A leaf is started only after its bookbag is durable; it reads everything from there.

Not promised: that a leaf's work is safe. The leaf salvages its own, and ``school.worktrees.salvage`` that of one
that is gone. Nor that a leaf which shows no new step for longer than any step may last is spared.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from school.contracts import ProcessRecord, dump
from school.settings import Settings
from school.system import clock, files, locks, log, processes
from school.system.markers import signal_exactly
from school.worktrees.leaves import CHECKOUT_TIMEOUT_S

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# A leaf told to end has to end its agent (5 s grace), take a snapshot and write its record.
END_GRACE_S: Final = 60.0
# A leaf that has handed over has nothing left to do but exit.
EXIT_GRACE_S: Final = 15.0
# What a step may take beside the checkout, its setup and its agent: a snapshot, a busy machine.
STEP_SLACK_S: Final = 600.0

_log = log.get("supervisor.leaves")


@dataclass(slots=True)
class Leaves:
    """Calling sequence: ``start`` … ``reap`` at each look … ``end_all`` before the run ends."""

    settings: Settings
    limit: int
    children: dict[str, processes.Child] = field(default_factory=dict)
    _leaving: dict[str, float] = field(default_factory=dict)
    _steps: dict[str, tuple[tuple[str, str], float]] = field(default_factory=dict)

    def start(self, bead: str) -> None:
        """Start the leaf of *bead*; MachineError when no process can be had."""
        argv = [sys.executable, str(ROOT / "leaf.py"), "--bead", bead]
        record = ProcessRecord(name=bead, kind="leaf", bead=bead, step="starting", argv=argv)
        with self._log_file(bead).open("ab") as said:
            self.children[bead] = processes.spawn(
                argv,
                record=self.settings.processes_dir / f"{bead}.json",
                record_fields=dump(record),
                cwd=ROOT,
                env={**os.environ, **self.settings.environment()},
                stdout=said,
                stderr=said,
            )
        _log.info("leaf.started", bead=bead, pid=self.children[bead].pid)

    def _log_file(self, bead: str) -> Path:
        return self.settings.logs_dir / f"leaf-{bead}.log"

    def running(self) -> int:
        return sum(child.poll() is None for child in self.children.values())

    def room(self) -> bool:
        return self.running() < self.limit

    def lives(self, bead: str) -> bool:
        """Whether a leaf of *bead* is there, ours or another conductor's."""
        child = self.children.get(bead)
        if child is not None and child.poll() is None:
            return True
        return locks.held_elsewhere(self.settings.processes_dir / f"{bead}.leaf.lock")

    def reap(self) -> list[str]:
        """The beads whose leaf ended since the last look; their handles are closed."""
        ended = [bead for bead, child in self.children.items() if child.poll() is not None]
        for bead in ended:
            child = self.children.pop(bead)
            self._leaving.pop(bead, None)
            self._steps.pop(bead, None)
            _log.info("leaf.ended", bead=bead, pid=child.pid, exit_code=child.poll())
            child.close()
            child.record.unlink(missing_ok=True)
        return ended

    def hurry(self, bead: str) -> None:
        """*bead* is handed over and its leaf still there: end it when it stays longer than it needs to exit."""
        child = self.children.get(bead)
        if child is None:
            self._wake(bead)
            return
        since = self._leaving.setdefault(bead, clock.monotonic())
        if clock.monotonic() - since > EXIT_GRACE_S:
            _log.warning("leaf.overstayed", bead=bead, pid=child.pid)
            child.kill_tree(1.0)

    def watch(self, bag: Mapping[str, Any]) -> None:
        """A leaf at work: end it when it has shown no new step for longer than any step may last."""
        bead = str(bag["bead"])
        if bead not in self.children:
            self._wake(bead)
        record = self._record(bead)
        step = str(record.get("step")), str(record.get("since"))
        known, since = self._steps.get(bead, (("", ""), 0.0))
        if step != known:
            self._steps[bead] = step, clock.monotonic()
        elif clock.monotonic() - since > step_limit_s(bag):
            _log.warning("leaf.stands_still", bead=bead, step=step[0])
            self._end(bead)

    def _end(self, bead: str) -> None:
        if (child := self.children.get(bead)) is not None:
            child.kill_tree(1.0)
        elif (owner := processes.owner_of(self._record(bead))) is not None:
            signal_exactly(owner.pid, owner.start, signal.SIGKILL)

    def _wake(self, bead: str) -> None:
        """A leaf whose conductor died ends by itself, unless it was stopped; then it only has to be woken."""
        if (owner := processes.owner_of(self._record(bead))) is not None:
            signal_exactly(owner.pid, owner.start, signal.SIGCONT)

    def _record(self, bead: str) -> Mapping[str, Any]:
        return files.read_object(self.settings.processes_dir / f"{bead}.json") or {}

    def end_all(self) -> None:
        """Ask every leaf to end (it salvages first), wait for it within a bound, kill what is left."""
        for child in self.children.values():
            child.terminate()
        deadline = clock.monotonic() + END_GRACE_S
        for bead, child in self.children.items():
            if child.wait(max(0.1, deadline - clock.monotonic())) is None:
                _log.warning("leaf.killed", bead=bead, pid=child.pid)
                child.kill_tree(1.0)
        self.reap()


def step_limit_s(bag: Mapping[str, Any]) -> float:
    """Longer than any one step of the leaf of *bag* may last by its own limits."""
    terms, limits = bag.get("terms") or {}, bag.get("limits") or {}
    setup_s = float(terms.get("setup_timeout_s") or 0) * len(terms.get("setup") or [])
    return CHECKOUT_TIMEOUT_S + setup_s + float(limits.get("agent_timeout_s") or 0) + STEP_SLACK_S

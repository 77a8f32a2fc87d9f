"""A standing teacher: boots, wakes with what it remembers, reviews what waits, sleeps, one process a role.

``python teacher.py --role cto|coo [--poll-interval S] [--once]``, or in code ``TeacherWorktree(role)``:

- ``run_loop()`` is the process: it holds the role's kernel lock for life (HeldError, exit 4, names who has it), wakes
  on ``.ready`` flags, looks at the shelf regardless at every poll interval, and ends in order on SIGTERM, SIGINT and
  SIGHUP: intake frozen, the check in hand cancelled, asleep, gone. A second signal ends it at once, and loses nothing.
- ``review_cycle()`` reviews the one bead that has waited longest; ``review(bead)`` a certain one, also in the process
  of a conductor that wants both reviews inline (it takes the role for that review, or awaits whoever has it).
- ``boot``, ``sleep``, ``wake`` and ``prune_sessions`` are the steps of the loop, each safe to do twice.

A bead that cannot be reviewed is counted, backed off from and in the end blocked (``school.teaching.desk``); one whose
record cannot even be written is left alone for a while. No bead ends the loop; a lack of the machine does so only
where nothing could be reviewed at all. Settings are the process' own; those handed in are installed for it.
"""

from __future__ import annotations

from importlib import import_module

from school.system import lifeline

if __name__ == "__main__":
    lifeline.hold()  # before the rest is loaded, which takes its time
    import_module("school.system.redaction").guard_tracebacks()
    # By name, so that there is one module object for whoever imports it besides; and here, not to build it twice.
    import_module("teacher").main()

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

import bookbag
from school import masking
from school import settings as school_settings
from school.contracts import (
    LENSES,
    TEACHER_ROLES,
    AgentSpec,
    Asks,
    Check,
    CheckContext,
    Review,
    TeacherRole,
)
from school.errors import (
    ConfigError,
    HeldError,
    SchoolError,
    SessionCorruptedError,
    SessionNotFoundError,
)
from school.settings import Settings
from school.system import clock, files, locks, log, processes, watch
from school.teaching.desk import Desk
from school.teaching.presence import Presence, hold_role
from sleep_state import (
    Episode,
    SleepState,
    episode_of,
    execute_sleep,
    execute_wake,
    prune_sessions,
)

REVIEWS_BEFORE_SLEEP: Final = 20
SWEEP_EVERY_S: Final = 60.0
# How long a bead is left alone after something broke that could not even be counted in its record.
LEFT_ALONE_S: Final = 15.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_log = log.get("teacher")


# Cheap ones come first; and what base does is measured before a check runs any code of head.
_ORDER: Final = {"verification": 1, "wrong_tree": 2, "tampering": 3, "acceptance": 4}


def checks_for(role: TeacherRole, settings: Settings | None = None) -> list[Check]:
    """The checks of *role*, in the order in which they are run: the deterministic ones, then a model's lenses."""
    from school.review import checks as review
    from school.verification import checks as verification
    from school.verification.bench import Bench
    from school.verification.compare import compare
    from school.verification.spoil import spoil

    checks = review.for_role(role, bench=Bench.of, compare=compare, spoil=spoil)
    checks += verification.for_role(role)
    ordered = sorted(checks, key=lambda check: _ORDER.get(check.name, 0))
    return [*ordered, *lenses_for(role, settings or school_settings.current())]


def lenses_for(role: TeacherRole, settings: Settings) -> list[Check]:
    """One check a lens that asks a model, for the beads whose terms name one."""
    from school.review.reviewer import ModelLens
    from school.souls import load_soul

    return [
        ModelLens(
            role,
            lens,
            asks=_asks,
            soul=lambda: load_soul(f"teacher-{role}", settings=settings).text,
            timeout_s=settings.review_timeout_s,
        )
        for lens in LENSES[role]
    ]


def _asks(spec: AgentSpec, context: CheckContext) -> Asks:
    """The model or the command that judges."""
    from school.agents import consult
    from school.agents.model.ask import asks
    from school.review.outsider import outsider

    if spec.kind == "command":
        return outsider(spec, context, start=consult.start, understand=consult.understand)
    return asks(spec, environ=os.environ)


class TeacherWorktree:
    """One teacher; see the module."""

    def __init__(
        self,
        role: str,
        *,
        settings: Settings | None = None,
        checks: Sequence[Check] | None = None,
        poll_interval_s: float | None = None,
    ) -> None:
        if role not in TEACHER_ROLES:
            raise ConfigError(f"role {role!r}: expected one of {', '.join(TEACHER_ROLES)}")
        if settings is not None:
            school_settings.configure(settings)
        self.settings = school_settings.current()
        self.role: TeacherRole = role
        self.poll_interval = poll_interval_s or self.settings.poll_interval_s
        self.stopped_by = 0
        self._checks = checks
        self._shelf = bookbag.Shelf()
        self._presence = Presence(self.role, self.settings, public=False)
        self._watcher: watch.Watcher | None = None
        self._holds_role = False
        self._last: SleepState | None = None
        self._fresh: list[Episode] = []
        self._memory = ""
        self._awake = False
        self._woke_at = ""
        self._cycles = 0
        self._left_alone: dict[str, float] = {}

    # --- boot, wake, sleep --------------------------------------------------------------------------------

    def boot(self) -> str:
        """Make the folders, put flags in step, make this role's worktrees of what waits; a worktree's path.

        Doing it twice changes nothing; a worktree that was deleted is made again. Where nothing waits yet there is
        no repository to make one for, and the folder that will hold them is returned.
        """
        here = self.settings
        for folder in (here.bookbag_dir, here.signal_dir, here.lock_dir, here.teachers_dir, here.reviews_dir):
            files.ensure_dir(folder)
        locks.refuse_unfit(here.lock_dir)
        bookbag.sweep_leftovers()
        bookbag.sweep_signals(self._shelf)
        if declined := [bead for bead, bag in self._shelf.waiting().items() if "schema" not in bag]:
            _log.warning(
                "teacher.declined", role=self.role, beads=declined, why="a seed record names no commit"
            )
        paths = [path for bag in self._one_of_each_repository() if (path := self._tree_for(bag))]
        return str(paths[0] if paths else files.ensure_dir(here.worktrees_dir))

    def _one_of_each_repository(self) -> list[Mapping[str, Any]]:
        desk = self._desk()
        bags = {
            bag["repo_key"]: bag
            for bag in self._shelf.waiting().values()
            if desk.due(bag) and bag["repo_key"]
        }
        return list(bags.values())

    def _tree_for(self, bag: Mapping[str, Any]) -> Path | None:
        from school.worktrees.teachers import TeacherTrees

        try:
            return TeacherTrees(self.role, self.settings).ensure(bag)
        except SchoolError as error:  # the review of that bead will say it where it counts
            _log.warning("teacher.no_worktree", role=self.role, bead=bag["bead"], why=str(error))
            return None

    def wake(self) -> dict[str, Any]:
        """Load the newest session of this role; its digest is what the reviews see from now on.

        Without a session, or with a corrupted one (quarantined, and said), the teacher starts fresh.
        """
        self._last, self._memory, corrupted = None, "", ""
        try:
            self._last, artifact = execute_wake(self.role)
            self._memory = self._last.digest
            domains = artifact.domains
        except SessionNotFoundError:
            domains = {}
        except SessionCorruptedError as error:
            domains, corrupted = {}, str(error)
        self._awake, self._woke_at = True, clock.now()
        session_id = self._last.session_id if self._last else ""
        self._presence.tell(state="idle", session_id=session_id)
        return {
            "role": self.role,
            "session_id": session_id,
            "digest": self._memory,
            "episodes": len(self._last.episodes) if self._last else 0,
            "domains": domains,
            "corrupted": corrupted,
        }

    def sleep(self, duration_minutes: float = 0.0) -> dict[str, Any]:
        """Freeze intake, consolidate, persist, log; the memory comes back with the next ``wake``."""
        self._presence.tell(state="sleeping")
        queued = [bead for bead, bag in self._shelf.waiting().items() if self._desk().due(bag)]
        state = execute_sleep(
            self.role,
            self._fresh,
            before=self._last,
            queued=queued,
            started_at=self._woke_at,
            duration_minutes=duration_minutes,
        )
        self._fresh, self._last, self._memory, self._awake = [], state, "", False
        self._cycles += 1
        self.prune_sessions(self.settings.max_session_cycles)
        return {
            "role": self.role,
            "session_id": state.session_id,
            "sequence": state.sequence,
            "reviewed": state.reviewed,
            "digest": state.digest,
            "queued": state.queued,
        }

    def prune_sessions(self, max_cycles: int | None = None) -> int:
        """Keep the newest *max_cycles* sessions of this role; how many went."""
        return prune_sessions(
            self.role, self.settings.max_session_cycles if max_cycles is None else max_cycles
        )

    # --- reviewing ----------------------------------------------------------------------------------------

    def review_cycle(self) -> int:
        """Review the bead that has waited longest and is due; 1 if one was reviewed, 0 if there was none."""
        for bead in self._queue():
            if self.stopped_by:
                break
            if self.review(bead) != "SKIPPED":
                return 1
        return 0

    def review(self, bead: str) -> str:
        """Review *bead*: ``PASS``, ``FAIL``, ``NO_VERDICT``, or ``SKIPPED`` when none was due from this role."""
        if self._holds_role:
            return self._review(bead)
        with self._role_for_a_review(bead) as mine:
            return self._review(bead) if mine else self._given(bead)

    def _review(self, bead: str) -> str:
        if not self._awake:
            self.wake()
        session = self._last.session_id if self._last else ""
        try:
            with self._presence.reviewing(bead):
                return self._desk().review(bead, memory=self._memory, session=session)
        except (SchoolError, OSError) as error:
            # The record cannot be read or written: nothing can be counted there, so it is remembered here.
            self._left_alone[bead] = clock.monotonic() + LEFT_ALONE_S
            _log.error("teacher.bead_left_alone", role=self.role, bead=bead, why=str(error))
            return "SKIPPED"

    def _desk(self) -> Desk:
        if self._checks is None:
            self._checks = checks_for(self.role, self.settings)
        return Desk(
            role=self.role,
            settings=self.settings,
            checks=self._checks,
            step=self._presence.step,
            cancelled=lambda: bool(self.stopped_by),
            remember=self._remember,
        )

    def _remember(self, bag: Mapping[str, Any], review: Review, outcome: str) -> None:
        findings = [finding for lens in review.lenses for finding in lens.findings]
        self._fresh.append(episode_of(bag, outcome, findings))
        if outcome != "NO_VERDICT":
            self._presence.tell(reviewed=self._presence.record.reviewed + 1)

    def _queue(self) -> list[str]:
        """What is due from this role now, by how long its flag has been there."""
        desk, now = self._desk(), clock.monotonic()
        self._left_alone = {bead: until for bead, until in self._left_alone.items() if until > now}
        due = [
            (_flagged_at(self.settings, bead), place, bead)
            for place, (bead, bag) in enumerate(self._shelf.waiting().items())
            if desk.due(bag) and desk.not_before(bag) <= 0 and bead not in self._left_alone
        ]
        return [bead for _, _, bead in sorted(due)]

    @contextmanager
    def _role_for_a_review(self, bead: str) -> Iterator[bool]:
        """The role's lock for one review; False when whoever has the role has seen to the bead meanwhile."""
        deadline = clock.monotonic() + self.settings.handoff_timeout_s
        files.ensure_dir(self.settings.signal_dir)
        with watch.Watcher(self.settings.signal_dir, rescan_s=1.0) as watcher:
            while True:
                try:
                    lock = hold_role(self.role, self.settings)
                    break
                except HeldError:
                    bag = bookbag.read_bookbag(bead)
                    if bag is None or not self._desk().due(bag):
                        yield False
                        return
                    if clock.monotonic() > deadline:
                        raise
                    watcher.wait(0.25)
        try:
            yield True
        finally:
            lock.release()

    def _given(self, bead: str) -> str:
        bag = bookbag.read_bookbag(bead) or {}
        return str(bag.get(f"{self.role}_verdict") or "SKIPPED")

    # --- the loop -----------------------------------------------------------------------------------------

    def run_loop(self, *, once: bool = False) -> None:
        """Review until told to stop; with *once* until nothing is due. Holds the role; HeldError when another does."""
        lock = hold_role(self.role, self.settings)
        self._holds_role = True
        self._presence = Presence(self.role, self.settings)
        try:
            with (
                watch.Watcher(self.settings.signal_dir, rescan_s=self.poll_interval) as self._watcher,
                self._told(),
            ):
                self._presence.tell(state="booting", watching=_mode(self._watcher))
                self.boot()
                self.wake()
                self._serve(self._watcher, once=once)
                if self._awake:
                    self.sleep()
                self._presence.tell(state="stopped")
        finally:
            self._watcher, self._holds_role = None, False
            lock.release()

    def _serve(self, watcher: watch.Watcher, *, once: bool) -> None:
        swept = busy = clock.monotonic()
        while not self.stopped_by:
            if self.review_cycle():
                busy = clock.monotonic()
                if len(self._fresh) >= REVIEWS_BEFORE_SLEEP:
                    self.sleep()
                continue
            if once or self.stopped_by:
                return
            watcher.wait(self._wait_s())
            if self._fresh and clock.monotonic() - busy >= self.poll_interval:
                self.sleep()  # nothing came for a whole poll interval: idle
            self._presence.renew()
            if clock.monotonic() - swept > SWEEP_EVERY_S:
                swept = clock.monotonic()
                bookbag.sweep_signals(self._shelf)

    def _wait_s(self) -> float:
        """Until the next look that is due by itself: a poll, a renewal of the record, the end of a back-off."""
        desk = self._desk()
        backs_off = [desk.not_before(bag) for bag in self._shelf.waiting().values() if desk.due(bag)]
        soon = [seconds + 0.01 for seconds in backs_off if seconds > 0]
        return min([self.poll_interval, self._presence.renewal_s, *soon])

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Signals that end the loop, where this is the main thread; the handlers that were there come back."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # the second one ends it at once
        self.stop(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Make ``run_loop`` end in order; from any thread and from signal handlers."""
        self.stopped_by = int(number)
        if self._watcher is not None:
            self._watcher.wake()


def _flagged_at(settings: Settings, bead: str) -> float:
    """When the bead was flagged; one without a flag comes last, in the order of the shelf."""
    try:
        return (settings.signal_dir / f"{bead}.ready").stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _mode(watcher: watch.Watcher) -> str:
    return f"{watcher.mode} ({watcher.reason})" if watcher.reason else watcher.mode


@click.command()
@click.option("--role", type=click.Choice(TEACHER_ROLES), required=True, help="Which teacher to be.")
@click.option("--poll-interval", type=float, default=None, help="Longest wait between looks, in seconds.")
@click.option("--once", is_flag=True, help="Review what is due now, and exit.")
def main(role: str, poll_interval: float | None, *, once: bool) -> None:
    """Stand as a teacher until told to stop."""
    spawned = processes.hold_lifeline()
    try:
        if poll_interval is not None and not 0 < poll_interval < float("inf"):
            raise ConfigError(f"--poll-interval {poll_interval}: expected a positive number of seconds")
        masking.install()
        teacher = TeacherWorktree(role, poll_interval_s=poll_interval)
        log.configure(
            f"teacher-{role}", path=teacher.settings.logs_dir / f"teacher-{role}.jsonl", to_stderr=not spawned
        )
        teacher.run_loop(once=once)
    except SchoolError as error:
        click.echo(f"teacher: {masking.text(str(error))}", err=True)
        sys.exit(error.exit_code)
    # Spawned, an orderly end is what was asked for; by hand, the caller's shell wants to know of the signal.
    sys.exit(128 + teacher.stopped_by if teacher.stopped_by and not spawned else 0)

"""One run of the conductor: read the disk, decide by the tables, act, wait.

Calling sequence: ``run_plan(plan, screen=..., reviewer=...)`` holds the repository for the whole run, takes up what an
earlier run left (by the same table that carries its own beads), and returns a Result however it ends: by itself, by a
signal, or because the machine gave out. *reviewer* is given only for ``--sync``: it judges a bead in this process.

What it does not promise: that nothing is left to do. A run that was cut short leaves everything on disk for the next.
Errors that are raised: HeldError when another conductor holds the repository, MachineError before anything was begun.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import bookbag
from school import settings as school_settings
from school.contracts import TEACHER_ROLES, UNCHARGED_REASONS
from school.errors import (
    BookbagCorruptedError,
    BookbagInvalidError,
    ConfigError,
    GitError,
    LockTimeout,
    MachineError,
    SchoolError,
    WorktreeError,
)
from school.review.budget import owing, said
from school.supervisor.absence import REASONS
from school.supervisor.beads import repository_terms
from school.supervisor.board import Bag, View, bag_of
from school.supervisor.closing import Deliver
from school.supervisor.handover import HandOver
from school.supervisor.leaves import Leaves
from school.supervisor.narrator import Narrator
from school.supervisor.opening import Ground, base_pins, open_ground, pin_name, refuse_full
from school.supervisor.plan import Plan
from school.supervisor.premerge import Premerge
from school.supervisor.result import Result, document
from school.supervisor.rounds import TaskState, exit_code
from school.supervisor.screen import Screen
from school.supervisor.signals import Signals
from school.supervisor.starting import Starter
from school.supervisor.states import AWAITING_REVIEW, Action, decide
from school.supervisor.teachers import Teachers
from school.system import clock, log
from school.system.watch import Watcher
from school.worktrees import reap
from school.worktrees.salvage import salvage

Reviewer = Callable[[str, str], str]
# Verdicts one by one, a stranger's leaf, a foreign teacher: what no event tells is seen within this.
LOOK_S_MAX: Final = 1.0
SIGNAL_EXIT: Final = 128
# How often the end of one bead is begun anew because its record was put back by somebody else meanwhile.
ENDS_MAX: Final = 20
# What can be wrong with one bead alone; everything else is the machine's, and ends the run.
ONE_BEADS_ERRORS: Final = (
    BookbagCorruptedError,
    BookbagInvalidError,
    ConfigError,
    GitError,
    LockTimeout,
    WorktreeError,
)

_log = log.get("supervisor")


def run_plan(plan: Plan, *, screen: Screen, deliver: Deliver, reviewer: Reviewer | None = None) -> Result:
    """Run *plan* to its end; *deliver* makes the branch of accepted work."""
    school_settings.configure(plan.settings)
    with open_ground(plan, screen, deliver) as ground:
        return Run(plan, ground, screen, reviewer).execute()


@dataclass(slots=True)
class Run:
    """The loop and what it holds."""

    plan: Plan
    ground: Ground
    screen: Screen
    reviewer: Reviewer | None
    leaves: Leaves = field(init=False)
    teachers: Teachers = field(init=False)
    handover: HandOver = field(init=False)
    premerge: Premerge = field(init=False)
    starter: Starter = field(init=False)
    narrator: Narrator = field(init=False)
    watcher: Watcher = field(init=False)
    signals: Signals = field(init=False)
    round: int = 1
    failure: SchoolError | None = None
    idle: bool = False
    over: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    tainted: set[str] = field(default_factory=set)
    undone: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings, limits = self.plan.settings, self.plan.config.limits
        self.leaves = Leaves(settings, self.plan.leaves)
        self.teachers = Teachers(settings, clock.SystemClock())
        self.handover = HandOver(clock.SystemClock(), settings.handoff_timeout_s, limits.queue_timeout_s)
        self.narrator = Narrator(self.screen, settings)
        self.watcher = Watcher(settings.signal_dir, rescan_s=settings.handoff_poll_interval_s)
        self.premerge = Premerge(
            self.plan, self.ground.clone.path, self.watcher.wake, repository_terms(self.plan)
        )
        self.starter = Starter(self.plan, self.ground, self.leaves, self.narrator, self.premerge)
        self.signals = Signals(self.watcher.wake)

    def execute(self) -> Result:
        """Everything between holding the repository and giving it back."""
        with ExitStack() as stack:
            stack.enter_context(self.watcher)
            stack.enter_context(self.signals)
            self.narrator.begun(self.plan, self.ground.run)
            try:
                self.take_up()
                self.starter.reckon()
                self.idle = not self.look() and not self.ground.register.board.anything_left()
                self.loop()
            except SchoolError as error:  # the machine gave out; what is on disk is for the next run
                self.failure = error
                _log.error("run.gave_up", why=str(error))
            self.end()
            return self.result()

    # --- the loop -------------------------------------------------------------------------------------

    def loop(self) -> None:
        """Read the disk, decide by the tables, act, wait; until nothing is in flight and nothing is ready."""
        while not self.signals.received:
            refuse_full(self.plan.settings)
            views = self.look()
            acted = [self.try_to(view) for view in views]
            self.watch_teachers([view for view in views if view.bead not in self.over])
            if any(acted) or self.starter.start_ready(self.round, self.waiting(views)):
                continue
            if not self.awaited() and not self.next_round():
                return
            self.wait()

    def look(self) -> list[View]:
        """Every bead of this repository that is not finished, and what is due for it."""
        mine = {
            bead: bag
            for bead, bag in self.ground.shelf.scan().items()
            if bag.get("repo_key") == self.plan.repository.key and bead not in self.over
        }
        self.miss(mine.keys())
        views = []
        for bead, bag in mine.items():
            state = bookbag.bookbag_state(bag)
            if not (state == "BLOCKED" and bag.get("outcome")):
                self.ground.register.adopt(bag)
                views.append(View(bag, state, decide(state, leaf_lives=self.leaves.lives(bead))))
        self.leaves.reap()
        self.starter.count(view.bag for view in views)
        self.suspect(views)
        self.narrator.show(views)
        return views

    def suspect(self, views: list[View]) -> None:
        """Students that were at work while somebody changed the repository's configuration are not judged."""
        running = {view.bead for view in views if view.state == "RUNNING"}
        if self.running - running and self.starter.meddled():
            self.tainted |= self.running
        self.running = running
        for view in views:
            if view.bead in self.tainted and view.state in AWAITING_REVIEW:
                bookbag.locked_update_bookbag(view.bead, status="failed", reason="repository_changed")

    def try_to(self, view: View) -> bool:
        """Act on one bead; what is wrong with that one must not stop the others."""
        try:
            return self.act(view)
        except ONE_BEADS_ERRORS as error:
            state = self.ground.register.adopt(view.bag)
            state.outcome, state.reason, state.in_flight = "failed", f"stuck: {error}", ""
            state.waits_for_human = True
            self.over.add(view.bead)
            self.narrator.stuck(state, str(error))
            return True

    def act(self, view: View) -> bool:  # noqa: PLR0911 - one return a cell of the table
        """Do what is due for one bead; whether anything moved."""
        match view.action:
            case Action.LEAF:
                if view.state == "RUNNING":
                    self.leaves.watch(view.bag)
                else:
                    self.leaves.hurry(view.bead)
                return False
            case Action.SALVAGE:
                return self.salvage(view.bag)
            case Action.REVIEW:
                return self.review(view)
            case Action.SCORE:
                return self.ground.closing.score(view.bag)
            case Action.CLOSE:
                return self.finish(view.bag, self.ground.closing.close)
            case Action.PARK:
                return self.finish(view.bag, self.ground.closing.park)
            case Action.FORGET:
                self.ground.closing.remove(view.bag)
                return True

    def wait(self) -> None:
        """Until something may have changed, and never longer than a look is due."""
        poll_s = self.plan.settings.handoff_poll_interval_s
        waits = [LOOK_S_MAX, poll_s, self.teachers.wait_s(), self.starter.paused_s()]
        self.watcher.wait(min(wait for wait in waits if wait is not None))

    def next_round(self) -> bool:
        """Begin another round if one is allowed and could do anything."""
        rounds = self.plan.rounds
        if self.starter.halted or (rounds is not None and self.round >= rounds):
            return False
        if not self.ground.register.board.anything_left():
            return False
        self.round += 1
        self.ground.record.put(round=self.round)
        self.narrator.round(self.round)
        return True

    def awaited(self) -> bool:
        """Whether anything that is under way can still change what is due."""
        return (
            self.ground.register.in_flight() or self.starter.undecided or self.starter.paused_s() is not None
        )

    # --- what is due ----------------------------------------------------------------------------------

    def take_up(self) -> None:
        """Remove what beads left that were finished and not cleared away; the table does the rest."""
        live = self.ground.shelf.scan().keys()
        self.premerge.clear()
        settings, key, saved = self.plan.settings, self.plan.repository.key, self.ground.closing.rescue
        reap(settings, repo_key=key, dry_run=False, live=live.__contains__, saved=saved)

    def miss(self, present: Any) -> None:  # noqa: ANN401 - a view of names
        """A bead in flight whose record can no longer be read ends here, honestly."""
        for state in list(self.ground.register.states()):
            if state.in_flight and state.in_flight not in present and state.in_flight not in self.over:
                why = self.ground.shelf.problems.get(state.in_flight, "its record is gone")
                self.narrator.lost(state, why)
                self.over.add(state.in_flight)
                state.outcome, state.reason, state.in_flight = "failed", f"record_lost: {why}", ""

    def salvage(self, bag: Bag) -> bool:
        """The leaf is gone and has not handed over: save what it wrote, set the record to failed."""
        reason = "interrupted" if self.signals.received or self.failure else "leaf_died"
        if bag.get("run") != self.ground.run:
            reason = "conductor_died"
        saved = salvage(bag["bead"], reason=reason, settings=self.plan.settings)
        if saved is not None and saved.get("status") != "running":
            self.narrator.salvaged(saved)
            return True
        return False

    def review(self, view: View) -> bool:
        """Wait for the teachers within the limits, or with ``--sync`` be them; not at all where the budget stopped them."""
        if self.starter.renew(view.bag):
            return True
        if not owing(view.bag):
            return self.stop_for_budget(view.bag)
        if self.reviewer is not None:
            return self.judge(view.bag)
        now = clock.parse(clock.now())
        why = self.handover.overdue(view.bag, self.teachers.records(), now)
        if why:
            self.expire(view.bag, why)
        return False

    def judge(self, bag: Bag) -> bool:
        """Both reviews in this process, one after the other; whether any verdict or attempt was made."""
        assert self.reviewer is not None
        moved = False
        for role in TEACHER_ROLES:
            if bag.get(f"{role}_verdict") or self.signals.received:
                continue
            until = (bag.get(f"{role}_review") or {}).get("not_before")
            if until and clock.parse(until) > clock.parse(clock.now()):
                continue
            moved = self.reviewer(role, bag["bead"]) in ("PASS", "FAIL", "NO_VERDICT") or moved
        return moved

    def stop_for_budget(self, bag: Bag) -> bool:
        """Nobody who is still to judge *bag* has enough left to: it waits for a run with a higher limit."""
        if why := said(bag):  # else its record could not be had just now
            self.expire(bag, f"budget: {why}")
            self.starter.halt(why)
        return bool(why)

    def expire(self, bag: Bag, why: str) -> None:
        """Not waited for any longer in this run; the record stays as it is."""
        state = self.ground.register.adopt(bag)
        state.expired, state.reason, state.in_flight = True, why, ""
        self.over.add(bag["bead"])
        self.narrator.expired(state, why)

    def finish(self, bag: Bag, step: Callable[[Bag], bool]) -> bool:
        """Close or park a bead, and enter what that means for its task."""
        if not step(bag):
            return self.begin_again(bag["bead"])
        self.over.add(bag["bead"])
        ended = bag_of(bag["bead"]) or bag
        state = self.ground.register.settle(ended)
        self.handover.forget([bag["bead"]])
        self.narrator.ended(ended, state)
        self.again(ended, state)
        self.starter.spent(ended)
        return True

    def begin_again(self, bead: str) -> bool:
        """The end of *bead* did not hold; looked at again, but not for ever."""
        self.undone[bead] = self.undone.get(bead, 0) + 1
        if self.undone[bead] > ENDS_MAX:
            raise BookbagInvalidError(
                f"{bead}: its record was changed by somebody else each of the {ENDS_MAX} times that it was ended"
            )
        return False

    def again(self, bag: Bag, state: TaskState) -> None:
        """An attempt that cost nothing gives its round back; a full disk ends the run."""
        if bag.get("status") != "failed" or bag.get("reason") not in UNCHARGED_REASONS:
            return
        if bag["reason"] == "disk_full":
            raise MachineError(f"{bag['bead']}: the disk is full: {bag.get('summary', '')}")
        if bag["reason"] in REASONS:  # how often is bounded by what is known of the agent
            state.tried_in = min(state.tried_in, self.round - 1)
            return
        state.cut_short += 1
        if state.cut_short < self.plan.config.limits.max_interruptions:
            state.tried_in = min(state.tried_in, self.round - 1)

    def waiting(self, views: list[View]) -> int:
        return sum(view.state in AWAITING_REVIEW for view in views)

    def watch_teachers(self, views: list[View]) -> None:
        """Teachers are needed as soon as anything is in flight, so that they are there when it is handed over."""
        if self.reviewer is None and (views or self.starter.anything_ready(self.round)):
            for said in self.teachers.tick():
                self.screen.say(said)

    # --- the end --------------------------------------------------------------------------------------

    def end(self) -> None:
        """In order: leaves, what they left, teachers, worktrees of what stays open, pins."""
        try:
            self.premerge.stop()
            self.leaves.end_all()
            self.close_what_ended()
            self.teachers.stop()
            self.put_away()
        except SchoolError as error:
            _log.error("run.end_incomplete", why=str(error))
            self.failure = self.failure or error

    def close_what_ended(self) -> None:
        """Salvage and close what needs nobody else, a bounded number of times over the table."""
        for _ in range(len(Action)):
            views = [view for view in self.look() if view.action not in (Action.LEAF, Action.REVIEW)]
            acted = [self.try_to(view) for view in views]
            if not any(acted):
                return

    def put_away(self) -> None:
        """What stays open needs its record and its commits, not its working tree; a base nobody uses, no pin."""
        used = set()
        for bag in self.ground.shelf.scan().values():
            if bag.get("repo_key") == self.plan.repository.key:
                used.add(pin_name(bag.get("base_commit", "")))
                if bookbag.bookbag_state(bag) in AWAITING_REVIEW:
                    self.ground.closing.put_away(bag)
        for pin in base_pins(self.ground.clone):
            if pin not in used:
                self.ground.clone.unpin(pin)

    def cut_short(self) -> str:
        """By what the run was ended before its time, in a word; empty for one that ended by itself."""
        if self.signals.received:
            return "interrupted"
        return "the run gave up" if self.failure is not None else self.starter.halted

    def result(self) -> Result:
        """The document, its exit code, and the record of the run closed with them."""
        register = self.ground.register
        for state in register.states():
            if state.in_flight:
                state.expired, state.reason = True, "the run ended before its review did"
        found = document(self.plan, self.ground.run, register, self.cut_short())
        nothing = self.plan.resumed and self.idle
        found["exit"] = self.exit_code(0 if nothing else exit_code(found["counts"]))
        try:
            self.ground.record.put(ended_at=clock.now(), exit=found["exit"], counts=found["counts"])
        except MachineError as error:
            # A disk that is full takes not even this; what the run did is to be told all the same.
            self.failure = self.failure or error
            found["exit"] = self.exit_code(found["exit"])
        said = "Nothing to resume: no task of the last run has anything left to do." if nothing else ""
        return Result(found, found["exit"], str(self.failure or ""), said, self.plan)

    def exit_code(self, by_tasks: int) -> int:
        """What the run exits with; how it was ended counts more than what became of its tasks."""
        if self.signals.received:
            return SIGNAL_EXIT + self.signals.received
        return by_tasks if self.failure is None else self.failure.exit_code

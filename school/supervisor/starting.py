"""Starting students: which task is next, from which commit, by whom; and the reasons for starting none.

``start_ready`` gives every ready task of the round its attempt while there is room: for running leaves, and in the
queue of the teachers (twice as many may wait there). Nothing new starts once the run is ``halted``: a budget is used
up, or somebody changed the repository's configuration or hooks while students were at work. A rate limit only pauses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import bookbag
from school.contracts import AgentSpec
from school.scores import ScoreBook
from school.supervisor import beads
from school.supervisor.board import Bag, bag_of
from school.supervisor.leaves import Leaves
from school.supervisor.narrator import Narrator
from school.supervisor.needs import starting_point
from school.supervisor.opening import Ground, pin_name
from school.supervisor.plan import Plan
from school.supervisor.premerge import Premerge
from school.supervisor.rounds import TaskState
from school.system import clock
from school.tasks import Task
from school.worktrees import fingerprint

WAITING_FACTOR: Final = 2
# A quota's reset that nobody stated, and the longest that a stated one is believed.
PAUSE_S: Final = 60.0
PAUSE_S_MAX: Final = 6 * 3600.0


@dataclass(slots=True)
class Starter:
    """Calling sequence: ``start_ready`` at each look, ``spent`` for each bead that ended."""

    plan: Plan
    ground: Ground
    leaves: Leaves
    narrator: Narrator
    premerge: Premerge
    halted: str = ""
    undecided: bool = False
    paused_until: float = 0.0
    tokens: int = 0
    cost_usd: float = 0.0

    def start_ready(self, round_: int, waiting: int) -> bool:
        """Start what is ready and has room; whether anything moved."""
        moved = self.undecided = False
        for state in self.ground.register.board.ready(round_):
            if not self.room(waiting) or self.meddled():
                return moved
            moved = self.start(state, round_) or moved
        return moved

    def anything_ready(self, round_: int) -> bool:
        return not self.halted and bool(self.ground.register.board.ready(round_))

    def room(self, waiting: int) -> bool:
        """Whether one more leaf may start now."""
        if self.halted or clock.monotonic() < self.paused_until:
            return False
        return self.leaves.room() and waiting < WAITING_FACTOR * self.plan.leaves

    def paused_s(self) -> float | None:
        """How long until a pause ends; None when there is none."""
        left_s = self.paused_until - clock.monotonic()
        return left_s if left_s > 0 else None

    def start(self, state: TaskState, round_: int) -> bool:
        """Write the record of one attempt, then start its leaf; False while it is not known from where."""
        task = self.plan.tasks.get(state.id)
        start = starting_point(task, self.ground.register, self.plan, self.ground.clone, self.premerge)
        if not start.commit and not start.blocked:
            self.undecided = True
            return False
        state.tried_in = round_
        if start.blocked:
            state.outcome, state.reason, state.waits_for_human = "blocked", start.blocked, True
            self.narrator.blocked(state, start.blocked)
            return True
        earlier = [bag_of(bead) for bead in self.ground.register.beads_of(task)]
        attempt = beads.Attempt(
            number=state.charged + 1,
            base_commit=start.commit,
            agent=self.agent_for(task, [bag for bag in earlier if bag]),
            earlier_findings=beads.earlier_findings(earlier),
        )
        self.ground.clone.pin(start.commit, pin_name(start.commit))
        bag = bookbag.write_bookbag(**beads.compose(self.plan, task, attempt, self.ground.run))
        self.ground.register.adopt(bag)
        self.leaves.start(bag["bead"])
        self.narrator.started(bag)
        return True

    def agent_for(self, task: Task, earlier: Iterable[Bag]) -> AgentSpec:
        """The candidate whose turn it is: best score first, the next stronger after a failure."""
        candidates = {spec.name: spec for spec in self.plan.agents[task.id]}
        tried = [
            str((bag.get("agent") or {}).get("name", ""))
            for bag in earlier
            if bag.get("outcome") != "accepted"
        ]
        book = ScoreBook(self.plan.settings)
        name, reason = book.choose(list(candidates), task.student_role, task.domain, tried=tried)
        return candidates[name].model_copy(update={"reason": reason})

    # --- reasons to start nothing -----------------------------------------------------------------------

    def meddled(self) -> bool:
        """Whether the user's configuration or hooks are no longer what they were when the run began."""
        if not self.halted and fingerprint(self.plan.repository) != self.ground.fingerprint:
            self.halted = "repository_changed"
            self.narrator.halted(
                f"the configuration, hooks or info/ of {self.plan.repository.path} changed while students were at "
                "work; nothing new is started"
            )
        return self.halted == "repository_changed"

    def spent(self, bag: Bag) -> None:
        """Count what *bag* used; halt when a budget is gone, pause when a quota is."""
        usage: Mapping[str, Any] = bag.get("usage") or {}
        self.tokens += int(usage.get("input_tokens") or 0) + int(usage.get("output_tokens") or 0)
        self.cost_usd += float(usage.get("cost_usd") or 0)
        limits = self.plan.config.limits
        if limits.tokens is not None and self.tokens >= limits.tokens:
            self.halt(f"[limits] tokens = {limits.tokens} are used up ({self.tokens})")
        if limits.cost_usd is not None and self.cost_usd >= limits.cost_usd:
            self.halt(f"[limits] cost_usd = {limits.cost_usd:g} is used up ({self.cost_usd:.2f})")
        if bag.get("reason") == "budget":
            self.halt(str(bag.get("summary") or "a budget is used up").partition("; ")[0])
        if bag.get("reason") == "quota":
            self.pause(str(bag.get("retry_at") or ""))

    def halt(self, why: str) -> None:
        if not self.halted:
            self.halted = "budget"
            self.narrator.halted(f"{why}; nothing new is started")

    def pause(self, retry_at: str) -> None:
        """Wait for a quota's stated reset, within bounds."""
        wait_s = pause_s(retry_at, clock.now())
        self.paused_until = clock.monotonic() + wait_s
        self.narrator.halted(f"a quota is used up; new students wait {wait_s:.0f} s")


def pause_s(retry_at: str, now: str) -> float:
    """How long to wait for a quota that an agent says is there again at *retry_at*; it may say anything."""
    try:
        wait_s = (clock.parse(retry_at) - clock.parse(now)).total_seconds()
    except ValueError:
        wait_s = PAUSE_S
    return min(max(wait_s, 0.0), PAUSE_S_MAX)

"""Starting students: which task is next, from which commit, by whom; and the reasons for starting none.

``start_ready`` gives every ready task of the round its attempt while there is room: for running leaves, and in the
queue of the teachers (twice as many may wait there). Nothing new starts once the run is ``halted``: a budget is used
up (``spending``), or somebody changed the repository's configuration or hooks while students were at work. A task whose
agents are all away (``absence``) waits for the first of them, while others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import bookbag
from school.contracts import TEACHER_ROLES, AgentSpec, dump
from school.records.moves import WAITING
from school.review import budget
from school.review.filed import models_due
from school.scores import ScoreBook
from school.supervisor import beads
from school.supervisor.absence import REASONS, Absences
from school.supervisor.board import Bag, bag_of
from school.supervisor.leaves import Leaves
from school.supervisor.narrator import Narrator
from school.supervisor.needs import starting_point
from school.supervisor.opening import Ground, pin_name
from school.supervisor.plan import Plan
from school.supervisor.premerge import Premerge
from school.supervisor.rounds import TaskState
from school.supervisor.spending import Spending
from school.system import clock
from school.tasks import Task
from school.worktrees import fingerprint

WAITING_FACTOR: Final = 2


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
    absences: Absences = field(init=False)
    spending: Spending = field(init=False)
    _held_back: list[float] = field(default_factory=list)
    _away: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        limits = self.plan.config.limits
        self.absences = Absences(clock.SystemClock())
        self.spending = Spending(limits.tokens, limits.cost_usd)

    def reckon(self) -> None:
        """Count what earlier runs used on these tasks, before anything is started."""
        if not self.spending.limited:
            return
        register = self.ground.register
        for task in self.plan.tasks:
            for attempt in register.ledger.state(task).attempts:
                if (bag := bag_of(attempt.bead)) is not None:
                    self.spending.count(bag)
        self.halt_when_spent()

    def start_ready(self, round_: int, waiting: int) -> bool:
        """Start what is ready and has room; whether anything moved."""
        moved = self.undecided = False
        self._held_back.clear()
        self._tell_who_is_away()
        for state in self.ground.register.board.ready(round_):
            if not self.room(waiting) or self.meddled():
                return moved
            moved = self.start(state, round_) or moved
        return moved

    def anything_ready(self, round_: int) -> bool:
        return not self.halted and bool(self.ground.register.board.ready(round_))

    def room(self, waiting: int) -> bool:
        """Whether one more leaf may start now."""
        return not self.halted and self.leaves.room() and waiting < WAITING_FACTOR * self.plan.leaves

    def paused_s(self) -> float | None:
        """How long until the first of the agents that ready tasks wait for is there again; None when none waits."""
        return min(self._held_back, default=None)

    def start(self, state: TaskState, round_: int) -> bool:
        """Write the record of one attempt, then start its leaf; False while it is not known from where, or by whom."""
        task = self.plan.tasks.get(state.id)
        if not (agents := self.agents_there(task)):
            return self.nobody_there(state, task)
        start = starting_point(task, self.ground.register, self.plan, self.ground.clone, self.premerge)
        if not start.commit and not start.blocked:
            self.undecided = True
            return False
        state.tried_in = round_
        if start.blocked:
            state.outcome, state.reason, state.waits_for_human = "blocked", start.blocked, True
            self.narrator.blocked(state, start.blocked)
            return True
        agent = self.agent_for(task, agents)
        earlier = [bag_of(bead) for bead in self.ground.register.beads_of(task)]
        attempt = beads.Attempt(
            number=state.charged + 1,
            base_commit=start.commit,
            agent=agent,
            earlier_findings=beads.earlier_findings(earlier, agent.name),
            budget=self.spending.left(),
        )
        self.ground.clone.pin(start.commit, pin_name(start.commit))
        bag = bookbag.write_bookbag(**beads.compose(self.plan, task, attempt, self.ground.run))
        self.ground.register.adopt(bag)
        self.leaves.start(bag["bead"])
        self.narrator.started(bag)
        return True

    # --- by whom ----------------------------------------------------------------------------------------

    def agents_there(self, task: Task) -> dict[str, AgentSpec]:
        """The candidates for *task* that are not away, by name."""
        return {spec.name: spec for spec in self.plan.agents[task.id] if self.absences.present(dump(spec))}

    def nobody_there(self, state: TaskState, task: Task) -> bool:
        """Every candidate is away: wait for the first, or leave the task to a later run where none comes back."""
        agents = [dump(spec) for spec in self.plan.agents[task.id]]
        wait_s = self.absences.wait_s(agents)
        if wait_s is not None:
            self._held_back.append(wait_s)
            return False
        state.expired = True
        state.reason = "; ".join(dict.fromkeys(self.absences.gone(agent) for agent in agents))
        self.narrator.expired(state, state.reason)
        return True

    def agent_for(self, task: Task, agents: Mapping[str, AgentSpec]) -> AgentSpec:
        """The candidate whose turn it is: best score first, the next stronger after one that failed at it."""
        failed = [
            attempt.bead for attempt in self.ground.register.ledger.state(task).counted if attempt.charged
        ]
        tried = [
            str((bag.get("agent") or {}).get("name", ""))
            for bead in failed
            if (bag := bag_of(bead)) is not None and bag.get("outcome") != "accepted"
        ]
        book = ScoreBook(self.plan.settings)
        name, reason = book.choose(list(agents), task.student_role, task.domain, tried=tried)
        if absent := [spec.name for spec in self.plan.agents[task.id] if spec.name not in agents]:
            reason += f"; away: {', '.join(absent)}"
        return agents[name].model_copy(update={"reason": reason})

    def _tell_who_is_away(self) -> None:
        """Keep the run's record, from which ``status`` reads it, in step."""
        if (rows := self.absences.rows()) != self._away:
            self._away = rows
            self.ground.record.put(away=rows)

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
        """*bag* has ended: count what it used, and hear whether its agent is there; halt when a budget is gone."""
        reason, agent = str(bag.get("reason") or ""), bag.get("agent") or {}
        if bag.get("status") == "failed" and reason in REASONS:
            self.narrator.halted(self.absences.note(agent, reason, str(bag.get("retry_at") or "")))
        elif bag.get("claim"):
            self.absences.back(agent)
        if reason == "budget":
            self.halt(str(bag.get("summary") or "a budget is used up").partition("; ")[0])
        self.count([bag])

    def count(self, bags: Iterable[Bag]) -> None:
        """Take what *bags* have used by now, ended or not."""
        if self.spending.limited:
            for bag in bags:
                self.spending.count(bag)
            self.halt_when_spent()

    def renew(self, bag: Bag) -> bool:
        """Give *bag*, which waits for a model's verdict, the share that it has by now; whether its record changed.

        So a higher limit lets go on what a lower one stopped, and what others use meanwhile is not spent twice.
        """
        share = self.spending.share(bag)
        asked = any(models_due(bag, role) for role in TEACHER_ROLES)
        if not asked or budget.renewed(bag, share) is bag:
            return False

        def change(now: Bag) -> dict[str, Any]:
            return dict(budget.renewed(now, share) if bookbag.bookbag_state(now) in WAITING else now)

        written = bookbag.update_bookbag(bag["bead"], change, by="conductor")
        if written is None or written["rev"] == bag["rev"]:
            return False
        if not budget.said(written):
            # A teacher that stands here need not wait for its next look.
            bookbag.BookbagSignal(bag["bead"]).ready()
        return True

    def halt_when_spent(self) -> None:
        if over := self.spending.over():
            self.halt(over)

    def halt(self, why: str) -> None:
        if not self.halted:
            self.halted = "budget"
            self.narrator.halted(f"{why}; nothing new is started. With a higher limit the next run goes on")

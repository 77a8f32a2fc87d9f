"""What a run says while it goes on: one line for each thing that a person would want to know, when it happens.

It reads records and keeps only what it has said already. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from school.contracts import TEACHER_ROLES
from school.settings import Settings
from school.supervisor.board import Bag, View, remarks, why_ended
from school.supervisor.plan import Plan
from school.supervisor.rounds import TaskState
from school.supervisor.screen import Row, Screen
from school.system import clock, confine, files


@dataclass(slots=True)
class Narrator:
    """Calling sequence: ``begun``, then ``show`` at each look and the others as things happen."""

    screen: Screen
    settings: Settings
    _verdicts: dict[str, str] = field(default_factory=dict)
    _since: dict[str, tuple[str, float]] = field(default_factory=dict)

    def begun(self, plan: Plan, run: str) -> None:
        many = f"{len(plan.tasks)} task{'s' if len(plan.tasks) != 1 else ''}"
        self.screen.say(f"run {run}: {many} on {plan.repository.path} at {plan.base_commit[:12]}")
        if plan.repository.dirty:
            self.screen.warn(f"{plan.repository.dirty} uncommitted change(s) are not included")
        if plan.config_left_out:
            self.screen.warn(
                "school.toml as it lies there does not count: only the one of the base commit does"
            )
        for remark in plan.remarks:
            self.screen.warn(remark)
        if plan.config.sandbox.mode == "auto" and not (found := confine.probe()).kind:
            self.screen.warn(f"agents and checks run unconfined: {found.why}")

    def round(self, number: int) -> None:
        self.screen.say(f"round {number}")

    def started(self, bag: Bag) -> None:
        agent = (bag.get("agent") or {}).get("name", "")
        told = len(bag.get("earlier_findings") or [])
        findings = f", with {told} finding(s) of earlier attempts" if told else ""
        self.screen.say(f"{bag['task_id']}: attempt {bag['attempt']} by {agent}{findings}  [{bag['bead']}]")

    def show(self, seen: Iterable[View]) -> None:
        """Say new verdicts, and draw what is in flight where there is a place for it."""
        rows = []
        for view in seen:
            self._say_verdicts(view.bag)
            if self.screen.live:
                rows.append(self._row(view))
        self.screen.show(rows)

    def ended(self, bag: Bag, state: TaskState) -> None:
        self._say_verdicts(bag)
        outcome = bag.get("outcome", "")
        well = outcome in ("accepted", "no_change")
        said = outcome if well else f"{outcome}: {why_ended(bag)}"
        known = remarks(bag) if well else ""
        branch = (bag.get("delivered") or {}).get("branch")
        self.screen.say(
            f"{state.id}: {said}"
            + (f" {known}" if known else "")
            + (f", branch {branch}" if branch else "")
            + (f"; more: show {bag['bead']}" if known else "")
        )

    def salvaged(self, bag: Bag) -> None:
        self.screen.say(
            f"{bag.get('task_id')}: its student is gone; {bag.get('summary') or 'nothing was lost'}"
        )

    def expired(self, state: TaskState, why: str) -> None:
        self.screen.say(f"{state.id}: not waited for any longer: {why}; the next run takes it up")

    def blocked(self, state: TaskState, why: str) -> None:
        self.screen.say(f"{state.id}: blocked: {why}")

    def lost(self, state: TaskState, why: str) -> None:
        self.screen.warn(f"{state.id}: the record of {state.in_flight} cannot be read: {why}")

    def stuck(self, state: TaskState, why: str) -> None:
        self.screen.warn(f"{state.id}: could not be finished: {why}; the next run tries again")

    def halted(self, why: str) -> None:
        self.screen.warn(why)

    # --- parts ----------------------------------------------------------------------------------------

    def _say_verdicts(self, bag: Bag) -> None:
        for role in TEACHER_ROLES:
            key, verdict = f"{role} {bag['bead']}", bag.get(f"{role}_verdict") or ""
            if verdict and self._verdicts.get(key) != verdict:
                self._verdicts[key] = verdict
                self.screen.say(f"{bag.get('task_id')}: {role} {verdict}")

    def _row(self, view: View) -> Row:
        bag = view.bag
        known, since = self._since.get(view.bead, ("", 0.0))
        if known != view.state:
            since = clock.monotonic()
            self._since[view.bead] = (view.state, since)
        return Row(
            task=str(bag.get("task_id", "")),
            attempt=f"{bag.get('attempt')}/{bag.get('max_attempts')}",
            agent=str((bag.get("agent") or {}).get("name", "")),
            state=view.state,
            step=self._step(view),
            since=since,
        )

    def _step(self, view: View) -> str:
        if view.state == "RUNNING":
            leaf = files.read_object(self.settings.processes_dir / f"{view.bead}.json") or {}
            return str(leaf.get("step", ""))
        doing = []
        for role in TEACHER_ROLES:
            record = files.read_object(self.settings.teachers_dir / f"{role}.json") or {}
            if record.get("bead") == view.bead:
                doing.append(f"{role}: {record.get('check') or record.get('state')}")
        return ", ".join(doing)

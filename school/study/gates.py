"""The gates at the end of a turn: verify-on-stop, coach, governor, handoff, in this order, each with its own budget.

``Gates(gates, guidance)`` is the ``gate`` that an agent's driver asks: the message of a further turn, or '' to let it
end. The first gate that has something to say and budget left is heard, and no other. A claim of ``blocked`` that says
why ends it at once. What a gate held, and whether the next turn followed it, is kept in *guidance*, with the answer
that the agent had given: that answer stays its answer, and no reminder is the user's word.

``StopGate`` asks for a check where ``school.verification.stop`` says that one is due; ``blocked`` is what the agent
named instead. ``CoachGate`` asks the coach. ``GovernorGate`` has a packet heard that came too late for the turn. ``HandoffGate`` reminds once of the result file
where it is missing or contradicts what lies there. No errors: the ledger's are the session's ``fault``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from school.contracts import Claim, TurnEnd
from school.study.advisers import Advisers
from school.study.evidence import SessionEvidence
from school.study.guidance import Guidance
from school.system import log
from school.verification import stop

HOLDS_MAX: Final = 3
REMINDERS_MAX: Final = 1
LOOK_BACK: Final = (
    "Automatic message, not a new task: before you end, read below how your session stands. "
    "Then take another way, or end as blocked and say what stopped you."
)

_log = log.get("study.gates")


class EndGate(Protocol):
    """One gate. ``ask`` gives a message or ''; ``followed`` whether the agent did as the last one said, if one can tell."""

    name: str
    budget: int

    def ask(self, turn: TurnEnd, given: int) -> str: ...

    def followed(self, turn: TurnEnd) -> bool | None: ...


class Gates:
    """The gates of one session, in order; asked once at the end of each turn."""

    def __init__(
        self, gates: Sequence[EndGate], guidance: Guidance, *, over: Callable[[], bool] = lambda: False
    ) -> None:
        self.gates = list(gates)
        self.guidance = guidance
        self.candidate = ""
        self._over = over
        self._given = {gate.name: 0 for gate in gates}
        self._open: tuple[EndGate, dict[str, Any]] | None = None

    def __call__(self, turn: TurnEnd) -> str:
        self.settle(turn)
        if self._over() or _says_why_it_is_blocked(turn.claim):
            return ""
        for gate in self.gates:
            given = self._given[gate.name]
            message = gate.ask(turn, given) if given < gate.budget or gate.name == StopGate.name else ""
            if message:
                return self._held(gate, turn, message)
            if isinstance(gate, StopGate) and gate.blocked:
                return ""
        return ""

    def _held(self, gate: EndGate, turn: TurnEnd, message: str) -> str:
        self._given[gate.name] += 1
        said = turn.claim.summary or turn.answer
        self.candidate = self.candidate or said
        entry = self.guidance.add(gate.name, "hold", message, turn=turn.turn, held=True, candidate=said)
        self._open = (gate, entry)
        _log.info("turn.held", gate=gate.name, turn=turn.turn, given=self._given[gate.name])
        return message

    def settle(self, turn: TurnEnd) -> None:
        """Tell the last hold whether it was followed; also at the end, when no gate is asked any more."""
        if self._open is not None:
            gate, entry = self._open
            entry["followed"], self._open = gate.followed(turn), None

    def given(self, name: str) -> int:
        """How often the gate *name* held."""
        return self._given.get(name, 0)


def _says_why_it_is_blocked(claim: Claim) -> bool:
    return claim.status == "blocked" and _says_why(claim)


def _says_why(claim: Claim) -> bool:
    return bool(claim.blockers or claim.summary)


class StopGate:
    """Verify-on-stop; see ``school.verification.stop``."""

    name = "verify_on_stop"
    budget = stop.NUDGES_MAX

    def __init__(self, evidence: SessionEvidence, *, recipe: str, scratch: Path, result_path: Path) -> None:
        self.evidence = evidence
        self.recipe = recipe
        self.scratch = scratch
        self.result_path = result_path
        self.blocked = ""
        self._checks = 0

    def ask(self, turn: TurnEnd, given: int) -> str:
        scene = stop.Scene(
            standing=self.evidence.standing(),
            edited=self.evidence.edited(),
            commands=self.evidence.commands,
            recipe=self.recipe,
            scratch=str(self.scratch),
            result_path=str(self.result_path),
            can_run_commands=turn.can_run_commands,
            claim=turn.claim,
        )
        decision = stop.decide(scene, given)
        self.blocked = decision.why if decision.action == "blocked" else ""
        self._checks = len(self.evidence.checks)
        _log.info("stop.decided", action=decision.action, why=decision.why, turn=turn.turn)
        return decision.message

    def followed(self, turn: TurnEnd) -> bool:
        """Whether a check was seen to end since."""
        del turn
        return len(self.evidence.checks) > self._checks


class CoachGate:
    """The coach, and whoever else listens to ``pre_verify``."""

    name = "coach"
    budget = HOLDS_MAX

    def __init__(self, advisers: Advisers) -> None:
        self.advisers = advisers

    def ask(self, turn: TurnEnd, given: int) -> str:
        return self.advisers.gate(turn, given)

    def followed(self, turn: TurnEnd) -> None:
        """Nobody but the coach can say."""
        del turn


class GovernorGate:
    """A packet that the agent has not heard when its turn ends: it comes below this, as at the beginning of any turn."""

    name = "governor"
    budget = REMINDERS_MAX

    def __init__(self, advisers: Advisers) -> None:
        self.advisers = advisers

    def ask(self, turn: TurnEnd, given: int) -> str:
        del given
        claim = turn.claim
        if self.advisers.untold is None or (claim.status in ("blocked", "failed") and _says_why(claim)):
            return ""
        return LOOK_BACK

    def followed(self, turn: TurnEnd) -> None:
        """The packet's own entry says it."""
        del turn


class HandoffGate:
    """The result file: missing, or at odds with what lies in the tree."""

    name = "handoff"
    budget = REMINDERS_MAX

    def __init__(self, evidence: SessionEvidence, result_path: Path, *, read_only: bool) -> None:
        self.evidence = evidence
        self.result_path = result_path
        self.read_only = read_only

    def ask(self, turn: TurnEnd, given: int) -> str:
        del given
        wrong = self._wrong(turn)
        if not wrong:
            return ""
        return (
            f"Automatic reminder, not a new task: {wrong}. Write the JSON object that was described to "
            f'{self.result_path}: {{"status": "done" | "no_change" | "blocked" | "failed", "summary": "...", "ac_met": '
            '["ids of met criteria"], "blockers": ["what stopped you"]}. Say what is so, change nothing else, and end.'
        )

    def _wrong(self, turn: TurnEnd) -> str:
        claim = turn.claim
        if not os.path.lexists(self.result_path) and claim == Claim():
            return "the result file is missing"
        if claim.status in ("blocked", "failed"):
            return "" if _says_why(claim) else f"the result file says {claim.status}, and not why"
        if claim.blockers:
            return f"the result file says {claim.status} and names blockers"
        changed = bool(self.evidence.changed())
        if claim.status == "no_change" and changed:
            return "the result file says no_change, and files were changed"
        if claim.status == "done" and not changed and not self.read_only and not self.evidence.fault:
            return "the result file says done, and no file was changed"
        return ""

    def followed(self, turn: TurnEnd) -> bool:
        """Whether nothing is wrong any more."""
        return not self._wrong(turn)

"""One student's session: evidence, advisers and gates, from before its agent begins until its record is written.

See the package for the calling sequence.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from school.agents.ending import AGENT, Ending
from school.contracts import (
    READ_ONLY_ROLES,
    Advice,
    AgentOutcome,
    AgentSpec,
    Claim,
    Terms,
    TurnEnd,
    Workspace,
)
from school.settings import Settings
from school.study.advisers import Advisers, Seat
from school.study.evidence import SessionEvidence, line_of
from school.study.gates import CoachGate, EndGate, Gates, GovernorGate, HandoffGate, StopGate
from school.study.guidance import Guidance
from school.verification.classify import OWN_VERIFY

VERIFY_COMMAND: Final = shlex.join([*OWN_VERIFY, "--json"])
FAULTS_MAX: Final = 20
# These tell of each tool call as it ends, and so do presets; what any other command line tool did is told by none.
LIVE_KINDS: Final = frozenset({"acp", "model"})
_OF_THE_AGENT: Final = ("", "exit", "interrupted")


class Study:
    """What stands beside the agent of one bead; a context, closed when its agent has ended."""

    def __init__(
        self,
        bag: Mapping[str, Any],
        workspace: Workspace,
        spec: AgentSpec,
        settings: Settings,
        *,
        result_path: Path,
        scratch: Path,
        stop: Callable[[], bool],
    ) -> None:
        self.bag = bag
        self.spec = spec
        self.advice = Advice.model_validate(bag.get("advice") or {})
        self.guidance = Guidance()
        terms = Terms.model_validate(bag.get("terms") or {})
        self.evidence = SessionEvidence(
            str(bag["bead"]),
            workspace.path,
            terms.verify,
            settings,
            live=spec.kind in LIVE_KINDS or bool(spec.preset),
            lives_on=spec.kind != "model",
        )
        seat = Seat(workspace.path, workspace.base_commit, spec.model, self.advice, settings, _task_of(bag))
        self.advisers = Advisers(seat, self.evidence, self.guidance)
        self.hooks = self.advisers.hooks
        self.tools = self.advisers.tools
        recipe = "" if self.evidence.commands else _recipe_of(workspace.path)
        self._stop_gate = StopGate(self.evidence, recipe=recipe, scratch=scratch, result_path=result_path)
        self.gate = Gates(self._gates(result_path), self.guidance, over=lambda: bool(self.advisers.stuck))
        self._stop = stop
        self._stuck = ""
        self._document: dict[str, Any] = {}

    def _gates(self, result_path: Path) -> list[EndGate]:
        read_only = self.bag.get("student") in READ_ONLY_ROLES
        others: list[EndGate] = [
            CoachGate(self.advisers),
            GovernorGate(self.advisers),
            HandoffGate(self.evidence, result_path, read_only=read_only),
        ]
        return [self._stop_gate, *others] if self.advice.on_stop else others

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.advisers.close()
        self.evidence.close()

    def cancelled(self) -> bool:
        """Whether the agent must end now: the leaf must, or the agent is stuck."""
        return self._stop() or bool(self.advisers.stuck)

    def urgent(self) -> bool:
        """Whether there is something that the agent should hear before its turn ends by itself."""
        return self.advisers.untold is not None

    # --- the end ------------------------------------------------------------------------------------------

    def ended(self, outcome: AgentOutcome) -> None:
        """Take down how the session stands, now that nothing of the agent runs any more.

        A leaf that must end has no time for that: its work is saved first, and nobody judges it.
        """
        if self._stop():
            return
        if self.spec.kind == "run" and not self.spec.chore and not outcome.reason:
            self.evidence.ran(line_of(self.spec.argv), exit_code=outcome.exit_code, output=outcome.output)
        self.gate.settle(TurnEnd(0, outcome.output, outcome.claim))
        self.advisers.settle()
        # One that was ended for another reason was not ended for this one.
        self._stuck = self.advisers.stuck if outcome.reason in _OF_THE_AGENT else ""
        self._document = self.evidence.document()

    def ending(self, ending: Ending) -> Ending:
        """Where the bead stands, given where its agent's end alone would leave it."""
        if self._stuck:
            return Ending("failed", "stuck")
        if self._stop_gate.blocked and ending.status == "open":
            return Ending("blocked", AGENT)
        return ending

    @property
    def why(self) -> str:
        """The sentence for where ``ending`` put the bead; '' where it left it."""
        return self._stuck or self._stop_gate.blocked

    def summary(self, claim: Claim, otherwise: str) -> str:
        """The summary of the work. What was answered to a reminder stands beside it, never in its place."""
        said, first = claim.summary or otherwise, self.gate.candidate
        if first and first not in said:
            said = f"{first}\nAfter a reminder: {said}"
        return said

    def told(self) -> str:
        """How the work stands verified, for the summary; '' where nothing was to verify."""
        status, words = self._document.get("status"), str(self._document.get("words") or "")
        return "" if status == "not_applicable" else words

    def usage(self) -> dict[str, Any]:
        """What was used beside the agent itself."""
        spent = self.advisers.coach_spent
        return {"coach": spent} if spent.get("calls") else {}

    def fields(self) -> dict[str, Any]:
        """What the bookbag keeps of the session."""
        guidance = self.guidance.entries()
        faults = self.advisers.faults[:FAULTS_MAX]
        return {
            "evidence": self._document,
            **({"guidance": guidance} if guidance else {}),
            **({"adviser_faults": faults} if faults else {}),
        }


def _task_of(bag: Mapping[str, Any]) -> str:
    """What was asked for, in the user's words."""
    criteria = (f"- {criterion.get('text')}" for criterion in bag.get("acceptance") or [])
    return "\n".join([str(bag.get("task") or ""), *criteria])


def _recipe_of(root: Path) -> str:
    """The command that runs the recipe of the project in *root*; '' where it has none."""
    from school.verification.detection import load_or_detect

    return VERIFY_COMMAND if load_or_detect(root).recipe is not None else ""

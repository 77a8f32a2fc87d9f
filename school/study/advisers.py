"""The hooks of one leaf: the session's evidence, the governor, the coach; and what of it the bookbag keeps.

``Advisers(seat, evidence, guidance)`` builds them as the bag's ``advice`` says; ``hooks`` is for the agent's driver. The
coach is there where ``[coach]`` names a model. ``stuck`` is a sentence once the agent went on past a governor's packet in
the same way, '' before; ``untold`` is the packet that it has yet to hear. ``gate`` is the coach's question at a turn's end, and that of whoever else listens to
``pre_verify``. ``settle()`` notes in the guidance what both have said, and what became of it. ``close()`` ends them all.

Advisers are fail-open: one that cannot even be built is a fault like any other, and is named in ``faults``. No errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from school import masking
from school.contracts import Advice, AgentSpec, AgentTool, TurnEnd
from school.errors import SchoolError
from school.hooks import Hooks
from school.settings import Settings
from school.study.evidence import SessionEvidence
from school.study.guidance import Guidance
from school.system import log

if TYPE_CHECKING:
    from school.coach import Coach
    from school.governor import Governor

# The first look at a large tree reads every file.
EVIDENCE_TIMEOUT_S: Final = 60.0
# Requests that fail are the endpoint's fault, and end in a reason of their own.
_OF_THE_ENDPOINT: Final = ["requests"]

_log = log.get("study.advisers")


@dataclass(frozen=True, slots=True)
class Seat:
    """Whose session it is: where it works, from which commit, on which model, for what, and what stands beside it."""

    folder: Path
    base: str
    model: str
    advice: Advice
    settings: Settings
    task: str = ""


class Advisers:
    """The advisers of one leaf."""

    def __init__(self, seat: Seat, evidence: SessionEvidence, guidance: Guidance) -> None:
        self.seat = seat
        self.evidence = evidence
        self.guidance = guidance
        self.hooks = Hooks(log=seat.settings.advisers_log)
        for name in ("post_tool_call", "pre_llm_call"):
            self.hooks.add("evidence", name, getattr(evidence, name), timeout_s=EVIDENCE_TIMEOUT_S)
        self._governor = self._govern()
        self.coach_spent: dict[str, Any] = {}
        self._coach = self._coached() if seat.advice.coach.get("model") else None

    def _govern(self) -> Governor | None:
        from school.governor import Governor

        try:
            # A leaf's agent has nobody to hand its work to; the next stronger agent comes after it.
            governor = Governor(self.seat.settings, table=self.seat.advice.governor, delegation=False)
        except (SchoolError, OSError) as error:
            self.hooks.faults.append(f"governor: not built: {error}")
            return None
        governor.listen(self.hooks)
        return governor

    def _coached(self) -> Coach | None:
        from school.agents.model.ask import asks
        from school.coach import Coach, read_terms

        try:
            terms = read_terms(self.seat.advice.coach)
            if not terms.enabled:
                return None
            spec = AgentSpec(name="coach", kind="model", model=terms.model, base_url=terms.base_url, api_key_env=terms.api_key_env)  # fmt: skip
            masking.learn(spec)
            coach = Coach(
                terms,
                asks(spec, environ=os.environ),
                folder=self.seat.folder,
                settings=self.seat.settings,
                session_id=self.evidence.session,
                primary_model=self.seat.model,
                base=self.seat.base,
                task=self.seat.task,
            )
        except (SchoolError, OSError) as error:
            self.hooks.faults.append(f"coach: not built: {error}")
            return None
        coach.listen(self.hooks, verify=False)
        return coach

    @property
    def tools(self) -> list[AgentTool]:
        """What the agent may be lent: the coach's two."""
        return self._coach.tools() if self._coach is not None else []

    @property
    def faults(self) -> list[str]:
        """What went wrong with advisers, and changed nothing."""
        return list(self.hooks.faults)

    @property
    def stuck(self) -> str:
        """Why the agent is stuck, past a packet that told it so; '' where it is not."""
        if self._governor is None or not self._governor.ignored(self.evidence.session):
            return ""
        packets = self._governor.packets(self.evidence.session)
        if not packets or packets[-1]["why"] == _OF_THE_ENDPOINT:
            return ""
        return f"stuck, and went on the same way after it was told so: {packets[-1]['because']}"

    @property
    def untold(self) -> dict[str, Any] | None:
        """The governor's packet that the agent has yet to hear, where it is stuck by its own doing."""
        packet = self._governor.due(self.evidence.session) if self._governor is not None else None
        return None if packet is None or packet["why"] == _OF_THE_ENDPOINT else packet

    def gate(self, turn: TurnEnd, given: int) -> str:
        """The message of a further turn, where files were changed and somebody does not want it to be the last."""
        changed = self.evidence.changed()
        if not changed:
            return ""
        if self._coach is not None and (message := self._coach.gate(turn)):
            return message
        return self.hooks.hold(
            session_id=self.evidence.session,
            platform="leaf",
            model=self.seat.model,
            coding=True,
            attempt=given,
            final_response=turn.answer,
            changed_paths=changed,
        )

    def settle(self) -> None:
        """Note what governor and coach have said, now that it is known what became of it."""
        packets = self._governor.packets(self.evidence.session) if self._governor else []
        for packet in [*packets, *([self.untold] if self.untold else [])]:
            entry = self.guidance.add("governor", "packet", str(packet["text"]), turn=packet["turn"])
            entry["became"] = packet["became"] or "open"
            entry["followed"] = {"ignored": False, "recovered": True, "delegated": True}.get(entry["became"])
        for told in self._coach_said():
            if told.get("kind") == "hold":  # its gate has noted that, without knowing what became of it
                self.guidance.mark("coach", "hold", followed=told.get("followed"))
                continue
            text = "\n".join(str(told[key]) for key in ("title", "body", "detail") if told.get(key))
            entry = self.guidance.add("coach", str(told.get("kind")), text, turn=int(told.get("turn") or 0))
            entry["followed"], entry["delivered"] = told.get("followed"), told.get("delivered")

    def _coach_said(self) -> list[Mapping[str, Any]]:
        if self._coach is None:
            return []
        try:
            self.coach_spent = self._coach.spent()
            return list(self._coach.guidance())
        except (SchoolError, OSError) as error:
            self.hooks.faults.append(f"coach: its notes could not be read: {error}")
            return []

    def close(self) -> None:
        """Tell nobody anything from now on, and let the governor write its line."""
        if self._coach is not None:
            self._coach.close()
        self.hooks.close()
        if self._governor is not None:
            try:
                self._governor.close()
            except (SchoolError, OSError) as error:
                _log.warning("governor.unreported", bead=self.evidence.session, why=str(error))

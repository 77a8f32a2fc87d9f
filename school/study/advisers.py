"""The hooks of one leaf: the session's evidence, the governor, the coach; and what of it the bookbag keeps.

``Advisers(…)`` builds them as the bag's ``advice`` says; ``hooks`` is for the agent's driver. ``stuck`` is a sentence once
the agent went on past a governor's packet in the same way, '' before. What the coach says to the agent is noted in the
guidance as it passes; ``settle()`` adds the governor's packets and what became of them. ``close()`` ends them all.

Advisers are fail-open: one that cannot even be built is a fault like any other, and is named in ``faults``. No errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from school.contracts import Advice
from school.errors import SchoolError
from school.hooks import Hooks
from school.settings import Settings
from school.study.evidence import SessionEvidence
from school.study.guidance import Guidance
from school.system import log

if TYPE_CHECKING:
    from school.governor import Governor

# The first look at a large tree reads every file.
EVIDENCE_TIMEOUT_S: Final = 60.0
LOG_NAME: Final = "advisers.jsonl"
# Requests that fail are the endpoint's fault, and end in a reason of their own.
_OF_THE_ENDPOINT: Final = ["requests"]

_log = log.get("study.advisers")


class Advisers:
    """The advisers of one leaf."""

    def __init__(
        self, evidence: SessionEvidence, guidance: Guidance, advice: Advice, settings: Settings
    ) -> None:
        self.hooks = Hooks(log=settings.logs_dir / LOG_NAME)
        self.guidance = guidance
        self.session = evidence.session
        for name in ("post_tool_call", "pre_llm_call"):
            self.hooks.add("evidence", name, getattr(evidence, name), timeout_s=EVIDENCE_TIMEOUT_S)
        self._governor = self._govern(advice, settings)

    def _govern(self, advice: Advice, settings: Settings) -> Governor | None:
        from school.governor import Governor

        try:
            # A leaf's agent has nobody to hand its work to; the next stronger agent comes after it.
            governor = Governor(settings, table=advice.governor, delegation=False)
        except (SchoolError, OSError) as error:
            self.hooks.faults.append(f"governor: not built: {error}")
            return None
        governor.listen(self.hooks)
        return governor

    @property
    def faults(self) -> list[str]:
        """What went wrong with advisers, and changed nothing."""
        return list(self.hooks.faults)

    @property
    def stuck(self) -> str:
        """Why the agent is stuck, past a packet that told it so; '' where it is not."""
        if self._governor is None or not self._governor.ignored(self.session):
            return ""
        packets = self._governor.packets(self.session)
        if not packets or packets[-1]["why"] == _OF_THE_ENDPOINT:
            return ""
        return f"stuck, and went on the same way after it was told so: {packets[-1]['because']}"

    def settle(self) -> None:
        """Note the governor's packets, now that it is known what became of them."""
        for packet in self._governor.packets(self.session) if self._governor else []:
            entry = self.guidance.add("governor", "packet", str(packet["text"]), turn=packet["turn"])
            entry["became"] = packet["became"] or "open"
            entry["followed"] = {"ignored": False, "recovered": True, "delegated": True}.get(entry["became"])

    def close(self) -> None:
        """Tell nobody anything from now on, and let the governor write its line."""
        self.hooks.close()
        if self._governor is not None:
            try:
                self._governor.close()
            except (SchoolError, OSError) as error:
                _log.warning("governor.unreported", bead=self.session, why=str(error))

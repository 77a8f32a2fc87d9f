"""The hooks of one leaf: the session's evidence, the governor, the coach; and what of it the bookbag keeps.

``Advisers(…)`` builds them as the bag's ``advice`` says; ``hooks`` is for the agent's driver. Whatever an adviser says to
the agent (below a user's message, in the place of a tool's result) is noted in the guidance as it passes. ``stuck``
turns to a sentence once the agent went on past a governor's packet without taking another way. ``close()`` ends them.

Advisers are fail-open: one that cannot even be built is a fault of the hooks like any other. No errors.
"""

from __future__ import annotations

from typing import Final

from school.hooks import Hooks
from school.settings import Settings
from school.study.evidence import SessionEvidence
from school.study.guidance import Guidance

# The first look at a large tree reads every file.
EVIDENCE_TIMEOUT_S: Final = 60.0
LOG_NAME: Final = "advisers.jsonl"


class Advisers:
    """The advisers of one leaf."""

    def __init__(self, evidence: SessionEvidence, guidance: Guidance, settings: Settings) -> None:
        self.hooks = Hooks(log=settings.logs_dir / LOG_NAME)
        self.guidance = guidance
        self.stuck = ""
        for name in ("post_tool_call", "pre_llm_call"):
            self.hooks.add("evidence", name, getattr(evidence, name), timeout_s=EVIDENCE_TIMEOUT_S)

    def close(self) -> None:
        """Tell nobody anything from now on."""
        self.hooks.close()

"""A further turn, which only a gate asks for: whether it is begun, and that it takes nothing away.

``ask(job, ended, deadline)`` gives the message of the turn that follows *ended*, '' for none, and a note where there could
be none for want of time: of the time that all turns share, ``LEAST_SHARE`` must be left. ``broke_off(finished, reason, detail)``
is the note on what went wrong after *finished* turns had ended, where the agent ends as the last of them had ended; '' for none of
that: no turn had ended, or the reason ends everything whatever was done (``ENDS_ALL``: the leaf must end, the disk is full).

What the turn that broke off did to the tree is in the tree, which is judged like any other. Pure but for the gate and the clock.
"""

from __future__ import annotations

from typing import Final

from school.agents.process import Job
from school.contracts import TurnEnd, bounded
from school.system import clock

LEAST_SHARE: Final = 0.1
ENDS_ALL: Final = frozenset({"interrupted", "disk_full"})
_DETAIL_BYTES_MAX: Final = 1000


def ask(job: Job, ended: TurnEnd, deadline: float) -> tuple[str, str]:
    """The message of a further turn, and what is to be noted where none can be begun."""
    if late := _too_late(job, deadline):
        return "", late
    message = job.gate(ended)
    if message and (late := _too_late(job, deadline)):
        return "", late
    return message, ""


def _too_late(job: Job, deadline: float) -> str:
    left_s, limit_s = max(0.0, deadline - clock.monotonic()), job.time_limit_s
    if left_s >= limit_s * LEAST_SHARE:
        return ""
    return f"no further turn: of the {limit_s:g} s for all turns {left_s:.1f} s were left"


def broke_off(finished: int, reason: str, detail: str) -> str:
    """The note on a *reason* that came after *finished* turns; '' where it decides how the agent ended."""
    if not finished or not reason or reason in ENDS_ALL:
        return ""
    why = bounded(detail, _DETAIL_BYTES_MAX)
    return (
        f"turn {finished} had ended, and what only a reminder asked for takes nothing away: {reason}: {why}"
    )

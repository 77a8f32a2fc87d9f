"""Agents of kind ``run``: a plain command or a chore, with no model and no prompt.

``run_plain(job)`` runs the argv as it is, nothing replaced in it, stdin empty, within ``command_timeout_s``. A chore
writes its own claim; a plain command may, and counts as ``done`` otherwise. Its exit status is kept and decides
nothing by itself: many tools end with 1 because something is left to do, and what they did is in the tree.
"""

from __future__ import annotations

from school.agents.process import Job
from school.contracts import AgentOutcome


def run_plain(job: Job) -> AgentOutcome:
    """Run a command or a chore to its end."""
    return job.run(job.spec.argv, stdin=b"", timeout_s=job.spec.timeout_s or job.limits.command_timeout_s)

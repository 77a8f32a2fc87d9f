"""Agents: what does the work of a bead, behind one call.

``run_agent`` starts the agent that an AgentSpec describes, in its own process session in the leaf's worktree, waits
within the limits of the bag, ends its whole process tree, and says how it went: an AgentOutcome. The work is in the
tree, whatever the outcome says. It does not touch bag, flags or git.

Every agent gets the reduced environment of the contract (nothing of GIT_*; TMPDIR, SCHOOL_BEAD, SCHOOL_BRIEF,
SCHOOL_RESULT; the user's PATH with our tools behind it; the further variables that its configuration names).
``notes`` of the outcome tell what was odd but no failure. Errors: MachineError where our own files cannot be written.
How an agent fails is an outcome, never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from school.contracts import (
    AgentOutcome,
    AgentSpec,
    AgentTool,
    Brief,
    Gate,
    Limits,
    Progress,
    TurnEnd,
    Workspace,
)
from school.hooks import Hooks
from school.settings import Settings
from school.system.confine import Policy

__all__ = ["run_agent"]


def run_agent(  # noqa: PLR0913 - everything that a run needs, each a thing of its own
    spec: AgentSpec,
    *,
    workspace: Workspace,
    bag: Mapping[str, Any],
    brief_path: Path,
    result_path: Path,
    tmpdir: Path,
    output_dir: Path,
    settings: Settings,
    progress: Progress,
    cancelled: Callable[[], bool],
    hooks: Hooks | None = None,
    gate: Gate | None = None,
    confinement: Policy | None = None,
    tools: Sequence[AgentTool] = (),
    urgent: Callable[[], bool] = bool,
) -> AgentOutcome:
    """Run the agent *spec* to its end in *workspace* and say how it ended.

    *hooks* is told of turns and tool calls as far as they can be seen; *gate* is asked at the end of each turn whether
    another is due, where the agent can take one. It runs within *confinement*; None confines nothing. The built-in loop is
    lent *tools*; other agents have only their own. *urgent* says whether the advisers have something to say that should not
    wait for the end of a turn: one over ACP is then told to break it off.
    """
    from school.agents.process import Job
    from school.agents.run import run_plain

    job = Job(
        spec=spec,
        bead=str(bag["bead"]),
        limits=Limits.model_validate(bag.get("limits") or {}),
        folder=workspace.path,
        brief_path=brief_path,
        result_path=result_path,
        tmpdir=tmpdir,
        output_dir=output_dir,
        settings=settings,
        progress=progress,
        cancelled=cancelled,
        hooks=hooks or Hooks(),
        gate=gate or _ends,
        confinement=confinement,
        tools=tools,
        urgent=urgent,
    )
    if spec.kind == "run":
        return run_plain(job)
    brief = Brief.model_validate_json(brief_path.read_bytes())
    if spec.kind == "command":
        from school.agents.command import run_command

        return run_command(job, brief)
    if spec.kind == "model":
        from school.agents.model.run import run_model

        return run_model(job, brief)
    from school.agents.acp import run as acp

    return acp.run_acp(job, brief)


def _ends(_turn: TurnEnd) -> str:
    """The gate that lets every turn be the last."""
    return ""

"""What a new bead's record holds: one task, one attempt, complete, so that leaf and teachers need nothing else.

Pure but for the random part of the name. The conductor writes the record before the leaf exists; whoever finds it
later can tell from it alone what was asked, of whom, from which commit, and what would count as good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import bookbag
from school.agents.chores import CHORES
from school.confinement import available
from school.contracts import UNCHARGED_REASONS, Advice, AgentSpec, Limits, SandboxTerms, Terms, bounded, dump
from school.governor import packet
from school.supervisor.plan import Plan
from school.tasks import Task

FINDINGS_MAX: Final = 100
PATHS_SHOWN: Final = 20
TRIED_BYTES: Final = 4000

Finding = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that is about to begin."""

    number: int
    base_commit: str
    agent: AgentSpec
    earlier_findings: list[Finding]
    budget: Mapping[str, Any]


def compose(plan: Plan, task: Task, attempt: Attempt, run: str) -> dict[str, Any]:
    """The fields of a new record, ``bead`` among them."""
    return {
        "bead": bookbag.bead_name(task.student_role, task.domain),
        "status": "running",
        "task": task.task,
        "student": task.student_role,
        "domain": task.domain,
        "difficulty": task.difficulty,
        "task_id": task.id,
        "task_digest": task.digest,
        "attempt": attempt.number,
        "max_attempts": task.max_attempts,
        "run": run,
        "repo": str(plan.repository.path),
        "repo_key": plan.repository.key,
        "base_commit": attempt.base_commit,
        "acceptance": [dump(criterion) for criterion in task.criteria],
        "agent": dump(attempt.agent),
        "confinement": available(SandboxTerms(**plan.config.sandbox.model_dump())),
        "terms": dump(terms(plan, task)),
        "limits": dump(limits(plan, attempt.budget)),
        "advice": dump(advice(plan)),
        "earlier_findings": attempt.earlier_findings,
    }


def terms(plan: Plan, task: Task) -> Terms:
    """Everything that affects the verdict and is not the change itself."""
    preserve = list(task.preserve)
    if task.chore:
        preserve += [what for what in CHORES[task.chore].preserve if what not in preserve]
    own = {
        "allow": list(task.allow),
        "preserve": preserve,
        "require_exercised": task.require_exercised,
        "chore": task.chore,
        **({"verify": []} if task.verify is False else {}),
    }
    return repository_terms(plan).model_copy(update=own)


def repository_terms(plan: Plan) -> Terms:
    """What holds for every change to this repository."""
    config = plan.config
    return Terms(
        verify=plan.verify,
        verify_timeout_s=config.verify.timeout_s,
        setup=plan.setup,
        setup_timeout_s=config.setup.timeout_s,
        copy_files=config.setup.copy_files,
        submodules=config.setup.submodules,
        keep=config.setup.keep,
        sandbox=SandboxTerms(**config.sandbox.model_dump()),
        reviewers=plan.reviewers,
    )


def advice(plan: Plan) -> Advice:
    """What stands beside the agent of a leaf."""
    config, settings = plan.config, plan.settings
    on_stop = config.verify.on_stop if settings.verify_on_stop is None else settings.verify_on_stop
    return Advice(
        on_stop=on_stop,
        governor=config.governor.model_dump(exclude_none=True),
        coach=config.coach.model_dump(exclude_unset=True),
    )


def limits(plan: Plan, budget: Mapping[str, Any]) -> Limits:
    """The limits of one leaf; *budget* is what is left of the run's tokens and cost."""
    configured = plan.config.limits
    return Limits(
        startup_timeout_s=configured.startup_timeout_s,
        stall_timeout_s=configured.stall_timeout_s,
        agent_timeout_s=configured.agent_timeout_s,
        command_timeout_s=configured.command_timeout_s,
        output_bytes=configured.output_bytes,
        **budget,
        memory_bytes=configured.memory_bytes,
        processes=configured.processes,
        disk_bytes=configured.disk_bytes,
    )


def earlier_findings(bags: Iterable[Mapping[str, Any] | None], agent: str = "") -> list[Finding]:
    """What the attempts before this one were told, newest first, each once; a failure of its own counts too.

    What another than *agent* tried is told as well: whoever goes next does not remember it.
    """
    found: dict[tuple[str, str, str], Finding] = {}
    for bag in bags:
        told = (
            [*_failure(bag), *_stood(bag), *(bag.get("findings") or []), *_tried(bag, agent)] if bag else []
        )
        for finding in told:
            found.setdefault((finding["section"], finding["issue_class"], finding["description"]), finding)
    return list(found.values())[:FINDINGS_MAX]


def _failure(bag: Mapping[str, Any]) -> list[Finding]:
    """Why an attempt ended without a result."""
    if bag.get("status") != "failed" or bag.get("reason") in UNCHARGED_REASONS:
        return []
    reason = str(bag.get("reason") or "failed")
    said = bag.get("summary") or bag.get("reason") or "no reason is known"
    text = f"An earlier attempt ended without a result: {said}"
    return [_finding("leaf", "HIGH", reason, text)]


def _stood(bag: Mapping[str, Any]) -> list[Finding]:
    """What the governor saw an attempt try that came out of it no more, whether or not it could still be told."""
    stood = "" if bag.get("reason") in UNCHARGED_REASONS else _packet(bag)
    text = f"What an earlier attempt had tried when it was stuck:\n{stood}"
    return [_finding("leaf", "LOW", "stuck", bounded(text, TRIED_BYTES))] if stood else []


def _packet(bag: Mapping[str, Any]) -> str:
    """The last packet of the governor, without its marks and its advice to whoever was stuck; '' for who got out."""
    packets = [entry for entry in bag.get("guidance") or [] if entry.get("what") == "packet"]
    text = str(packets[-1].get("text") or "") if packets and packets[-1].get("followed") is not True else ""
    for mark in (packet.BEGIN, packet.END):
        text = text.replace(mark, "")
    return text.partition(packet.ADVICE)[0].strip()


def _tried(bag: Mapping[str, Any], agent: str) -> list[Finding]:
    """What another agent did, in its own words."""
    by = str((bag.get("agent") or {}).get("name") or "")
    if by == agent or not agent or bag.get("reason") in UNCHARGED_REASONS or bag.get("status") == "failed":
        return []
    changed = ", ".join((bag.get("files_changed") or [])[:PATHS_SHOWN]) or "nothing"
    text = f"{by} tried before, and was {bag.get('outcome')}. It changed {changed}; its words: {bag.get('summary')}"
    return [_finding("attempt", "LOW", "tried", bounded(text, TRIED_BYTES))]


def _finding(section: str, severity: str, issue_class: str, description: str) -> Finding:
    said = {"section": section, "severity": severity, "issue_class": issue_class, "description": description}
    return {**said, "citation": "", "suggestion": ""}

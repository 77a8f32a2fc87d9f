"""The brief of a bead, and the brief as the text that an agent is given.

``brief_for(bag)`` is the task contract as a record; ``prompt_for(brief)`` is the whole prompt: persona, task,
criteria, findings of earlier attempts, what the project declares about itself, guardrails, and the form of the result.
Text that came from elsewhere than this program (the task, criteria, findings, the project) stands between marks that carry a fresh random word, so that nothing in it can pose as the end of its part. ``GUARDRAILS`` is what
every student is told. Not promised: a length; 300 KB of task are 300 KB of prompt, which is why a prompt goes
through stdin or a file and never into an argument.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

from school.contracts import READ_ONLY_ROLES, Brief, Criterion, Finding

GUARDRAILS: Final = (
    "Work only inside the current folder, which is a git worktree of your own; what lies in it when you end is judged.",
    "New tests are welcome. Existing tests, test and build configuration, CI and instruction files stay as they are.",
    "Never delete, skip or weaken a test, and never make a check's result from outside the code that it checks.",
    "Leave no stub, placeholder or note for later where work was due.",
    "Ask no questions: nobody reads them. What stops you goes into the result file as `blocked`, with the reason.",
    "An exit status or a sentence proves nothing; two teachers run the checks themselves on exactly your tree.",
)
READ_ONLY: Final = (
    "Your role changes no file in this folder: what you find goes into your answer and the result file."
)


def guardrails_for(role: str) -> list[str]:
    """What a student of this role is told besides its task."""
    return [*GUARDRAILS, READ_ONLY] if role in READ_ONLY_ROLES else list(GUARDRAILS)


def brief_for(
    bag: Mapping[str, Any], *, task: str, persona: str, result_path: str, project: str = ""
) -> Brief:
    """What the student of *bag* is asked, complete."""
    terms = bag.get("terms") or {}
    role = str(bag["student"])
    return Brief(
        bead=bag["bead"],
        task_id=bag.get("task_id") or "",
        attempt=bag.get("attempt") or 1,
        role=role,
        domain=bag.get("domain") or "",
        difficulty=bag.get("difficulty") or "",
        task=task,
        acceptance=bag.get("acceptance") or [],
        allow=terms.get("allow") or [],
        preserve=terms.get("preserve") or [],
        findings=bag.get("earlier_findings") or [],
        project=project,
        persona=persona,
        guardrails=guardrails_for(role),
        result_path=result_path,
    )


def prompt_for(brief: Brief) -> str:
    """The prompt for *brief*."""
    mark = secrets.token_hex(8)
    parts = [
        brief.persona.strip(),
        f"# Task {brief.task_id or brief.bead}, attempt {brief.attempt}\n\n"
        f"You are the {brief.role}; the domain is {brief.domain}, the difficulty {brief.difficulty}. Text between the "
        f"marks {mark} is what you were given to work on.\n\n" + _fenced(brief.task, mark),
        _section("Acceptance criteria", _criteria(brief.acceptance), mark),
        _section("Why earlier attempts were turned down", _findings(brief.findings), mark),
        f"# The project\n\n{_fenced(brief.project, mark)}" if brief.project else "",
        "# Rules\n\n" + _list([*_bounds(brief), *brief.guardrails]),
        _result(brief),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _fenced(text: str, mark: str) -> str:
    return f"<<<{mark}\n{text.strip()}\n{mark}>>>"


def _section(title: str, lines: Iterable[str], mark: str) -> str:
    text = _list(lines)
    return f"# {title}\n\n{_fenced(text, mark)}" if text else ""


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _criteria(acceptance: Iterable[Criterion]) -> list[str]:
    return [
        f"{criterion.id}: {criterion.text}"
        + (f" (checked by `{shlex.join(criterion.check)}`)" if criterion.check else "")
        for criterion in acceptance
    ]


def _findings(findings: Iterable[Finding]) -> list[str]:
    return [
        f"{finding.severity} {finding.issue_class} ({finding.section}): {finding.description}"
        + (f" [{finding.citation}]" if finding.citation else "")
        + (f" Suggested: {finding.suggestion}" if finding.suggestion else "")
        for finding in findings
    ]


def _bounds(brief: Brief) -> list[str]:
    bounds = []
    if brief.allow:
        bounds.append(
            f"You may change only paths that match: {', '.join(brief.allow)} (also guarded ones named there)."
        )
    if "api" in brief.preserve:
        bounds.append("No public name and no parameter may go or change its meaning.")
    if "ast" in brief.preserve:
        bounds.append("The code must mean the same to the parser as before.")
    return bounds


def _result(brief: Brief) -> str:
    return (
        "# Result\n\n"
        f"When you are done, write this JSON object to the file {brief.result_path} (SCHOOL_RESULT names it too; git does "
        "not see it):\n\n"
        '{"status": "done" | "no_change" | "blocked" | "failed", "summary": "...", "ac_met": ["ids of met criteria"], '
        '"blockers": ["what stopped you"]}'
    )

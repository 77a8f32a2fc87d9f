"""Agents of kind ``command``: any command line tool that takes a prompt and works in the current folder.

``run_command(job, brief)`` gives the prompt on stdin or in a file, never as an argument (those end at 128 KiB), and
replaces ``{prompt_file}``, ``{brief}``, ``{result}`` and ``{model}`` in argv. The file lies beside the brief, inside
the worktree and invisible to git, because some agents may not read elsewhere. The prompt is kept with the output.
"""

from __future__ import annotations

from pathlib import Path

from school.agents.process import Job
from school.agents.prompt import prompt_for
from school.contracts import AgentOutcome, Brief
from school.system import files

PROMPT_NAME = "prompt.md"


def run_command(job: Job, brief: Brief) -> AgentOutcome:
    """Give the agent its prompt and run it to its end."""
    prompt = prompt_for(brief).encode("utf-8", "backslashreplace")
    files.write_atomic(job.output_dir / PROMPT_NAME, prompt)
    prompt_file = job.brief_path.with_suffix(".md")
    if job.spec.prompt == "file":
        files.write_atomic(prompt_file, prompt)
    stdin = prompt if job.spec.prompt == "stdin" else b""
    timeout_s = job.spec.timeout_s or job.limits.agent_timeout_s
    return job.run(_filled(job, prompt_file), stdin=stdin, timeout_s=timeout_s)


def _filled(job: Job, prompt_file: Path) -> list[str]:
    values = {
        "{prompt_file}": str(prompt_file),
        "{brief}": str(job.brief_path),
        "{result}": str(job.result_path),
        "{model}": job.spec.model,
    }
    return [_replaced(argument, values) for argument in job.spec.argv]


def _replaced(argument: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        argument = argument.replace(name, value)
    return argument

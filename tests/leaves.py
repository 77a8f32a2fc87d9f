"""Helpers for tests of leaves: a bead as a conductor would write it, and its leaf as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import bookbag
from school.agents import registry
from school.contracts import AgentConfig, AgentSpec, ProjectConfig, dump
from school.settings import Settings
from school.worktrees import SchoolClone, inspect_repository
from tests.support import ROOT, git


def script(code: str, *, kind: str = "run", **fields: Any) -> AgentSpec:
    """A Python program as an agent."""
    argv = [sys.executable, "-c", code]
    return AgentSpec(name="script", kind=kind, argv=argv, **{"prompt": "none", **fields})


def demo(behaviour: str) -> AgentSpec:
    return registry.resolve(f"demo-{behaviour}", ProjectConfig())


def configured(**fields: Any) -> AgentSpec:
    return registry.resolve("mine", ProjectConfig(agents={"mine": AgentConfig(**fields)}))


def new_bead(repo: Path, agent: AgentSpec | None, **fields: Any) -> str:
    """A bookbag with status running on HEAD of *repo*, its base in the school clone; the bead's name."""
    repository = inspect_repository(repo)
    SchoolClone.open(repository, commits=[repository.head_commit])
    bead = bookbag.bead_name(fields.get("student", "coder"), "python-coding")
    bag = {
        "task": "Do it.\n\nAll of it.",
        "student": "coder",
        "domain": "python-coding",
        "difficulty": "easy",
        "task_id": "do-it",
        "repo": str(repository.path),
        "repo_key": repository.key,
        "base_commit": repository.head_commit,
        "agent": dump(agent) if agent else None,
        "status": "running",
        **fields,
    }
    bookbag.write_bookbag(bead, **bag)
    return bead


def environment(settings: Settings, **extra: str) -> dict[str, str]:
    return {**os.environ, **settings.environment(), "PYTHONDONTWRITEBYTECODE": "1", **extra}


def start(bead: str, settings: Settings, **extra: str) -> subprocess.Popen[str]:
    """``python leaf.py --bead BEAD`` as a process in a session of its own."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "leaf.py"), "--bead", bead],
        env=environment(settings, **extra),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(
    bead: str, settings: Settings, *, status: int = 0, timeout_s: float = 60, **extra: str
) -> dict[str, Any]:
    """Run the leaf to its end; the bookbag as it is then."""
    process = start(bead, settings, **extra)
    out, err = process.communicate(timeout=timeout_s)
    assert process.returncode == status, out + err
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    return bag


def clone_of(bag: dict[str, Any], settings: Settings) -> Path:
    return settings.clones_dir / f"{bag['repo_key']}.git"


def content(bag: dict[str, Any], settings: Settings, path: str) -> str:
    """A file of the bead's result, as text."""
    return git(clone_of(bag, settings), "cat-file", "blob", f"{bag['head_commit']}:{path}")

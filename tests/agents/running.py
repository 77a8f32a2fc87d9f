"""Helpers for tests of agents: one run of an agent in a folder of its own, without leaf, git or bookbag file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from school.agents import run_agent
from school.agents.prompt import brief_for
from school.contracts import AgentOutcome, AgentSpec, Gate, Workspace, dump
from school.hooks import Hooks
from school.settings import Settings
from school.system import files

BEAD = "coder-python-a1b2c3d4"


@dataclass
class Place:
    """Where an agent runs; ``run`` runs one there."""

    root: Path
    settings: Settings
    hooks: Hooks = field(default_factory=Hooks)

    @property
    def tree(self) -> Path:
        return self.root / "tree"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def brief_path(self) -> Path:
        return self.tree / ".hermes" / "briefs" / f"{BEAD}.json"

    @property
    def result_path(self) -> Path:
        return self.tree / ".hermes" / "outputs" / f"{BEAD}.result.json"

    def run(
        self,
        spec: AgentSpec,
        *,
        task: str = "Do it.",
        gate: Gate | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        **limits: Any,
    ) -> AgentOutcome:
        for folder in (self.brief_path.parent, self.result_path.parent):
            folder.mkdir(parents=True, exist_ok=True)
        bag = {
            "bead": BEAD,
            "student": "coder",
            "limits": {"agent_timeout_s": 60.0, **limits},
        }
        brief = brief_for(bag, task=task, persona="You code.", result_path=str(self.result_path))
        files.write_json(self.brief_path, dump(brief))
        return run_agent(
            spec,
            workspace=Workspace(
                bead=BEAD,
                path=self.tree,
                git_dir=self.root / "bead.git",
                clone=self.root / "clone.git",
                repo=self.root / "repo",
                repo_key="repo-00000000",
                base_commit="0" * 40,
            ),
            bag=bag,
            brief_path=self.brief_path,
            result_path=self.result_path,
            tmpdir=self.root / "scratch",
            output_dir=self.outputs,
            settings=self.settings,
            progress=lambda _step: None,
            cancelled=cancelled,
            hooks=self.hooks,
            gate=gate,
        )


def scripted(code: str, **fields: Any) -> AgentSpec:
    """A Python program as an agent of kind command."""
    return AgentSpec(name="fake", kind="command", argv=[sys.executable, "-c", code], **fields)

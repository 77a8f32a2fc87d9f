"""Drive an agent in a small repository as a leaf does, without one: run_agent, hooks that note, a gate that counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from school.agents import run_agent
from school.agents.prompt import brief_for
from school.contracts import AgentOutcome, AgentSpec, Gate, TurnEnd, Workspace, dump
from school.hooks import NAMES, Hooks
from school.settings import Settings
from school.system import files


@dataclass
class Drive:
    """One run: where it works, what its hooks heard, what its gate was asked."""

    repo: Path
    settings: Settings
    base: Path
    limits: dict[str, Any] = field(default_factory=dict)
    role: str = "coder"
    task: str = "Write notes.txt."
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    turns: list[TurnEnd] = field(default_factory=list)
    holds: list[str] = field(default_factory=list)
    context: str = ""
    rewrite: Callable[[str], str] | None = None
    cancelled: Callable[[], bool] = field(default=lambda: False)
    urgent: Callable[[], bool] = field(default=lambda: False)

    @property
    def output(self) -> Path:
        return self.base / "output"

    @property
    def result(self) -> Path:
        return self.base / "hidden" / "bead-1.result.json"

    def hooks(self) -> Hooks:
        hooks = Hooks()
        for name in NAMES:
            hooks.add("test", name, self._listener(name))
        return hooks

    def _listener(self, name: str) -> Callable[..., object]:
        def listen(**event: Any) -> object:
            self.heard.append((name, event))
            if name == "pre_llm_call":
                return {"context": self.context} if self.context else None
            if name == "transform_tool_result" and self.rewrite is not None:
                return self.rewrite(event["result"])
            return None

        return listen

    def gate(self) -> Gate:
        waiting = list(self.holds)

        def gate(turn: TurnEnd) -> str:
            self.turns.append(turn)
            return waiting.pop(0) if waiting else ""

        return gate

    def run(self, spec: AgentSpec) -> AgentOutcome:
        bag = {"bead": "bead-1", "student": self.role, "task_id": "notes", "limits": self.limits}
        self.result.parent.mkdir(parents=True, exist_ok=True)
        brief = brief_for(bag, task=self.task, persona="You are careful.", result_path=str(self.result))
        brief_path = self.base / "hidden" / "bead-1.json"
        files.write_json(brief_path, dump(brief))
        workspace = Workspace("bead-1", self.repo, self.repo / ".git", self.repo, self.repo, "calc", "")
        return run_agent(
            spec,
            workspace=workspace,
            bag=bag,
            brief_path=brief_path,
            result_path=self.result,
            tmpdir=self.base / "scratch",
            output_dir=self.output,
            settings=self.settings,
            progress=lambda _step: None,
            cancelled=self.cancelled,
            hooks=self.hooks(),
            gate=self.gate(),
            urgent=self.urgent,
        )

    # --- what came of it --------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return [name for name, _ in self.heard]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for heard, event in self.heard if heard == name]

    def transcript(self) -> list[dict[str, Any]]:
        lines = (self.output / "transcript.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

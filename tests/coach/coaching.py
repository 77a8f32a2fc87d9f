"""What the coach's tests share: a model that says what a script says, a session driven through the hooks, git work."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from school.coach import Coach, read_terms
from school.contracts import Answer
from school.hooks import Hooks
from school.settings import Settings

OK = json.dumps({"verdict": "ok"})


def finding(
    title: str = "Tests were not run", severity: str = "corrective", body: str = "Run them.", **more: str
) -> str:
    """A model's answer that is a finding."""
    return json.dumps({"verdict": "finding", "severity": severity, "title": title, "body": body, **more})


class Model:
    """Answers calls in order, the last answer for ever; keeps what it was asked. A callable answers by the prompt."""

    def __init__(
        self, *answers: str | Answer | Callable[[str], str | Answer], model: str = "openai:coach-large"
    ) -> None:
        self.model = model
        self.answers = list(answers) or [OK]
        self.calls: list[tuple[str, str, float]] = []
        self._lock = threading.Lock()

    def __call__(self, system: str, prompt: str, *, timeout_s: float) -> Answer:
        with self._lock:
            answer = self.answers[min(len(self.calls), len(self.answers) - 1)]
            self.calls.append((system, prompt, timeout_s))
        said = answer(prompt) if callable(answer) else answer
        if isinstance(said, Answer):
            return said
        usage = {"requests": 1, "input_tokens": 100, "output_tokens": 20, "cost_usd": 0.01}
        return Answer(text=said, model=self.model, usage=usage)

    def kinds(self) -> list[str]:
        """Which review each call was."""
        return [kind_of(system) for system, _, _ in self.calls]


def kind_of(system: str) -> str:
    """Which review a call of the coach's model is, by what only its system text says."""
    marks = {
        "how the session is going": "active",
        "says that it is finished": "completion",
        "about to begin": "pre",
        "asks for advice": "consult",
        "choose one of its options": "decide",
    }
    return next(kind for mark, kind in marks.items() if mark in system)


class Session:
    """A host: one agent session whose turns go through real hooks to a real coach."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        model: Model | None,
        table: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        self.hooks = Hooks(log=settings.logs_dir / "advisers.jsonl")
        self.coach = Coach(read_terms(table or {}), model, folder=folder, settings=settings, **more)
        self.coach.listen(self.hooks)
        self.number = 0

    def begin(self, text: str = "Please fix add.", *, session_id: str = "s1", **more: Any) -> str:
        """A turn's beginning; what is put below the user's message."""
        self.number += 1
        event = {"turn_id": f"t{self.number}", "user_message": text, "model": "small", "is_first_turn": False}
        return self.hooks.context(session_id=session_id, **{**event, **more})

    def tool(self, name: str = "terminal", *, session_id: str = "s1", **args: Any) -> None:
        result = json.dumps({"output": "did it", "exit_code": 0, "error": None})
        self.hooks.fire(
            "post_tool_call", tool_name=name, args=args, result=result, session_id=session_id, status="ok"
        )

    def verify(self, answer: str = "Done.", *, session_id: str = "s1", **more: Any) -> str:
        return self.hooks.hold(
            session_id=session_id, final_response=answer, attempt=1, changed_paths=[], **more
        )

    def end(self, answer: str = "Done.", *, session_id: str = "s1") -> None:
        """A turn's end; the background has done its work when this returns."""
        self.hooks.fire(
            "post_llm_call", session_id=session_id, assistant_response=answer, turn_id=f"t{self.number}"
        )
        assert self.coach.idle(20), "the background review has not ended"
        self.hooks.fire("on_session_end", session_id=session_id, completed=True)

    def turn(self, text: str = "Please fix add.", *, session_id: str = "s1") -> str:
        """A whole turn without a gate."""
        context = self.begin(text, session_id=session_id)
        self.tool(command="ls", session_id=session_id)
        self.end(session_id=session_id)
        return context

    def close(self) -> None:
        self.coach.close()
        self.hooks.close()


def titles(rows: Sequence[dict[str, Any]], kind: str) -> list[str]:
    """What was advised as *kind*."""
    return [str(row.get("title")) for row in rows if row["kind"] == kind]

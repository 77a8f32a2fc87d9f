"""What governor and coach cost a session: per tool call and per turn, against the same hooks with nobody there.

The model of the coach answers at once, so what is measured is everything but its calls: the seam's threads, the counting,
the ledger on the disk, the look at HEAD, the governor's line. Results are of two sizes; the conversation is a long one.
Beside the time stands the processor time, children's and the background's included, which a busy machine does not change.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import SHORT, Goals, alternated, percentile, scratch
from school.coach import Coach, read_terms
from school.contracts import Answer
from school.governor import Governor
from school.hooks import Hooks
from school.settings import Settings

CALLS = 100 if SHORT else 1000
TURNS = 20 if SHORT else 100
HISTORY = [
    {"role": "user" if number % 2 == 0 else "assistant", "content": "word " * 200} for number in range(200)
]
_numbers = itertools.count(1)


class Instant:
    """A model that finds nothing, at once."""

    model = "openai:instant"

    def __call__(self, system: str, prompt: str, *, timeout_s: float) -> Answer:
        assert system
        assert prompt
        assert timeout_s
        return Answer(text='{"verdict": "ok"}', model=self.model, usage={"requests": 1})


def tool_call(hooks: Hooks, chars: int) -> Callable[[], None]:
    """One model answer, and one tool call with a result of so many characters."""
    output = "a line of output\n" * (chars // 17)

    def call() -> None:
        number = next(_numbers)
        result = json.dumps({"output": output, "exit_code": number % 2, "error": None})
        event: dict[str, Any] = {
            "tool_name": "terminal",
            "args": {"command": f"python -m pytest tests/test_{number}.py -q"},
            "session_id": "s1",
            "task_id": "s1",
            "turn_id": "t",
            "tool_call_id": f"c{number}",
            "api_request_id": f"r{number}",
            "duration_ms": 5,
            "status": "ok",
            "error_type": None,
            "error_message": None,
        }
        usage = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
        hooks.fire("post_api_request", session_id="s1", assistant_tool_call_count=1, model="m", usage=usage)
        hooks.fire("post_tool_call", result=result, **event)
        hooks.tool_result(result, **event)

    return call


def turn(hooks: Hooks) -> Callable[[], None]:
    """A turn's beginning and end, without what is in between."""

    def one() -> None:
        facts = {
            "session_id": "s1",
            "task_id": "s1",
            "turn_id": f"t{next(_numbers)}",
            "model": "m",
            "platform": "cli",
        }
        hooks.context(user_message="go on", conversation_history=HISTORY, is_first_turn=False, **facts)
        hooks.fire("post_llm_call", assistant_response="done " * 100, conversation_history=HISTORY, **facts)
        hooks.fire("on_session_end", completed=True, interrupted=False, **facts)

    return one


def advised(folder: Path) -> tuple[Hooks, Callable[[], None]]:
    """Hooks with both advisers, in a repository, and what ends them."""
    repo = folder / "repo"
    repo.mkdir()
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    identity = ["-c", "user.name=B", "-c", "user.email=b@example.invalid"]
    subprocess.run(
        ["git", "-C", str(repo), *identity, "commit", "-q", "--allow-empty", "-m", "base"], check=True
    )
    settings = Settings.from_env({"HOME": str(folder), "HERMES_HOME": str(folder / "state")})
    governor = Governor(settings)
    table = {"model": "openai:instant", "active_every_turns": 3}
    coach = Coach(read_terms(table), Instant(), folder=repo, settings=settings)
    hooks = Hooks(log=settings.advisers_log)
    governor.listen(hooks)
    coach.listen(hooks)

    def end() -> None:
        assert coach.idle(30)
        assert hooks.faults == [], hooks.faults
        coach.close()
        governor.close()
        hooks.close()

    return hooks, end


def cpu_ms(work: Callable[[], None], rounds: int) -> float:
    """Processor time of one call of *work*, of this process and its children."""
    before = os.times()
    for _ in range(rounds):
        work()
    after = os.times()
    spent = sum(after[:4]) - sum(before[:4])
    return spent / rounds * 1e3


def main() -> None:
    goals = Goals("advisers")
    with scratch() as name:
        hooks, end = advised(Path(name))
        nobody = Hooks()
        for chars in (1_000, 50_000):
            with_them, without = alternated(tool_call(hooks, chars), tool_call(nobody, chars), rounds=CALLS)
            _add(goals, f"a tool call, {chars} characters", with_them, without, 1.0)
            spent = cpu_ms(tool_call(hooks, chars), CALLS) - cpu_ms(tool_call(nobody, chars), CALLS)
            goals.add(f"a tool call, {chars} characters, added, CPU", spent, 1.0, unit="ms")
        with_them, without = alternated(turn(hooks), turn(nobody), rounds=TURNS, block=5)
        _add(goals, "a turn", with_them, without, 20.0)
        spent = cpu_ms(turn(hooks), TURNS) - cpu_ms(turn(nobody), TURNS)
        goals.add("a turn, added, CPU", spent, 20.0, unit="ms")
        end()
    goals.close()


def _add(goals: Goals, what: str, with_them: list[float], without: list[float], goal_ms: float) -> None:
    added = (percentile(with_them, 0.5) - percentile(without, 0.5)) * 1e3
    goals.add(f"{what}, added, p50", added, goal_ms, unit="ms")


if __name__ == "__main__":
    main()

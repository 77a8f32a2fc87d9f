"""The turns of an agent that we converse with: what its hooks hear, what is kept of them, and what comes next.

One ``Turns`` a run, used from the thread that speaks with the agent. ``begin(message)`` opens a turn and gives what the
advisers want said below the message; ``assistant``, ``tool``, ``request`` and ``request_failed`` tell of what happens in it, in
Hermes' names and arguments (a leaf's session_id is its bead); ``end(answer, claim)`` closes it and gives the message of
a further turn, '' for none. ``conclude(outcome, end)`` makes the outcome of the whole run from how its process and the
conversation ended; its claim's summary has the first answer, the candidate, before any later. A further turn that comes to no
end takes nothing away (``further``).

Everything said is appended to ``transcript.jsonl`` in the output folder, a durable line each, before anything is done
about it: whoever dies, it is there. Lines have ``at``, ``turn`` and ``kind``: ``user`` (``content``; a message of ours, of a
gate, is no user's: it has ``synthetic`` and no content, which is kept as guidance), ``assistant`` (``content``, ``tool_calls``,
``usage``), ``tool`` (``name``, ``args``, ``result``, ``status``), ``error``, ``end`` (``answer``). It is bounded in size; secrets are masked.

Errors: MachineError when the transcript cannot be written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from school.agents import further
from school.agents.presets.base import dollars, whole
from school.agents.process import Job
from school.contracts import AgentOutcome, Claim, TurnEnd, bounded
from school.system import clock, files

TRANSCRIPT: Final = "transcript.jsonl"
TURNS_MAX: Final = 8
SUMMARY_BYTES_MAX: Final = 16 * 1024
CONTENT_BYTES_MAX: Final = 512 * 1024
ERROR_BYTES_MAX: Final = 1000
HISTORY_MAX: Final = 200
HISTORY_BYTES_MAX: Final = 16 * 1024
_WAITED_IN_VAIN: Final = ("timeout", "stalled", "startup")
_COUNTS: Final = ("requests", "input_tokens", "output_tokens")


@dataclass(slots=True)
class End:
    """How a conversation ended: *orderly* when the last turn did, else *reason* where it says one.

    *waiting* tells of an endpoint that has kept the agent waiting for too long.
    """

    orderly: bool = False
    reason: str = ""
    detail: str = ""
    retry_at: str = ""
    waiting: str = ""


class Turns:
    """The turns so far."""

    def __init__(self, job: Job, *, platform: str, model: str, can_run_commands: bool) -> None:
        self.job = job
        self.platform = platform
        self.model = model
        self.can_run_commands = can_run_commands
        self.turn = 0
        self.answers: list[str] = []
        self.said: list[str] = []
        self.errors: list[str] = []
        self.notes: list[str] = []
        self.tool_calls = 0
        self.usage: dict[str, Any] = {}
        self._history: list[dict[str, Any]] = []
        self._message = ""
        self._room = job.limits.output_bytes
        self._calls = 0
        self._deadline = clock.monotonic() + job.time_limit_s
        self._claim = Claim()

    @property
    def turn_id(self) -> str:
        return f"{self.job.bead}-turn-{self.turn}"

    def request_id(self, number: int) -> str:
        """How the *number*-th request of this run is called in events."""
        return f"{self.job.bead}-request-{number}"

    def _ids(self) -> dict[str, Any]:
        return {"session_id": self.job.bead, "task_id": self.job.bead, "turn_id": self.turn_id}

    def _about(self) -> dict[str, Any]:
        return {**self._ids(), "model": self.model, "platform": self.platform}

    # --- a turn -----------------------------------------------------------------------------------------

    def begin(self, message: str, *, synthetic: bool = False) -> str:
        """A turn begins with *message*; what advisers want said below it."""
        self.turn += 1
        self._message = message
        if synthetic:
            self._keep("user", synthetic=True)
        else:
            self._keep("user", content=message)
        context = self.job.hooks.context(
            **self._about(),
            user_message=message,
            conversation_history=list(self._history),
            is_first_turn=self.turn == 1,
            sender_id="",
        )
        self._remember("user", message)
        return context

    def end(self, answer: str, claim: Claim) -> str:
        """The turn ended with *answer*; the message of a further one, '' for none."""
        self.answers.append(answer)
        self.said.append(claim.summary or answer)
        self._claim = claim
        self._keep("end", answer=answer)
        if answer:
            self.job.hooks.fire(
                "post_llm_call",
                **self._about(),
                user_message=self._message,
                assistant_response=answer,
                conversation_history=list(self._history),
            )
        self.job.hooks.fire("on_session_end", **self._about(), completed=True, interrupted=False)
        if self.turn >= TURNS_MAX:
            return ""
        ended = TurnEnd(self.turn, answer, claim, self.can_run_commands)
        message, note = further.ask(self.job, ended, self._deadline)
        self.notes += [note] if note else []
        return message

    def broke_off(self, why: str) -> None:
        """The turn came to no end."""
        self._keep("error", detail=why)
        self.job.hooks.fire("on_session_end", **self._about(), completed=False, interrupted=True)

    # --- within it --------------------------------------------------------------------------------------

    def assistant(self, content: str, tool_calls: list[dict[str, Any]], usage: dict[str, Any]) -> None:
        """The model said *content* and asks for *tool_calls*."""
        self.add_usage(usage)
        self._keep("assistant", content=content, tool_calls=tool_calls, usage=usage)
        self._remember("assistant", content)

    def tool(
        self,
        name: str,
        args: dict[str, Any],
        result: dict[str, Any],
        *,
        call_id: str = "",
        request_id: str = "",
        duration_ms: int = 0,
        told: bool = True,
        shown: bool = True,
    ) -> str:
        """A tool call ended with *result*; the result as the agent is to see it. Untold ones are only kept.

        Not *shown*: the agent has seen it already, so nobody is asked what to say in its place.
        """
        text = json.dumps(result, ensure_ascii=False)
        error = str(result.get("error") or "")
        status = "error" if error else "ok"
        self._calls += 1
        self.tool_calls += 1
        self._keep("tool", name=name, args=args, result=text, status=status, duration_ms=duration_ms)
        if not told:
            return text
        event = {
            **self._ids(),
            "tool_name": name,
            "args": args,
            "tool_call_id": call_id or f"{self.job.bead}-call-{self._calls}",
            "api_request_id": request_id,
            "duration_ms": duration_ms,
            "status": status,
            "error_type": "tool_error" if error else None,
            "error_message": error or None,
        }
        self.job.hooks.fire("post_tool_call", **event, result=text)
        seen = self.job.hooks.tool_result(text, **event) if shown else text
        self._remember("tool", seen)
        return seen

    def request(self, number: int, event: dict[str, Any]) -> None:
        """The model's endpoint answered; *event* is what Hermes tells of that besides."""
        about = {**self._about(), "api_request_id": self.request_id(number)}
        self.job.hooks.fire("post_api_request", **{**event, **about})

    def request_failed(self, number: int, detail: str, event: dict[str, Any]) -> None:
        """One try of a request failed."""
        self.errors.append(detail)
        self._keep("error", detail=detail, **event)
        error = {"type": event.get("error_type") or "", "message": detail}
        about = {**self._about(), "api_request_id": self.request_id(number), "error": error, "request": None}
        self.job.hooks.fire("api_request_error", **{**event, **about})

    # --- the end ----------------------------------------------------------------------------------------

    def conclude(self, outcome: AgentOutcome, end: End) -> AgentOutcome:
        """How the run ended: as the conversation says, else as its process did."""
        by_itself = outcome.reason in ("", "exit", "killed")
        if end.reason and (by_itself or outcome.reason == "interrupted"):
            outcome.reason, outcome.detail = end.reason, f"{self.job.spec.name}: {end.detail or end.reason}"
        elif end.orderly and by_itself:
            outcome.reason = outcome.detail = ""
        else:
            self._blame(outcome, end)
        if note := further.broke_off(len(self.answers), outcome.reason, outcome.detail):
            self.notes.append(note)
            outcome.reason = outcome.detail = ""
            outcome.claim = self._claim
        if outcome.reason == "quota" and end.retry_at:
            outcome.claim = outcome.claim.model_copy(update={"retry_at": end.retry_at})
        outcome.notes = [*outcome.notes, *self.notes]
        outcome.usage = {**outcome.usage, **self.usage, "turns": self.turn, "tool_calls": self.tool_calls}
        answers = "\n\n".join(answer for answer in self.answers if answer)
        outcome.output = bounded(answers or outcome.output)
        outcome.claim = outcome.claim.model_copy(update={"summary": self.summary(outcome.claim)})
        return outcome

    def _blame(self, outcome: AgentOutcome, end: End) -> None:
        """A run that came to no end of its own: what it was waiting for, and what went wrong last."""
        if not outcome.reason:
            outcome.reason = "exit"
            outcome.detail = f"{self.job.spec.name} ended in the middle of a turn"
        if end.waiting and outcome.reason in _WAITED_IN_VAIN:
            outcome.reason = "unavailable"
            outcome.detail += f"; {end.waiting}"
        printed = outcome.output.strip().splitlines()
        last = self.errors[-1] if self.errors else printed[-1] if printed else ""
        if last:
            outcome.detail += f"; its last error: {bounded(last, ERROR_BYTES_MAX)}"

    # --- what is kept -----------------------------------------------------------------------------------

    def add_usage(self, usage: dict[str, Any]) -> None:
        """Add up what was used; a cost that is unknown once stays unknown."""
        for name in _COUNTS:
            self.usage[name] = whole(self.usage.get(name)) + whole(usage.get(name))
        if not usage:  # an agent that tells of it elsewhere, or not at all
            self.usage.setdefault("cost_usd", None)
            return
        cost, so_far = dollars(usage.get("cost_usd")), self.usage.get("cost_usd", 0.0)
        self.usage["cost_usd"] = None if cost is None or so_far is None else round(so_far + cost, 9)

    def summary(self, claim: Claim) -> str:
        """What the agent says of its work: the first answer, and below it what later turns say besides."""
        first = next((text for text in self.said if text), claim.summary)
        later = dict.fromkeys(text for text in [*self.said, claim.summary] if text and text != first)
        return bounded(
            "\n\n".join([first, *(f"At a later turn: {text}" for text in later)]), SUMMARY_BYTES_MAX
        )

    def _remember(self, role: str, content: str) -> None:
        self._history.append({"role": role, "content": bounded(content, HISTORY_BYTES_MAX)})
        del self._history[:-HISTORY_MAX]

    def _keep(self, kind: str, **said: Any) -> None:  # noqa: ANN401 - JSON
        line = {"at": clock.now(), "turn": self.turn, "kind": kind, **_bounded(said)}
        size = len(json.dumps(line))
        if self._room <= 0:
            return
        self._room -= size
        if self._room <= 0:
            line = {
                "at": line["at"],
                "turn": self.turn,
                "kind": "error",
                "detail": "the transcript ends here: it is full",
            }
        files.append_json_line(self.job.output_dir / TRANSCRIPT, line)


def _bounded(value: Any) -> Any:  # noqa: ANN401 - JSON
    """*value* with every text in it within bounds."""
    if isinstance(value, str):
        return bounded(value, CONTENT_BYTES_MAX)
    if isinstance(value, dict):
        return {str(key): _bounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_bounded(item) for item in value]
    return value

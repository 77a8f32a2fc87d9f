"""Lead an ACP agent through its session: initialize, a session in the worktree, prompts as turns.

``run_acp(job, brief)`` starts the agent's argv below the warden, like any agent, and prompts it; at the end of a turn the
gate decides on a further one. Its tool calls are told to the hooks as they end (``calls``), what it asks of us is answered
by ``client``. Its API requests are not seen, and the results of its tools cannot be changed: ACP has no way for either. What
advisers would say with a result, it is told instead in the middle of its turn, which is broken off for that by
``session/cancel`` and followed by another in the same session; at most once a turn. A call that this aborts is kept in the
transcript and told to nobody.
``{model}`` in argv is replaced; the rest is the agent's own configuration.

An agent that dies is noticed by the end of its output, one that is mute by the limits on its process: start-up before
a session stands, silence afterwards. Errors that it reports are read for quota, login and a failing endpoint, and so is
what it says in the place of an answer that it did not get (``blame``). When the run is cancelled, the agent is asked to
stop and has ``CANCEL_S`` for it. Its tokens are what it says of them; once the
run's limit is reached it gets no further turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from school.agents.acp.blame import DETAIL_BYTES_MAX, never_began, unanswered, waited
from school.agents.acp.calls import Calls, cut_short, event
from school.agents.acp.client import TERMINAL_BYTES, Client
from school.agents.acp.lines import Transport
from school.agents.claim import read_claim
from school.agents.presets.base import dollars, whole
from school.agents.presets.faults import NEVER_BEGAN, fault
from school.agents.process import Job
from school.agents.prompt import prompt_for
from school.agents.talk import Wire, converse
from school.agents.turns import TURNS_MAX, End, Turns
from school.contracts import READ_ONLY_ROLES, AgentOutcome, Brief, bounded
from school.system import clock, files, processes
from school.system.processes import Finished

if TYPE_CHECKING:
    from acp.connection import Connection

PLATFORM: Final = "school"
CANCEL_S: Final = 2.0
LOOK_S: Final = 0.25
TEXT_CHARS_MAX: Final = 4 * 1024 * 1024
AUTH_REQUIRED: Final = -32000
GO_ON: Final = (
    "Automatic message, not a new task: your turn was broken off because it seemed to be stuck. "
    "Read what stands below, then go on with your task."
)
# How a turn may end, in the protocol's words, and what of it ends the run. Any other word is no end of a turn.
_ENDED: Final = "end_turn"
_STOPS: Final = {
    "cancelled": ("exit", "the agent says that it was cancelled, and nobody had told it to stop"),
    "refusal": ("refused", "the agent refused to go on"),
    "max_tokens": ("limit", "the agent reached its limit of tokens"),
    "max_turn_requests": ("limit", "the agent made as many requests as one turn may"),
}


def run_acp(job: Job, brief: Brief) -> AgentOutcome:
    """Run the agent on *brief* to its end."""
    try:
        import acp  # noqa: F401 - only whether it is there
    except ImportError:
        detail = (
            f"{job.spec.name}: an agent of kind acp needs the extra schoolhouse[acp], which is not installed"
        )
        return AgentOutcome(claim=read_claim(job.result_path)[0], reason="not_installed", detail=detail)
    # The library tells the root logger of what an agent does wrong; without a handler that would go to stderr.
    logging.getLogger().addHandler(logging.NullHandler())
    prompt = files.well_formed(prompt_for(brief))
    files.write_atomic(files.ensure_dir(job.output_dir) / "prompt.md", prompt.encode())
    lead = _Lead(job, prompt, read_only=brief.role in READ_ONLY_ROLES)
    argv = [word.replace("{model}", job.spec.model) for word in job.spec.argv]
    outcome = converse(job, argv, lead.speak, timeout_s=job.time_limit_s, cancel_s=CANCEL_S)
    lead.blame(outcome)
    return lead.turns.conclude(outcome, lead.end)


class _Lead:
    """One session, as we lead it."""

    def __init__(self, job: Job, prompt: str, *, read_only: bool) -> None:
        self.job = job
        self.prompt = prompt
        self.turns = Turns(
            job, platform=PLATFORM, model=job.spec.model or job.spec.name, can_run_commands=not read_only
        )
        self.end = End()
        self.session = ""
        self.calls = Calls()
        self.client = Client(
            job.folder,
            scratch=job.output_dir,
            read_only=read_only,
            run=self._run_in_terminal,
            wrote=self._wrote,
        )
        self.read_only = read_only
        self._wire: Wire | None = None
        self._said: list[str] = []
        self._room = TEXT_CHARS_MAX
        self._answer = ""
        self._printed = ""
        self._waits = False
        self._heard_at = time.monotonic()
        self._broken_off = False

    async def speak(self, wire: Wire) -> None:
        """Lead the session to its end, whatever the agent does."""
        from acp import RequestError
        from acp.connection import Connection

        self._wire = wire
        transport = Transport(wire)
        connection = Connection(self._handle, transport)
        try:
            await self._begin(connection)
            await self._take_turns(connection)
        except RequestError as error:
            self._reported(error)
        except TimeoutError:
            within = f"{self.job.limits.startup_timeout_s:g} s"
            self.end.reason = "unavailable"
            self.end.detail = f"it did not begin a session in {within}; {NEVER_BEGAN}"
        except ConnectionError:
            # It is gone, or as good as gone; how its process ended says the rest.
            self.end.reason, self.end.detail = ("exit", transport.fault) if transport.fault else ("", "")
        except Unusable as error:
            self.end.reason, self.end.detail = "exit", str(error)
        finally:
            if not self.end.orderly and self.turns.turn:
                self.turns.broke_off(self.end.detail or "the agent is gone")
            self.turns.notes += [f"not permitted: {what}" for what in self.client.refused]
            self._printed = transport.printed
            await self.client.close()
            await connection.close()

    def blame(self, outcome: AgentOutcome) -> None:
        """Find out what kept an agent that came to no end of its own."""
        if not self.turns.turn:
            never_began(outcome, self.end, self._printed, clock.parse(clock.now()))
        elif self._waits and not self.calls.open() and not self.client.running():
            self.end.waiting = waited(outcome.reason, time.monotonic() - self._heard_at, self.job)

    async def _begin(self, connection: Connection) -> None:
        """Initialize and open a session; TimeoutError when that takes longer than an agent's start may."""
        from acp.meta import PROTOCOL_VERSION

        fs = {"readTextFile": True, "writeTextFile": not self.read_only}
        async with asyncio.timeout(self.job.limits.startup_timeout_s):
            hello = await self._ask(
                connection,
                "initialize",
                protocolVersion=PROTOCOL_VERSION,
                clientCapabilities={"fs": fs, "terminal": not self.read_only},
                clientInfo={"name": "schoolhouse", "version": "1"},
            )
            if hello.get("protocolVersion") != PROTOCOL_VERSION:
                raise Unusable(f"it speaks version {hello.get('protocolVersion')!r:.40} of ACP, we speak 1")
            opened = await self._ask(connection, "session/new", cwd=str(self.job.folder), mcpServers=[])
        self.session = str(opened.get("sessionId") or "")
        if not self.session:
            raise Unusable("it opened a session without a name")

    async def _ask(self, connection: Connection, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401
        answer = await connection.send_request(method, params)
        if not isinstance(answer, dict):
            raise Unusable(f"its answer to {method} is no object")
        return answer

    # --- turns ------------------------------------------------------------------------------------------

    async def _take_turns(self, connection: Connection) -> None:
        assert self._wire is not None
        message, synthetic = self.prompt, False
        while message:
            with self._wire.at_work():
                context = self.turns.begin(message, synthetic=synthetic)
            blocks = [{"type": "text", "text": text} for text in (message, context) if text]
            self._answer = ""
            answer = await self._prompt(connection, blocks)
            if answer is None:
                self.end.reason, self.end.detail = "interrupted", "it was told to stop"
                return
            self._flush()
            self._used(answer.get("usage"))
            stop = str(answer.get("stopReason"))
            if stop == "cancelled" and self._broken_off:
                with self._wire.at_work():
                    self.turns.broke_off("it was broken off, to be told that it is stuck")
                message, synthetic = GO_ON, True
                continue
            if stop != _ENDED:
                unknown = ("exit", f"its turn ended as nobody knows that a turn ends: {stop:.40}")
                self.end.reason, self.end.detail = _STOPS.get(stop, unknown)
                return
            if none := unanswered(self._answer, clock.parse(clock.now()), worked=self._worked()):
                self.end = none
                return
            with self._wire.at_work():
                message = self.turns.end(self._answer, read_claim(self.job.result_path)[0])
            if message and (spent := self._spent()):
                self.turns.notes.append(f"no further turn: {spent}")
                break
            synthetic = True
        self.end.orderly = True

    def _worked(self) -> bool:
        """Whether it did anything so far, as far as it tells."""
        told = self.turns.tool_calls or self.calls.open()
        return bool(told) or os.path.lexists(self.job.result_path)

    async def _prompt(self, connection: Connection, blocks: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The answer to one prompt; None when the run was cancelled meanwhile.

        Its turn is broken off, once, for what cannot wait until it ends. An agent that does not heed that goes on.
        """
        from acp import RequestError

        self._broken_off = False
        self._waits, self._heard_at = True, time.monotonic()
        asked = self._ask(connection, "session/prompt", sessionId=self.session, prompt=blocks)
        prompt = asyncio.create_task(asked)
        while not (await asyncio.wait({prompt}, timeout=LOOK_S))[0]:
            if self.job.cancelled():
                await connection.send_notification("session/cancel", {"sessionId": self.session})
                await asyncio.wait({prompt}, timeout=CANCEL_S)
                prompt.cancel()
                return None
            if self._must_hear():
                self._broken_off = True
                await connection.send_notification("session/cancel", {"sessionId": self.session})
        try:
            answer = prompt.result()
        except RequestError:
            if not self._broken_off:
                raise
            answer = {
                "stopReason": "cancelled"
            }  # what some make of being told to stop; the next prompt tells
        self._waits = False
        return answer

    def _must_hear(self) -> bool:
        """Whether there is something that cannot wait, and a turn left to say it in."""
        may = not self._broken_off and self.turns.turn < TURNS_MAX and not self._spent()
        return may and self.job.urgent()

    def _reported(self, error: Any) -> None:  # noqa: ANN401 - the library's RequestError
        """An error that the agent answered with."""
        said = str(error) if error.data is None else f"{error}: {json.dumps(error.data)}"
        self.end.detail = bounded(files.well_formed(said), DETAIL_BYTES_MAX)
        meant = fault(self.end.detail, clock.parse(clock.now()))
        login = error.code == AUTH_REQUIRED and meant.reason != "quota"
        self.end.reason = "login" if login else meant.reason or "exit"
        self.end.retry_at = meant.retry_at

    # --- what the agent says and asks -------------------------------------------------------------------

    async def _handle(self, method: str, params: Any, is_notification: bool) -> dict[str, Any] | None:  # noqa: ANN401
        """One message that is no answer to ours."""
        self._heard_at = time.monotonic()
        given = params if isinstance(params, dict) else {}
        if not is_notification:
            return await self.client.handle(method, given)
        update = given.get("update")
        if method == "session/update" and isinstance(update, dict) and self._wire is not None:
            with self._wire.at_work():
                self._hear(update)
        return None

    def _hear(self, update: Mapping[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            self._take_text(update.get("content"))
        elif kind in ("tool_call", "tool_call_update"):
            self._flush()
            self._take_call(update)
        elif kind == "usage_update" and isinstance(update.get("cost"), dict):
            cost = dollars(update["cost"].get("amount"))
            if cost is not None and update["cost"].get("currency") == "USD":
                self.turns.usage["cost_usd"] = cost

    def _take_text(self, content: object) -> None:
        text = content.get("text") if isinstance(content, dict) else None
        if isinstance(text, str) and self._room > 0:
            self._said.append(files.well_formed(text[: self._room]))
            self._room -= len(text)

    def _flush(self) -> None:
        """What it has said since the last tool call is one statement; the last one is its answer."""
        text = "".join(self._said).strip()
        self._said.clear()
        self._room = TEXT_CHARS_MAX
        if text:
            self._answer = text
            self.turns.assistant(text, [], {})

    def _take_call(self, update: Mapping[str, Any]) -> None:
        call = self.calls.hear(update, time.monotonic())
        if call is None:
            return
        told = event(call, self.client.ran, self.client.relative)
        duration_ms = int((call.ended - call.begun) * 1000)
        self.turns.tool(
            told.name,
            told.args,
            told.result,
            call_id=call.id,
            duration_ms=duration_ms,
            # What we broke off says nothing of the agent: neither that it failed, nor that it got on.
            told=not (self._broken_off and cut_short(told)),
            shown=False,
        )

    def _wrote(self, path: str, count: int) -> None:
        """A file that was written through us; told as a call of its own where it is not part of one."""
        assert self._wire is not None
        if not any(call.kind == "edit" for call in self.calls.open()):
            with self._wire.at_work():
                self.turns.tool("write_file", {"path": path}, {"bytes_written": count}, shown=False)

    # --- limits and terminals ---------------------------------------------------------------------------

    def _used(self, usage: object) -> None:
        """Take what the agent says it used: by the protocol (``Usage`` of its schema) that is of all turns so far, and never falls.

        Some count each turn by itself, which shows where a count falls; it is added then.
        """
        if not isinstance(usage, dict):
            return
        counts = {
            "input_tokens": whole(usage.get("inputTokens")),
            "output_tokens": whole(usage.get("outputTokens")),
        }
        known = {name: int(self.turns.usage.get(name) or 0) for name in counts}
        whole_session = all(count >= known[name] for name, count in counts.items())
        for name, count in counts.items():
            self.turns.usage[name] = count if whole_session else known[name] + count

    def _spent(self) -> str:
        """Why there is no further turn; '' where there may be."""
        used, limits = self.turns.usage, self.job.limits
        tokens = int(used.get("input_tokens") or 0) + int(used.get("output_tokens") or 0)
        if limits.tokens is not None and tokens >= limits.tokens:
            return f"[limits] tokens = {limits.tokens} are used up ({tokens})"
        cost = float(used.get("cost_usd") or 0)
        if limits.cost_usd is not None and cost >= limits.cost_usd:
            return f"[limits] cost_usd = {limits.cost_usd:g} is used up ({cost:.4f})"
        return ""

    def _run_in_terminal(
        self,
        argv: list[str],
        cwd: Path,
        env: Mapping[str, str],
        stopped: Callable[[], bool],
        output: Path,
    ) -> Finished:
        """Run one command of a terminal, as the agent itself would run it."""
        assert self._wire is not None
        with self._wire.at_work():
            return processes.run(
                [files.well_formed(word) for word in argv],
                cwd=cwd,
                env={**self.job.environment(), **env},
                stdin=b"",
                limits=processes.RunLimits(
                    timeout_s=self.job.limits.command_timeout_s, output_bytes=TERMINAL_BYTES, grace_s=1.0
                ),
                output_path=output,
                marker=self.job.bead,
                cancelled=lambda: stopped() or self.job.cancelled(),
                confinement=self.job.confinement,
            )


class Unusable(Exception):  # noqa: N818 - what the agent is
    """The agent answers, and not as the protocol has it."""

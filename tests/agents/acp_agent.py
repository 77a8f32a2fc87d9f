# ruff: noqa: ARG002, PTH118, PTH123, ASYNC230 - a program of its own, with the signatures of the protocol
"""A deterministic ACP agent, on the library's agent side: it does what a script says, prompt by prompt.

``python acp_agent.py SCRIPT``: a JSON list of prompts, each a list of steps ``[name, argument...]``; the last prompt is
repeated. What it is answered (a permission, a file, a terminal) it says as text, so that tests see it in its answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, run_agent, text_block, update_agent_message
from acp.schema import (
    AgentCapabilities,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    Usage,
)

OPTIONS = [
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="once", name="Once", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class Scripted:
    def __init__(self, script: list[list[list[Any]]]) -> None:
        self.script = script
        self.prompts = 0
        self.calls = 0
        self.cancelled = asyncio.Event()
        self.client: Any = None

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        await self.early("initialize")
        return InitializeResponse(protocol_version=PROTOCOL_VERSION, agent_capabilities=AgentCapabilities())

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        await self.early("session")
        self.cwd = cwd
        return NewSessionResponse(session_id="s-1")

    async def early(self, when: str) -> None:
        """A script that begins with ``at`` does the rest of that step already then."""
        step = self.script[0][0] if self.script and self.script[0] else [""]
        if step[:2] == ["at", when]:
            await self.step(step[2:])

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled.set()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        steps = self.script[min(self.prompts, len(self.script) - 1)]
        self.prompts += 1
        self.text = "\n".join(block.text for block in prompt)
        stop, usage = "end_turn", None
        for step in steps:
            if step[0] == "stop":
                stop = step[1]
            elif step[0] == "usage":
                usage = Usage(total_tokens=step[1] + step[2], input_tokens=step[1], output_tokens=step[2])
            elif step[0] == "until_cancelled":
                await self.cancelled.wait()
                self.cancelled.clear()
                for more in step[1:]:  # what it does before it heeds it
                    await self.step(more)
                await self.say("I was told to stop.")
                return PromptResponse(stop_reason="cancelled")
            elif step[0] == "after_cancel":  # hears of it, and does not heed it
                await self.cancelled.wait()
            else:
                await self.step(step)
        return PromptResponse(stop_reason=stop, usage=usage)

    async def say(self, text: str) -> None:
        await self.client.session_update("s-1", update_agent_message(text_block(text)))

    async def step(self, step: list[Any]) -> None:
        name, *args = step
        await getattr(self, f"do_{name}")(*args)

    async def do_say(self, text: str) -> None:
        await self.say(text)

    async def do_echo(self) -> None:
        await self.say(f"{len(self.text)} characters, the last: {self.text[-40:]}")

    async def do_repeat(self) -> None:
        await self.say(self.text)

    async def do_read(self, path: str, **_: Any) -> None:
        await self.say(await self.asked(self.client.read_text_file(session_id="s-1", path=path), "content"))

    async def do_write(self, path: str, content: str) -> None:
        answer = await self.asked(
            self.client.write_text_file(session_id="s-1", path=path, content=content), ""
        )
        await self.say(f"write: {answer}")

    async def asked(self, answer: Any, key: str) -> str:
        try:
            found = await answer
        except RequestError as error:
            return f"refused: {json.dumps(error.data)}"
        return str(getattr(found, key)) if key else "done"

    async def do_may(self, kind: str, path: str) -> None:
        call = ToolCallUpdate(tool_call_id="p-1", title="Something", kind=kind, locations=[{"path": path}])
        answer = await self.client.request_permission(session_id="s-1", tool_call=call, options=OPTIONS)
        await self.say(f"{kind}: {getattr(answer.outcome, 'option_id', answer.outcome.outcome)}; ")

    async def do_tool(
        self, kind: str, raw_input: Any, raw_output: Any, status: str = "completed", **_: Any
    ) -> None:
        self.calls += 1
        name = f"call-{self.calls}"
        start = ToolCallStart(
            session_update="tool_call",
            tool_call_id=name,
            title="A tool",
            kind=kind,
            status="pending",
            raw_input=raw_input,
        )
        await self.client.session_update("s-1", start)
        end = ToolCallProgress(
            session_update="tool_call_update", tool_call_id=name, status=status, raw_output=raw_output
        )
        await self.client.session_update("s-1", end)

    async def do_edit(self, path: str, old: str | None, new: str) -> None:
        """Edit by its own hands, and tell of it as agents do."""
        full = os.path.join(self.cwd, path)
        with open(full, "w") as stream:
            stream.write(new)
        diff = {"type": "diff", "path": full, "oldText": old, "newText": new}
        start = ToolCallStart(
            session_update="tool_call",
            tool_call_id="edit-1",
            title="Edit",
            kind="edit",
            status="completed",
            content=[diff],
        )
        await self.client.session_update("s-1", start)

    async def do_terminal(self, command: str, *args: str) -> None:
        try:
            made = await self.client.create_terminal(session_id="s-1", command=command, args=list(args))
        except RequestError as error:
            await self.say(f"refused: {json.dumps(error.data)}")
            return
        content = [{"type": "terminal", "terminalId": made.terminal_id}]
        start = ToolCallStart(
            session_update="tool_call",
            tool_call_id="t-1",
            title=command,
            kind="execute",
            status="in_progress",
            content=content,
        )
        await self.client.session_update("s-1", start)
        ended = await self.client.wait_for_terminal_exit(session_id="s-1", terminal_id=made.terminal_id)
        output = await self.client.terminal_output(session_id="s-1", terminal_id=made.terminal_id)
        await self.client.release_terminal(session_id="s-1", terminal_id=made.terminal_id)
        end = ToolCallProgress(session_update="tool_call_update", tool_call_id="t-1", status="completed")
        await self.client.session_update("s-1", end)
        await self.say(f"exit {ended.exit_code}: {output.output}")

    async def do_update(self, update: dict[str, Any]) -> None:
        """Tell of something that the library would not let through."""
        params = {"sessionId": "s-1", "update": update}
        await self.do_raw(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}) + "\n")

    async def do_answer(self, result: Any) -> None:
        """Answer the prompt by hand: initialize was request 0, the session 1, and the first prompt is 2."""
        await self.do_raw(json.dumps({"jsonrpc": "2.0", "id": 2, "result": result}) + "\n")
        await self.do_mute()

    async def do_refuse(self, error: Any) -> None:
        """The same with an error."""
        await self.do_raw(json.dumps({"jsonrpc": "2.0", "id": 2, "error": error}) + "\n")
        await self.do_mute()

    async def do_claim(self, **_: Any) -> None:
        with open(os.environ["SCHOOL_RESULT"], "w") as stream:
            json.dump({"status": "done", "summary": "Done by ACP.", "ac_met": ["AC-1"]}, stream)

    async def do_error(self, code: int, message: str) -> None:
        raise RequestError(code, message)

    async def do_die(self, code: int) -> None:
        os._exit(code)

    async def do_kill(self) -> None:
        os.kill(os.getpid(), 9)

    async def do_mute(self) -> None:
        await asyncio.Event().wait()

    async def do_child(self, pids: str) -> None:
        child = await asyncio.create_subprocess_exec("setsid", "sleep", "300")
        with open(pids, "a") as stream:
            stream.write(f"{child.pid}\n")

    async def do_raw(self, text: str, times: int = 1) -> None:
        """Write to its output without the library."""
        line = text.encode("utf-8", "surrogateescape")
        for _ in range(times):
            view = memoryview(line)
            while view:
                try:
                    view = view[os.write(1, view) :]
                except BlockingIOError:
                    await asyncio.sleep(0.001)

    async def do_flood(self, mebibytes: int, lines: bool, fd: int = 1) -> None:
        chunk = (b"x" * (1024 * 1024 - 1)) + (b"\n" if lines else b"x")
        for _ in range(mebibytes):
            view = memoryview(chunk)
            while view:
                try:
                    view = view[os.write(fd, view) :]
                except BlockingIOError:
                    await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(run_agent(Scripted(json.loads(sys.argv[1]))))

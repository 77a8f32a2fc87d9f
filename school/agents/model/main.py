"""The built-in loop as a process: ``python -I main.py`` in a working tree, spoken to as ``wire`` says.

It asks the model, does the tool calls that it answers with, gives it the results, and again, until an answer comes
without any: that is the end of a turn. Every answer goes to the leaf before anything in it is done, and every tool
result before the model sees it, so that a crash of either loses nothing. Before each call the budget is asked. When
its input ends, the leaf is gone: then it ends at once, and the warden ends whatever it has started.

Exit: 0 told to end, or after ``failed``; 1 what the leaf said could not be understood; 3 the leaf is gone.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from school.agents.model import wire  # noqa: E402 - found by the line above when it is run as a script
from school.agents.model.budget import Budget  # noqa: E402
from school.agents.model.tools import Toolbox  # noqa: E402
from school.contracts import AgentSpec  # noqa: E402
from school.system import clock  # noqa: E402

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.tools import ToolDefinition

    from school.agents.model.endpoint import CallFailed, Endpoint, Failure

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
# Spelled out in ASCII, six bytes for one at worst, an answer fits a line.
ANSWER_BYTES_MAX: Final = 2 * 1024 * 1024
BEAT_S: Final = 15.0
PATIENCE_S: Final = 60.0
# An answer of nothing at all is asked for again, one that was cut off is continued; not for ever.
EMPTY_MAX: Final = 3
CUT_MAX: Final = 3
EXIT_LOST: Final = 3
CONTINUE: Final = "Your answer was cut off at its limit of length. Go on from there, in smaller steps."


class Stopped(Exception):  # noqa: N818 - how the run ended
    """The run can go no further."""

    def __init__(self, reason: str, detail: str, retry_at: str = "") -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.retry_at = retry_at


class Leaf:
    """The leaf at the other end: what it says, in order, and what it is told."""

    def __init__(self, out_fd: int) -> None:
        self._out = out_fd
        self._orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=16)

    def say(self, message: dict[str, Any]) -> None:
        """Tell the leaf. It reads all the time, so this waits only for a leaf that is stopped."""
        raw = memoryview(wire.encode(message))
        try:
            while raw:
                raw = raw[os.write(self._out, raw) :]
        except BrokenPipeError:
            os._exit(EXIT_LOST)

    async def order(self, *kinds: str) -> dict[str, Any]:
        """The next thing that the leaf says, which must be one of *kinds*."""
        message = await self._orders.get()
        if message.get("do") not in kinds:
            raise wire.WireError(f"expected {' or '.join(kinds)}, got {str(message)[:200]}")
        return message

    async def listen(self) -> None:
        """Take what the leaf says; its end is ours."""
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            message = wire.decode(line)
            if message is not None:
                await self._orders.put(message)
        os._exit(EXIT_LOST)

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self.say({"say": "beat"})


class Loop:
    """One run."""

    def __init__(self, leaf: Leaf, start: dict[str, Any]) -> None:
        from school.agents.model import endpoint

        self.leaf = leaf
        self.spec = AgentSpec.model_validate(start["spec"])
        self.system: str = start["system"]
        limits = start["limits"]
        self.budget = Budget(limits["tokens"], limits["cost_usd"], limits["requests"])
        self.deadline = time.monotonic() + limits["timeout_s"]
        key = self.spec.api_key_env or endpoint.KEYS.get(self.spec.model.partition(":")[0], "")
        self.tools = Toolbox(
            Path(start["root"]),
            result_path=Path(start["result_path"]),
            tmpdir=Path(start["tmpdir"]),
            read_only=start["read_only"],
            command_timeout_s=limits["command_timeout_s"],
            environ={name: value for name, value in os.environ.items() if name != key},
        )
        self.lent: list[dict[str, Any]] = start["tools"]
        self.messages: list[ModelMessage] = []
        self.number = 0
        self.done_calls = 0
        self._grown = 0
        self._definitions: list[ToolDefinition] = []
        self.first_wait_s = float(start["first_wait_s"])
        self.attempt_s = float(start["attempt_s"])

    async def run(self) -> None:
        """Turn after turn, until told to end."""
        from pydantic_ai.tools import ToolDefinition

        from school.agents.model.endpoint import CallFailed, connect

        self._definitions = [
            ToolDefinition(name=name, description=description, parameters_json_schema=schema)
            for name, description, schema in [
                *self.tools.definitions(),
                *((tool["name"], tool["description"], tool["schema"]) for tool in self.lent),
            ]
        ]
        endpoint = None
        try:
            endpoint = connect(self.spec, os.environ, answer_bytes=ANSWER_BYTES_MAX)
            endpoint.first_wait_s = self.first_wait_s
            self._bounded(endpoint)
            while (order := await self.leaf.order("turn", "end"))["do"] == "turn":
                answer = await self.turn(endpoint, str(order["message"]))
                self.leaf.say({"say": "turn_end", "answer": answer})
        except CallFailed as failed:
            self._failed(_reason(failed), failed.detail, failed.retry_at)
        except Stopped as stopped:
            self._failed(stopped.reason, stopped.detail, stopped.retry_at)
        finally:
            if endpoint is not None:
                await endpoint.aclose()

    def _bounded(self, endpoint: Endpoint) -> None:
        if unbounded := self.budget.unbounded(endpoint.price_known(), self.spec.model):
            raise Stopped("budget", unbounded)

    def _failed(self, reason: str, detail: str, retry_at: str) -> None:
        self.leaf.say({"say": "failed", "reason": reason, "detail": detail, "retry_at": retry_at})

    # --- a turn -----------------------------------------------------------------------------------------

    async def turn(self, endpoint: Endpoint, message: str) -> str:
        """Ask and do until the model asks for nothing more; its last answer."""
        from pydantic_ai.messages import ToolReturnPart, UserPromptPart

        self.tools.finished = None
        self._add(UserPromptPart(message), len(message))
        empty = cut = 0
        while True:
            response = await self._ask(endpoint)
            text = _valid(response.text or "")
            calls = response.tool_calls
            if response.finish_reason == "content_filter":
                raise Stopped("refused", f"{self.spec.model} refused to go on")
            if not calls and not text.strip() and not self.done_calls:
                self.messages.pop()
                empty += 1
                if empty >= EMPTY_MAX:
                    raise Stopped("unavailable", f"{self.spec.model} said nothing, {empty} times")
                continue
            for call in calls:
                result = await self._do(call)
                self._add(ToolReturnPart(call.tool_name, result, call.tool_call_id), len(result))
            if self.tools.finished is not None:
                return text or str(self.tools.finished["summary"])
            if not calls and response.finish_reason != "length":
                return text
            if not calls:
                cut += 1
                if cut >= CUT_MAX:
                    raise Stopped(
                        "limit", f"{self.spec.model} was cut off at its limit of output, {cut} times"
                    )
                self._add(UserPromptPart(CONTINUE), len(CONTINUE))

    def _add(self, part: Any, chars: int) -> None:  # noqa: ANN401 - a part of a request
        """Put *part* into the request that comes next."""
        from pydantic_ai.messages import ModelRequest

        self._grown += chars
        last = self.messages[-1] if self.messages else None
        if isinstance(last, ModelRequest):
            self.messages[-1] = ModelRequest(parts=[*last.parts, part], instructions=self.system)
        else:
            self.messages.append(ModelRequest(parts=[part], instructions=self.system))

    async def _ask(self, endpoint: Endpoint) -> ModelResponse:
        """The model's answer to all that was said, told to the leaf."""
        growth = self._grown + (0 if self.number else len(self.system))
        reason, why = self.budget.refusal(growth)
        if reason:
            raise Stopped(reason, why)
        self.number += 1
        self.leaf.say({"say": "asking", "number": self.number})
        started_at, begun = clock.now(), time.monotonic()
        response = await endpoint.request(
            self.messages,
            tools=self._definitions,
            deadline=self.deadline,
            patience_s=PATIENCE_S,
            attempt_s=self.attempt_s,
            max_tokens=self.budget.output_tokens(growth),
            on_error=self._on_error,
        )
        from school.agents.model.ask import usage_of

        usage = usage_of(response)
        self.budget.add(usage)
        self._grown = 0
        self.messages.append(response)
        self.leaf.say(
            {
                "say": "assistant",
                "number": self.number,
                "content": response.text or "",
                "tool_calls": [_shown(call) for call in response.tool_calls],
                "usage": usage,
                "request": _told(response, endpoint, len(self.messages) - 1)
                | {
                    "started_at": started_at,
                    "ended_at": clock.now(),
                    "api_duration": time.monotonic() - begun,
                }
                | {"api_call_count": self.number},
            }
        )
        return response

    def _on_error(self, failure: Failure) -> None:
        from school.agents.model.endpoint import TRIES

        self.leaf.say(
            {
                "say": "failure",
                "number": self.number,
                "detail": failure.detail,
                "status_code": failure.status_code,
                "retry_count": failure.tried - 1,
                "max_retries": TRIES - 1,
                "retryable": failure.retryable,
                "reason": failure.reason,
                "error_type": failure.error_type,
            }
        )

    async def _do(self, call: ToolCallPart) -> str:
        """Do one tool call; what the model is to see of it."""
        try:
            args: object = call.args_as_dict(raise_if_invalid=True)
        except (ValueError, AssertionError) as error:
            args = f"no JSON object: {str(error)[:200]}"
        if any(tool["name"] == call.tool_name for tool in self.lent):
            self.done_calls += 1
            about = {"id": call.tool_call_id, "number": self.number, "name": call.tool_name}
            self.leaf.say({"say": "call", **about, "args": args})
            return _valid(str((await self.leaf.order("result"))["result"]))
        begun = time.monotonic()
        done = await asyncio.to_thread(self.tools.do, call.tool_name, args)
        self.done_calls += 1
        self.leaf.say(
            {
                "say": "tool",
                "id": call.tool_call_id,
                "number": self.number,
                "name": done.name,
                "args": done.args,
                "result": done.result,
                "duration_ms": int((time.monotonic() - begun) * 1000),
                "told": done.told,
            }
        )
        return _valid(str((await self.leaf.order("result"))["result"]))


def _reason(failed: CallFailed) -> str:
    """What a call that failed means for the run: only what the model itself refuses is a refusal."""
    if failed.error_type == "ModelAuthenticationError":
        return "login"
    if failed.reason == "timeout" or (
        failed.reason == "refused" and failed.error_type != "ContentFilterError"
    ):
        return "unavailable"
    return failed.reason


def _valid(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _shown(call: ToolCallPart) -> dict[str, Any]:
    return {"id": call.tool_call_id, "name": call.tool_name, "args": call.args_as_json_str()}


def _told(response: ModelResponse, endpoint: Endpoint, message_count: int) -> dict[str, Any]:
    """What post_api_request is told, but for times and ids."""
    used = response.usage
    return {
        "provider": endpoint.provider,
        "base_url": endpoint.base_url,
        "api_mode": "pydantic_ai",
        "finish_reason": response.finish_reason or "",
        "message_count": message_count,
        "response_model": response.model_name or "",
        "response": None,
        "usage": {
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "cache_read_tokens": used.cache_read_tokens,
            "cache_write_tokens": used.cache_write_tokens,
            "reasoning_tokens": used.details.get("reasoning_tokens", 0),
            "request_count": 1,
            "prompt_tokens": used.input_tokens,
            "total_tokens": used.input_tokens + used.output_tokens,
        },
        "assistant_message": None,
        "assistant_content_chars": len(response.text or ""),
        "assistant_tool_call_count": len(response.tool_calls),
    }


async def live(out_fd: int) -> int:
    """Listen and work until told to end."""
    leaf = Leaf(out_fd)
    aside = [asyncio.create_task(leaf.listen()), asyncio.create_task(leaf.beat())]
    try:
        await Loop(leaf, await leaf.order("start")).run()
    except wire.WireError as error:
        print(f"main.py: {error}", file=sys.stderr)
        return 1
    finally:
        for task in aside:
            task.cancel()
    return 0


def main() -> int:
    """Keep stdout for the leaf alone: what any library prints goes to stderr."""
    out_fd = os.dup(1)
    os.set_inheritable(out_fd, False)
    os.dup2(2, 1)
    return asyncio.run(live(out_fd))


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main())

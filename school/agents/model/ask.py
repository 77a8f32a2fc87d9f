"""One call to a model: a system text and a prompt go in, an Answer comes out; no tools, nothing remembered.

``asks(spec, environ=…)`` makes the callable. A call returns within ``timeout_s`` (and two seconds), whatever the
endpoint does, and never raises for it: see Answer for the reasons. Rate limits and failing servers are tried again
within that time. A text that was cut off by the model's limit comes with reason ``cut``. Which endpoint and key: see
``endpoint``. Texts may hold anything, lone surrogates too; what comes back is valid text of bounded size.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from school.agents.model.endpoint import CallFailed, Endpoint, connect
from school.contracts import AgentSpec, Answer, Asks, bounded

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

TEXT_BYTES_MAX: Final = 4 * 1024 * 1024
PATIENCE_S: Final = 30.0
# Beyond the time limit: only something that asyncio cannot interrupt, a name server for one, takes longer.
GRACE_S: Final = 2.0


def asks(spec: AgentSpec, *, environ: Mapping[str, str]) -> Asks:
    """The model that *spec* describes, as a callable."""
    return _Caller(spec, environ)


class _Caller:
    def __init__(self, spec: AgentSpec, environ: Mapping[str, str]) -> None:
        self.model = spec.model
        self._spec = spec
        self._environ = environ

    def __call__(self, system: str, prompt: str, *, timeout_s: float) -> Answer:
        # In a thread of its own: an event loop may be running in the caller's, and a look-up that hangs stays there.
        answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        deadline = time.monotonic() + timeout_s
        threading.Thread(
            target=self._call, args=(system, prompt, deadline, answers), name="ask", daemon=True
        ).start()
        try:
            answer = answers.get(timeout=timeout_s + GRACE_S)
        except queue.Empty:
            detail = f"{self.model} did not answer in {timeout_s:.3g} s"
            return Answer(model=self.model, reason="timeout", detail=detail, usage=_usage(1))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _call(
        self, system: str, prompt: str, deadline: float, answers: queue.SimpleQueue[Answer | BaseException]
    ) -> None:
        try:
            answers.put(asyncio.run(self._answer(system, prompt, deadline)))
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
            answers.put(error)

    async def _answer(self, system: str, prompt: str, deadline: float) -> Answer:
        from pydantic_ai.messages import ModelRequest

        try:
            endpoint = connect(self._spec, self._environ)
        except CallFailed as failed:
            return Answer(model=self.model, reason=failed.reason, detail=failed.detail, usage=_usage(0))
        try:
            message = ModelRequest.user_text_prompt(valid(prompt), instructions=valid(system) or None)
            response = await endpoint.request([message], deadline=deadline, patience_s=PATIENCE_S)
            return _understood(self.model, response, endpoint)
        except CallFailed as failed:
            return Answer(
                model=self.model,
                reason=failed.reason,
                detail=failed.detail,
                retry_at=failed.retry_at,
                usage=_usage(endpoint.requests),
            )
        finally:
            await endpoint.aclose()


def valid(text: str) -> str:
    """*text* as something that UTF-8 can hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _understood(model: str, response: ModelResponse, endpoint: Endpoint) -> Answer:
    text = bounded(valid(response.text or ""), TEXT_BYTES_MAX)
    answer = Answer(text=text, model=valid(response.model_name or model), usage=usage_of(response))
    answer.usage["requests"] = endpoint.requests
    if response.finish_reason == "length":
        answer.reason, answer.detail = "cut", f"{model} was cut off at its limit of output"
    elif response.finish_reason == "content_filter":
        answer.reason, answer.detail = "refused", f"{model} refused to answer"
    elif not text.strip():
        answer.detail = f"{model} said nothing"
    return answer


def usage_of(response: ModelResponse) -> dict[str, Any]:
    """What one response used; ``cost_usd`` is None where nobody knows its price."""
    used = response.usage
    cost = used.cost
    if cost is None:
        try:
            cost = response.cost().total_price
        except (LookupError, ValueError, AssertionError):
            cost = None
    return {
        "requests": 1,
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cost_usd": None if cost is None else float(cost),
    }


def _usage(requests: int) -> dict[str, Any]:
    return {
        "requests": requests,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost_usd": 0.0 if not requests else None,
    }

"""The three wire formats of tests.endpoint: one answer as OpenAI chat, OpenAI responses or Anthropic messages.

Each format has ``whole(answer)``, the JSON body of an answer that is not streamed, ``events(answer)``, the server-sent
events of a streamed one as ``(event name, data)`` in order, and ``error(status, message)``. Pure; no socket here.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

CREATED = 1_790_000_000
_numbers = itertools.count(1)
Event = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of the model."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> str:
        return json.dumps(self.args)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says in one turn: text, tool calls, or both; and what it says that it used."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    input_tokens: int = 11
    output_tokens: int = 7
    model: str = "fake-model"
    include_usage: bool = True
    # Chat completions only: another reason to end than stop and tool_calls, ``length`` for one.
    finish: str = ""


def _pieces(text: str) -> list[str]:
    """Two deltas, so that a client that takes the first for the whole is seen."""
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]


class Chat:
    """POST /v1/chat/completions."""

    end = "[DONE]"

    @staticmethod
    def usage(answer: Answer) -> dict[str, Any]:
        total = answer.input_tokens + answer.output_tokens
        return {
            "prompt_tokens": answer.input_tokens,
            "completion_tokens": answer.output_tokens,
            "total_tokens": total,
        }

    @classmethod
    def _calls(cls, answer: Answer) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{next(_numbers)}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]

    @classmethod
    def whole(cls, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.calls:
            message["tool_calls"] = cls._calls(answer)
        reason = answer.finish or ("tool_calls" if answer.calls else "stop")
        return {
            "id": f"chatcmpl-{next(_numbers)}",
            "object": "chat.completion",
            "created": CREATED,
            "model": answer.model,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": cls.usage(answer),
        }

    @classmethod
    def events(cls, answer: Answer) -> Iterator[Event]:
        head = {
            "id": f"chatcmpl-{next(_numbers)}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": answer.model,
        }

        def chunk(delta: dict[str, Any], reason: str | None = None) -> Event:
            return "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

        yield chunk({"role": "assistant", "content": ""})
        for piece in _pieces(answer.text):
            yield chunk({"content": piece})
        for index, call in enumerate(cls._calls(answer)):
            yield chunk({"tool_calls": [{"index": index, **call}]})
        yield chunk({}, answer.finish or ("tool_calls" if answer.calls else "stop"))
        if answer.include_usage:
            yield "", {**head, "choices": [], "usage": cls.usage(answer)}

    @staticmethod
    def error(status: int, message: str) -> dict[str, Any]:
        kind = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status, "server_error")
        return {"error": {"message": message, "type": kind, "code": kind}}


class Responses:
    """POST /v1/responses."""

    end = ""
    error = Chat.error

    @staticmethod
    def _item(call: Call | str) -> dict[str, Any]:
        number = next(_numbers)
        if isinstance(call, Call):
            return {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": f"call_{number}",
                "name": call.name,
                "arguments": call.arguments,
                "status": "completed",
            }
        content = [{"type": "output_text", "text": call, "annotations": []}]
        return {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }

    @classmethod
    def whole(cls, answer: Answer) -> dict[str, Any]:
        said = [answer.text] if answer.text else []
        return cls._response(answer, [cls._item(part) for part in (*said, *answer.calls)])

    @staticmethod
    def _response(answer: Answer, output: list[dict[str, Any]], status: str = "completed") -> dict[str, Any]:
        usage = {
            "input_tokens": answer.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.input_tokens + answer.output_tokens,
        }
        return {
            "id": f"resp_{next(_numbers)}",
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "model": answer.model,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage if status == "completed" else None,
        }

    @classmethod
    def events(cls, answer: Answer) -> Iterator[Event]:
        whole = cls.whole(answer)
        numbered = itertools.count()

        def event(kind: str, **fields: Any) -> Event:
            return kind, {"type": kind, "sequence_number": next(numbered), **fields}

        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        yield event("response.created", response=begun)
        for index, item in enumerate(whole["output"]):
            at = {"output_index": index, "item_id": item["id"]}
            hollow = {**item, "status": "in_progress"}
            hollow |= {"content": []} if item["type"] == "message" else {"arguments": ""}
            yield event("response.output_item.added", output_index=index, item=hollow)
            if item["type"] == "message":
                part = item["content"][0]
                place = {**at, "content_index": 0}
                yield event("response.content_part.added", part={**part, "text": ""}, **place)
                for piece in _pieces(part["text"]):
                    yield event("response.output_text.delta", delta=piece, logprobs=[], **place)
                yield event("response.output_text.done", text=part["text"], logprobs=[], **place)
                yield event("response.content_part.done", part=part, **place)
            else:
                yield event("response.function_call_arguments.delta", delta=item["arguments"], **at)
                done = {"arguments": item["arguments"], "name": item["name"]}
                yield event("response.function_call_arguments.done", **done, **at)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=whole)


class Messages:
    """POST /v1/messages."""

    end = ""

    @staticmethod
    def _blocks(answer: Answer) -> list[dict[str, Any]]:
        said = [{"type": "text", "text": answer.text}] if answer.text else []
        return said + [
            {"type": "tool_use", "id": f"toolu_{next(_numbers)}", "name": call.name, "input": call.args}
            for call in answer.calls
        ]

    @classmethod
    def whole(cls, answer: Answer) -> dict[str, Any]:
        return {
            "id": f"msg_{next(_numbers)}",
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": cls._blocks(answer),
            "stop_reason": "tool_use" if answer.calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens},
        }

    @classmethod
    def events(cls, answer: Answer) -> Iterator[Event]:
        whole = cls.whole(answer)

        def event(kind: str, **fields: Any) -> Event:
            return kind, {"type": kind, **fields}

        usage = {"input_tokens": answer.input_tokens, "output_tokens": 1}
        yield event("message_start", message={**whole, "content": [], "stop_reason": None, "usage": usage})
        for index, block in enumerate(whole["content"]):
            if block["type"] == "text":
                hollow = {**block, "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
            else:
                hollow = {**block, "input": {}}
                deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
            yield event("content_block_start", index=index, content_block=hollow)
            for delta in deltas:
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield event("message_delta", delta=ended, usage={"output_tokens": answer.output_tokens})
        yield event("message_stop")

    @staticmethod
    def error(status: int, message: str) -> dict[str, Any]:
        kind = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
        return {
            "type": "error",
            "error": {"type": kind.get(status, "api_error"), "message": message},
        }


Wire = type[Chat] | type[Responses] | type[Messages]
FORMATS: dict[str, Wire] = {
    "/v1/chat/completions": Chat,
    "/v1/responses": Responses,
    "/v1/messages": Messages,
}

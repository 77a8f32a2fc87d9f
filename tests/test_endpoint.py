"""The fake endpoint itself: what real client libraries make of it, and that none of its failures outlives it."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest

from tests.endpoint import CUT, EMPTY, HANG, FakeEndpoint, call, limited, say, status


def post(endpoint: FakeEndpoint, path: str, **body: Any) -> tuple[int, bytes, str]:
    """Status, body and Retry-After of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=5)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers.get("retry-after", "")
    finally:
        connection.close()


@pytest.mark.parametrize("stream", [False, True])
def test_openai_chat(stream: bool) -> None:
    from openai import OpenAI

    with FakeEndpoint([call("bash", command="ls"), say("Hello there.")]) as endpoint:
        client = OpenAI(base_url=endpoint.base_url, api_key="sk-fake", max_retries=0)
        tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
        ask: dict[str, Any] = {
            "model": "m-1",
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": tools,
        }
        if stream:
            chunks = list(client.chat.completions.create(stream=True, **ask))
            said = chunks[1].choices[0].delta.tool_calls[0].function
            second = list(
                client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ask)
            )
            text = "".join(c.choices[0].delta.content or "" for c in second if c.choices)
            used = second[-1].usage
        else:
            said = client.chat.completions.create(**ask).choices[0].message.tool_calls[0].function
            answer = client.chat.completions.create(**ask)
            text, used = answer.choices[0].message.content, answer.usage
        client.close()
    assert (said.name, json.loads(said.arguments)) == ("bash", {"command": "ls"})
    assert (text, used.prompt_tokens, used.completion_tokens) == ("Hello there.", 11, 7)
    assert [r["model"] for r in endpoint.requests] == ["m-1", "m-1"]
    assert endpoint.requests[0].path == "/v1/chat/completions"
    assert endpoint.requests[0].headers["authorization"] == "Bearer sk-fake"


@pytest.mark.parametrize("stream", [False, True])
def test_openai_responses(stream: bool) -> None:
    from openai import OpenAI

    with FakeEndpoint([call("bash", command="ls"), say("Hello there.")]) as endpoint:
        client = OpenAI(base_url=endpoint.base_url, api_key="sk-fake", max_retries=0)
        tools = [{"type": "function", "name": "bash", "parameters": {"type": "object"}, "strict": False}]
        answers = []
        for _ in range(2):
            if stream:
                with client.responses.stream(model="m", input="Hi", tools=tools) as events:
                    answers.append(events.until_done().get_final_response())
            else:
                answers.append(client.responses.create(model="m", input="Hi", tools=tools))
        client.close()
    assert answers[0].output[0].name == "bash"
    assert json.loads(answers[0].output[0].arguments) == {"command": "ls"}
    assert (answers[1].output_text, answers[1].usage.input_tokens) == ("Hello there.", 11)


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_messages(stream: bool) -> None:
    from anthropic import Anthropic

    with FakeEndpoint([call("bash", command="ls"), say("Hello there.")]) as endpoint:
        client = Anthropic(base_url=endpoint.root, api_key="sk-fake", max_retries=0)
        ask: dict[str, Any] = {
            "model": "m",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [{"name": "bash", "input_schema": {"type": "object"}}],
        }
        answers = []
        for _ in range(2):
            if stream:
                with client.messages.stream(**ask) as events:
                    answers.append(events.get_final_message())
            else:
                answers.append(client.messages.create(**ask))
        client.close()
    assert (answers[0].content[0].name, answers[0].content[0].input) == ("bash", {"command": "ls"})
    assert answers[0].stop_reason == "tool_use"
    assert (answers[1].content[0].text, answers[1].usage.output_tokens) == ("Hello there.", 7)


def test_failures_come_as_they_are_written() -> None:
    with FakeEndpoint([status(500, "boom"), limited(90), EMPTY, say("last")]) as endpoint:
        code, body, _ = post(endpoint, "/v1/chat/completions")
        assert (code, json.loads(body)["error"]["message"]) == (500, "boom")
        code, body, retry_after = post(endpoint, "/v1/messages")
        assert (code, json.loads(body)["error"]["type"], retry_after) == (429, "rate_limit_error", "90")
        assert post(endpoint, "/v1/chat/completions") == (200, b"", "")
        for _ in range(2):
            assert b'"content": "last"' in post(endpoint, "/v1/chat/completions")[1]


def test_a_cut_stream_is_cut() -> None:
    with FakeEndpoint([CUT]) as endpoint, pytest.raises(http.client.IncompleteRead):
        post(endpoint, "/v1/chat/completions", stream=True)


def test_a_hang_ends_with_the_endpoint() -> None:
    with FakeEndpoint([HANG]) as endpoint:
        place = ("127.0.0.1", endpoint.port)
        with socket.create_connection(place, timeout=5) as client:
            client.sendall(b"POST /v1/responses HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1)


def test_another_path_and_a_title_take_no_turn() -> None:
    with FakeEndpoint([call("bash"), say("end")]) as endpoint:
        assert post(endpoint, "/v1/embeddings")[0] == 404
        assert b"A title." in post(endpoint, "/v1/chat/completions")[1]
        assert b'"bash"' in post(endpoint, "/v1/chat/completions", tools=[{"type": "function"}])[1]
    assert len(endpoint.requests) == 2


def test_a_script_may_be_a_function() -> None:
    with FakeEndpoint(lambda request: say(f"You said {request['n']}.")) as endpoint:
        assert b"You said 5." in post(endpoint, "/v1/chat/completions", n=5)[1]

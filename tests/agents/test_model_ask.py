"""One call to a model: what every kind of answer and failure of an endpoint becomes, and how long it may take."""

from __future__ import annotations

import socket
import time
from datetime import UTC, datetime, timedelta

import pytest

from school.agents.model import ask, endpoint
from school.agents.model.ask import asks
from school.agents.model.resets import seconds_until
from school.contracts import AgentSpec, Answer
from tests.endpoint import CUT, EMPTY, HANG, HUGE, INVALID_UTF8, MALFORMED, FakeEndpoint, limited, say, status

NOW = datetime(2030, 1, 1, tzinfo=UTC)
KEY = "sk-0123456789abcdef"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_WAIT_S", 0.01)


def spec(url: str, model: str = "openai:gpt-4o") -> AgentSpec:
    return AgentSpec(name="lens", kind="model", model=model, base_url=url, api_key_env="MY_KEY")


def asked(
    turns: list[object], *, model: str = "openai:gpt-4o", timeout_s: float = 10.0
) -> tuple[Answer, FakeEndpoint]:
    with FakeEndpoint(turns) as fake:  # type: ignore[arg-type]
        url = fake.root if model.startswith("anthropic") else fake.base_url
        answer = asks(spec(url, model), environ={"MY_KEY": KEY})("Be brief.", "Say it.", timeout_s=timeout_s)
    return answer, fake


@pytest.mark.parametrize(
    "model",
    [
        "openai:gpt-4o",
        "openai-chat:gpt-4o",
        "openai-responses:gpt-4o",
        "anthropic:claude-x",
        "qwen2.5:7b",
        "local",
    ],
)
def test_an_answer_comes_with_its_usage(model: str) -> None:
    answer, fake = asked([say("Fine.", input_tokens=1000, output_tokens=10)], model=model)
    assert (answer.text, answer.reason) == ("Fine.", "")
    assert {name: answer.usage[name] for name in ("requests", "input_tokens", "output_tokens")} == {
        "requests": 1,
        "input_tokens": 1000,
        "output_tokens": 10,
    }
    assert len(fake.requests) == 1
    header = fake.requests[0].headers.get("authorization") or fake.requests[0].headers.get("x-api-key")
    assert header in (f"Bearer {KEY}", KEY)


def test_a_known_price_is_reckoned_and_an_unknown_one_is_none() -> None:
    known, _ = asked([say("Fine.", input_tokens=1000, output_tokens=1000)])
    unknown, _ = asked([say("Fine.", input_tokens=1000, output_tokens=1000)], model="local")
    assert known.usage["cost_usd"] == 0.0125
    assert unknown.usage["cost_usd"] is None


def test_the_prompt_may_hold_anything() -> None:
    with FakeEndpoint([say("Fine.")]) as fake:
        prompt = "a\ud800b" + "x" * 300_000
        answer = asks(spec(fake.base_url), environ={"MY_KEY": KEY})("", prompt, timeout_s=20)
    assert answer.text == "Fine."
    assert fake.requests[0]["messages"] == [{"role": "user", "content": "a\\ud800b" + "x" * 300_000}]


@pytest.mark.parametrize(
    ("turn", "reason", "tries"),
    [
        (status(500), "unavailable", 4),
        (status(503), "unavailable", 4),
        (status(529), "unavailable", 4),
        (status(400), "refused", 1),
        (status(401), "refused", 1),
        (status(404), "refused", 1),
        (status(400, "request (9031 tokens) exceeds the available context size (4096 tokens)"), "limit", 1),
        (status(402), "quota", 1),
        (status(429), "quota", 4),
        (limited(3600), "quota", 1),
        (MALFORMED, "unavailable", 4),
        (EMPTY, "unavailable", 4),
        (CUT, "unavailable", 4),
        (INVALID_UTF8, "unavailable", 4),
        (HUGE, "unavailable", 4),
    ],
)
def test_a_failure_has_its_reason(turn: object, reason: str, tries: int) -> None:
    answer, fake = asked([turn])
    assert (answer.reason, len(fake.requests), answer.usage["requests"]) == (reason, tries, tries)
    assert answer.text == ""
    assert answer.detail
    assert len(answer.detail) < 2000


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        ("half of it", "length", "cut"),
        ("", "content_filter", "refused"),
        ("half of it", "content_filter", "refused"),
        ("", "stop", ""),
        ("  ", "stop", ""),
    ],
)
def test_an_answer_that_is_none_or_not_whole_says_so(text: str, finish: str, reason: str) -> None:
    answer, fake = asked([say(text, finish=finish)])
    assert (answer.text, answer.reason, len(fake.requests)) == (text, reason, 1)
    assert answer.detail


def test_a_failure_that_passes_is_no_failure() -> None:
    answer, fake = asked([status(500), status(429, retry_after="0"), say("At last.")])
    assert (answer.text, answer.reason, answer.usage["requests"]) == ("At last.", "", 3)
    assert len(fake.requests) == 3


def test_a_reset_far_off_is_a_quota_with_its_time() -> None:
    before = datetime.now(UTC)
    answer, _ = asked([limited(3600)])
    reset = datetime.fromisoformat(answer.retry_at)
    assert before + timedelta(seconds=3598) <= reset <= datetime.now(UTC) + timedelta(seconds=3601)
    assert answer.retry_at in answer.detail


def test_an_endpoint_that_is_down_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets it, and nobody answers
        port = taken.getsockname()[1]
        answer = asks(spec(f"http://127.0.0.1:{port}/v1"), environ={"MY_KEY": KEY})("", "x", timeout_s=10)
    assert (answer.reason, answer.usage["requests"]) == ("unavailable", 4)


def test_a_hanging_endpoint_costs_no_more_than_the_limit() -> None:
    begun = time.monotonic()
    answer, _ = asked([HANG], timeout_s=0.6)
    assert answer.reason == "timeout"
    assert time.monotonic() - begun < 0.6 + ask.GRACE_S + 1


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint.connect, "__kwdefaults__", {"answer_bytes": 100_000})
    answer, fake = asked([say("y" * 200_000)])
    assert (answer.reason, answer.text, len(fake.requests)) == ("limit", "", 1)
    assert "100000 bytes" in answer.detail


def test_no_key_is_said_before_anything_is_sent() -> None:
    with FakeEndpoint([say("Fine.")]) as fake:
        answer = asks(spec(fake.base_url), environ={})("", "x", timeout_s=5)
    assert (answer.reason, fake.requests) == ("not_installed", [])
    assert "MY_KEY" in answer.detail


@pytest.mark.parametrize("model", ["nobody:x", "gpt-4o", "mistral:x"])
def test_a_provider_that_cannot_be_had_is_said(model: str) -> None:
    bare = AgentSpec(name="lens", kind="model", model=model)
    answer = asks(bare, environ={})("", "x", timeout_s=5)
    assert answer.reason == "not_installed"
    assert model in answer.detail or "lens" in answer.detail


def test_the_key_is_in_no_detail() -> None:
    answer, _ = asked([status(401, f"Incorrect API key provided: {KEY}")])
    assert KEY not in answer.detail
    assert "[key]" in answer.detail


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "90"}, None, 90.0),
        ({"retry-after": "Tue, 01 Jan 2030 00:02:00 GMT"}, None, 120.0),
        ({"retry-after-ms": "1500"}, None, 1.5),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, None, 360.0),
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "6m0s",
                "x-ratelimit-remaining-tokens": "9",
            },
            None,
            1.0,
        ),
        ({"x-ratelimit-reset": str(int(NOW.timestamp()) + 30)}, None, 30.0),
        ({"x-ratelimit-reset": str((int(NOW.timestamp()) + 30) * 1000)}, None, 30.0),
        ({"anthropic-ratelimit-requests-reset": "2030-01-01T00:00:45Z"}, None, 45.0),
        ({}, {"error": {"resets_in_seconds": 77}}, 77.0),
        ({}, {"error": {"resets_at": int(NOW.timestamp()) + 10}}, 10.0),
        ({"retry-after": "-5"}, None, None),
        ({"retry-after": "soon"}, {"error": "soon"}, None),
        ({"retry-after": "1e300"}, None, 31 * 86400.0),
        ({"retry-after": "nan"}, None, None),
        ({}, None, None),
    ],
)
def test_when_calls_are_taken_again(headers: dict[str, str], body: object, seconds: float | None) -> None:
    assert seconds_until(headers, body, NOW) == seconds

"""A smoke test of the whole HTTP path against a real small model on this machine. What it says is never judged.

SmolLM2-135M cannot code and cannot review. That a request goes out, an answer comes in, tokens are counted, a prompt that
is too long is said to be, and a run of the loop ends with a reason of its own: that is all.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from school.agents.model.ask import asks
from school.contracts import AgentSpec
from school.settings import Settings
from tests.agents.driving import Drive
from tests.clients.driving import CLIENTS

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]
PYTHON = CLIENTS / "small/bin/python"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is not there: SCHOOL_CLIENTS=small-model sh scripts/clients.sh")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [PYTHON, Path(__file__).with_name("small_model.py"), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until_listening(port, server)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()


def _until_listening(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert server.poll() is None, "the server has ended"
        with socket.socket() as look:
            if look.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server does not listen")


def test_it_answers_and_its_tokens_are_counted(url: str) -> None:
    ask = asks(AgentSpec(name="small", kind="model", model="smollm2", base_url=url), environ={})
    answer = ask("Answer in one word.", "What is the capital of France?", timeout_s=150)
    assert answer.reason == "", answer.detail
    assert answer.text
    assert answer.usage["input_tokens"] > 10
    assert answer.usage["output_tokens"] > 0
    assert answer.usage["cost_usd"] is None


def test_a_prompt_beyond_its_context_is_said_to_be(url: str) -> None:
    ask = asks(AgentSpec(name="small", kind="model", model="smollm2", base_url=url), environ={})
    answer = ask("", "word " * 20_000, timeout_s=150)
    assert answer.reason == "limit", answer.detail


def test_a_run_of_the_loop_ends_with_a_reason_of_its_own(
    url: str, repo: Path, school: Settings, tmp_path: Path
) -> None:
    drive = Drive(repo, school, tmp_path, limits={"tokens": 6000})
    spec = AgentSpec(name="small", kind="model", model="smollm2", base_url=url, prompt="none", timeout_s=60.0)
    outcome = drive.run(spec)
    # At 60 s it is most likely still thinking.
    assert outcome.reason in ("", "budget", "limit", "timeout", "unavailable"), outcome.detail
    assert drive.transcript()[0]["kind"] == "user"

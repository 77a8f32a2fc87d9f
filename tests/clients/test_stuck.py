"""A real command line agent that ends its turn stuck: it gets one more, with the packet that it could not hear before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.driving import CODEX, drive, good
from tests.clients.test_hermes_plugin import PACKET
from tests.endpoint import Request, Turn, say

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]


def test_a_packet_that_is_left_over_is_worth_one_more_turn(tmp_path: Path) -> None:
    told = iter(good(CODEX))
    failing = iter([*(CODEX.shell(f"exit {code}") for code in (3, 4, 5)), say("I give up.")])

    def answer(request: Request) -> Turn:
        heard = PACKET in json.dumps(request)
        return next(told, say("That was all.")) if heard else next(failing, say("I give up."))

    run = drive(CODEX, answer, tmp_path)
    assert run.task["outcome"] == "accepted", run.stderr
    assert run.bag["guidance"][0]["by"] == "governor"
    (packet,) = [entry for entry in run.bag["guidance"] if entry["what"] == "packet"]
    assert (packet["turn"], packet["became"], packet["followed"]) == (2, "recovered", True)
    assert "3 tool calls in a row failed" in packet["text"]

"""Every way a command line agent can fail, as a leaf's record tells it: the true reason, in bounded time and memory."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

import pytest

import bookbag
from school.agents import registry
from school.agents.ending import decide
from school.contracts import UNCHARGED_REASONS, AgentConfig, AgentSpec, ProjectConfig
from school.settings import Settings
from school.system import processes
from tests.agents.running import Place
from tests.leaves import content, new_bead, run

FAKE = str(Path(__file__).with_name("fake_cli.py"))
# What the flood prints. The whole two gigabytes: SCHOOL_FLOOD_BYTES=2147483648.
FLOOD_BYTES = int(os.environ.get("SCHOOL_FLOOD_BYTES") or 64 * 1024 * 1024)
QUICK = {"startup_timeout_s": 3.0, "stall_timeout_s": 2.0, "agent_timeout_s": 60.0}

# No turn after the first.
ALONE = {"on_stop": False}


def fake(behaviour: str, **fields: object) -> AgentSpec:
    agent = AgentConfig(preset="codex", argv=[sys.executable, FAKE, behaviour], **fields)
    return registry.resolve("mine", ProjectConfig(agents={"mine": agent}))


@pytest.fixture
def place(tmp_path: Path, school: Settings) -> Place:
    return Place(tmp_path / "run", school)


@pytest.mark.parametrize(
    ("behaviour", "reason", "charged", "said"),
    [
        ("down", "unavailable", False, "connection refused"),
        ("500", "unavailable", False, "500 Internal Server Error"),
        ("429", "quota", False, "429 Too Many Requests"),
        ("401", "login", False, "401 Unauthorized"),
        ("hang", "unavailable", False, "it waited for an answer of its model"),
        ("hang-at-work", "stalled", True, "no output"),
        ("errors-for-ever", "unavailable", False, "told for 2 s of nothing but errors, and was ended"),
        (
            "odd-errors-for-ever",
            "unavailable",
            False,
            "and was ended; its last error: something went sideways",
        ),
        ("malformed", "exit", True, "ended with exit status 0 and reported no end of its turn"),
        ("nothing", "exit", True, "ended with exit status 0 and reported no end of its turn"),
        ("empty-answer", "unavailable", False, "ended without a word and without a call"),
        ("137", "killed", True, "137"),
        ("asks", "login", False, "Do you trust the files in this folder?"),
        ("waits-for-a-login", "unavailable", False, "perhaps it waits for a login"),
        ("mute", "unavailable", False, "perhaps it waits for a login"),
        ("asks-the-terminal", "exit", True, "ended with exit status 1"),
    ],
)
def test_the_reason_is_the_true_one(
    place: Place, behaviour: str, reason: str, charged: bool, said: str
) -> None:
    outcome = place.run(fake(behaviour), **QUICK)
    assert (outcome.reason, outcome.reason not in UNCHARGED_REASONS) == (reason, charged), outcome.detail
    assert said in outcome.detail
    assert decide(outcome, fake(behaviour), changed=True).status == "failed"
    assert outcome.usage["wall_s"] < 20


@pytest.mark.parametrize(
    ("behaviour", "reason", "waited"),
    [("hang", "unavailable", True), ("hang-at-work", "timeout", False)],
)
def test_out_of_time_is_whose_fault_it_is(place: Place, behaviour: str, reason: str, waited: bool) -> None:
    outcome = place.run(fake(behaviour), agent_timeout_s=4.0)
    assert outcome.reason == reason
    assert outcome.detail.startswith("mine: not ended after 4 s")
    assert outcome.detail.endswith("; it waited for an answer of its model") is waited


@pytest.mark.parametrize("behaviour", ["good", "no-word", "undecodable", "grandchild"])
def test_an_end_that_was_reported_is_handed_over(place: Place, behaviour: str) -> None:
    outcome = place.run(fake(behaviour), **QUICK)
    assert (outcome.reason, outcome.exit_code, outcome.claimed) == ("", 0, True)
    assert decide(outcome, fake(behaviour), changed=False).status == "open"
    assert (outcome.usage["input_tokens"], outcome.usage["output_tokens"]) == (5, 3)


def test_the_reset_of_a_quota_is_in_the_claim(place: Place) -> None:
    from school.system import clock

    outcome = place.run(fake("429"), **QUICK)
    left = clock.parse(outcome.claim.retry_at) - clock.parse(clock.now())
    assert 7000 < left.total_seconds() <= 7200


def test_what_cannot_be_decoded_becomes_text_in_the_record(repo: Path, school: Settings) -> None:
    bag = run(new_bead(repo, fake("undecodable"), advice=ALONE), school)
    assert (bag["status"], bag["output"]) == ("open", "\\udcff \\ud800")
    assert bag["summary"].startswith("\\udcff \\ud800")
    assert bookbag.validate_bookbag(bag) == []


def test_the_work_before_an_endpoint_failed_is_kept(repo: Path, school: Settings) -> None:
    bag = run(new_bead(repo, fake("429"), advice=ALONE), school, status=1)
    assert (bag["status"], bag["reason"]) == ("failed", "quota")
    assert bag["retry_at"]
    assert content(bag, school, "new.txt") == "new"


def test_no_process_outlives_its_agent(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, fake("grandchild"), advice=ALONE)
    assert run(bead, school)["status"] == "open"
    assert processes.marked(bead) == {}


def test_a_flood_is_bounded_in_memory_and_on_disk_and_its_end_is_read(repo: Path, school: Settings) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    limits = {"output_bytes": 16 * 1024 * 1024}
    bead = new_bead(repo, fake("flood", env=["SCHOOL_FLOOD_BYTES"]), limits=limits, advice=ALONE)
    bag = run(bead, school, SCHOOL_FLOOD_BYTES=str(FLOOD_BYTES), timeout_s=600)
    assert (bag["status"], bag["output"], bag["usage"]["input_tokens"]) == ("open", "Done.", 5)
    assert bag["usage"]["output_bytes"] >= FLOOD_BYTES
    kept = school.outputs_dir / bead / "stdout"
    assert kept.stat().st_size <= 17 * 1024 * 1024
    peak_kib = max(before_kib, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    assert peak_kib < 512 * 1024


def test_turns_and_output_of_a_failure_are_in_the_archive(place: Place) -> None:
    place.run(fake("500"), **QUICK)
    (turn,) = json.loads((place.outputs / "turns.json").read_text())
    assert (turn["reason"], turn["exit_code"], turn["session"]) == ("unavailable", 1, "t-1")
    assert turn["tools"] == [{"tool": "terminal", "args": {"command": "echo new"}}]
    assert b"turn.failed" in (place.outputs / "stdout").read_bytes()


def test_the_tools_are_told_while_the_agent_works(place: Place) -> None:
    """An adviser hears of a command before the turn ends: here it hangs after it."""
    heard: list[tuple[str, str, int]] = []

    def tool(**event: object) -> None:
        heard.append(
            (str(event["tool_name"]), str(event["args"]), json.loads(str(event["result"]))["exit_code"])
        )

    place.hooks.add("test", "post_tool_call", tool)
    place.hooks.add("test", "on_session_end", lambda **_event: heard.append(("end", "", 0)))
    place.run(fake("hang"), **QUICK)
    assert heard == [("terminal", "{'command': 'echo new'}", 0), ("end", "", 0)]

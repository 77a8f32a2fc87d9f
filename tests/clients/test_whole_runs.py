"""Real clients against the fake endpoint, each in a whole run: what they do is judged and delivered like all work."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clients.driving import (
    ALL,
    BY_HAND,
    CODEX,
    EDIT,
    HERMES,
    KEY,
    MINI,
    OPENCODE,
    TEST,
    Client,
    Driven,
    attempts,
    drive,
    drive_until_it_waits,
    good,
    home_of,
)
from tests.e2e.projects import conduct, environment
from tests.endpoint import HANG, limited, say, status
from tests.support import git

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]


@pytest.fixture(params=ALL, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    request.param.skip_if_absent()
    return request.param


def test_a_student_edits_tests_and_is_accepted(client: Client, tmp_path: Path) -> None:
    script = [client.shell(EDIT), client.shell("exit 3"), client.shell(TEST), client.last("add() adds now.")]
    run = drive(client, script, tmp_path)

    assert (run.code, run.task["outcome"], run.task["branch"]) == (0, "accepted", "school/fix-add"), (
        run.stderr
    )
    assert git(run.repo, "show", "school/fix-add:calc/core.py").endswith("return left + right")
    bag = run.bag
    assert (bag["cto_verdict"], bag["coo_verdict"], bag["accepted"]) == ("PASS", "PASS", True)
    assert (bag["agent"]["name"], bag["claim"], bag["files_changed"]) == ("student", "done", ["calc/core.py"])
    assert bag["summary"].startswith("add() adds now.")
    assert bag["output"].strip() == "add() adds now."
    assert (bag["usage"]["input_tokens"], bag["usage"]["output_tokens"]) == (44, 28)
    assert [use["args"]["command"] for use in run.turns()[0]["tools"]][:3] == [EDIT, "exit 3", TEST]
    its_home_and_ours_stay_apart(run)


def its_home_and_ours_stay_apart(run: Driven) -> None:
    own = {".hermes", ".gitconfig", ".cache", ".config", ".local", ".rustup", ".npm"}
    assert {path.name for path in run.home.iterdir()} <= own
    assert not (run.home / ".hermes" / "config.yaml").exists()
    assert git(run.repo, "status", "--porcelain") == ""
    kept = [path for path in run.hermes_home.rglob("*") if path.is_file()]
    assert [path for path in kept if KEY.encode() in path.read_bytes()] == []
    assert run.endpoint is not None
    assert run.endpoint.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("hand", BY_HAND, ids=lambda client: client.name)
def test_configured_by_hand_it_needs_no_more_than_its_preset(hand: Client, tmp_path: Path) -> None:
    hand.skip_if_absent()
    script = [hand.shell(EDIT), say("It adds."), hand.shell(TEST), say("The tests pass.")]
    run = drive(hand, script, tmp_path, on_stop=True)
    assert run.task["outcome"] == "accepted", run.stderr
    turns = run.turns()
    assert turns[0]["answer"] == "It adds."
    assert turns[-1]["answer"] == "The tests pass."
    assert turns[0]["session"] == turns[1]["session"] != ""
    # What the school keeps in the same HERMES_HOME is as it was: the check of all invariants says so.
    code, _, stderr = conduct("check", "--repo", str(run.repo), env=environment(run.home))
    assert code == 0, stderr


def test_the_plugin_of_a_users_hermes_tells_the_leaf_what_it_ran(tmp_path: Path) -> None:
    hand = BY_HAND[1]
    hand.skip_if_absent()
    home = home_of(tmp_path)
    config = home / ".hermes" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("plugins: {enabled: []}\n")
    code, rows, stderr = conduct("hermes", "install", env=environment(home))
    assert code == 0, (rows, stderr)
    listed = "plugins: {enabled: [schoolhouse]}\n"
    hand = replace(hand, by_hand={name: text + listed for name, text in hand.by_hand.items()})
    run = drive(hand, [hand.shell(EDIT), hand.shell("exit 3"), say("It adds.")], tmp_path)
    assert run.task["outcome"] == "accepted", run.stderr
    assert [use["args"]["command"] for use in run.turns()[0]["tools"]] == [EDIT, "exit 3"]


@pytest.mark.parametrize("asked", [CODEX, HERMES, OPENCODE], ids=lambda client: client.name)
def test_a_check_that_was_left_out_is_asked_for_in_a_further_turn(asked: Client, tmp_path: Path) -> None:
    asked.skip_if_absent()
    script = [asked.shell(EDIT), say("It adds."), asked.shell(TEST), say("The tests pass.")]
    run = drive(asked, script, tmp_path, on_stop=True)
    assert run.task["outcome"] == "accepted", run.stderr
    turns = run.turns()
    assert [turn["answer"] for turn in turns] == ["It adds.", "The tests pass."]
    assert turns[0]["session"] == turns[1]["session"] != ""
    assert run.bag["summary"].startswith("It adds.\n\nAt a later turn: The tests pass.")
    assert "unverified" not in run.bag["summary"]
    assert run.endpoint is not None
    assert "It adds." in json.dumps(run.endpoint.requests[-1])  # the session is the same one


FAILURES = {
    "down": (None, "unavailable", ""),
    "500": ([status(500)], "unavailable", ""),
    "429": ([limited(3600)], "quota", ""),
    # Which of the two is said hangs on whether it came to tell of its request before it was ended.
    "hang": ([HANG], "unavailable", ("it waited for an answer of its model", "or for its endpoint")),
    "401": ([status(401, "Incorrect API key provided")], "login", "Incorrect API key"),
}


@pytest.mark.parametrize(
    ("student", "case"),
    [
        pytest.param(student, case, id=f"{student.name}-{case}")
        for student in ALL
        for case in FAILURES
        # codex gives a silent stream five minutes of its own.
        if case in ("down", "500", "429") or student is {"401": CODEX, "hang": HERMES}[case]
    ],
)
def test_what_the_endpoint_did_is_no_fault_of_the_student(student: Client, case: str, tmp_path: Path) -> None:
    failure, reason, said = FAILURES[case]
    run = drive_until_it_waits(student, failure, tmp_path, stall_timeout_s=12)
    bag = run.bags()[0]
    assert (bag["status"], bag["reason"]) == ("failed", reason), (bag["summary"], run.stderr[-2000:])
    assert any(words in bag["summary"] for words in ([said] if isinstance(said, str) else said))
    assert [attempt["charged"] for attempt in attempts(run.hermes_home)] == [False]
    assert git(run.repo, "branch", "--format=%(refname:short)") == "main"


@pytest.mark.parametrize("student", [HERMES, MINI, OPENCODE], ids=lambda client: client.name)
def test_an_endpoint_that_hangs_after_the_first_step_is_no_fault_of_the_student(
    student: Client, tmp_path: Path
) -> None:
    # opencode is never quite still, so that only its time runs out; half of it must have been waiting.
    limits = {"stall_timeout_s": 12, "agent_timeout_s": 100}
    run = drive_until_it_waits(student, [student.shell(EDIT), HANG], tmp_path, **limits)
    bag = run.bags()[0]
    assert (bag["status"], bag["reason"]) == ("failed", "unavailable"), (bag["summary"], run.stderr[-2000:])
    assert bag["files_changed"] == ["calc/core.py"]
    assert [attempt["charged"] for attempt in attempts(run.hermes_home)] == [False]


def test_a_prompt_of_300_kb_arrives_whole(client: Client, tmp_path: Path) -> None:
    word = "the-very-last-word"
    long = "\n" + ("      " + "x" * 99 + "\n") * 3000 + f"      {word}"
    run = drive(client, good(client), tmp_path, more=long)
    assert run.task["outcome"] == "accepted", run.stderr
    prompt = (run.archive / run.bag["bead"] / "prompt.md").read_text()
    assert len(prompt) > 300_000
    assert run.endpoint is not None
    asked = json.dumps(run.endpoint.requests[0])
    # Hermes takes no more than an argument holds, and is told where to read instead.
    assert word in asked or "Your whole task is in the file " in asked


def test_codex_takes_a_further_turn_of_the_same_session(tmp_path: Path, school) -> None:
    CODEX.skip_if_absent()
    from school.agents import registry
    from school.contracts import AgentConfig, ProjectConfig
    from tests.agents.running import Place
    from tests.endpoint import FakeEndpoint

    place = Place(tmp_path / "run", school)
    (place.tree / "calc").mkdir(parents=True)
    (place.tree / "calc" / "core.py").write_text("left - right\n")
    script = [CODEX.shell(EDIT), say("Done."), CODEX.shell(TEST), say("They pass.")]
    asked = ["Have you run the tests?"]
    with FakeEndpoint(script) as endpoint:
        agent = AgentConfig(preset="codex", argv=[str(CODEX.path)], base_url=endpoint.base_url, model="m")
        spec = registry.resolve("mine", ProjectConfig(agents={"mine": agent}))
        outcome = place.run(spec, gate=lambda _turn: asked.pop() if asked else "")
    assert (outcome.reason, outcome.claim.summary) == ("", "Done.\n\nAt a later turn: They pass.")
    assert (outcome.usage["input_tokens"], outcome.usage["output_tokens"]) == (44, 28)
    said = [
        item["content"][0]["text"] for item in endpoint.requests[-1]["input"] if item.get("role") == "user"
    ]
    assert said[-1] == "Have you run the tests?"
    assert "left + right" in (place.tree / "calc" / "core.py").read_text()

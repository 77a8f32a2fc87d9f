"""The coach in a real Hermes, by the plugin: notes, holds, tools and the settings that change them.

The agent's endpoint and the coach's are two; what each was asked is what each would have seen.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.driving import HERMES
from tests.clients.test_hermes_plugin import Real
from tests.coach.coaching import OK, finding
from tests.endpoint import HANG, FakeEndpoint, Request, Turn, call, say, status
from tests.support import git

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
TURNS = Path(__file__).with_name("hermes_turns.py")
NOTE = "<coach-note>"
CHILD = call("write_file", path="child.txt", content="here")
WRITE = call("write_file", path="made.py", content="x = 1\n")


@dataclass
class Coached:
    """What both endpoints were asked, and what the session answered."""

    answers: list[str]
    student: list[Request]
    coach: list[Request]
    home: Path

    def notes(self, at: int) -> int:
        return json.dumps(self.student[at]["messages"]).count(NOTE)

    def state(self) -> dict[str, Any]:
        (path,) = [
            path
            for path in (self.home / ".hermes" / "school" / "coach" / "sessions").glob("*.json")
            if json.loads(path.read_text())["turn"]
        ]
        found: dict[str, Any] = json.loads(path.read_text())
        return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    HERMES.skip_if_absent()
    return tmp_path / "hermes"


def session(
    place: Path,
    turns: Sequence[str | dict[str, str]],
    student: Sequence[Turn] | Callable[[Request], Turn],
    coach: Sequence[Turn] | Callable[[Request], Turn],
    *,
    faulty: bool = False,
    **settings: object,
) -> Coached:
    """Play *turns* in one session of a Hermes whose coach has these *settings*; *faulty* where faults are expected."""
    real = Real(place)
    work = place / "work"
    work.mkdir(parents=True, exist_ok=True)
    git(work, "init", "-q")
    git(
        work,
        "-c",
        "user.name=T",
        "-c",
        "user.email=t@example.invalid",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "base",
    )
    with FakeEndpoint(student, titles=False) as agent, FakeEndpoint(coach, titles=False) as other:
        real.install(agent.base_url)
        table = {"model": "coach-large", "base_url": other.base_url, "active_every_turns": 1, **settings}
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        (real.hermes_home / "school.toml").write_text("\n".join(["[coach]", *lines]) + "\n")
        said = [turn if isinstance(turn, dict) else {"say": turn} for turn in turns]
        done = subprocess.run(
            [str(HERMES.path.with_name("python")), str(TURNS), json.dumps(said)],
            cwd=work,
            env=real.env({"TURNS_URL": agent.base_url}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert faulty or real.plugin()["problems"] == []
    return Coached(json.loads(done.stdout.splitlines()[-1]), agent.requests, other.requests, place)


def parted(parent: Sequence[Turn], child: Sequence[Turn]) -> Callable[[Request], Turn]:
    """A script for a session and another for its subagent, which may ask at the same time."""
    left = {True: iter(parent), False: iter(child)}
    return lambda request: next(left["make it" in json.dumps(request["messages"])])


def test_a_note_reaches_the_next_turn_once_and_never_the_child(place: Path) -> None:
    told = session(
        place,
        [
            "make it",
            {"say": "and test it", "after": "Tests were not run"},
            {"say": "and now", "after": "child.txt"},
        ],
        parted(
            [say("made"), call("delegate_task", goal="test it"), say("done"), say("well"), say("well")],
            [CHILD, say("tested")],
        ),
        [say(finding()), say(OK)],
        completion_review=False,
    )
    own = [at for at, request in enumerate(told.student) if "make it" in json.dumps(request["messages"])]
    children = [at for at in range(len(told.student)) if at not in own]
    newest = [[said for said in told.student[at]["messages"] if said["role"] == "user"][-1] for at in own]
    assert [NOTE in json.dumps(said) for said in newest] == [False, True, True, False]
    # This Hermes keeps a message as it was sent, so the note stays where it was given, once.
    assert [told.notes(at) for at in own] == [0, 1, 1, 1]
    # A delegation may run in the background; whenever it asked, the note was not before it.
    assert children
    assert [told.notes(at) for at in children] == [0] * len(children)


def test_a_blocker_holds_a_completion_once_and_only_once(place: Path) -> None:
    blocker = finding("The file is empty of sense", "blocker", "Write what was asked for.")
    told = session(
        place,
        ["write it"],
        [WRITE, say("finished"), say("it is really finished")],
        [say(blocker)],
        active=False,
        review_authority="hold_once",
    )
    assert told.answers == ["it is really finished"]
    assert [
        len(told.student),
        json.dumps(told.student[2]["messages"]).count("The file is empty of sense"),
    ] == [3, 1]
    assert "made.py" in json.dumps(told.coach[0]["messages"])


def test_without_the_authority_it_only_advises(place: Path) -> None:
    blocker = finding("The file is empty of sense", "blocker")
    told = session(
        place,
        ["write it", {"say": "go on", "after": "The file is empty of sense"}],
        [WRITE, say("finished"), say("on")],
        [say(blocker)],
        active=False,
    )
    assert told.answers == ["finished", "on"]
    assert told.notes(1) == 0
    assert NOTE in json.dumps(told.student[2]["messages"][-1])


def test_an_expired_note_never_arrives(place: Path) -> None:
    told = session(
        place,
        ["make it", {"say": "go on", "after": "Tests were not run"}],
        [say("made"), say("on")],
        [say(finding()), say(OK)],
        completion_review=False,
        note_ttl_s=1e-6,
    )
    assert told.notes(1) == 0


def test_the_same_model_is_not_asked(place: Path) -> None:
    refused = session(place, ["make it"], [say("made")], [say(finding())], model="fake-model")
    assert refused.coach == []
    asked = session(
        place.with_name("asked"),
        ["make it", {"say": "go on", "after": "Tests were not run"}],
        [say("made"), say("on")],
        [say(finding())],
        model="fake-model",
        skip_same_model=False,
        completion_review=False,
    )
    assert len(asked.coach) >= 1


def test_guidance_before_a_turn(place: Path) -> None:
    told = session(
        place,
        ["make it"],
        [say("made")],
        [say(json.dumps({"guidance": "Mind the empty list."}))],
        active_timing="pre",
        completion_review=False,
    )
    assert "Mind the empty list." in json.dumps(told.student[0]["messages"][-1])


@pytest.mark.parametrize("allowed", [False, True])
def test_subagents_have_a_coach_only_where_that_is_allowed(place: Path, allowed: bool) -> None:
    told = session(
        place,
        ["make it", {"say": "and now", "after": "child.txt"}],
        parted(
            [call("delegate_task", goal="count to three"), say("made"), say("well"), say("well")],
            [CHILD, say("three")],
        ),
        [say(json.dumps({"guidance": "Mind the empty list."}))],
        active_timing="pre",
        completion_review=False,
        allow_in_subagents=allowed,
    )
    children = [
        json.dumps(asked["messages"])
        for asked in told.student
        if "make it" not in json.dumps(asked["messages"])
    ]
    assert children
    assert [("Mind the empty list." in child) for child in children] == [allowed] * len(children)


def test_the_tools_are_offered_and_answer(place: Path) -> None:
    told = session(
        place,
        ["choose"],
        [call("coach_consult", question="Which parser?", session_id="forged"), say("chosen")],
        [say(json.dumps({"advice": "Take the small one."}))],
        active=False,
        completion_review=False,
    )
    names = [tool["function"]["name"] for tool in told.student[0]["tools"]]
    assert {"coach_consult", "coach_decide"} <= set(names)
    assert "Take the small one." in told.student[1]["messages"][-1]["content"]
    assert told.state()["spent"]["by"] == {"consult": 1}


def test_evidence_is_as_long_as_is_allowed(place: Path) -> None:
    big = call("write_file", path="big.txt", content="word " * 4000)
    asked = []
    for number, most in enumerate((1000, 100_000)):
        told = session(
            place.with_name(f"evidence{number}"),
            ["write it"],
            [big, say("finished")],
            [say(OK)],
            active=False,
            review_evidence_max_chars=most,
        )
        asked.append(len(json.dumps(told.coach[0]["messages"])))
    assert asked[0] < 12_000
    assert asked[1] > 18_000


ALL_OF_IT: dict[str, Any] = {
    "active_timing": "both",
    "review_authority": "hold_once",
    "pre_timeout_s": 0.5,
    "active_timeout_s": 0.5,
    "gate_timeout_s": 2,
}


@pytest.mark.parametrize("trouble", ["hangs", "fails", "loses its state"])
def test_a_coach_that_fails_changes_nothing(place: Path, trouble: str) -> None:
    script = [WRITE, say("finished"), say("on")]
    answer = {"hangs": HANG, "fails": status(500)}.get(trouble, say(finding(severity="blocker")))
    if trouble == "loses its state":
        (place / ".hermes" / "school").mkdir(parents=True)
        (place / ".hermes" / "school" / "coach").write_text("no folder")
    told = session(place, ["write it", "go on"], script, [answer], faulty=True, **ALL_OF_IT)
    assert (told.answers, len(told.student)) == (["finished", "on"], 3)
    heard = [request["messages"][-1]["content"] for request in told.student]
    assert [heard[0], heard[2]] == ["write it", "go on"]
    if trouble == "loses its state":
        log = (place / ".hermes" / "school" / "logs" / "advisers.jsonl").read_text().splitlines()
        assert {json.loads(line)["adviser"] for line in log} == {"coach"}
    else:
        assert "no answer" in {row.get("title") for row in told.state()["advice"]}

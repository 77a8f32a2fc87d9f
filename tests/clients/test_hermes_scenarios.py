"""Both tables of scenarios, played by a real Hermes with the plugin: what its model is sent, and what the coach is asked.

Most are several turns of one session in one process. What only the interactive Hermes can do, take a message in (``inject``),
is played in that, on a terminal of the test's.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.driving import HERMES
from tests.clients.test_hermes_coach import session
from tests.clients.test_hermes_plugin import PACKET, Real
from tests.coach import scenarios as coached
from tests.coach.coaching import kind_of
from tests.endpoint import FakeEndpoint, Request, Turn, call, say
from tests.governor import scenarios as governed
from tests.support import git, write_tree

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
PROMPT = b"\xe2\x9d\xaf"  # of the interactive Hermes
WAIT_S = 120.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    HERMES.skip_if_absent()
    return tmp_path / "hermes"


# --- the governor -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", governed.PLAYABLE, ids=lambda scenario: scenario.name)
def test_governor(scenario: governed.Scenario, place: Path) -> None:
    write_tree(place / "work", governed.FILES)
    turns = governed.lines_of(scenario) or []
    script = [
        step
        for lines in turns
        for step in [*[call("terminal", command=line) for line, _ in lines], say("Hm.")]
    ]
    told = session(place, ["mend it", *["And now?"] * (len(turns) - 1)], script, [say("")], enabled=False)
    heard = [str(request["messages"][-1]["content"]) for request in told.student]
    codes = [json.loads(text.partition("\n\n")[0])["exit_code"] for text in heard if text.startswith("{")]
    assert codes == [code for lines in turns for _, code in lines]
    assert [at for at, text in enumerate(heard) if PACKET in text] == governed.told_at(scenario)
    [path] = (place / ".hermes" / "school" / "governor").glob("*.json")
    standing = json.loads(path.read_text())
    assert [packet["why"] for packet in standing["packets"]] == list(scenario.packets.values())
    assert standing["stuck"] is scenario.stuck


# --- the coach --------------------------------------------------------------------------------------------------


def answering(scenario: coached.Scenario) -> Callable[[Request], Turn]:
    """The coach's endpoint: by the kind of review, each kind's last answer for ever."""
    left = {kind: list(answers) for kind, answers in scenario.coach.items()}
    lock = threading.Lock()

    def answer(request: Request) -> Turn:
        answers = left[kind_of(str(request["messages"][0]["content"]))]
        with lock:
            return say(answers.pop(0) if len(answers) > 1 else answers[0])

    return answer


def judge(scenario: coached.Scenario, student: list[Request], coach: list[Request]) -> None:
    heard = [request["messages"][-1] for request in student]
    told = [coached.said_in(str(message["content"])) for message in heard if message["role"] == "user"]
    assert tuple(told) == scenario.told
    kinds = [kind_of(str(request["messages"][0]["content"])) for request in coach]
    assert coached.counted(kinds) == scenario.asked
    least, most = scenario.evidence_chars
    if most:
        assert least <= coached.evidence_of(str(coach[0]["messages"][-1]["content"])) <= most


def settings_of(scenario: coached.Scenario) -> dict[str, Any]:
    return {**scenario.settings, "model": "fake-model" if scenario.same_model else "coach-large"}


def after(scenario: coached.Scenario, number: int) -> dict[str, str]:
    """Turn *number*, begun once the finding that it is to be told of has come."""
    said = {"say": scenario.turns[number].user}
    held = sum(text.startswith("hold: ") for text in scenario.told)
    title = scenario.told[min(number + held, len(scenario.told) - 1)].partition("; ")[0]
    return {**said, "after": title.removeprefix("note: ")} if number and title.startswith("note: ") else said


@pytest.mark.parametrize(
    "scenario", [one for one in coached.SCENARIOS if not one.injects], ids=lambda scenario: scenario.name
)
def test_coach(scenario: coached.Scenario, place: Path) -> None:
    script: list[Turn] = []
    for turn in scenario.turns:
        for writes in [turn.writes, *([turn.when_held] if turn.when_held else [])]:
            script += [call("write_file", path=coached.MADE, content=writes)] if writes else []
            script.append(say("Done."))
    turns = [after(scenario, number) for number in range(len(scenario.turns))]
    told = session(place, turns, script, answering(scenario), **settings_of(scenario))
    judge(scenario, told.student, told.coach)


# --- in the interactive Hermes ----------------------------------------------------------------------------------


class Terminal:
    """An interactive Hermes on a terminal of ours."""

    def __init__(self, real: Real, work: Path) -> None:
        self.shown = bytearray()
        self._fd, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [str(HERMES.path), "chat", "--yolo"],
            cwd=work,
            env=real.env({"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, name="terminal")
        self._reader.start()

    def _read(self) -> None:
        # Reading the end of a terminal that nobody holds any more is an error.
        with contextlib.suppress(OSError):
            while chunk := os.read(self._fd, 65536):
                self.shown += chunk
                if b"\x1b[6n" in chunk:  # where the cursor is
                    os.write(self._fd, b"\x1b[1;1R")

    def type(self, line: str) -> None:
        os.write(self._fd, f"{line}\r".encode())

    def until(self, so_far: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not so_far():
            assert time.monotonic() < deadline, self.shown[-3000:].decode("utf-8", "replace")
            assert self.process.poll() is None, self.shown[-3000:].decode("utf-8", "replace")
            time.sleep(0.05)

    def close(self) -> None:
        """End it, with all that it started, whatever it does."""
        try:
            self.type("/quit")
            self.process.wait(60)
        except (OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        finally:
            self._reader.join(10)
            os.close(self._fd)


@contextlib.contextmanager
def terminal(real: Real, work: Path) -> Iterator[Terminal]:
    shown = Terminal(real, work)
    try:
        shown.until(lambda: PROMPT in shown.shown)
        yield shown
    finally:
        shown.close()


@pytest.mark.parametrize(
    "scenario", [one for one in coached.SCENARIOS if one.injects], ids=lambda scenario: scenario.name
)
def test_coach_that_injects(scenario: coached.Scenario, place: Path) -> None:
    """What is injected begins a turn by itself; the user's next message comes once the coach was heard on that one."""
    real, work = Real(place), place / "work"
    work.mkdir(parents=True)
    git(work, "init", "-q")
    script, answers = [say("Done.")], answering(scenario)
    with FakeEndpoint(script, titles=False) as agent, FakeEndpoint(answers, titles=False) as other:
        real.install(agent.base_url)
        table = {"base_url": other.base_url, **settings_of(scenario)}
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        (real.hermes_home / "school.toml").write_text("\n".join(["[coach]", *lines]) + "\n")

        def heard() -> list[Request]:
            """What the session's own model was asked; a title of the session is asked for without tools."""
            return [request for request in agent.requests if request.get("tools")]

        sessions = real.hermes_home / "school" / "coach" / "sessions"

        def noted() -> bool:
            return any(
                '"pending":[{' in path.read_text().replace(" ", "") for path in sessions.glob("*.json")
            )

        with terminal(real, work) as shown:
            shown.type(scenario.turns[0].user)
            shown.until(lambda: len(heard()) == 2)  # the second by the coach's own message
            shown.until(noted)
            shown.type(scenario.turns[1].user)
            shown.until(lambda: len(heard()) == 3 and len(other.requests) == 3)
        judge(scenario, heard(), other.requests)
    assert real.plugin()["problems"] == []


def test_a_review_in_flight_is_waited_for_when_hermes_ends(place: Path) -> None:
    real, work = Real(place), place / "work"
    work.mkdir(parents=True)
    git(work, "init", "-q")
    released = threading.Event()

    def slow(_request: Request) -> Turn:
        released.wait(60)
        return say(coached.UNTESTED)

    with (
        FakeEndpoint([say("Done."), say("Well.")], titles=False) as agent,
        FakeEndpoint(slow, titles=False) as other,
    ):
        real.install(agent.base_url)
        table = {"model": "coach-large", "base_url": other.base_url, **coached.POST}
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        (real.hermes_home / "school.toml").write_text("\n".join(["[coach]", *lines]) + "\n")
        chat = [str(HERMES.path), "chat", "-Q", "--yolo", "-q"]
        first = subprocess.Popen(
            [*chat, "Please fix add."], cwd=work, env=real.env({}), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + WAIT_S
        while not (agent.requests and other.requests):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # Its answer is there, and it is ending.
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(0.8)
        released.set()
        out, err = first.communicate(timeout=60)
        assert first.returncode == 0, err
        found = [line.split()[-1] for line in (err + out).splitlines() if line.startswith("session_id: ")]
        again = subprocess.run(
            [*chat, "Now parse.", "--resume", found[0]], cwd=work, env=real.env({}), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert again.returncode == 0, again.stderr
    said = [str(request["messages"][-1]["content"]) for request in agent.requests]
    assert [coached.said_in(text) for text in said] == ["", "note: Tests were not run"]

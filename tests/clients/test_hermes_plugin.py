"""The plugin in a real Hermes: put there by the command, driven headless against a fake endpoint, seen by what comes of it.

What the endpoint receives is what the model would have seen; what the plugin heard, it says itself in its state.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import pytest
import structlog

from school.hooks import NAMES
from tests.clients.driving import HERMES
from tests.endpoint import Call, FakeEndpoint, Request, Turn, call, calls, say, status
from tests.support import ROOT

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
PACKET = "<escalation-packet>"
CONFIG = """\
# what a user wrote stays
model: {{default: fake-model, provider: custom, base_url: "{base_url}", api_key: sk-fake, context_length: 200000}}
lsp: {{enabled: false}}
"""


@dataclass
class Told:
    """One run of the client: its exit code, what it printed, and what the endpoint was asked."""

    code: int
    out: str
    err: str
    requests: list[Request]

    def said(self, at: int) -> str:
        """Everything that stands in the request number *at*."""
        return json.dumps(self.requests[at]["messages"], ensure_ascii=False)

    @property
    def packets(self) -> list[int]:
        """At which request each packet appeared, anywhere in it, for the first time."""
        found, seen = [], 0
        for at in range(len(self.requests)):
            count = self.said(at).count(PACKET)
            if count > seen:
                found.append(at)
            seen = max(seen, count)
        return found


@dataclass
class Real:
    """A Hermes with a home of its own."""

    home: Path

    @property
    def hermes_home(self) -> Path:
        return self.home / ".hermes"

    def env(self, more: dict[str, str]) -> dict[str, str]:
        own = {"HOME": str(self.home), "HERMES_HOME": str(self.hermes_home), "HERMES_VERIFY_ON_STOP": "0"}
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **own, **more}

    def install(self, base_url: str) -> None:
        config = self.hermes_home / "config.yaml"
        self.hermes_home.mkdir(parents=True, exist_ok=True)
        if not config.exists():
            config.write_text(CONFIG.format(base_url=base_url))
        config.write_text(re.sub(r"http://127[^\"]*", base_url, config.read_text()))
        done = subprocess.run(
            [sys.executable, "conductor.py", "hermes", "install", "--json"],
            cwd=ROOT,
            env=self.env({}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def run(
        self, script: Sequence[Turn], *argv: str, governor: str = "", copied: bool = True, **more: str
    ) -> Told:
        """Run the client on *script*; -z and a prompt where nothing else is asked for.

        *governor* is the source of another governor, in the place of the one that the plugin brings; not *copied*, the
        plugin is only named in the configuration.
        """
        work = self.home / "work"
        work.mkdir(parents=True, exist_ok=True)
        with FakeEndpoint(script, titles=False) as endpoint:
            self.install(endpoint.base_url)
            if not copied:
                shutil.rmtree(self.hermes_home / "plugins")
            if governor:
                vendored = self.hermes_home / "plugins" / "schoolhouse" / "vendor" / "school" / "governor"
                (vendored / "__init__.py").write_text(governor)
            done = subprocess.run(
                [str(HERMES.path), *(argv or ("-z", "mend the parser"))],
                cwd=work,
                env=self.env(more),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        return Told(done.returncode, done.stdout, done.stderr, endpoint.requests)

    def lines(self) -> list[dict[str, Any]]:
        path = self.hermes_home / "escalation-governor-reports.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def plugin(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.hermes_home / "school" / "governor" / "hermes-plugin.state").read_text()
        )
        return found


@pytest.fixture
def real(tmp_path: Path) -> Real:
    HERMES.skip_if_absent()
    return Real(tmp_path / "hermes")


def shell(*lines: str) -> list[Turn]:
    return [call("terminal", command=line) for line in lines]


def test_all_ten_hooks_reach_us_and_retries_count_once(real: Real) -> None:
    """One session: a request that fails twice, a file, a subagent, an answer."""
    script = [
        status(500),
        status(500),
        call("write_file", path="made.txt", content="made\n"),
        call("delegate_task", goal="count to three"),
        say("one two three"),
        say("done"),
    ]
    told = real.run(script)
    assert told.code == 0, told.err
    assert (real.home / "work" / "made.txt").read_text() == "made\n"
    plugin = real.plugin()
    assert plugin["problems"] == []
    assert sorted(plugin["heard"]) == sorted(NAMES)
    [line] = real.lines()
    assert (line["api_errors"], line["subagents"]["started"], line["escalations"]) == (1, 1, 0)
    assert line["subagents"]["api_calls"] == 1
    assert told.packets == []


def test_three_failing_shell_commands_and_the_packet_in_the_next_request(real: Real) -> None:
    told = real.run([*shell("exit 3", "sh -c 'exit 3'", "false; exit 3"), say("I give up")])
    assert [message["role"] for message in told.requests[3]["messages"][-1:]] == ["tool"]
    assert json.loads(told.requests[3]["messages"][-1]["content"].split("\n\n")[0])["exit_code"] == 3
    assert told.packets == [3]
    last = told.requests[3]["messages"][-1]["content"]
    assert (
        "This session is stuck: 3 tool calls in a row failed (threshold 3).\nGoal: mend the parser\n" in last
    )
    assert "- terminal `exit 3`: exit 3\n" in last
    [line] = real.lines()
    assert (line["tool_errors"], line["escalations"], line["reasons"]) == (3, 1, ["errors"])


def test_three_retries_of_one_request_count_once_and_three_requests_do_not(real: Real) -> None:
    told = real.run([status(500)] * 3, GOVERNOR_API_ERRORS="2")
    assert len(told.requests) >= 3
    [line] = real.lines()
    assert (line["api_errors"], line["escalations"]) == (1, 0)


def test_three_identical_successes_trip_it_and_only_a_different_one_clears_it(real: Real) -> None:
    told = real.run([*shell(*["echo same"] * 5, "echo other"), say("done")])
    assert told.packets == [3]
    assert "the same tool call was made 3 times" in told.said(3)
    session = real.lines()[0]["session_id"]
    standing = json.loads((real.hermes_home / "school" / "governor" / f"{session}.json").read_text())
    assert standing["stuck"] is False
    assert standing["packets"][0]["became"] == "recovered"
    again = Real(real.home.with_name("again"))
    again.run([*shell(*["echo same"] * 5), say("done")])
    session = again.lines()[0]["session_id"]
    standing = json.loads((again.hermes_home / "school" / "governor" / f"{session}.json").read_text())
    assert standing["stuck"] is True


def test_delegation_clears_it_and_the_report_says_that_it_followed(real: Real) -> None:
    script = [
        *shell("exit 1", "exit 2", "exit 3"),
        call("delegate_task", goal="do what is left"),
        say("the subagent did it"),
        say("done"),
    ]
    told = real.run(script)
    assert told.packets == [3]
    [line] = real.lines()
    assert (line["escalations"], line["packets"], line["delegated"]) == (1, 1, True)
    standing = json.loads(
        (real.hermes_home / "school" / "governor" / f"{line['session_id']}.json").read_text()
    )
    assert standing["stuck"] is False
    assert standing["packets"][0]["became"] == "delegated"


def test_installed_by_pip_it_is_found_by_its_entry_point(real: Real, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    site = tmp_path / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    for package in (filelock, structlog):
        folder = Path(package.__file__ or "").parent
        (site / folder.name).symlink_to(folder)
    told = real.run([*shell("exit 3", "exit 4", "exit 5"), say("done")], copied=False, PYTHONPATH=str(site))
    assert told.packets == [3]
    assert not (real.hermes_home / "plugins").exists()


def test_five_turns_and_a_subagent_are_one_line_of_the_report(real: Real) -> None:
    asked = ("chat", "-Q", "--yolo", "-q")
    first = real.run(
        [call("delegate_task", goal="count"), say("one"), say("done"), say("done")], *asked, "turn one"
    )
    found = re.search(r"session_id: (\S+)", first.err + first.out)
    assert found, first.err
    for number in range(2, 6):
        told = real.run(
            [*shell(f"echo {number}"), say("done")], *asked, f"turn {number}", "--resume", found[1]
        )
        assert told.code == 0, told.err
        assert "turn one" in told.said(0)
    [line] = [line for line in real.lines() if line["platform"] != "subagent"]
    assert line["session_id"] == found[1]
    assert (line["turns"], line["subagents"]["started"]) == (5, 1)
    assert line["tool_calls"] == 5
    assert len(real.lines()) == 1


def test_parallel_calls_of_one_answer_are_each_counted(real: Real) -> None:
    three = calls(*[Call("terminal", {"command": f"exit {number}"}) for number in (3, 4, 5)])
    told = real.run([three, say("done")])
    assert told.packets == [1]
    assert real.lines()[0]["tool_errors"] == 3


@pytest.mark.parametrize("value", ["1", "0", "-1", "abc"])
def test_thresholds_that_can_be_and_that_cannot(real: Real, value: str) -> None:
    told = real.run([*shell("exit 3"), say("done")], GOVERNOR_CONSECUTIVE_ERRORS=value)
    assert told.code == 0, told.err
    assert told.packets == ([1] if value == "1" else [])
    problems = real.plugin()["problems"]
    assert (problems == []) == (value == "1")
    assert all("GOVERNOR_CONSECUTIVE_ERRORS" in problem for problem in problems)


def test_the_kill_switch(real: Real) -> None:
    told = real.run([*shell("exit 3", "exit 4", "exit 5"), say("done")], GOVERNOR_DISABLE="1")
    assert told.packets == []
    assert real.lines() == []


def test_it_survives_a_state_directory_that_cannot_be_used(real: Real) -> None:
    real.hermes_home.mkdir(parents=True)
    (real.hermes_home / "school").write_text("no folder")
    (real.hermes_home / "escalation-governor-reports.jsonl").mkdir()
    told = real.run([*shell("exit 3", "exit 4", "exit 5"), say("it is done")])
    assert (told.code, told.out.strip()) == (0, "it is done")
    assert told.packets == [3]


BAD_GOVERNOR = """\
import time
from school.hooks import NAMES

class Terms:
    problems = ()
    enabled = True

class Governor:
    terms = Terms()

    def __init__(self, *args, **kwargs):
        {build}

    def listen(self, hooks):
        for name in NAMES:
            hooks.add("governor", name, self.answer, timeout_s=0.2)

    def answer(self, **event):
        {answer}

    def flush(self, session_id=""):
        raise ValueError("no flush")

    def close(self):
        raise ValueError("no close")
"""


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("raise ValueError('no sense')", "ValueError: no sense"),
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("time.sleep(60)", "no answer within 0.2 s"),
        ("return 42", "answered with int where a"),
        ("return {'context': ['x'] * 5, 'action': 'continue', 'message': 3}", "where a text is due"),
        ("return 'x' * 10_000_000 if 'result' in event or 'user_message' in event else None", "are the most"),
    ],
)
def test_a_governor_that_misbehaves_changes_nothing(real: Real, answer: str, fault: str) -> None:
    source = BAD_GOVERNOR.format(build="pass", answer=answer)
    told = real.run([*shell("echo 1", "exit 2"), say("it is done")], governor=source)
    assert (told.code, told.out.strip(), len(told.requests)) == (0, "it is done", 3)
    contents = [message["content"] for message in told.requests[2]["messages"] if message["role"] != "system"]
    assert [json.loads(content)["exit_code"] for content in contents[1:] if content.startswith("{")] == [0, 2]
    assert contents[0] == "mend the parser"
    log = (real.hermes_home / "school" / "logs" / "advisers.jsonl").read_text().splitlines()
    faults = [json.loads(line) for line in log]
    assert any(fault in one["reason"] for one in faults), log
    assert {one["adviser"] for one in faults} <= {"governor", "plugin"}


@pytest.mark.parametrize(
    "source", ["import no_such_module", BAD_GOVERNOR.format(build="1 // 0", answer="pass")]
)
def test_a_governor_that_cannot_be_built_changes_nothing(real: Real, source: str) -> None:
    told = real.run([*shell("exit 3"), say("it is done")], governor=source)
    assert (told.code, told.out.strip(), len(told.requests)) == (0, "it is done", 2)
    assert any(problem.startswith("governor: build: ") for problem in real.plugin()["problems"])
    assert "transform_tool_result" in real.plugin()["heard"]

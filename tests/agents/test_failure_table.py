"""A plain command and an agent over ACP, failing in every way: what the bookbag says of it, and who pays.

Beside these, ``test_failures`` has the same ways for command line agents and ``test_model_failures`` for the built-in loop;
docs/agents.md has all of it as one table.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.contracts import UNCHARGED_REASONS, AgentSpec
from school.settings import Settings
from school.system import processes
from tests.agents.test_failures import FLOOD_BYTES
from tests.endpoint import EMPTY, HANG, FakeEndpoint, Turn, limited, status
from tests.leaves import content, new_bead, run, script

ALONE = {"on_stop": False}
QUICK = {"startup_timeout_s": 10.0, "stall_timeout_s": 2.0}
TOUCH = "from pathlib import Path; Path('new.txt').write_text('new')\n"
# What a user's own program does that asks a model: one request, and a claim with the reset where that was stated.
ASKS = (
    TOUCH + "import datetime, json, os, urllib.error, urllib.request\n"
    "print('asking', flush=True)\n"
    "asked = urllib.request.Request(os.environ['URL'] + '/chat/completions', data=b'{\"stream\": true}')\n"
    "try:\n    print(urllib.request.urlopen(asked).read().decode())\n"
    "except urllib.error.HTTPError as error:\n"
    "    if error.code != 429: raise\n"
    "    left = datetime.timedelta(seconds=float(error.headers['retry-after']))\n"
    "    at = (datetime.datetime.now(datetime.timezone.utc) + left).isoformat()\n"
    "    Path(os.environ['SCHOOL_RESULT']).write_text(json.dumps({'status': 'failed', 'retry_at': at}))\n"
)
FLOODS = "import os\nfor _ in range({mebibytes}): os.write({fd}, b'x' * 1048575 + b'\\n')\n"
MEBIBYTES = FLOOD_BYTES // (1024 * 1024)
LEAVES = (
    "import subprocess, sys\nfor apart in (False, True):\n"
    "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=apart)\n"
)
ODD = "import os; os.write(1, b'\\xff \\xed\\xa0\\x80'); open(os.environ['SCHOOL_RESULT'], 'w')"
LONE = ODD + '.write(\'{"summary": "\\\\ud800"}\')\n'
HALF = "import os; open(os.environ['SCHOOL_RESULT'], 'w').write('{\"status\": \"blo')\n"
READS = "import json, os; print(len(json.load(open(os.environ['SCHOOL_BRIEF']))['task']))\n"


def ended(bag: dict[str, Any]) -> tuple[str, str, bool | None]:
    """Status, reason, and whether the attempt is charged; None where the teachers say that."""
    charged = None if bag["status"] == "open" else bag["reason"] not in UNCHARGED_REASONS
    return bag["status"], bag["reason"], charged


def said_in(bag: dict[str, Any]) -> str:
    """All that the record says of it in words."""
    return json.dumps([bag["summary"], bag["output"], bag.get("notes")], ensure_ascii=False)


OPEN = ("open", "", None)


@pytest.mark.parametrize(
    ("turn", "end", "said"),
    [
        ("down", ("open", "", None), "Connection refused"),
        (status(500), ("open", "", None), "HTTP Error 500"),
        (limited(3600), ("failed", "quota", False), "quota is used up until"),
        (HANG, ("failed", "stalled", True), "no file changed for 2 s"),
        (EMPTY, ("open", "", None), "asking"),
    ],
    ids=["down", "500", "429", "hang", "empty"],
)
def test_a_command_whose_own_endpoint_fails(
    repo: Path, school: Settings, turn: Turn | str, end: tuple[str, str, bool | None], said: str
) -> None:
    """It is a program of the user's: only what it says of a quota is known to be nobody's fault."""
    nobody = FakeEndpoint([])
    with FakeEndpoint([] if isinstance(turn, str) else [turn]) as fake:
        nobody.close()
        url = nobody.base_url if isinstance(turn, str) else fake.base_url
        agent = script(ASKS, set_env={"URL": url})
        bag = run(new_bead(repo, agent, limits=QUICK), school, status=0 if end == OPEN else 1)
    assert ended(bag) == end
    assert said in said_in(bag)
    assert content(bag, school, "new.txt") == "new"
    assert bool(bag.get("retry_at")) == (end[1] == "quota")


@pytest.mark.parametrize(
    ("code", "end", "said"),
    [
        (ASKS.replace(TOUCH, "from pathlib import Path\n"), ("failed", "exit", True), "KeyError: 'URL'"),
        ("", OPEN, ""),
        (HALF, OPEN, "the result file was passed over: it is no JSON"),
        (TOUCH + "import os; os._exit(137)", ("failed", "killed", True), "exit status 137"),
        (READS, OPEN, "300000"),
        (LONE, OPEN, "\\\\xff \\\\xed\\\\xa0\\\\x80"),
        ("input('Do you trust this folder? ')", ("failed", "exit", True), "EOFError"),
        ("open('/dev/tty').readline()", ("failed", "exit", True), "/dev/tty"),
        (TOUCH + LEAVES, OPEN, ""),
    ],
    ids=["error", "nothing", "malformed", "137", "300 KB", "undecodable", "stdin", "tty", "grandchildren"],
)
def test_a_command_that_fails(
    repo: Path, school: Settings, code: str, end: tuple[str, str, bool | None], said: str
) -> None:
    bead = new_bead(repo, script(code), task="x" * 300_000, limits=QUICK, advice=ALONE)
    bag = run(bead, school, status=0 if end == OPEN else 1)
    assert ended(bag) == end, bag["summary"]
    assert said in said_in(bag)
    assert bag["files_changed"] == (["new.txt"] if TOUCH in code else [])
    assert bookbag.validate_bookbag(bag) == []
    assert processes.marked(bead) == {}


# --- over ACP -------------------------------------------------------------------------------------------------


def acp(*prompts: list[list[Any]]) -> AgentSpec:
    program = str(Path(__file__).with_name("acp_agent.py"))
    argv = [sys.executable, "-I", "-B", program, json.dumps(prompts)]
    return AgentSpec(name="zed", kind="acp", argv=argv, prompt="none")


def python(code: str) -> AgentSpec:
    return AgentSpec(name="zed", kind="acp", argv=[sys.executable, "-c", code], prompt="none")


GAVE_UP = "API call failed after 3 retries: "
BEGUN = {"sessionUpdate": "tool_call", "toolCallId": "c-1", "kind": "execute", "status": "in_progress"}
WAITED = "it waited for an answer of its model"
MUTE = "it never began: perhaps it waits for a login"
NOTHING = "its turn ended without a word and without a call"
ODD_TEXT = '{"method": "session/update", "params": {"update": {"sessionUpdate": "agent_message_chunk", "content": {"text": "\\ud800"}}}}\n'
SAYS_IN_LINES = "import sys; print('Please log\\nin to go on.\\nPassword: ', flush=True); sys.exit(1)"
ODD_START = "import sys; sys.exit('zed: no such profile')"
WAITS = "import sys, time; print('Please log in at https://x.invalid', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("agent", "end", "said"),
    [
        (acp([["error", -32603, "connect ECONNREFUSED 127.0.0.1:1"]]), ("failed", "unavailable", False), "ECONNREFUSED"),
        (acp([["error", -32603, "500 Internal Server Error"]]), ("failed", "unavailable", False), "500"),
        (acp([["say", GAVE_UP + "HTTP 500: on fire"]]), ("failed", "unavailable", False), GAVE_UP),
        (acp([["say", "HTTP 401: Incorrect API key"]]), ("failed", "login", False), "HTTP 401"),
        (acp([["say", GAVE_UP + "HTTP 429, retry after 3600 seconds"]]), ("failed", "quota", False), "429"),
        (acp([["say", "I look."], ["mute"]]), ("failed", "unavailable", False), WAITED),
        (acp([["update", BEGUN], ["mute"]]), ("failed", "stalled", True), "no file changed for 2 s"),
        (acp([]), ("failed", "unavailable", False), NOTHING),
        (acp([["say", "⚠️ No reply: the model returned empty content."]]), ("failed", "unavailable", False), "No reply"),
        (acp([["raw", '{"jsonrpc": "2.0", "resu\n', 300], ["mute"]]), ("failed", "exit", True), "it speaks no ACP"),
        (acp([["say", "All done."]]), OPEN, "All done."),
        (acp([["claim"]]), OPEN, "Done by ACP."),
        (acp([["say", "I begin."], ["die", 137]]), ("failed", "killed", True), "137"),
        (acp([["echo"]]), OPEN, "characters"),
        (acp([["raw", "\udcff\udcfe\n"], ["raw", ODD_TEXT], ["say", " said."]]), OPEN, "\\\\ud800 said."),
        (acp([["at", "session", "error", -32000, "Authentication required"]]), ("failed", "login", False), "required"),
        (python("import sys; sys.exit('not logged in ' + input('Trust? ')[:9])"), ("failed", "login", False), "not logged in"),
        (python(SAYS_IN_LINES), ("failed", "login", False), "Please log\\nin to go on"),
        (python(ODD_START), ("failed", "unavailable", False), "no such profile"),
        (python(WAITS), ("failed", "unavailable", False), "Please log in at"),
        (acp([["at", "initialize", "mute"]]), ("failed", "unavailable", False), MUTE),
    ],
    ids=[
        "down", "500", "500 in its answer", "401 in its answer", "429", "hang", "hang at work", "empty", "no reply",
        "malformed", "nothing", "claim alone", "137", "300 KB", "undecodable", "login", "stdin", "login in lines", "odd start", "prompts", "mute",
    ],
)  # fmt: skip
def test_an_acp_agent_that_fails(
    repo: Path, school: Settings, agent: AgentSpec, end: tuple[str, str, bool | None], said: str
) -> None:
    limits = {**QUICK, "startup_timeout_s": 3.0}
    bead = new_bead(repo, agent, task="x" * 300_000, limits=limits, advice=ALONE)
    bag = run(bead, school, status=0 if end == OPEN else 1)
    assert ended(bag) == end, bag["summary"]
    assert said in said_in(bag)
    assert bool(bag.get("retry_at")) == (end[1] == "quota")
    assert bookbag.validate_bookbag(bag) == []
    assert processes.marked(bead) == {}


def test_an_acp_agents_grandchildren_do_not_outlive_it(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, acp([["child", "new.txt"], ["say", "Done."]]), advice=ALONE)
    bag = run(bead, school)
    assert (ended(bag), bag["files_changed"]) == (OPEN, ["new.txt"])
    assert processes.marked(bead) == {}


# --- two gigabytes of output: SCHOOL_FLOOD_BYTES=2147483648 -----------------------------------------------------

EDITS = ["edit", "new.txt", None, "new"]
PRINTS = f"import os\nfor _ in range({MEBIBYTES}): os.write(1, b'x' * 1048576)\n"
REMARK = '{"method": "session/update", "params": {"update": {"sessionUpdate": "plan", "x": "%s"}}}\n' % (
    "x" * 50_000
)


@pytest.mark.parametrize(
    ("agent", "end"),
    [
        (script(TOUCH + FLOODS.format(mebibytes=MEBIBYTES, fd=1)), lambda _sum: OPEN),
        (script(TOUCH + FLOODS.format(mebibytes=MEBIBYTES, fd=2)), lambda _sum: OPEN),
        (acp([EDITS, ["terminal", sys.executable, "-c", PRINTS], ["say", "Done."]]), lambda _sum: OPEN),
        (acp([EDITS, ["flood", MEBIBYTES, False, 2], ["say", "Done."]]), lambda _sum: OPEN),
        (acp([EDITS, ["flood", MEBIBYTES, False]]), lambda _sum: ("failed", "exit", True)),
        # More than half a gigabyte is heard of nobody.
        (acp([EDITS, ["raw", REMARK, 22 * MEBIBYTES], ["say", "Done."]]),
         lambda total: OPEN if total < 512 * 1024 * 1024 else ("failed", "exit", True)),
    ],
    ids=["run", "run stderr", "acp terminal", "acp stderr", "acp line", "acp messages"],
)  # fmt: skip
def test_a_flood_is_bounded_in_memory_and_on_disk(
    repo: Path, school: Settings, agent: AgentSpec, end: Callable[[int], tuple[str, str, bool | None]]
) -> None:
    limits = {"output_bytes": 16 * 1024 * 1024}
    bead = new_bead(repo, agent, limits=limits, advice=ALONE)
    expected = end(FLOOD_BYTES)
    bag = run(bead, school, status=0 if expected == OPEN else 1, timeout_s=600)
    assert ended(bag) == expected, bag["summary"]
    assert content(bag, school, "new.txt") == "new"
    kept = [path.lstat().st_size for path in school.outputs_dir.rglob("*")]
    assert sum(kept) <= 34 * 1024 * 1024
    assert (school.bookbag_dir / f"{bead}.json").stat().st_size < 200_000
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 512 * 1024

"""A whole run of the school with a real client as its student: repository, endpoint, configuration, and what came of it.

``Client`` says how one CLI is configured and what its tools are called. ``drive(client, script, place)`` makes a small
repository whose ``add`` is wrong, writes ``school.toml``, runs ``conductor.py --loop`` as a user would, with HOME and
HERMES_HOME of its own, and gives a ``Driven``. The clients are those of ``make test-clients``, below ``.clients``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.projects import conduct, environment
from tests.endpoint import Answer, FakeEndpoint, Turn, call, say
from tests.support import ROOT, git, write_tree

CLIENTS = Path(os.environ.get("SCHOOL_CLIENTS_DIR") or ROOT / ".clients")
KEY = "sk-fake-0123456789abcdef-never-on-disk"
FILES = {
    "calc/__init__.py": "",
    "calc/core.py": "def add(left, right):\n    return left - right\n",
    "tests/__init__.py": "",
    "tests/test_core.py": (
        "import unittest\n\nfrom calc.core import add\n\n\nclass CoreTest(unittest.TestCase):\n"
        "    def test_nothing(self):\n        self.assertEqual(add(0, 0), 0)\n"
    ),
}
TASKS = """\
version: 1
tasks:
  - id: fix-add
    task: |
      add() in calc/core.py subtracts. Make it add.%s
    allow: ["calc/**"]
    max_attempts: 1
    accept:
      - text: two and three are five
        check: ["python3", "-c", "from calc.core import add; assert add(2, 3) == 5"]
"""
EDIT = "sed -i 's/left - right/left + right/' calc/core.py"
TEST = "python3 -m unittest discover"


@dataclass(frozen=True)
class Client:
    """One CLI: its program below ``.clients``, its configuration, and how a script calls its shell."""

    name: str
    program: str
    shell: Callable[[str], Answer]
    last: Callable[[str], Answer] = say
    settings: dict[str, str] = field(default_factory=dict)
    root: bool = False
    kind: str = "command"
    words: tuple[str, ...] = ()
    by_hand: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return CLIENTS / self.program

    def skip_if_absent(self) -> None:
        if not self.path.exists():
            pytest.skip(f"{self.name} is not installed at {self.path}: make test-clients installs it")


CODEX = Client("codex", "npm/node_modules/.bin/codex", lambda line: call("exec_command", cmd=line))
HERMES = Client("hermes", "hermes/bin/hermes", lambda line: call("terminal", command=line))
MINI = Client(
    "mini-swe-agent",
    "mini/bin/mini",
    lambda line: call("bash", command=line),
    # It ends by a command, whose further output is its answer.
    lambda text: call("bash", command=f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo {text!r}"),
    # Two tries, four seconds apart: its own six would take a minute.
    {"MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2"},
)
OPENCODE = Client(
    "opencode",
    "npm/node_modules/.bin/opencode",
    lambda line: call("bash", command=line, description="a command"),
)
ALL = (CODEX, HERMES, MINI, OPENCODE)
# Configured in their home as a user does it, and by no more than ``preset`` in school.toml.
BY_HAND = (
    replace(
        CODEX,
        by_hand={
            ".codex/config.toml": 'model = "fake-model"\nmodel_provider = "fake"\n\n[model_providers.fake]\nname = "fake"\n'
            'base_url = "{base_url}"\nenv_key = "STUDENT_KEY"\nwire_api = "responses"\n'
        },
    ),
    replace(
        HERMES,
        by_hand={
            ".hermes/config.yaml": "model: {default: fake-model, provider: custom, base_url: '{base_url}', "
            "api_key: '${STUDENT_KEY}', context_length: 200000}\nlsp: {enabled: false}\n"
        },
    ),
)
# As an ACP server it gets its endpoint by its own configuration; {base_url} and {place} are this run's.
OPENCODE_ACP = Client(
    OPENCODE.name,
    OPENCODE.program,
    OPENCODE.shell,
    settings={
        "OPENCODE_CONFIG_CONTENT": json.dumps(
            {
                "provider": {
                    "fake": {
                        "npm": "@ai-sdk/openai-compatible",
                        "name": "fake",
                        "options": {"baseURL": "{base_url}", "apiKey": "{env:STUDENT_KEY}"},
                        "models": {"fake-model": {"name": "fake-model"}},
                    }
                },
                "model": "fake/fake-model",
                "small_model": "fake/fake-model",
                "share": "disabled",
                "autoupdate": False,
            }
        ),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        **{f"XDG_{kind}_HOME": f"{{place}}/opencode/{kind}" for kind in ("CONFIG", "DATA", "STATE", "CACHE")},
    },
    kind="acp",
    words=("acp",),
)
# The same for hermes, whose home is made beside it.
HERMES_ACP = Client(
    HERMES.name,
    HERMES.program,
    HERMES.shell,
    settings={"HERMES_HOME": "{place}/opencode/hermes"},
    kind="acp",
    words=("acp",),
    by_hand={"../opencode/hermes/config.yaml": BY_HAND[1].by_hand[".hermes/config.yaml"]},
)


def good(client: Client) -> list[Turn]:
    """Edit the file, run the tests, say so."""
    return [client.shell(EDIT), client.shell(TEST), client.last("add() adds now.")]


@dataclass
class Driven:
    """What came of a run."""

    repo: Path
    home: Path
    hermes_home: Path
    code: int
    report: dict[str, Any]
    stderr: str
    endpoint: FakeEndpoint | None

    @property
    def task(self) -> dict[str, Any]:
        assert "tasks" in self.report, self.stderr
        return self.report["tasks"][0]

    @property
    def archive(self) -> Path:
        return self.hermes_home / "bookbag" / "archive"

    def bags(self) -> list[dict[str, Any]]:
        """The records of all attempts, oldest first."""
        found = [json.loads(path.read_text()) for path in self.archive.glob("*/bookbag.json")]
        live = [json.loads(path.read_text()) for path in (self.hermes_home / "bookbag").glob("*.json")]
        return sorted([*found, *live], key=lambda bag: bag["timestamp"])

    @property
    def bag(self) -> dict[str, Any]:
        return self.bags()[-1]

    def turns(self) -> list[dict[str, Any]]:
        return json.loads((self.archive / self.bag["bead"] / "turns.json").read_text())


def configure(
    client: Client, endpoint: FakeEndpoint, place: Path, *, on_stop: bool = False, **limits: float
) -> str:
    """``school.toml`` for *client* on *endpoint*; *on_stop* is whether it is asked for a check that it left out."""
    base_url = endpoint.root if client.root else endpoint.base_url
    own = {
        name: value.replace("{base_url}", base_url).replace("{place}", str(place))
        for name, value in client.settings.items()
    }
    agent: dict[str, Any] = {"kind": client.kind, "argv": [str(client.path), *client.words], "set_env": own}
    if client.kind == "command":
        agent["preset"] = client.name
    if client.kind == "acp" or client.by_hand:
        agent |= {"env": ["STUDENT_KEY"], "write": [f"{place}/opencode"]}
    else:
        agent |= {"model": "fake-model", "base_url": base_url, "api_key_env": "STUDENT_KEY"}
    for name, text in client.by_hand.items():
        path = home_of(place) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{base_url}", base_url))
    lines = ["[verify]", 'commands = [["python3", "-m", "unittest", "discover", "-v"]]']
    lines += [f"on_stop = {_toml(on_stop)}", "[agents.student]"]
    lines += [f"{name} = {_toml(value)}" for name, value in agent.items()]
    lines += ["[roles.coder]", 'agents = ["student"]', "[limits]", "leaves = 1"]
    lines += [f"{name} = {value}" for name, value in {"max_interruptions": 1, **limits}.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + "}"
    return json.dumps(value)


def repository(place: Path, toml: str, tasks: str) -> Path:
    root = place / "repo"
    root.mkdir(parents=True)
    write_tree(
        root, {**FILES, "school.toml": toml, "school-tasks.yaml": tasks, ".gitignore": "__pycache__/\n"}
    )
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Begin")
    return root


def drive(
    client: Client,
    script: Sequence[Turn] | Callable[..., Turn],
    place: Path,
    *,
    more: str = "",
    **settings: Any,
) -> Driven:
    """One run of the conductor, to its end."""
    env = _environment(client, place)
    with FakeEndpoint(script) as endpoint:
        repo = repository(place, configure(client, endpoint, place, **settings), TASKS % more)
        code, report, stderr = conduct("--repo", str(repo), "--loop", "--rounds", "1", env=env, timeout_s=200)
        assert _left_running(place) == []
        return Driven(repo, Path(env["HOME"]), Path(env["HERMES_HOME"]), code, report, stderr, endpoint)


def drive_until_it_waits(
    client: Client, script: Sequence[Turn] | None, place: Path, **settings: Any
) -> Driven:
    """A run whose agent is away: it waits for it, so it is interrupted as soon as the first attempt is told.

    Without *script* nothing listens at the endpoint's address.
    """
    env = _environment(client, place)
    endpoint = FakeEndpoint(script if script is not None else [say("nobody hears this")])
    repo = repository(place, configure(client, endpoint, place, **settings), TASKS % "")
    state = Path(env["HERMES_HOME"])
    with endpoint if script is not None else contextlib.closing(endpoint):
        if script is None:
            endpoint.close()
        command = [sys.executable, str(ROOT / "conductor.py"), "--repo", str(repo), "--loop", "--rounds", "1"]
        with (
            (place / "stderr").open("wb") as told,
            subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=told
            ) as process,
        ):
            try:
                _until(lambda: attempts(state) or process.poll() is not None, f"an attempt below {state}")
            finally:
                process.send_signal(signal.SIGINT)
            code = process.wait(30)
    assert _left_running(place) == []
    return Driven(repo, Path(env["HOME"]), state, code, {}, (place / "stderr").read_text(), endpoint)


def attempts(hermes_home: Path) -> list[dict[str, Any]]:
    """The attempts at the one task, as its ledger has them."""
    records = [json.loads(path.read_text()) for path in (hermes_home / "school" / "tasks").glob("*/*.json")]
    return [attempt for record in records for attempt in record["attempts"]]


def _until(true: Callable[[], object], what: str, limit_s: float = 150) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"never saw {what}"
        time.sleep(0.1)


def home_of(place: Path) -> Path:
    return place / "student-home"


def _environment(client: Client, place: Path) -> dict[str, str]:
    client.skip_if_absent()
    home = home_of(place)
    home.mkdir(parents=True, exist_ok=True)
    (home / ".gitconfig").write_text("[user]\n\tname = Test Person\n\temail = test@example.invalid\n")
    return environment(home, STUDENT_KEY=KEY, TMPDIR=str(place))


def _left_running(place: Path) -> list[str]:
    """The processes that still live in this test's folder; what ends is given a moment to be gone."""
    end = time.monotonic() + 3
    while (left := [pid for pid in psutil.pids() if _is_of(pid, place)]) and time.monotonic() < end:
        time.sleep(0.1)
    return [" ".join(psutil.Process(pid).cmdline()) for pid in left if _is_of(pid, place)]


def _is_of(pid: int, place: Path) -> bool:
    """Whether a process lives in this test's folder."""
    try:
        process = psutil.Process(pid)
        return str(place) in process.cwd() or any(str(place) in word for word in process.cmdline())
    except psutil.Error:
        return False

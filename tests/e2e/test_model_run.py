"""Whole runs with the built-in loop and with an ACP agent: from a task to an accepted branch, and to a used-up budget."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.projects import conduct, environment
from tests.endpoint import Call, FakeEndpoint, Request, call, calls, status
from tests.support import ROOT, git, write_tree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

KEY = "sk-run-0123456789"
CHECK = 'python3 -c "import calc; assert calc.double(4) == 8"'
TASK = ("--task", "Add double(number) to the package calc.", "--check", CHECK, "--loop", "--rounds", "2")
INIT = '"""A small calculator."""\n\nfrom calc.core import add, double, parse\n\n__all__ = ["add", "double", "parse"]\n'
DOUBLE = '\n\ndef double(number: int) -> int:\n    """Twice *number*."""\n    return 2 * number\n'
TEST = (
    "import unittest\n\nfrom calc import double\n\n\nclass DoubleTest(unittest.TestCase):\n"
    "    def test_double(self):\n        self.assertEqual(double(4), 8)\n"
)


def configure(repo: Path, text: str) -> None:
    before = (repo / "school.toml").read_text() if (repo / "school.toml").exists() else ""
    write_tree(repo, {"school.toml": before + text})
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "configure")


def model(url: str, name: str = "openai:gpt-4o", more: str = "") -> str:
    return f'\n[agents.loop]\nkind = "model"\nmodel = "{name}"\nbase_url = "{url}"\napi_key_env = "RUN_KEY"\n{more}'


def work(repo: Path) -> list[Any]:
    core = (repo / "calc/core.py").read_text()
    last = core.splitlines()[-1]
    return [
        calls(Call("read", {"path": "calc/core.py"}), Call("search", {"pattern": "def "})),
        calls(
            Call("edit", {"path": "calc/core.py", "old": last, "new": last + DOUBLE.rstrip("\n")}),
            Call("write", {"path": "calc/__init__.py", "content": INIT}),
            Call("write", {"path": "tests/test_double.py", "content": TEST}),
        ),
        call("shell", command="python3 -m unittest -q"),
        call("finish", status="done", summary="Added double(), with a test.", ac_met=["AC-1"]),
    ]


def bag_of(state: Path, bead: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((state / "bookbag/archive" / bead / "bookbag.json").read_text())
    return found


def test_a_model_brings_a_task_to_an_accepted_branch(repo: Path, own_home: Path) -> None:
    with FakeEndpoint(work(repo)) as fake:
        configure(repo, model(fake.base_url))
        code, run, said = conduct(
            "--repo", str(repo), "--agent", "loop", *TASK, env=environment(own_home, RUN_KEY=KEY)
        )
        asked = list(fake.requests)
    assert code == 0, said[-4000:]
    (task,) = run["tasks"]
    assert (task["outcome"], task["cto_verdict"], task["coo_verdict"]) == ("accepted", "PASS", "PASS"), said[
        -4000:
    ]
    assert "def double" in git(repo, "show", f"{task['branch']}:calc/core.py")
    assert len(asked) == 4
    state = own_home / ".hermes"
    bag = bag_of(state, task["bead"])
    assert bag["claim"] == "done"
    assert bag["usage"]["requests"] == 4
    assert bag["usage"]["cost_usd"] > 0
    archive = state / "bookbag/archive" / task["bead"]
    kept = next(archive.rglob("transcript.jsonl"), None) or next(state.rglob("transcript.jsonl"))
    assert [json.loads(line)["kind"] for line in kept.read_text().splitlines()][:3] == [
        "user",
        "assistant",
        "tool",
    ]
    assert bag["evidence"]["status"] == "passed", bag["evidence"]


def test_a_budget_stops_the_run_and_a_higher_one_resumes_it(repo: Path, own_home: Path) -> None:
    def endless(_request: Request) -> Any:
        return replace(call("shell", command=f"echo {len(fake.requests)}"), input_tokens=900)

    env = environment(own_home, RUN_KEY=KEY)
    with FakeEndpoint(endless) as fake:
        configure(repo, model(fake.base_url, more="\n[limits]\ntokens = 4000\n"))
        code, run, said = conduct("--repo", str(repo), "--agent", "loop", *TASK, env=env)
        spent = 907 * len(fake.requests)
    assert code == 1, said[-4000:]
    assert "tokens = 4000" in said
    assert spent <= 4000
    (task,) = run["tasks"]
    assert task["attempts"] == 0
    assert task["outcome"] in ("failed", "blocked")
    with FakeEndpoint(work(repo)) as fake:
        text = (repo / "school.toml").read_text()
        start = text.index("\n[agents.loop]")
        (repo / "school.toml").write_text(text[:start])
        configure(repo, model(fake.base_url, more="\n[limits]\ntokens = 400000\n"))
        code, run, said = conduct("--repo", str(repo), "--agent", "loop", *TASK, env=env)
    assert code == 0, said[-4000:]
    assert run["tasks"][0]["outcome"] == "accepted"


def test_an_endpoint_that_fails_for_a_while_costs_no_attempt(repo: Path, own_home: Path) -> None:
    with FakeEndpoint([*[status(500)] * 4, *work(repo)]) as fake:
        configure(repo, model(fake.base_url))
        code, run, said = conduct(
            "--repo", str(repo), "--agent", "loop", *TASK, env=environment(own_home, RUN_KEY=KEY)
        )
    assert code == 0, said[-4000:]
    (task,) = run["tasks"]
    assert (task["outcome"], task["attempts"]) == ("accepted", 1)
    assert "failed: unavailable" in said


def test_an_acp_agent_brings_a_task_to_an_accepted_branch(repo: Path, own_home: Path, tmp_path: Path) -> None:
    core = (repo / "calc/core.py").read_text()
    steps = [
        ["say", "I look first."],
        ["read", "calc/core.py"],
        ["write", "calc/core.py", core.rstrip("\n") + DOUBLE],
        ["edit", "calc/__init__.py", core, INIT],
        ["write", "tests/test_double.py", TEST],
        ["terminal", "python3", "-m", "unittest", "-q"],
        ["claim"],
    ]
    agent = ROOT / "tests/agents/acp_agent.py"
    argv = json.dumps([sys.executable, "-I", "-B", str(agent), json.dumps([steps, [["say", "As before."]]])])
    configure(repo, f'\n[agents.zed]\nkind = "acp"\nargv = {argv}\n')
    code, run, said = conduct("--repo", str(repo), "--agent", "zed", *TASK, env=environment(own_home))
    assert code == 0, said[-4000:]
    (task,) = run["tasks"]
    assert task["outcome"] == "accepted", said[-4000:]
    bag = bag_of(own_home / ".hermes", task["bead"])
    assert bag["evidence"]["status"] == "passed", bag["evidence"]

"""Who does a task, and what happens when he cannot: whole runs with command agents that are small scripts of the test."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import bookbag
from tests.e2e.projects import conduct, environment
from tests.support import git

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# What an agent of these tests may do; `said` is its prompt.
HEAD = """
import json, os, sys, time
from pathlib import Path

said = sys.stdin.read()

def good():
    path = Path("calc/core.py")
    path.write_text(path.read_text().replace("import os\\n", ""))

def bad():
    path = Path("calc/core.py")
    path.write_text(path.read_text().replace("left + right", "left - right"))

def claim(**fields):
    Path(os.environ["SCHOOL_RESULT"]).write_text(json.dumps(fields))
"""


class School:
    """One repository, its agents, and runs on it."""

    def __init__(self, place: Path, repo: Path, home: Path) -> None:
        self.place, self.repo, self.env = place, repo, environment(home)
        self.toml = (repo / "school.toml").read_text()
        self.agents: list[str] = []

    def agent(self, name: str, code: str) -> None:
        script = self.place / f"{name}.py"
        script.write_text(HEAD + code)
        argv = json.dumps([sys.executable, str(script)])
        self.toml += f"[agents.{name}]\nargv = {argv}\n"
        self.agents.append(name)

    def configure(self, more: str = "") -> None:
        """The agents leave marks outside of their trees, so that a test can see them: nothing is confined here."""
        (self.repo / "school.toml").write_text(
            self.toml + f'[roles.coder]\nagents = {json.dumps(self.agents)}\n[sandbox]\nmode = "off"\n{more}'
        )
        git(self.repo, "commit", "-q", "--allow-empty", "-a", "-m", "Configure")

    def run(self, *tasks: dict[str, Any], flags: tuple[str, ...] = ()) -> tuple[int, dict[str, Any], str]:
        path = self.place / "tasks.yaml"
        path.write_text(json.dumps({"version": 1, "tasks": list(tasks)}))
        code, document, told = conduct("--repo", str(self.repo), "--tasks", str(path), *flags, env=self.env)
        return code, {row["id"]: row for row in document.get("tasks", [])}, told

    def bags(self, task: str) -> list[dict[str, Any]]:
        """Every archived attempt, in order."""
        found = [bookbag.read_archived(bead) for bead in bookbag.list_bookbags(archived=True)]
        return [bag for bag in found if bag is not None and bag["task_id"] == task]


@pytest.fixture
def at(tmp_path: Path, repo: Path, school: Any, own_home: Path) -> School:
    return School(tmp_path, repo, own_home)


def task(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "role": "coder", "task": f"Make calc simpler: {name}.", **more}


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


# --- the next stronger ------------------------------------------------------------------------------------------


def test_an_attempt_that_fails_goes_to_the_next_agent_with_what_was_tried(at: School) -> None:
    at.agent("first", "bad(); claim(status='done', summary='Subtracted, for symmetry.')")
    at.agent("second", f"Path({str(at.place / 'prompt')!r}).write_text(said); good()")
    at.configure()
    code, rows, told = at.run(task("t"), flags=("--loop", "--rounds", "3"))
    assert (code, rows["t"]["outcome"], rows["t"]["attempts"]) == (0, "accepted", 2), told
    one, two = at.bags("t")
    assert (one["agent"]["name"], two["agent"]["name"]) == ("first", "second")
    assert one["agent"]["reason"].startswith("best score for coder in")
    assert "have not tried yet (tried: first)" in two["agent"]["reason"]
    prompt = (at.place / "prompt").read_text()
    assert "first tried before, and was rejected. It changed calc/core.py; its words: Subtracted" in prompt
    assert "tests_broken" in prompt
    # The better score goes first the next time.
    _, rows, _ = at.run(task("u"))
    assert at.bags("u")[0]["agent"]["name"] == "second"


def test_who_was_stuck_hands_on_what_his_governor_saw(at: School, school: Any) -> None:
    """The packet is put on the record as a leaf does; the next attempt is a real one."""
    at.agent("first", "bad()")
    at.agent("second", f"Path({str(at.place / 'prompt')!r}).write_text(said); good()")
    at.configure()
    at.run(task("t"))
    (bag,) = at.bags("t")
    path = school.archive_dir / bag["bead"] / "bookbag.json"
    text = "<escalation-packet>\nThis session is stuck: x.\nGoal: simpler\n- terminal `make`: exit 2\n"
    text += "Do not try any of this again in the same way. Instead:\n1. Say which.\n</escalation-packet>"
    guidance = [
        {"by": "governor", "what": "packet", "text": text, "turn": 1, "held": False, "followed": False}
    ]
    changes = {"status": "failed", "reason": "stuck", "outcome": "failed", "findings": [], "accepted": False}
    path.write_text(json.dumps({**bag, **changes, "summary": "stuck, and went on", "guidance": guidance}))
    code, rows, told = at.run(task("t"))
    assert (code, rows["t"]["outcome"]) == (0, "accepted"), told
    assert at.bags("t")[-1]["agent"]["name"] == "second"
    prompt = (at.place / "prompt").read_text()
    assert "stuck (leaf): An earlier attempt ended without a result: stuck, and went on" in prompt
    assert "- terminal `make`: exit 2" in prompt
    assert "Say which" not in prompt
    assert "escalation-packet" not in prompt


# --- a quota ----------------------------------------------------------------------------------------------------


def quota_once(place: Path, seconds: float) -> str:
    """Says once that its quota is back in *seconds*, and works from then on."""
    mark, stamp = str(place / "asked"), f"datetime.now(UTC) + timedelta(seconds={seconds})"
    return f"""
from datetime import UTC, datetime, timedelta
if os.path.exists({mark!r}):
    assert time.time() >= float(Path({mark!r}).read_text()), "asked before its reset"
    good()
else:
    Path({mark!r}).write_text(str(time.time() + {seconds}))
    claim(status="failed", retry_at=({stamp}).isoformat())
"""


def test_a_quota_pauses_its_agent_until_the_stated_reset_and_costs_nothing(at: School) -> None:
    at.agent("limited", quota_once(at.place, 4))
    at.agent("other", "good()")
    at.configure()
    begun = time.monotonic()
    code, rows, told = at.run(
        task("waits", agent="limited", max_attempts=1),
        task("goes-on", agent="other"),
        flags=("--leaves", "1"),
    )
    assert (code, rows["waits"]["outcome"], rows["goes-on"]["outcome"]) == (0, "accepted", "accepted"), told
    assert rows["waits"]["attempts"] == 1
    assert time.monotonic() - begun > 4
    assert [bag["reason"] for bag in at.bags("waits")] == ["quota", ""]
    assert "limited: its quota is used up; its tasks wait" in told
    assert "those of others go on" in told
    # The other's task was begun while the first one waited.
    assert at.bags("goes-on")[0]["timestamp"] < at.bags("waits")[1]["timestamp"]


def test_another_agent_of_the_role_does_it_meanwhile(at: School) -> None:
    at.agent("limited", f"claim(status='failed', retry_at={soon(3000)!r})")
    at.agent("other", "good()")
    at.configure()
    code, rows, told = at.run(task("t"))
    assert (code, rows["t"]["outcome"], rows["t"]["attempts"]) == (0, "accepted", 1), told
    assert at.bags("t")[1]["agent"]["reason"].endswith("; away: limited")


def test_a_reset_too_far_off_ends_the_run_resumable_and_burns_no_queue(at: School) -> None:
    at.agent("limited", "claim(status='failed', retry_at='2999-01-01T00:00:00Z')")
    at.configure()
    code, rows, told = at.run(task("a"), task("b"), flags=("--loop", "--leaves", "1"))
    assert code == 1
    assert (
        "limited: its quota is used up until 2999-01-01T00:00:00Z; it is not waited for in this run" in told
    )
    assert {(row["outcome"], row["attempts"]) for row in rows.values()} == {("expired", 0)}, told
    assert (
        rows["a"]["reason"]
        == rows["b"]["reason"]
        == "quota: limited: its quota is used up until 2999-01-01T00:00:00Z"
    )
    assert (len(at.bags("a")), len(at.bags("b"))) == (1, 0)
    # Another time, or another agent: nothing was used up.
    (at.place / "limited.py").write_text(HEAD + "good()")
    code, rows, told = at.run(task("a"), task("b"))
    assert (code, {row["outcome"] for row in rows.values()}) == (0, {"accepted"}), told


def test_status_says_who_is_away_and_until_when(at: School, school: Any) -> None:
    at.agent("limited", quota_once(at.place, 5))
    at.configure()
    look = at.place / "look.py"
    look.write_text(
        "import json, subprocess, sys\n"
        f"out = subprocess.run([sys.executable, {str(Path(__file__).parents[2] / 'conductor.py')!r}, 'status', '--json'], capture_output=True).stdout\n"
        f"open({str(at.place / 'status.json')!r}, 'ab').write(out + b'\\n')\n"
    )
    looks = task("looks", run=[sys.executable, str(look)])
    code, _, told = at.run(task("waits", agent="limited"), looks, flags=("--leaves", "1"))
    text = (at.place / "status.json").read_text()
    status = json.JSONDecoder().raw_decode(text)[0]
    (away,) = status["conductor"]["away"]
    assert (away["agent"], away["reason"]) == ("limited", "quota"), told
    assert away["until"] > status["conductor"]["since"]
    assert code == 1  # the one that only looked changed nothing


# --- a budget ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "low", "high"), [("tokens", "700", "5000"), ("cost_usd", "0.007", "1.0")])
def test_a_budget_that_is_used_up_stops_new_work_and_a_higher_one_goes_on(
    at: School, school: Any, key: str, low: str, high: str
) -> None:
    at.agent("one", "good()")
    at.configure(f"[limits]\n{key} = {low}\n")
    code, rows, _ = at.run(task("a"))
    assert (code, rows["a"]["outcome"]) == (0, "accepted")
    (bag,) = at.bags("a")
    # No command agent of a test reports usage; what a model's run leaves in the record is written there.
    path = school.archive_dir / bag["bead"] / "bookbag.json"
    review = {**bag["cto_review"], "usage": {"input_tokens": 100, "output_tokens": 100, "cost_usd": 0.002}}
    usage = {"input_tokens": 400, "output_tokens": 100, "cost_usd": 0.005}
    path.write_text(json.dumps({**bag, "usage": usage, "cto_review": review}))
    code, rows, told = at.run(task("a"), task("b"), flags=("--loop",))
    assert (code, rows["a"]["outcome"]) == (1, "accepted"), told
    assert (rows["b"]["outcome"], rows["b"]["reason"]) == ("expired", "not_started: budget")
    assert rows["b"]["attempts"] == 0
    assert f"[limits] {key} = {low} " in told
    assert "used up" in told
    assert "With a higher limit the next run goes on" in told
    at.configure(f"[limits]\n{key} = {high}\n")
    code, rows, told = at.run(task("a"), task("b"), flags=("--loop",))
    assert (code, rows["a"]["outcome"], rows["b"]["outcome"]) == (0, "accepted", "accepted"), told
    left = at.bags("b")[0]["limits"][key]
    assert left == pytest.approx(float(high) - float(low))

"""A review that the budget stops waits for a higher limit: real conductors, real teachers, a fake endpoint on 127.0.0.1."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.projects import bag_of, conduct, environment
from tests.e2e.test_model_reviewers import CHECK, EDIT, KEY, PASSED, judge, lens_of, project
from tests.e2e.test_run_ends import started, until
from tests.endpoint import FakeEndpoint, say
from tests.support import CALC_FILES, git

__all__ = ["project"]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

# What one lens is told to have used; its prompt is about 2,100 tokens here.
LENS = 2_500


def configure(project: Path, endpoint: FakeEndpoint, limits: str, roles: tuple[str, ...], model: str) -> None:
    agent = (
        f'kind = "model"\nmodel = "openai:{model}"\nbase_url = "{endpoint.base_url}"\napi_key_env = "JUDGE"\n'
    )
    reviewers = "".join(f'[reviewers.{role}]\nagent = "judge"\n' for role in roles)
    (project / "school.toml").write_text(
        f"{CALC_FILES['school.toml']}[agents.judge]\n{agent}{reviewers}[limits]\n{limits}\n"
    )
    task = {"id": "extra", "role": "executor", "task": "Add EXTRA to calc.core.", "max_attempts": 1,
            "run": ["python3", "-c", EDIT], "accept": [CHECK]}  # fmt: skip
    (project / "school-tasks.yaml").write_text(json.dumps({"version": 1, "tasks": [task]}))
    git(project, "add", "-A")
    git(project, "commit", "-q", "--allow-empty", "-m", "configure")


class School:
    """One project, one home, one endpoint, and runs of it under changing limits."""

    def __init__(self, project: Path, home: Path, endpoint: FakeEndpoint) -> None:
        self.project, self.endpoint = project, endpoint
        self.roles: tuple[str, ...] = ("cto", "coo")
        self.model = "judge-1"
        self.env = environment(home, JUDGE=KEY)
        self.home = Path(self.env["HERMES_HOME"])

    def run(self, limits: str | None, *how: str) -> tuple[int, dict[str, Any], str]:
        """Exit, the task's row, and what it said on stderr."""
        if limits is not None:
            configure(self.project, self.endpoint, limits, self.roles, self.model)
        code, document, errors = conduct("--repo", str(self.project), *how, env=self.env, timeout_s=60)
        assert "tasks" in document, errors[-3000:]
        (row,) = document["tasks"]
        return code, row, errors

    def bag(self, row: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "bookbag" / f"{row['bead']}.json").read_text())
        return found

    def ask(self, *command: str) -> Any:
        done = subprocess.run(
            [sys.executable, "conductor.py", *command],
            env=self.env,
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout) if "--json" in command else done.stdout


@contextmanager
def teachers_by_hand(at: School) -> Iterator[None]:
    with ExitStack() as stack:
        for role in ("cto", "coo"):
            stack.enter_context(started("teacher.py", "--role", role, env=at.env))
            until((at.home / "school" / "teachers" / f"{role}.json").exists, role)
        yield


@pytest.fixture
def at(project: Path, tmp_path: Path) -> Iterator[School]:
    with FakeEndpoint(judge()) as endpoint:
        yield School(project, tmp_path / "h", endpoint)


@pytest.mark.parametrize("how", ["", "--sync", "--resume", "teachers by hand"])
def test_it_stops_before_the_call_and_a_higher_limit_goes_on_with_the_same_commit(
    at: School, how: str
) -> None:
    with teachers_by_hand(at) if how == "teachers by hand" else ExitStack():
        flags = ("--sync",) if how == "--sync" else ()
        code, row, errors = at.run("tokens = 50", *flags)
        assert (code, row["outcome"], row["attempts"]) == (1, "expired", 0), errors
        for role in ("cto", "coo"):
            assert (
                f"too little is left for the {role}'s review ([limits] tokens: 50 left, raise it by"
                in row["reason"]
            )
        assert row["reason"] in errors
        assert "nothing new is started. With a higher limit the next run goes on" in errors
        assert at.endpoint.requests == []
        bag = at.bag(row)
        assert (bag["status"], bag["limits"]["tokens"]) == ("open", 50)
        for review in (bag["cto_review"], bag["coo_review"]):
            assert (review["attempts"], review["verdict"], review["not_before"]) == (0, "", "")
            assert "budget: [limits] tokens: 50 are left" in review["reason"]
        told = at.ask("show", row["bead"])
        assert "waits for a higher limit: too little is left for the cto's review" in " ".join(told.split())
        assert at.ask("status", "--json")["queue"]["for_budget"] == 1
        # The same again: the same words, nobody asked, nothing changed.
        again = ("--resume",) if how == "--resume" else flags
        second = at.run(None if how == "--resume" else "tokens = 50", *again)
        assert second[:2] == (1, row), second[2]
        assert (at.bag(row)["rev"], at.endpoint.requests) == (bag["rev"], [])
        code, row, errors = at.run("tokens = 100_000", *again)
        assert (code, row["outcome"], row["attempts"]) == (0, "accepted", 1), errors
    found = bag_of(row["bead"], at.env)
    assert (found["bead"], found["head_commit"]) == (bag["bead"], bag["head_commit"])
    assert sorted(map(lens_of, at.endpoint.requests)) == ["COMPLETENESS", "CORRECTNESS", "SECURITY"]
    assert (found["cto_review"]["attempts"], found["cto_review"]["short_of"]) == (1, {})
    assert at.ask("status", "--json")["queue"]["for_budget"] == 0


def test_one_teacher_passes_and_only_the_other_waits(at: School) -> None:
    at.roles = ("cto",)
    code, row, errors = at.run("tokens = 50")
    assert (code, row["cto_verdict"], row["coo_verdict"]) == (1, "", "PASS"), errors
    assert "cto's review" in row["reason"]
    assert "coo" not in row["reason"]
    code, row, errors = at.run("")  # the limit is removed
    assert (code, row["outcome"], row["cto_verdict"]) == (0, "accepted", "PASS"), errors
    assert bag_of(row["bead"], at.env)["limits"]["tokens"] is None


def test_what_a_review_used_before_it_was_stopped_counts_and_too_small_a_raise_asks_nobody(
    at: School,
) -> None:
    at.roles = ("cto",)
    at.endpoint.script = [say(json.dumps(PASSED), input_tokens=LENS, output_tokens=500)]
    code, row, errors = at.run(f"tokens = {LENS + 1_000}")
    assert (code, row["outcome"], len(at.endpoint.requests)) == (1, "expired", 1), errors
    review = at.bag(row)["cto_review"]
    assert (review["usage"]["input_tokens"], review["attempts"]) == (LENS, 0)
    # It begins anew, so it takes the first lens once more and the prompt of the second.
    assert review["short_of"]["tokens"] > LENS + 500 + 1_000
    more = int(re.search(r"raise it by (\d+) at least", row["reason"])[1])  # type: ignore[index]
    code, row, errors = at.run(f"tokens = {LENS + 1_000 + more - 20}")
    assert (code, row["outcome"], len(at.endpoint.requests)) == (1, "expired", 1), errors
    assert f"raise it by {20} at least" in row["reason"]
    # Twenty to spare: what a check took to run stands in the prompt.
    code, row, errors = at.run(f"tokens = {LENS + 1_000 + more + 20}")
    assert (code, row["outcome"], len(at.endpoint.requests)) == (0, "accepted", 3), errors
    assert bag_of(row["bead"], at.env)["cto_review"]["usage"]["input_tokens"] == 3 * LENS


def test_a_cent_stops_the_next_call_and_ten_let_it_go_on(at: School) -> None:
    at.roles, at.model = ("cto",), "gpt-4o"
    at.endpoint.script = [say(json.dumps(PASSED), input_tokens=10_000)]  # 2.5 cents
    code, row, errors = at.run("cost_usd = 0.01\ntokens = 1_000_000")
    assert (code, row["outcome"], len(at.endpoint.requests)) == (1, "expired", 1), errors
    assert "[limits] cost_usd: 0 left, raise it by more than" in row["reason"]
    used = at.bag(row)["cto_review"]["usage"]["cost_usd"]
    assert used == pytest.approx(0.025, rel=0.2)
    assert at.run("cost_usd = 0.03\ntokens = 1_000_000")[0] == 1
    assert len(at.endpoint.requests) == 1
    code, row, errors = at.run("cost_usd = 0.1\ntokens = 1_000_000")
    assert (code, row["outcome"], len(at.endpoint.requests)) == (0, "accepted", 3), errors

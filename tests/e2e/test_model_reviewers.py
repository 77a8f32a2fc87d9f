"""Whole runs whose teachers ask a model beside their checks, against a fake endpoint on 127.0.0.1."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.projects import bag_of, classes, conduct, environment
from tests.endpoint import Answer, Failure, FakeEndpoint, Request, limited, say
from tests.support import CALC_FILES, git, write_tree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

KEY = "key-for-the-judge-1234"
PASSED = {"outcome": "PASS", "reason": "it holds", "findings": []}
FOUND = {
    "severity": "High",
    "issue_class": "wrong_result",
    "description": "an empty text gives an empty list where the task wants an error",
    "citation": "calc/core.py:17",
    "suggestion": "raise ValueError",
}
EDIT = "import pathlib; p = pathlib.Path('calc/core.py'); p.write_text(p.read_text() + 'EXTRA = 1' + chr(10))"
CHECK = {
    "text": "there is EXTRA",
    "check": ["python3", "-c", "from calc.core import EXTRA; assert EXTRA == 1"],
}
READ = {"text": "EXTRA is a plain number"}


def asked_of(request: Request) -> str:
    """All text of a request."""
    return "\n".join(str(message.get("content")) for message in request["messages"])


def lens_of(request: Request) -> str:
    text = asked_of(request)
    return next(
        name for name in ("CORRECTNESS", "SECURITY", "COMPLETENESS") if f"one lens only: {name}" in text
    )


def judge(**said: Any) -> Callable[[Request], Answer | Failure]:
    """Answers by lens: what *said* has for it, else a PASS, the criteria met by a real quote."""

    def answer(request: Request) -> Answer | Failure:
        lens = lens_of(request)
        found = said.get(lens, said.get("everybody"))
        if isinstance(found, Answer | Failure):
            return found
        criteria = {"criteria": [{"id": "ac-2", "state": "met", "evidence": "`return left + right`"}]}
        known = criteria if lens == "COMPLETENESS" and "ac-2" in asked_of(request) else {}
        return say(json.dumps({**PASSED, **known, **(found or {})}), input_tokens=100, output_tokens=10)

    return answer


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    write_tree(root, CALC_FILES)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Begin")
    return root


def run(
    project: Path, home: Path, endpoint: FakeEndpoint, *more: str, accept: Any = (CHECK,), **env: str
) -> tuple[int, dict[str, Any], str, dict[str, str]]:
    """One run of one task with both reviewers asking *endpoint*: exit, the task's row, stderr, environment."""
    agent = (
        f'kind = "model"\nmodel = "openai:judge-1"\nbase_url = "{endpoint.base_url}"\napi_key_env = "JUDGE"\n'
    )
    config = CALC_FILES["school.toml"] + f"[agents.judge]\n{agent}"
    config += '[reviewers.cto]\nagent = "judge"\n[reviewers.coo]\nagent = "judge"\n'
    (project / "school.toml").write_text(config)
    tasks = {"version": 1, "tasks": [{
        "id": "extra", "role": "executor", "task": "Add EXTRA to calc.core.", "max_attempts": 1,
        "run": ["python3", "-c", EDIT], "accept": list(accept),
    }]}  # fmt: skip
    (project / "school-tasks.yaml").write_text(json.dumps(tasks))
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "configure")
    environ = environment(home, JUDGE=KEY, **env)
    code, document, errors = conduct("--repo", str(project), "--loop", *more, env=environ)
    (row,) = document["tasks"]
    return code, row, errors, environ


@pytest.mark.parametrize("how", [(), ("--sync",)])
def test_accepted_when_the_models_pass_it_too(project: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    with FakeEndpoint(judge()) as endpoint:
        code, row, errors, env = run(project, tmp_path / "h", endpoint, *how, accept=[CHECK, READ])
    assert (code, row["outcome"], row["cto_verdict"], row["coo_verdict"]) == (
        0,
        "accepted",
        "PASS",
        "PASS",
    ), errors
    assert sorted(map(lens_of, endpoint.requests)) == ["COMPLETENESS", "CORRECTNESS", "SECURITY"]
    assert all("EXTRA = 1" in asked_of(request) and not request.get("tools") for request in endpoint.requests)
    assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in endpoint.requests)
    bag = bag_of(row["bead"], env)
    assert bag["ac_met"] == ["there is EXTRA", "EXTRA is a plain number"]
    assert bag["coo_review"]["criteria"] == {"ac-1": "met", "ac-2": "met"}
    assert [lens["by"] for lens in bag["cto_review"]["lenses"]] == ["checks, judge-1", "checks, judge-1"]
    assert (bag["cto_review"]["usage"]["requests"], bag["cto_review"]["usage"]["input_tokens"]) == (2, 200)
    assert git(project, "show", "--stat", "--format=", row["branch"]).strip().startswith("calc/core.py")
    done = subprocess.run(
        ["grep", "-rlaF", KEY, env["HERMES_HOME"]], capture_output=True, text=True, check=False
    )
    assert (done.stdout, KEY in errors) == ("", False)


@pytest.mark.parametrize("how", [(), ("--sync",)])
def test_rejected_by_what_a_model_found(project: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    objects = {"outcome": "FAIL", "findings": [FOUND]}
    with FakeEndpoint(judge(CORRECTNESS=objects)) as endpoint:
        code, row, errors, env = run(project, tmp_path / "h", endpoint, *how)
    assert (code, row["outcome"], row["cto_verdict"], row["coo_verdict"]) == (
        1,
        "rejected",
        "FAIL",
        "PASS",
    ), errors
    bag = bag_of(row["bead"], env)
    assert classes(bag) == {"wrong_result"}
    (found,) = [f for f in bag["findings"] if f["issue_class"] == "wrong_result"]
    assert (found["section"], found["severity"], found["citation"]) == (
        "model-correctness",
        "HIGH",
        "calc/core.py:17",
    )
    # The two never see each other's review.
    assert not any(FOUND["description"] in asked_of(request) for request in endpoint.requests)


def test_an_unmet_criterion_that_only_a_reader_can_judge(project: Path, tmp_path: Path) -> None:
    unmet = {"outcome": "FAIL", "criteria": [{"id": "ac-2", "state": "unmet", "evidence": "it is a text"}]}
    with FakeEndpoint(judge(COMPLETENESS=unmet)) as endpoint:
        code, row, errors, env = run(project, tmp_path / "h", endpoint, "--sync", accept=[CHECK, READ])
    assert (code, row["outcome"], row["cto_verdict"], row["coo_verdict"]) == (
        1,
        "rejected",
        "PASS",
        "FAIL",
    ), errors
    assert classes(bag_of(row["bead"], env)) == {"criterion_unmet"}


@pytest.mark.parametrize(
    ("how", "answer", "calls", "why"),
    [
        (
            (),
            say("The change is fine. PASS"),
            6,
            "its answer could not be used, twice: it is not one JSON object",
        ),
        (("--sync",), say(""), 6, "its answer could not be used, twice: it is empty"),
        (("--sync",), limited(0.5), 0, "quota"),
    ],
)
def test_a_reviewer_that_cannot_be_understood_blocks_and_never_passes(
    project: Path, tmp_path: Path, how: tuple[str, ...], answer: Answer | Failure, calls: int, why: str
) -> None:
    with FakeEndpoint(judge(SECURITY=answer)) as endpoint:
        code, row, errors, env = run(
            project, tmp_path / "h", endpoint, *how, DEFAULT_REVIEW_TIMEOUT="3", HANDOFF_TIMEOUT="60"
        )
    assert (code, row["outcome"], row["cto_verdict"], row["coo_verdict"]) == (1, "blocked", "", "PASS"), (
        errors
    )
    assert why in row["reason"]
    assert row["attempts"] == 0 or row["reason"].startswith("no verdict from the cto")
    bag = json.loads((Path(env["HERMES_HOME"]) / "bookbag" / f"{row['bead']}.json").read_text())
    assert (bag["status"], bag["accepted"], bag["cto_review"]["attempts"]) == ("blocked", False, 3)
    security = [request for request in endpoint.requests if lens_of(request) == "SECURITY"]
    assert len(security) == calls or calls == 0
    scores = Path(env["HERMES_HOME"]) / "school" / "score-journal.jsonl"
    assert not scores.exists() or row["bead"] not in scores.read_text()


COMMAND = """
import json, os, pathlib, sys
prompt = sys.stdin.read()
assert "JUDGE" not in os.environ and "+EXTRA = 1" in prompt
assert "EXTRA = 1" in pathlib.Path("calc/core.py").read_text()
if "one lens only: SECURITY" in prompt and MEDDLES:
    os.chmod("calc/core.py", 0o755)
print(json.dumps({"outcome": "PASS", "findings": []}))
"""


@pytest.mark.parametrize("meddles", [False, True])
def test_a_command_judges_in_the_teachers_tree_and_may_not_change_it(
    project: Path, tmp_path: Path, *, meddles: bool
) -> None:
    script = tmp_path / "judge.py"
    script.write_text(COMMAND.replace("MEDDLES", str(meddles)))
    agent = f'[agents.cli]\nargv = ["{sys.executable}", "{script}"]\n'
    reviewers = '[reviewers.cto]\nagent = "cli"\n[reviewers.coo]\nagent = "cli"\n'
    sandbox = '[sandbox]\nmode = "off"\n' if meddles else ""
    (project / "school.toml").write_text(CALC_FILES["school.toml"] + agent + reviewers + sandbox)
    git(project, "commit", "-q", "-am", "configure")
    command = f"python3 -c {shlex.quote(EDIT)}"
    check = shlex.join(CHECK["check"])
    env = environment(tmp_path / "h", JUDGE=KEY)
    code, document, errors = conduct(
        "--repo", str(project), "--task", "Add EXTRA", "--run", command, "--check", check, env=env
    )
    (row,) = document["tasks"]
    if meddles:
        assert (code, row["outcome"], row["cto_verdict"], row["coo_verdict"]) == (1, "blocked", "", "PASS"), (
            errors
        )
        assert "the review is void: cli changed calc/core.py" in row["reason"]
    else:
        assert (code, row["outcome"]) == (0, "accepted"), (row, errors)
        assert bag_of(row["bead"], env)["cto_review"]["lenses"][1]["by"] == "checks, cli"

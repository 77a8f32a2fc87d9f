"""What a host's tool calls are evidence of: on real files, told as Hermes tells them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from school.settings import Settings
from school.study.evidence import SessionEvidence, canonical, line_of
from tests.support import git, write_tree

CHECK = ["pytest"]
Opening = Callable[..., SessionEvidence]


@pytest.fixture
def opened(repo: Path, school: Settings) -> Iterator[Opening]:
    made: list[SessionEvidence] = []

    def open_(**options: Any) -> SessionEvidence:
        made.append(SessionEvidence("bead-1", repo, [CHECK], school, **options))
        return made[-1]

    yield open_
    for evidence in made:
        evidence.close()


def shell(
    evidence: SessionEvidence, command: str, code: int | None = 0, output: str = "", **more: Any
) -> None:
    args = {"command": command, **more.pop("args", {})}
    result = json.dumps({"output": output, "exit_code": code, "error": more.pop("error", None)})
    evidence.post_tool_call(
        tool_name="terminal", args=args, result=result, session_id="bead-1", status="ok", **more
    )


def wrote(evidence: SessionEvidence, repo: Path, path: str, text: str) -> None:
    (repo / path).write_text(text)
    evidence.post_tool_call(
        tool_name="write_file", args={"path": path, "content": text}, result='{"ok": true}'
    )


def said(evidence: SessionEvidence) -> tuple[str, str, str]:
    found = evidence.document()
    return found["status"], found["kind"], found["scope"]


def test_an_edit_then_a_check_then_an_edit(opened: Opening, repo: Path) -> None:
    evidence = opened()
    assert evidence.document()["words"] == "no file was changed"
    wrote(evidence, repo, "calc/core.py", "x = 1\n")
    assert said(evidence) == ("unverified", "", "")
    shell(evidence, "pytest -k add", output="1 passed in 0.1s")
    assert said(evidence) == ("passed", "test", "targeted")
    shell(evidence, "pytest -q", output="2 passed in 0.1s", duration_ms=3)
    assert said(evidence) == ("passed", "test", "full")
    document = evidence.document()
    assert document["words"] == "passed: `pytest -q` (full, exit 0), on exactly these files"
    assert (document["command"], document["exit_code"], document["paths"], document["checks"]) == (
        "pytest -q", 0, ["calc/core.py"], 2,
    )  # fmt: skip
    assert document["commit"] == git(repo, "rev-parse", "HEAD")
    git(repo, "add", "-A")
    assert document["tree"] == git(repo, "write-tree")
    wrote(evidence, repo, "calc/core.py", "x = 2\n")
    assert said(evidence) == ("unverified", "", "")
    assert evidence.document()["words"] == (
        "unverified: no check of the project was seen to end after the last edit of calc/core.py"
    )


@pytest.mark.parametrize(
    "call",
    [
        {"command": "pytest || true"},
        {"command": "pytest", "code": 5, "output": "no tests ran in 0.1s"},
        {"command": "pytest", "output": "no tests ran in 0.1s"},
        {"command": "pytest", "code": None},
        {"command": "pytest", "error": "timed out"},
        {"command": "pytest", "args": {"background": True}},
        {"command": "pytest", "args": {"workdir": "calc"}},
        {"command": "pytest", "args": {"workdir": ["calc"]}},
        {"command": "pytest --collect-only"},
    ],
)
def test_what_is_no_pass(opened: Opening, repo: Path, call: dict[str, Any]) -> None:
    evidence = opened()
    wrote(evidence, repo, "calc/core.py", "x = 1\n")
    shell(evidence, **call)
    assert (said(evidence)[0], said(evidence)[2]) in (
        ("unverified", ""),
        ("passed", "targeted"),
        ("failed", "full"),
    )
    assert (said(evidence)[0] == "passed") == (call.get("args") == {"workdir": "calc"})
    assert (said(evidence)[0] == "failed") == (call.get("code") == 5)


@pytest.mark.parametrize(
    "raw", ["", "no JSON", "[]", "3", None, {"exit_code": "0"}, {"exit_code": True}, "[" * 5000]
)
def test_a_result_that_says_nothing(opened: Opening, repo: Path, raw: object) -> None:
    evidence = opened()
    wrote(evidence, repo, "calc/core.py", "x = 1\n")
    evidence.post_tool_call(tool_name="terminal", args={"command": "pytest"}, result=raw)
    evidence.post_tool_call(tool_name="terminal", args=None, result=raw)
    evidence.post_tool_call(tool_name="terminal", args={"command": 3}, result=raw)
    assert said(evidence)[0] == "unverified"


def test_a_shell_command_that_edits(opened: Opening, repo: Path) -> None:
    evidence = opened()
    wrote(evidence, repo, "calc/core.py", "x = 1\n")
    shell(evidence, "pytest")
    (repo / "calc" / "core.py").write_text("x = 3\n")
    shell(evidence, "sed -i s/1/3/ calc/core.py")
    assert said(evidence)[0] == "unverified"
    shell(evidence, "pytest")
    assert said(evidence)[0] == "passed"


def test_an_edit_by_nobody_that_was_seen(opened: Opening, repo: Path) -> None:
    evidence = opened()
    (repo / "calc" / "core.py").write_text("x = 1\n")
    shell(evidence, "pytest")  # before it or while it ran: nobody knows
    assert (said(evidence)[0], len(evidence.checks)) == ("unverified", 1)
    evidence.pre_llm_call(user_message="go on")
    shell(evidence, "pytest")
    assert said(evidence)[0] == "passed"


def test_a_check_that_began_before_an_edit(opened: Opening, repo: Path) -> None:
    evidence = opened()
    wrote(evidence, repo, "calc/core.py", "x = 1\n")
    begun = time.monotonic()
    wrote(evidence, repo, "calc/core.py", "x = 2\n")
    lasted_ms = (time.monotonic() - begun) * 1000 + 200
    shell(evidence, "pytest", duration_ms=lasted_ms)
    assert said(evidence)[0] == "unverified"
    shell(evidence, "pytest", duration_ms=1)
    assert said(evidence)[0] == "passed"


def test_a_call_longer_than_the_session_is_evidence_of_nothing(opened: Opening, repo: Path) -> None:
    evidence = opened()
    wrote(evidence, repo, "calc/core.py", "x = 1\n")
    shell(evidence, "pytest", duration_ms=3_600_000)
    assert (said(evidence)[0], evidence.checks) == ("unverified", [])


def test_an_edit_that_is_told_late_counts(opened: Opening, repo: Path) -> None:
    evidence = opened()
    (repo / "calc" / "core.py").write_text("x = 1\n")
    evidence.pre_llm_call()
    shell(evidence, "pytest")
    assert said(evidence)[0] == "passed"
    evidence.post_tool_call(tool_name="patch", args={"path": str(repo / "calc" / "core.py")}, result="{}")
    assert said(evidence)[0] == "unverified"
    shell(evidence, "pytest")
    assert said(evidence)[0] == "passed"
    evidence.post_tool_call(
        tool_name="patch", args={"path": "x", "paths": ["x", "calc/core.py", 3]}, result="{}"
    )
    assert said(evidence)[0] == "unverified"


@pytest.mark.parametrize("path", ["/etc/hosts", "../elsewhere.py", "ignored.pyc", ""])
def test_an_edit_elsewhere_takes_nothing(opened: Opening, repo: Path, path: str) -> None:
    evidence = opened()
    wrote(evidence, repo, "calc/core.py", "x = 1\n")
    shell(evidence, "pytest")
    evidence.post_tool_call(tool_name="write_file", args={"path": path}, result="{}")
    evidence.post_tool_call(tool_name="read_file", args={"path": "calc/core.py"}, result="{}")
    assert said(evidence)[0] == "passed"


def test_a_host_that_tells_when_the_turn_is_over(opened: Opening, repo: Path) -> None:
    evidence = opened(live=False)
    (repo / "calc" / "core.py").write_text("x = 1\n")
    evidence.post_tool_call(tool_name="write_file", args={"path": "calc/core.py"}, result="{}")
    shell(evidence, "pytest", duration_ms=1)  # perhaps before the edit, perhaps after it
    assert said(evidence)[0] == "unverified"
    evidence.pre_llm_call()
    shell(evidence, "pytest", duration_ms=1)  # a turn in which nothing changed
    assert said(evidence)[0] == "passed"


def test_a_shell_that_lives_on_may_be_elsewhere(opened: Opening, repo: Path) -> None:
    evidence = opened(lives_on=True)
    wrote(evidence, repo, "calc/core.py", "x = 1\n")
    shell(evidence, "cd calc || true")
    shell(evidence, "pytest")
    assert said(evidence)[0] == "unverified"
    shell(evidence, f"cd {repo} && pytest")
    shell(evidence, "pytest -q")
    assert (said(evidence), [check.command for check in evidence.checks]) == (
        ("passed", "test", "full"),
        ["pytest -q"],
    )


def test_documentation_alone_is_nothing_to_verify(opened: Opening, repo: Path) -> None:
    evidence = opened()
    wrote(evidence, repo, "README.md", "better\n")
    document = evidence.document()
    assert (document["status"], document["paths"]) == ("not_applicable", [])
    assert document["words"] == "only documentation was changed, no check is due"
    assert evidence.changed() == ["README.md"]


def test_what_is_undone_was_no_edit(opened: Opening, repo: Path) -> None:
    evidence = opened()
    kept = (repo / "calc" / "core.py").read_text()
    wrote(evidence, repo, "calc/core.py", "x = 1\n")
    wrote(evidence, repo, "calc/core.py", kept)
    assert evidence.document()["status"] == "not_applicable"


def test_a_command_that_was_the_whole_session(opened: Opening, repo: Path) -> None:
    evidence = opened()
    evidence.ran("pytest -q", exit_code=1, output="1 failed in 0.1s")
    assert [check.status for check in evidence.checks] == ["failed"]
    assert evidence.document()["status"] == "not_applicable"  # nothing was edited
    assert evidence.standing().status == "failed"


def test_a_ledger_that_cannot_be_used_keeps_nobody_from_work(repo: Path, school: Settings) -> None:
    school.evidence_db.mkdir(parents=True)
    evidence = SessionEvidence("bead-1", repo, [CHECK], school)
    wrote(evidence, repo, "calc/core.py", "x = 1\n")
    shell(evidence, "pytest")
    document = evidence.document()
    assert document["status"] == "disabled"
    assert document["words"].startswith("unverified: the evidence ledger could not be used: ")
    assert evidence.changed() == []


def test_a_tree_that_is_gone_is_no_crash(opened: Opening, repo: Path, tmp_path: Path) -> None:
    evidence = opened()
    repo.rename(tmp_path / "away")
    assert evidence.document()["status"] in ("disabled", "unverified")


def test_what_a_project_is_checked_by(repo: Path) -> None:
    assert canonical(repo, [["uv", "run", "pytest"], ["sh", "-c", "cd web && npm test"]]) == [
        "uv run pytest",
        "cd web && npm test",
    ]
    assert canonical(repo, []) == ["python3 -m unittest discover"]
    write_tree(
        repo, {".hermes/environment.json": json.dumps({"name": "x", "test": ["make test", "make lint"]})}
    )
    assert canonical(repo, []) == ["make test", "make lint"]
    assert line_of(["bash", "-c", "a"]) == "a"
    assert line_of(["bash", "-lc", "a b"]) == "bash -lc 'a b'"

"""What hooks hear of a command of an ACP agent: the line that decides what it is evidence of, and where it ran."""

from __future__ import annotations

import pytest

from school.agents.acp.calls import Call, Ran, event, line_of
from school.verification import classify_command


@pytest.mark.parametrize(
    ("argv", "env", "line"),
    [
        (["pytest", "-k", "a b"], {}, "pytest -k 'a b'"),
        (["bash", "-lc", "cd web && npm test"], {}, "cd web && npm test"),
        (["/bin/sh", "-c", "pytest"], {"CI": "1"}, "export CI=1; pytest"),
        (["true", "-c", "pytest"], {}, "true -c pytest"),
        (["python3", "-c", "pytest"], {}, "python3 -c pytest"),
        (["bash", "-c", "$0", "pytest"], {}, "bash -c '$0' pytest"),
        (
            ["pytest"],
            {"PYTEST_ADDOPTS": "--collect-only -q"},
            "export PYTEST_ADDOPTS='--collect-only -q'; pytest",
        ),
    ],
)
def test_the_line_says_what_ran(argv: list[str], env: dict[str, str], line: str) -> None:
    assert line_of(argv, env) == line


@pytest.mark.parametrize(
    ("argv", "env", "evidence"),
    [
        (["pytest"], {}, True),
        (["pytest"], {"CI": "1"}, True),
        (["pytest"], {"PYTEST_ADDOPTS": "--collect-only"}, False),
        (["pytest"], {"PATH": "/tmp/mine"}, False),
        (["true", "-c", "pytest"], {}, False),
    ],
)
def test_what_it_is_evidence_of(argv: list[str], env: dict[str, str], evidence: bool) -> None:
    found = classify_command(line_of(argv, env), exit_code=0, canonical=["pytest"])
    assert (found is not None) == evidence


def test_where_it_ran_is_told_where_it_is_not_the_root() -> None:
    ours = Call(
        "1", begun=0.0, kind="execute", title="pytest", content=[{"type": "terminal", "terminalId": "t"}]
    )
    told = event(ours, lambda _: Ran("pytest", "", 0, "/w/calc"), str)
    assert told.args == {"command": "pytest", "cwd": "/w/calc"}
    assert event(ours, lambda _: Ran("pytest", "", 0), str).args == {"command": "pytest"}
    own = Call(
        id="1",
        begun=0.0,
        kind="execute",
        title="t",
        raw_input={"command": ["bash", "-lc", "pytest"], "workdir": "calc"},
    )
    assert event(own, lambda _: None, str).args == {"command": "pytest", "cwd": "calc"}
    assert event(
        Call(id="1", begun=0.0, kind="execute", title="t", raw_input={"cwd": 3}), lambda _: None, str
    ).args == {"command": "t"}

"""``conductor.py governor``: the sessions that it heard of, one of them, and the report; exit codes."""

from __future__ import annotations

import json

import pytest

import conductor
from school.governor import Governor
from school.settings import Settings
from tests.governor.scenarios import delegation, end, flat, shell, tell, turn


@pytest.fixture
def heard(school: Settings) -> Settings:
    governor = Governor(school)
    for event in flat(
        turn(session="coder-x-1"),
        *[shell(f"m {n}", 1, session="coder-x-1") for n in range(3)],
        end("coder-x-1"),
    ):
        tell(governor, event)
    for event in flat(turn(session="s2"), delegation(session="s2"), end("s2")):
        tell(governor, event)
    governor.close()
    return school


def asked(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capfd.readouterr()
    code = conductor.entry(["governor", *words])
    return code, capfd.readouterr().out


def test_nothing_heard_of(school: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    assert asked(capfd) == (0, "The governor has heard of no session yet.\n")
    assert asked(capfd, "report") == (0, "The governor has reported no session yet.\n")
    assert asked(capfd, "--json") == (0, "[]\n")
    assert asked(capfd, "report", "--json") == (0, "null\n")


def test_every_session_and_one(heard: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    code, out = asked(capfd, "--json")
    sessions = {one["session_id"]: one["stuck"] for one in json.loads(out)}
    assert (code, sessions) == (0, {"coder-x-1": True, "s2": False})
    code, out = asked(capfd, "coder-x-1", "--json")
    assert (code, json.loads(out)["counts"]["errors"]) == (0, 3)
    code, out = asked(capfd, "coder-x-1")
    assert (code, out.splitlines()[0]) == (0, "Session coder-x-1: stuck")


def test_the_report_of_one_and_the_last(heard: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    code, out = asked(capfd, "coder-x-1", "report", "--json")
    assert (code, json.loads(out)["escalations"]) == (0, 1)
    assert json.loads(asked(capfd, "report", "--json")[1])["session_id"] == "s2"
    assert asked(capfd, "report")[1].startswith("Session s2, ")


@pytest.mark.parametrize("words", [("nobody",), ("nobody", "report"), ("a", "b"), ("a", "b", "report")])
def test_what_is_not_known_is_a_usage_error(
    heard: Settings, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert asked(capfd, *words)[0] == 2


def test_the_kill_switch_is_said(
    heard: Settings, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from school import settings

    monkeypatch.setenv("GOVERNOR_DISABLE", "1")
    settings.configure(None)
    assert asked(capfd, "report")[1].startswith("The governor is off (GOVERNOR_DISABLE).\nSession s2, ")

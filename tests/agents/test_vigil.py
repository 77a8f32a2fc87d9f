"""Reading while a CLI works: what is told, how long ago it can have begun, and when an endpoint has failed for too long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from school.agents import presets, vigil
from school.agents.presets.base import Said, ToolUse
from school.agents.vigil import FOLLOW_BYTES, Vigil
from school.system import clock


class Time:
    """A clock that moves when it is told; the wall clock is the real one."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at

    now = staticmethod(clock.now)
    parse = staticmethod(clock.parse)


class Watched:
    """One vigil over a file of codex' events."""

    def __init__(self, path: Path, time: Time) -> None:
        self.path = path
        self.time = time
        self.heard: list[tuple[str, float]] = []
        self.vigil = Vigil(presets.find("codex"), {"stdout": path}, self._hear, patience_s=10)

    def _hear(self, use: ToolUse, seconds: float) -> None:
        self.heard.append((use.args["command"], round(seconds, 3)))

    def at(self, moment: float, *events: dict) -> bool:
        with self.path.open("a") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)
        self.time.at = moment
        return self.vigil()


def started(name: str) -> dict:
    return {"type": "item.started", "item": {"id": name, "type": "command_execution", "command": name}}


def ended(name: str) -> dict:
    return {
        "type": "item.completed",
        "item": {"id": name, "type": "command_execution", "command": name, "exit_code": 0},
    }


ERROR = {"type": "error", "message": "Reconnecting... (Connection failed)"}


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    time = Time()
    monkeypatch.setattr(vigil, "clock", time)
    return Watched(tmp_path / "stdout", time)


def test_a_use_began_no_earlier_than_the_look_before_it_was_seen_at_work(watched: Watched) -> None:
    watched.at(101, {"type": "turn.started"})
    watched.at(102, started("a"))
    watched.at(105, ended("a"))
    assert watched.heard == [("a", 4.0)]


def test_one_that_was_never_seen_at_work_may_have_begun_after_the_one_before(watched: Watched) -> None:
    watched.at(101, started("a"))
    watched.at(103, ended("a"))
    watched.at(104)
    watched.at(106, ended("b"))
    assert watched.heard[1] == ("b", 5.0)  # since 101: when the look before "a" was heard was over


def test_a_look_is_taken_only_when_something_was_said_and_not_too_often(watched: Watched) -> None:
    watched.at(101, ended("a"))
    watched.at(101.1, ended("b"))
    assert [name for name, _ in watched.heard] == ["a"]
    watched.at(101.6)
    assert [name for name, _ in watched.heard] == ["a", "b"]


def test_what_only_the_end_told_comes_last_and_once(watched: Watched) -> None:
    watched.at(101, ended("a"))
    with watched.path.open("a") as file:
        file.write(json.dumps(ended("b")) + "\n")
    reading = presets.find("codex").read(Said(now=clock.parse(clock.now()), stdout=watched.path.read_bytes()))
    watched.vigil.rest(reading)
    assert [name for name, _ in watched.heard] == ["a", "b"]


def test_errors_in_a_row_for_too_long(watched: Watched) -> None:
    assert not watched.at(101, ERROR)
    assert not watched.at(108, ERROR)
    assert watched.at(111.5)  # silence after an error is no recovery
    assert watched.vigil.fired


def test_progress_between_errors_begins_the_row_anew(watched: Watched) -> None:
    watched.at(101, ERROR)
    watched.at(109, ended("a"))
    assert not watched.at(112)
    assert not watched.at(113, ERROR)
    assert not watched.at(122)
    assert watched.at(123.5)


def test_an_error_after_the_end_is_none(watched: Watched) -> None:
    watched.at(101, ERROR)
    watched.at(102, {"type": "turn.completed", "usage": {}})
    assert not watched.at(150)


def test_what_is_too_long_is_followed_no_longer_but_still_watched(watched: Watched) -> None:
    watched.path.write_bytes(b"x" * (FOLLOW_BYTES + 1) + b"\n")
    watched.at(101, ended("a"), ERROR)
    assert watched.heard == []
    assert watched.at(112)


def test_a_link_in_place_of_a_file_is_not_read(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps(ended("a")) + "\n")
    watched.path.symlink_to(tmp_path / "elsewhere")
    watched.time.at = 101
    watched.vigil()
    assert watched.heard == []

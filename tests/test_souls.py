"""Personas: the committed one counts, a local file overrides only when it is there, and a broken one is said."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from school.errors import ConfigError
from school.settings import Settings
from school.souls import PERSONAS, SOUL_BYTES_MAX, load_soul
from tests.support import ROOT


def override(school: Settings, name: str, raw: bytes) -> Path:
    path = school.hermes_home / "profiles" / name / "SOUL.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("name", PERSONAS)
def test_every_persona_is_committed(name: str, school: Settings) -> None:
    soul = load_soul(name, settings=school)
    committed = ROOT / "config" / "profiles" / name / "SOUL.md"
    assert (soul.source, soul.overridden) == (str(committed), False)
    assert soul.text == committed.read_text()
    assert soul.sha256 == hashlib.sha256(committed.read_bytes()).hexdigest()


def test_there_are_the_eight_personas_of_the_contract() -> None:
    students = {f"student-{role}" for role in ("searcher", "executor", "coder", "reviewer", "browser")}
    assert set(PERSONAS) == students | {"principal", "teacher-cto", "teacher-coo"}


def test_a_local_file_overrides_and_says_so(school: Settings) -> None:
    path = override(school, "student-coder", b"I am somebody else.\n")
    soul = load_soul("student-coder")
    assert (soul.text, soul.source, soul.overridden) == ("I am somebody else.\n", str(path), True)
    assert soul.sha256 == hashlib.sha256(b"I am somebody else.\n").hexdigest()
    assert load_soul("student-executor").overridden is False


def test_a_folder_without_the_file_overrides_nothing(school: Settings) -> None:
    (school.hermes_home / "profiles" / "teacher-cto").mkdir(parents=True)
    assert load_soul("teacher-cto").overridden is False


@pytest.mark.parametrize("raw", [b"", b" \n", b"\xff\xfe", b"x" * (SOUL_BYTES_MAX + 1)])
def test_an_unusable_override_is_an_error_that_names_it(raw: bytes, school: Settings) -> None:
    path = override(school, "principal", raw)
    with pytest.raises(ConfigError, match="persona principal") as caught:
        load_soul("principal")
    assert str(path) in str(caught.value)


def test_a_dangling_override_is_not_passed_over(school: Settings) -> None:
    path = school.hermes_home / "profiles" / "principal" / "SOUL.md"
    path.parent.mkdir(parents=True)
    path.symlink_to(school.hermes_home / "nowhere")
    with pytest.raises(ConfigError, match="not a regular file"):
        load_soul("principal")


@pytest.mark.parametrize("name", ["student", "../teacher-cto", "", "teacher-CTO"])
def test_a_name_that_is_no_persona_is_refused(name: str, school: Settings) -> None:
    with pytest.raises(ConfigError, match="no persona"):
        load_soul(name)

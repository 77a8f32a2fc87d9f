"""Which thresholds hold: environment over file over table, and what cannot be is named and ignored."""

from __future__ import annotations

import dataclasses
import json

import pytest

from school.errors import ConfigError
from school.governor import Governor, Thresholds, read
from school.hooks import Hooks
from school.settings import Settings


def test_the_defaults(school: Settings) -> None:
    terms = read(school)
    assert terms.thresholds == Thresholds(3, 3, 3, 12, 8)
    assert terms.enabled
    assert terms.problems == ()


def test_the_environment_over_the_file_over_the_table(school: Settings) -> None:
    school.hermes_home.mkdir()
    school.governor_file.write_text(
        json.dumps({"repeat_call_threshold": 5, "api_error_threshold": 5, "max_packet_actions": 5})
    )
    settings = dataclasses.replace(school, governor_api_errors=7)
    table = {"consecutive_error_threshold": 4, "repeat_call_threshold": 4, "api_error_threshold": 4}
    terms = read(settings, table)
    assert terms.thresholds == Thresholds(4, 5, 7, 12, 5)
    assert dict(terms.sources) == {
        "consecutive_error_threshold": "[governor]",
        "repeat_call_threshold": "escalation-governor.json",
        "api_error_threshold": "environment",
        "max_packet_actions": "escalation-governor.json",
    }


def test_all_keys_of_the_file(school: Settings) -> None:
    school.hermes_home.mkdir()
    given = {
        "consecutive_error_threshold": 1,
        "repeat_call_threshold": 2,
        "api_error_threshold": 3,
        "no_progress_api_calls": 4,
        "max_packet_actions": 5,
    }
    school.governor_file.write_text(json.dumps(given))
    assert read(school).thresholds == Thresholds(1, 2, 3, 4, 5)


@pytest.mark.parametrize("text", ["{", "", "[1]", '"x"', "\ud800", "[" * 100_000, "x" * 70_000, "{}{}"])
def test_a_broken_file_is_named_and_ignored(school: Settings, text: str) -> None:
    school.hermes_home.mkdir()
    school.governor_file.write_bytes(text.encode("utf-8", "surrogatepass"))
    terms = read(school, {"repeat_call_threshold": 4})
    assert terms.thresholds == Thresholds(repeat_call_threshold=4)
    [problem] = terms.problems
    assert problem.startswith("escalation-governor.json: ignored: ")


def test_a_directory_in_its_place_is_ignored_too(school: Settings) -> None:
    school.governor_file.mkdir(parents=True)
    assert len(read(school).problems) == 1


@pytest.mark.parametrize("value", [0, -1, "abc", "3", 2.5, True, None, [3]])
def test_a_value_that_cannot_be_is_named_and_the_others_hold(school: Settings, value: object) -> None:
    school.hermes_home.mkdir()
    school.governor_file.write_text(json.dumps({"repeat_call_threshold": value, "api_error_threshold": 1}))
    terms = read(school)
    assert terms.thresholds == Thresholds(api_error_threshold=1)
    [problem] = terms.problems
    assert problem.startswith(f"escalation-governor.json: repeat_call_threshold: {str(value)!r} is ignored: ")


def test_what_was_ignored_is_said_where_faults_are(school: Settings) -> None:
    hooks = Hooks()
    Governor(school, table={"repeat_call_threshold": 0, "x": 1}).listen(hooks)
    assert [fault.split(": ")[:4] for fault in hooks.faults] == [
        ["governor", "settings", "[governor]", "repeat_call_threshold"],
        ["governor", "settings", "[governor]", "x"],
    ]


def test_unknown_keys_and_too_many_actions(school: Settings) -> None:
    terms = read(school, {"repeat_calls": 4, "max_packet_actions": 1000})
    assert terms.thresholds == Thresholds()
    assert terms.problems[0].startswith("[governor]: repeat_calls: ignored: there is no such key; there are ")
    assert terms.problems[1] == "[governor]: max_packet_actions: 1000 is ignored: expected at most 100"


@pytest.mark.parametrize(
    "name",
    [
        "GOVERNOR_CONSECUTIVE_ERRORS",
        "GOVERNOR_REPEAT_CALLS",
        "GOVERNOR_API_ERRORS",
        "GOVERNOR_NO_PROGRESS_CALLS",
    ],
)
@pytest.mark.parametrize("value", ["0", "-1", "abc", "2.5"])
def test_a_variable_that_cannot_be_is_a_usage_error_that_names_it(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Settings.from_env({"HOME": "/h", name: value})


@pytest.mark.parametrize(("value", "enabled"), [("1", False), ("yes", False), ("0", True), ("", True)])
def test_the_kill_switch(value: str, enabled: bool) -> None:
    settings = Settings.from_env({"HOME": "/nonexistent", "GOVERNOR_DISABLE": value})
    assert read(settings).enabled is enabled

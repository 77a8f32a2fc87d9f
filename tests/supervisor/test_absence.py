"""Agents that are away: how long each is waited for, and when it is given up, whatever it says of its quota."""

from __future__ import annotations

import pytest

from school.supervisor.absence import PAUSE_S_MAX, ROW_MAX, Absences, key_of
from school.system.clock import FakeClock

NOW = "2030-01-01T12:00:00+00:00"
ONE, OTHER = {"name": "one", "kind": "command"}, {"name": "other", "kind": "command"}


@pytest.fixture
def absences() -> Absences:
    return Absences(FakeClock(NOW))


def wait(absences: Absences, agent: dict[str, object] = ONE) -> float | None:
    return absences.wait_s([agent])


@pytest.mark.parametrize(
    ("retry_at", "seconds"),
    [
        ("2030-01-01T12:01:30+00:00", 90.0),
        ("2030-01-01T14:01:30+02:00", 90.0),
        ("2030-01-01T11:00:00+00:00", 0.0),
        ("2030-01-01T18:00:00+00:00", 6 * 3600.0),
        ("", 60.0),
        ("tomorrow", 60.0),
        ("2030-01-01T12:01:30", 90.0),
        ("0001-01-01T00:00:00+14:00", 60.0),
        ("\ud800\x00", 60.0),
        ("2030-01-01T18:00:01+00:00", None),
        ("9999-12-31T23:59:59+00:00", None),
    ],
)
def test_what_an_agent_says_of_its_quota(absences, retry_at, seconds):
    said = absences.note(ONE, "quota", retry_at)
    assert wait(absences) == seconds
    assert said.startswith("one: its quota is used up")
    if seconds is None:
        assert absences.gone(ONE) == f"quota: one: its quota is used up until {retry_at}"
    assert absences.present(OTHER)
    assert absences.wait_s([ONE, OTHER]) == 0.0


def test_the_pause_is_said_with_its_end_and_ends_by_the_monotonic_clock(absences):
    said = absences.note(ONE, "quota", "2030-01-01T12:01:30+00:00")
    assert (
        said
        == "one: its quota is used up; its tasks wait 90 s, until 2030-01-01T12:01:30+00:00; those of others go on"
    )
    assert absences.rows() == [{"agent": "one", "reason": "quota", "until": "2030-01-01T12:01:30+00:00"}]
    absences.clock.set_back(3600)
    absences.clock.advance(89)
    assert not absences.present(ONE)
    absences.clock.advance(1)
    assert absences.present(ONE)
    assert absences.rows() == []


def test_pauses_that_nobody_stated_double_and_end(absences):
    waits = []
    for _ in range(ROW_MAX):
        absences.note(ONE, "quota", "")
        waits.append(wait(absences))
        absences.clock.advance(waits[-1] or 0)
    assert waits == [60.0, 120.0, 240.0, 480.0, None]
    assert absences.gone(ONE).endswith("(5 times in a row)")
    assert absences.rows() == [{"agent": "one", "reason": "quota", "until": ""}]


def test_students_that_were_at_work_together_are_one_absence(absences):
    for _ in range(2 * ROW_MAX):
        absences.note(ONE, "quota", "")
    assert wait(absences) == 60.0
    absences.note(ONE, "quota", "2030-01-01T12:05:00+00:00")
    absences.note(ONE, "quota", "2030-01-01T12:03:00+00:00")
    assert wait(absences) == 300.0


def test_an_agent_that_worked_again_begins_a_new_row(absences):
    for _ in range(3):
        absences.note(ONE, "unavailable", "2031-01-01T00:00:00+00:00")
        absences.clock.advance(last := wait(absences))
    assert last == 40.0
    absences.back(ONE)
    absences.note(ONE, "unavailable", "")
    assert wait(absences) == 10.0


def test_nobody_logs_in_while_a_run_goes_on(absences):
    assert absences.note(ONE, "login", "").endswith("left to a later one")
    assert wait(absences) is None


def test_a_plain_command_is_another_agent_for_each_of_its_lines():
    one = {"name": "run:python3", "kind": "run", "argv": ["python3", "a.py"]}
    assert key_of(one) != key_of({**one, "argv": ["python3", "b.py"]})
    assert key_of({**one, "kind": "command"}) == key_of({**one, "kind": "command", "argv": []})


def test_the_longest_wait_is_a_bound():
    assert PAUSE_S_MAX == 21600.0

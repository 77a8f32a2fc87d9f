"""When new students may start again after a quota ran out: an agent says when, and may say anything."""

import pytest

from school.supervisor.starting import PAUSE_S, PAUSE_S_MAX, pause_s

NOW = "2030-01-01T12:00:00+00:00"


@pytest.mark.parametrize(
    ("retry_at", "seconds"),
    [
        ("2030-01-01T12:01:30+00:00", 90.0),
        ("2030-01-01T14:01:30+02:00", 90.0),
        ("2030-01-01T11:00:00+00:00", 0.0),
        ("9999-12-31T23:59:59+00:00", PAUSE_S_MAX),
        ("", PAUSE_S),
        ("tomorrow", PAUSE_S),
        ("2030-01-01T12:01:30", 90.0),
        ("0001-01-01T00:00:00+14:00", PAUSE_S),
        ("\ud800\x00", PAUSE_S),
    ],
)
def test_what_an_agent_says_of_its_quota(retry_at: str, seconds: float) -> None:
    assert pause_s(retry_at, NOW) == seconds

"""What an error's words mean, and when it says that another try makes sense."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from school.agents.presets.faults import Fault, fault

NOW = datetime(2026, 11, 30, 19, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests", "quota"),
        ("RateLimitError: slow down", "quota"),
        ("You've hit your usage limit", "quota"),
        ("insufficient_quota: check your plan", "quota"),
        ("Credit balance is too low", "quota"),
        ("unexpected status 401 Unauthorized", "login"),
        ("Invalid API key · Please run /login", "login"),
        ("No inference provider configured", "login"),
        ("Missing environment variable: `OPENAI_API_KEY`", "login"),
        ("HTTP 500: boom", "unavailable"),
        ("503 Service Unavailable", "unavailable"),
        ("Overloaded", "unavailable"),
        ("connect ECONNREFUSED 127.0.0.1:80", "unavailable"),
        ("stream disconnected before completion", "unavailable"),
        ("no answer timed out", "unavailable"),
        ("'utf-8' codec can't decode byte 0xff", "unavailable"),
        ("", ""),
        ("the model returned empty content", "unavailable"),
        ("RepeatedFormatError", ""),
        ("could not find file 14290", ""),
        ("port 15003 of the tests", ""),
    ],
)
def test_what_it_means(said: str, reason: str) -> None:
    assert fault(said, NOW).reason == reason


@pytest.mark.parametrize(
    ("said", "moment"),
    [
        ("rate limit: try again in 90 seconds", "2026-11-30T19:31:30+00:00"),
        ("rate limit, retry after 5m", "2026-11-30T19:35:00+00:00"),
        ("usage limit; resets in 2 days 3 hours 5 minutes", "2026-12-02T22:35:00+00:00"),
        ("429 Retry-After: 3600", "2026-11-30T20:30:00+00:00"),
        ('429 {"resets_in_seconds": 60}', "2026-11-30T19:31:00+00:00"),
        ('429 {"resets_at": 1796080000}', "2026-11-30T23:06:40+00:00"),
        ("Claude AI usage limit reached|1796080000", "2026-11-30T23:06:40+00:00"),
        ("quota resets 2026-12-01T08:00:00Z", "2026-12-01T08:00:00+00:00"),
        ("quota resets 2026-12-01 08:00", "2026-12-01T08:00:00+00:00"),
        ("rate limit: try again in 20ms", "2026-11-30T19:30:00+00:00"),
        # Not stated, nonsense, or further off than anybody waits.
        ("rate limit", ""),
        ("rate limit: try again in 900 days", ""),
        ("quota resets 2026-99-99T08:00:00Z", ""),
        ("quota resets 2019-12-01T08:00:00Z", ""),
        ("usage limit: try again at Feb 31st, 2027 9:59 PM", ""),
    ],
)
def test_when_it_says_to_try_again(said: str, moment: str) -> None:
    assert fault(said, NOW) == Fault("quota", moment)


def test_a_time_of_day_is_the_next_one_here() -> None:
    here = NOW.astimezone()
    early = fault("usage limit, try again at 12:05 AM.", NOW).retry_at
    assert datetime.fromisoformat(early) > NOW
    assert datetime.fromisoformat(early).astimezone(here.tzinfo).strftime("%H:%M") == "00:05"
    dated = fault("usage limit, try again at Dec 3rd, 2026 3:05 PM.", NOW).retry_at
    assert datetime.fromisoformat(dated).astimezone(here.tzinfo).strftime("%d %H:%M") == "03 15:05"

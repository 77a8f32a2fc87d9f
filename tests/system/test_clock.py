from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from school.system import clock
from tests.support import ROOT


def test_a_stamp_is_utc_with_offset_and_microseconds():
    before = datetime.now(UTC) - timedelta(microseconds=1)
    stamp = clock.now()
    assert stamp.endswith("+00:00")
    assert len(stamp) == len("2030-01-01T00:00:00.000000+00:00")
    assert before <= clock.parse(stamp) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01T12:00:00", (2026, 3, 1, 12, 0)),
        ("2026-03-01T12:00:00Z", (2026, 3, 1, 12, 0)),
        ("2026-03-01T12:00:00+14:00", (2026, 2, 28, 22, 0)),
        ("2026-03-01 12:00:00-05:30", (2026, 3, 1, 17, 30)),
    ],
)
def test_stamps_are_read_as_utc_whatever_their_offset(text, moment):
    assert clock.parse(text) == datetime(*moment, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00", None, 17])
def test_what_is_no_stamp_is_named(text):
    with pytest.raises(ValueError, match="no ISO-8601"):
        clock.parse(text)


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/New_York", "UTC-14"])
def test_the_time_zone_of_the_machine_changes_nothing(zone):
    code = "from school.system import clock; print(clock.now()); print(clock.parse('2026-11-01T01:30:00'))"
    env = {**os.environ, "TZ": zone}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    now, read = done.stdout.splitlines()
    assert abs(clock.parse(now) - datetime.now(UTC)) < timedelta(minutes=1)
    assert read == "2026-11-01 01:30:00+00:00"


def test_the_fake_sleeps_without_waiting_and_its_wall_clock_alone_goes_back():
    fake = clock.FakeClock("2026-01-01T00:00:00+00:00")
    begun = fake.monotonic()
    fake.sleep(90)
    fake.set_back(3600)
    assert fake.monotonic() - begun == 90
    assert fake.now() == "2025-12-31T23:01:30.000000+00:00"
    assert fake.sleeps == [90]


def test_system_and_fake_clock_satisfy_the_protocol():
    clocks: list[clock.Clock] = [clock.SystemClock(), clock.FakeClock()]
    for one in clocks:
        one.sleep(0)
        assert clock.parse(one.now()).tzinfo is UTC
        assert one.monotonic() >= 0

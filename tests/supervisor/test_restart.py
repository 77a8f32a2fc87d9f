"""Back-off doubles from half a second to thirty; five deaths within a minute are enough, spread out they are not."""

import pytest

from school.supervisor.restart import RestartPolicy
from school.system.clock import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def policy(clock):
    return RestartPolicy(clock)


def start_and_die(policy, clock, *, after_s):
    policy.started()
    clock.sleep(after_s)
    policy.died()


def test_the_first_start_waits_for_nothing(policy):
    assert (policy.may_start(), policy.wait_s(), policy.delay_s) == (True, 0.0, 0.0)


def test_delays_double_and_stop_at_thirty_seconds(policy, clock):
    delays = []
    for _ in range(9):
        start_and_die(policy, clock, after_s=20)
        delays.append(policy.delay_s)
        clock.sleep(policy.delay_s)
    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert not policy.exhausted()


def test_it_may_not_start_before_its_delay_is_over(policy, clock):
    start_and_die(policy, clock, after_s=0)
    clock.sleep(0.4)
    assert (policy.may_start(), policy.wait_s()) == (False, pytest.approx(0.1))
    clock.sleep(0.1)
    assert policy.may_start()


def test_a_healthy_life_begins_a_new_row(policy, clock):
    for _ in range(3):
        start_and_die(policy, clock, after_s=1)
    start_and_die(policy, clock, after_s=60)
    assert (policy.row, policy.delay_s) == (1, 0.5)


def test_five_deaths_in_a_minute_are_enough(policy, clock):
    for _ in range(4):
        start_and_die(policy, clock, after_s=10)
    assert not policy.exhausted()
    start_and_die(policy, clock, after_s=10)
    assert (policy.exhausted(), policy.may_start()) == (True, False)


def test_it_stays_so_whoever_asks_later(policy, clock):
    for _ in range(5):
        start_and_die(policy, clock, after_s=0)
    clock.sleep(3600)
    assert policy.exhausted()


def test_five_deaths_spread_over_more_than_a_minute_are_not(policy, clock):
    for _ in range(12):
        start_and_die(policy, clock, after_s=15.5)
    assert not policy.exhausted()


def test_the_wall_clock_decides_nothing(policy, clock):
    start_and_die(policy, clock, after_s=1)
    clock.set_back(3600)
    assert policy.wait_s() == pytest.approx(0.5)

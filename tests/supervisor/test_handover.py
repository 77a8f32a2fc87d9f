"""A bead may wait as long as its teachers get on, and only so long in their queue; renewing a record is no progress."""

from datetime import timedelta

import pytest

from school.supervisor.handover import HandOver
from school.system.clock import FakeClock, parse

BEAD = "coder-python-coding-a1b2c3d4"


class Case:
    def __init__(self):
        self.clock = FakeClock()
        self.watch = HandOver(self.clock, no_progress_s=120, queue_s=3600)
        self.bag = {"bead": BEAD, "rev": 3, "cto_verdict": "", "coo_verdict": ""}
        self.teachers = {role: self.record(role) for role in ("cto", "coo")}

    @staticmethod
    def record(role, **fields):
        return {
            "role": role,
            "pid": 7,
            "state": "idle",
            "bead": "",
            "check": "",
            "progress": 0,
            "reviewed": 0,
        } | fields

    def look(self):
        return self.watch.overdue(self.bag, self.teachers, parse(self.clock.now()))

    def after(self, seconds):
        self.clock.sleep(seconds)
        return self.look()


@pytest.fixture
def case():
    found = Case()
    assert found.look() == ""
    return found


def test_no_progress_for_longer_than_the_limit_names_who(case):
    assert case.after(120) == ""
    assert case.after(1) == "no progress by cto and coo for 120 s"


def test_a_renewed_record_alone_is_no_progress(case):
    case.teachers["cto"]["beat"] = "later"
    assert "cto" in case.after(121)


@pytest.mark.parametrize(
    "change",
    [{"progress": 1}, {"check": "verification"}, {"state": "reviewing"}, {"pid": 8}, {"reviewed": 1}],
)
def test_whatever_shows_that_a_teacher_gets_on_starts_its_clock_again(case, change):
    case.clock.sleep(100)
    for record in case.teachers.values():
        record.update(change)
    assert case.look() == ""
    assert case.after(119) == ""


def test_one_teacher_that_is_stuck_is_enough(case):
    case.clock.sleep(100)
    case.teachers["coo"]["progress"] = 5
    assert case.look() == ""
    assert case.after(30) == "no progress by cto for 120 s"


def test_only_the_missing_verdict_is_waited_for(case):
    case.bag.update(cto_verdict="PASS", rev=4)
    case.look()
    case.teachers["coo"]["progress"] = 1
    case.clock.sleep(100)
    assert case.look() == ""
    case.teachers["coo"]["progress"] = 2
    assert case.after(100) == ""


def test_working_on_another_bead_is_progress_until_the_queue_limit(case):
    for step in range(35):
        for record in case.teachers.values():
            record.update(state="reviewing", bead="coder-other-00000000", progress=step)
        assert case.after(100) == ""
    for record in case.teachers.values():
        record["progress"] = 99
    assert case.after(101) == "in the queue of cto and coo for 3600 s"


def test_a_bead_in_hand_is_not_queued(case):
    for step in range(50):
        case.teachers["cto"].update(state="reviewing", bead=BEAD, progress=step)
        case.teachers["coo"].update(state="reviewing", bead="coder-other-00000000", progress=step)
        assert case.after(100) == ""


def test_a_back_off_between_two_tries_is_not_a_lack_of_progress(case):
    until = (parse(case.clock.now()) + timedelta(seconds=300)).isoformat()
    case.bag["cto_review"] = case.bag["coo_review"] = {"not_before": until}
    for _ in range(3):
        assert case.after(99) == ""
    assert case.after(110) == ""
    assert "no progress" in case.after(121)


def test_what_is_forgotten_starts_anew(case):
    case.clock.sleep(119)
    case.watch.forget([BEAD])
    assert case.look() == ""
    assert case.after(119) == ""


def test_a_teacher_without_a_record_shows_no_progress(case):
    case.teachers = {"cto": None, "coo": None}
    assert case.look() == ""
    assert "no progress" in case.after(121)


def test_whom_the_budget_stopped_is_not_waited_for_and_the_other_is(case):
    case.bag["cto_review"] = {"short_of": {"tokens": 5000}}
    case.look()
    for step in range(3):
        case.teachers["coo"]["progress"] = step + 1
        assert case.after(119) == ""
    assert case.after(121) == "no progress by coo for 120 s"

"""Which task is ready, and how a task's story is told in a result: pure functions over what is known of each."""

import pytest

from school.supervisor.rounds import Board, TaskState, counts, exit_code, last_line


def board(*states):
    return Board(states)


def ids(states):
    return [state.id for state in states]


def test_a_new_task_is_ready_in_the_first_round_and_not_twice_in_it():
    state = TaskState("a", max_attempts=3)
    assert ids(board(state).ready(1)) == ["a"]
    state.tried_in = 1
    assert board(state).ready(1) == []
    assert ids(board(state).ready(2)) == ["a"]


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": "accepted"},
        {"outcome": "no_change"},
        {"outcome": "blocked", "waits_for_human": True},
        {"outcome": "rejected", "charged": 3},
        {"expired": True},
        {"in_flight": "coder-x-00000000"},
    ],
)
def test_what_is_not_ready(fields):
    state = TaskState("a", max_attempts=3, **fields)
    assert board(state).ready(1) == []
    assert not board(state).anything_left()


@pytest.mark.parametrize("outcome", ["rejected", "failed", "blocked"])
def test_with_attempts_left_it_is_ready_again(outcome):
    """A blocked one only after a retry: then it waits for no human any more."""
    assert ids(board(TaskState("a", max_attempts=3, outcome=outcome, charged=2)).ready(1)) == ["a"]


def test_a_need_that_is_done_in_this_round_makes_its_dependent_ready_in_the_same():
    first, second = TaskState("a", max_attempts=1), TaskState("b", needs=("a",), max_attempts=1)
    both = board(first, second)
    assert ids(both.ready(1)) == ["a"]
    first.tried_in, first.outcome = 1, "no_change"
    assert ids(both.ready(1)) == ["b"]


def test_a_need_that_was_rejected_blocks_its_dependent_by_name():
    tasks = board(
        TaskState("c", outcome="rejected", charged=1, max_attempts=1),
        TaskState("a", outcome="failed", charged=1, max_attempts=1),
        TaskState("b", needs=("c", "a"), max_attempts=1),
    )
    assert tasks.final(tasks["b"]) == ("blocked", "needs:a,c")


def test_the_result_never_calls_done_what_was_not_tried():
    tasks = board(TaskState("a", max_attempts=1))
    assert tasks.final(tasks["a"]) == ("blocked", "not_started")


def test_of_a_run_that_was_cut_short_what_can_still_be_done_is_left_to_the_next():
    tasks = board(
        TaskState("a", outcome="failed", reason="interrupted", max_attempts=1),
        TaskState("b", needs=("a",), max_attempts=1),
        TaskState("c", needs=("b",), max_attempts=1),
        TaskState("d", max_attempts=1),
        TaskState("spent", outcome="rejected", charged=1, max_attempts=1),
        TaskState("e", needs=("spent", "a"), max_attempts=1),
        TaskState("f", needs=("e",), max_attempts=1),
    )
    told = {name: tasks.final(state, "interrupted") for name, state in tasks.states.items()}
    assert told == {
        "a": ("failed", "interrupted"),
        "b": ("expired", "not_started: interrupted"),
        "c": ("expired", "not_started: interrupted"),
        "d": ("expired", "not_started: interrupted"),
        "spent": ("rejected", ""),
        "e": ("blocked", "needs:a,spent"),
        "f": ("blocked", "needs:e"),
    }
    assert tasks.final(tasks["b"]) == ("blocked", "needs:a")


def test_expired_wins_over_what_an_earlier_attempt_was():
    tasks = board(TaskState("a", outcome="rejected", expired=True, reason="no progress"))
    assert tasks.final(tasks["a"]) == ("expired", "no progress")


def test_the_last_line_has_every_outcome_in_order():
    numbers = counts(["accepted", "rejected", "accepted", "accepted"])
    assert last_line(numbers) == "accepted 3, rejected 1, failed 0, expired 0, blocked 0, no_change 0"


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        (["accepted", "no_change"], 0),
        (["accepted", "rejected"], 1),
        (["failed"], 1),
        (["expired"], 1),
        (["blocked"], 1),
    ],
)
def test_the_exit_code_follows_the_counts(outcomes, code):
    assert exit_code(counts(outcomes)) == code

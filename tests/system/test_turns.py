"""Whose turn it is: the longest waiting of those who look, for a while each, and never somebody who does not look."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from school.system import turns
from school.system.turns import Burst, Place, Turn

MS = 0.001


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / ".guard.turn")


def test_who_waits_alone_is_next_for_a_while_and_then_has_the_turn_for_a_while(path: str) -> None:
    with Turn(path, 100.0) as turn:
        seen = [(at, turn.place(100 + at * MS)) for at in (0, 4, 6, 25, 27, 28, 34)]
    assert seen == [
        (0, Place.NEXT),
        (4, Place.NEXT),
        (6, Place.MINE),
        (25, Place.MINE),
        (27, Place.BEHIND),
        (28, Place.NEXT),
        (34, Place.MINE),
    ]


def test_the_longest_waiting_of_those_who_look_is_next(path: str) -> None:
    with Turn(path, 100.0) as first, Turn(path, 101.0) as second, Turn(path, 102.0) as third:
        assert second.place(103.000) is Place.NEXT
        assert third.place(103.001) is Place.BEHIND
        assert first.place(103.002) is Place.NEXT
        assert second.place(103.006) is Place.BEHIND
        assert first.place(103.008) is Place.MINE
        assert third.place(103.009) is Place.NEXT
        assert second.place(103.010) is Place.NEXT
        assert third.place(103.016) is Place.BEHIND
        assert second.place(103.016) is Place.NEXT  # the first still has it
    with Turn(path, 104.0) as late:
        assert late.place(104.0) is Place.NEXT, "who has left is not waited for"


def test_who_left_with_the_turn_leaves_it_to_the_next(path: str) -> None:
    with Turn(path, 100.0) as first, Turn(path, 101.0) as second:
        first.place(102.0)
        assert first.place(102.006) is Place.MINE
        second.place(102.007)
        assert second.place(102.013) is Place.NEXT
        first.__exit__()
        first._fd = -1
        assert second.place(102.014) is Place.MINE


@pytest.mark.parametrize(("since", "place"), [(0.099, Place.BEHIND), (0.101, Place.NEXT)])
def test_who_is_next_and_does_not_look_again_is_passed_over(path: str, since: float, place: Place) -> None:
    with Turn(path, 100.0) as stopped, Turn(path, 101.0) as other:
        stopped.place(102.0)
        assert other.place(102.0 + since) is place


@pytest.mark.parametrize(
    "said",
    [
        b"x",
        b"",
        os.urandom(400),
        struct.pack("=dd", float("nan"), float("nan")),
        struct.pack("=dd", 0.0, 1e300),  # it looked at a time that is not yet
        struct.pack("=dd", float("-inf"), float("inf")),
    ],
    ids=["short", "empty", "noise", "nan", "future", "infinite"],
)
def test_what_stands_in_the_file_delays_nobody(path: str, said: bytes) -> None:
    Path(path).write_bytes(said)
    with Turn(path, 100.0) as turn:
        turn.place(100.0)
        turn.place(100.2)
        assert turn.place(100.21) is Place.MINE


@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_what_is_no_file_makes_no_trouble(path: str, kind: str) -> None:
    {
        "directory": lambda: Path(path).mkdir(),
        "link": lambda: Path(path).symlink_to("/nowhere"),
        "pipe": lambda: os.mkfifo(path),
    }[kind]()
    with Turn(path, 100.0) as turn:
        places = {turn.place(100 + at * MS) for at in range(10)}
    assert places <= set(Place)
    assert kind == "pipe" or places == {Place.BEHIND}
    assert not Burst().over("a.lock", path, 100.0)


def test_an_owner_gives_way_once_in_a_while_to_who_has_the_turn(path: str) -> None:
    burst = Burst()
    at, gave_way = 100.0, []
    with Turn(path, 100.0) as turn:
        turn.place(100.0)
        assert turn.place(100.006) is Place.MINE
        for step in range(60):
            at = 100.0 + step * 0.7 * MS
            if burst.over("a.lock", path, at):
                gave_way.append(step)
            burst.release("a.lock", at + 0.4 * MS)
    assert gave_way == [15, 30, 45]
    assert not burst.over("a.lock", path, at + turns.BURST_S), "nobody has the turn"


def test_an_owner_gives_no_way_for_another_lock_or_after_a_pause(path: str) -> None:
    burst = Burst()
    with Turn(path, 100.0) as turn:
        turn.place(100.0)
        assert turn.place(100.006) is Place.MINE
        for step in range(60):
            at = 100.0 + step * 0.5 * MS
            assert not burst.over(f"{step % 2}.lock", path, at)
            burst.release(f"{step % 2}.lock", at + 0.4 * MS)
        for step in range(60):
            at = 101.0 + step * 2 * MS
            assert not burst.over("a.lock", path, at)
            burst.release("a.lock", at + 0.4 * MS)


def test_nothing_is_made_where_nobody_ever_waited(path: str) -> None:
    burst = Burst()
    for step in range(60):
        assert not burst.over("a.lock", path, 100 + step * 0.5 * MS)
        burst.release("a.lock", 100 + step * 0.5 * MS)
    assert not Path(path).exists()

"""Records that many write at once, that begin torn, and flags that two want to take."""

from __future__ import annotations

import pytest

import bookbag
from school.errors import BookbagCorruptedError
from school.settings import Settings
from tests.system.support import python

BEAD = "coder-python-coding-a1b2c3d4"
FIELDS = {"task": "t", "student": "coder", "domain": "python-coding", "difficulty": "easy"}
WRITERS, TIMES = 11, 20

WRITES = """
    import sys
    import bookbag
    from school.errors import BookbagCorruptedError
    bead, name, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torn = 0
    for number in range(times):
        try:
            done = bookbag.update_bookbag(bead, lambda bag: {**bag, name: number}, by="leaf", lock_timeout=60)
        except BookbagCorruptedError:
            torn += 1
        else:
            if done is None:  # put aside by somebody: it is made again by the first who comes
                try:
                    bookbag.write_bookbag(bead, task="t", student="coder", domain="python-coding", difficulty="easy")
                except FileExistsError:
                    continue
    print(torn)
"""


def writers(count: int, times: int) -> list[int]:
    """How many times each of *count* processes was told that the record is torn."""
    started = [python(WRITES, BEAD, f"field_{number}", times) for number in range(count)]
    said = [process.communicate(timeout=100)[0] for process in started]
    assert [process.returncode for process in started] == [0] * count
    return [int(text) for text in said]


def test_eleven_writers_of_one_record_lose_no_update(school: Settings) -> None:
    bookbag.write_bookbag(BEAD, **FIELDS)
    assert writers(WRITERS, TIMES) == [0] * WRITERS
    bag = bookbag.read_bookbag(BEAD)
    assert bag is not None
    assert [bag[f"field_{number}"] for number in range(WRITERS)] == [TIMES - 1] * WRITERS
    assert bag["rev"] == 1 + WRITERS * TIMES
    assert not school.corrupt_dir.exists()


def test_a_record_that_begins_half_written_is_put_aside_once_and_no_more(school: Settings) -> None:
    bookbag.write_bookbag(BEAD, **FIELDS)
    path = school.bookbag_dir / f"{BEAD}.json"
    path.write_bytes(path.read_bytes()[:100])
    told = writers(WRITERS, 10)
    assert sum(told) >= 1
    assert len(list(school.corrupt_dir.iterdir())) == 1
    assert bookbag.read_bookbag(BEAD) is not None
    assert sorted(entry.name for entry in school.lock_dir.glob("*.lock")) == []


@pytest.mark.parametrize("tail", [b"}", b'{"bead": "x"}', b'"status": "open"}\n', b"\0" * 64])
def test_the_tail_of_an_older_longer_record_makes_it_torn(school: Settings, tail: bytes) -> None:
    bookbag.write_bookbag(BEAD, **FIELDS)
    path = school.bookbag_dir / f"{BEAD}.json"
    path.write_bytes(path.read_bytes() + tail)
    with pytest.raises(BookbagCorruptedError):
        bookbag.read_bookbag(BEAD)
    (kept,) = school.corrupt_dir.iterdir()
    assert kept.read_bytes().endswith(tail)


def test_two_that_sweep_the_same_flags_raise_nothing_and_leave_none(school: Settings) -> None:
    code = """
        from school.records.shelf import sweep_signals
        from school.settings import current
        import sys, time
        removed = []
        end = time.monotonic() + 30
        while time.monotonic() < end and not (current().signal_dir / "last").exists():
            removed += sweep_signals()["removed"]
        removed += sweep_signals()["removed"]
        print(len(removed), len(set(removed)))
    """
    school.signal_dir.mkdir(parents=True, exist_ok=True)
    sweepers = [python(code) for _ in range(2)]
    for number in range(1000):
        (school.signal_dir / f"coder-python-{number:08x}.ready").write_text("{}")
    (school.signal_dir / "last").touch()
    said = [sweeper.communicate(timeout=100)[0].split() for sweeper in sweepers]
    assert [sweeper.returncode for sweeper in sweepers] == [0, 0]
    assert all(once == different for once, different in said)
    assert [path.name for path in school.signal_dir.iterdir()] == ["last"]

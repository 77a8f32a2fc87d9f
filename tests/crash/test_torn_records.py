"""Writers killed in the middle of a write, again and again: every record that is ever read is whole.

``KILL_ROUNDS`` says how many are killed; 1000 is the promise, the default is what a quick test run can afford.
"""

from __future__ import annotations

import os

import pytest

import bookbag
from school.settings import Settings
from tests.crash.bookbag_worker import BEAD, payload
from tests.crash.test_lock_storm import start
from tests.records_support import running

ROUNDS = int(os.environ.get("KILL_ROUNDS", "60"))


@pytest.mark.crash
@pytest.mark.timeout(60 + ROUNDS // 2)
def test_no_torn_record_is_ever_read(school: Settings) -> None:
    running(BEAD, **payload())
    reader = start(school, "read")
    killer = start(school, "kills", str(ROUNDS))
    out, _ = killer.communicate(timeout=50 + ROUNDS // 2)
    assert killer.returncode == 0
    reads, _ = reader.communicate(timeout=20)
    assert reader.returncode == 0
    assert int(reads) > 0
    assert int(out) > ROUNDS // 10, "the writers were killed before they wrote anything"
    assert not school.corrupt_dir.exists()
    bookbag.sweep_leftovers()
    assert [path.name for path in school.bookbag_dir.iterdir()] == [f"{BEAD}.json"]
    assert not [path.name for path in school.lock_dir.iterdir() if path.suffix in (".lock", ".tmp")]


@pytest.mark.crash
@pytest.mark.timeout(60 + ROUNDS // 2)
def test_an_archive_is_whole_or_not_there(school: Settings) -> None:
    rounds = max(40, ROUNDS // 4)
    killer = start(school, "archives", str(rounds))
    out, _ = killer.communicate(timeout=50 + ROUNDS // 2)
    assert killer.returncode == 0
    assert int(out) > 0, "nobody was killed in the middle"
    bookbag.sweep_leftovers()
    assert [path.name for path in school.bookbag_dir.iterdir()] == ["archive"]
    assert len(bookbag.list_bookbags(archived=True)) == rounds
    assert all(not path.name.startswith(".") for path in school.archive_dir.iterdir())

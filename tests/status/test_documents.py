"""``list``, ``show`` and ``status``: the keys of the contract, from what lies on disk and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.errors import BookbagCorruptedError, ConfigError
from school.settings import Settings
from school.status.documents import list_rows, show, status_document
from school.system import clock, files, identity
from tests.building import State
from tests.support import ROOT

ROW_KEYS = {
    "bead", "task_id", "state", "outcome", "attempt", "cto_verdict", "coo_verdict", "accepted", "timestamp",
}  # fmt: skip


@pytest.fixture
def state(school: Settings, repo: Path) -> State:
    return State(school, repo)


def test_nothing_there_is_an_empty_answer_and_makes_nothing(school: Settings):
    assert list_rows(school, archived=True) == []
    document = status_document(school)
    assert (document["conductor"], document["teachers"], document["leaves"]) == (None, [], [])
    assert document["queue"]["waiting"] == 0
    assert not school.hermes_home.exists()


def test_list_has_the_rows_of_the_contract_oldest_first(state: State, school: Settings):
    done = state.accepted()
    rejected = state.rejected()
    waiting = state.written()
    running = state.running()
    blocked = state.blocked()
    rows = list_rows(school)
    assert [(row["bead"], row["state"]) for row in rows] == [
        (waiting, "WRITTEN"),
        (running, "RUNNING"),
        (blocked, "BLOCKED"),
    ]
    everything = list_rows(school, archived=True)
    assert [row["bead"] for row in everything] == [done, rejected, waiting, running, blocked]
    first, second = everything[:2]
    assert first.keys() >= ROW_KEYS
    assert (first["state"], first["outcome"], first["accepted"]) == ("DISPOSED", "accepted", True)
    assert (first["cto_verdict"], first["coo_verdict"], first["task_id"]) == ("PASS", "PASS", "fix-parse")
    assert (second["outcome"], second["accepted"], second["cto_verdict"]) == ("rejected", False, "FAIL")


def test_list_of_one_repository(state: State, school: Settings):
    bead = state.running()
    assert [row["bead"] for row in list_rows(school, repo_key=state.repository.key)] == [bead]
    assert list_rows(school, repo_key="other-00000000") == []


@pytest.mark.parametrize("damage", [b"", b"{", b"\0" * 4096, b"[]", b'{"bead": "another"}'])
def test_what_cannot_be_read_is_shown_as_such_and_left_alone(state: State, school: Settings, damage: bytes):
    bead = state.running()
    path = school.bookbag_dir / f"{bead}.json"
    path.write_bytes(damage)
    assert [(row["bead"], row["state"]) for row in list_rows(school)] == [(bead, "UNREADABLE")]
    assert status_document(school)["queue"]["unreadable"] == 1
    with pytest.raises(BookbagCorruptedError, match=bead):
        show(school, bead)
    assert path.read_bytes() == damage
    assert not school.corrupt_dir.exists()


def test_the_archive_wins_over_a_record_that_is_still_on_the_shelf(state: State, school: Settings):
    bead = state.reviewed()
    state.score(bead)
    path = school.bookbag_dir / f"{bead}.json"
    saved = path.read_bytes()
    state.close(bead)
    path.write_bytes(saved)
    assert list_rows(school) == []
    assert [row["state"] for row in list_rows(school, archived=True)] == ["DISPOSED"]
    assert show(school, bead)["state"] == "DISPOSED"


def test_show_is_the_bookbag_with_its_state(state: State, school: Settings):
    bead = state.written()
    assert show(school, bead) == {**(bookbag.read_bookbag(bead) or {}), "state": "WRITTEN"}
    done = state.accepted()
    assert show(school, done)["delivered"]["branch"] == "school/fix-parse"


@pytest.mark.parametrize("name", ["coder-python-00000000", "../../etc/passwd", "", "A", "a\0b"])
def test_show_of_no_bead_says_so(school: Settings, name: str):
    with pytest.raises(ConfigError, match="there is no such bead"):
        show(school, name)


# --- status -------------------------------------------------------------------------------------------------


def me(**fields: Any) -> dict[str, Any]:
    """A record of this very process."""
    known = asdict(identity.this_process())
    return {**{name: known[name] for name in ("pid", "start", "boot", "host", "pidns")}, **fields}


def dead(**fields: Any) -> dict[str, Any]:
    """A record of a process that is no more."""
    done = subprocess.Popen(["true"])
    owner = identity.identity(done.pid)
    done.wait()
    return {**me(), "pid": done.pid, "start": owner.start, **fields}


def test_status_says_who_is_at_work(school: Settings, repo: Path):
    since = clock.now()
    run = {"run": "r1", "round": 2, "started_at": since}
    files.ensure_dir(school.runs_dir)
    files.write_json(school.runs_dir / "r1.json", run)
    files.ensure_dir(school.processes_dir)
    conductor = me(name="conductor-x", kind="conductor", run="r1", repo=str(repo))
    files.write_json(school.processes_dir / "conductor-x.json", conductor)
    other = me(name="conductor-a", kind="conductor", run="r0", repo="/elsewhere")
    files.write_json(school.processes_dir / "conductor-a.json", other)
    gone = dead(name="conductor-z", kind="conductor", run="r9", repo=str(repo))
    files.write_json(school.processes_dir / "conductor-z.json", gone)
    leaf = me(name="b-1", kind="leaf", bead="b-1", step="running", since=since)
    files.write_json(school.processes_dir / "b-1.json", leaf)
    files.write_json(school.processes_dir / "b-2.json", dead(name="b-2", kind="leaf", bead="b-2"))
    starting = {"name": "b-3", "kind": "leaf", "bead": "b-3", "pid": 0, "step": "starting", "since": since}
    files.write_json(school.processes_dir / "b-3.json", starting)
    document = status_document(school, repo=repo / "calc")
    assert document["conductor"] == {
        "pid": os.getpid(), "run": "r1", "round": 2, "repo": str(repo), "since": since, "away": [],
    }  # fmt: skip
    assert [item["run"] for item in document["conductors"]] == ["r0", "r1"]
    assert document["leaves"] == [{"bead": "b-1", "pid": os.getpid(), "step": "running", "since": since}]
    # Without a repository, or from a place that is none: whoever is at work.
    assert status_document(school, repo=Path("/"))["conductor"]["run"] == "r0"


def test_status_of_teachers(school: Settings):
    files.ensure_dir(school.teachers_dir)
    row = {"state": "reviewing", "bead": "b-1", "check": "verification", "since": clock.now(), "reviewed": 3}
    files.write_json(school.teachers_dir / "cto.json", me(role="cto", **row))
    files.write_json(school.teachers_dir / "coo.json", dead(role="coo", state="idle"))
    cto, coo = status_document(school)["teachers"]
    assert cto.keys() >= {"role", "pid", "state", "bead", "check", "since", "reviewed"}
    assert {name: cto[name] for name in row} == row
    assert (coo["role"], coo["state"]) == ("coo", "dead")
    files.write_json(school.teachers_dir / "coo.json", dead(role="coo", state="stopped"))
    assert [item["role"] for item in status_document(school)["teachers"]] == ["cto"]


def test_the_queue_counts_each_state_and_who_has_to_judge(state: State, school: Settings):
    state.running()
    state.written()
    for role in ("cto", "coo"):
        state.judge(state.written(), role)
    state.reviewed()
    state.score(state.reviewed())
    state.blocked()
    state.accepted()
    queue = status_document(school)["queue"]
    names = ("running", "written", "cto_reviewed", "coo_reviewed", "reviewed", "scored", "blocked", "failed")
    assert [queue[name] for name in names] == [1, 1, 1, 1, 1, 1, 1, 0]
    assert (queue["waiting"], queue["for_cto"], queue["for_coo"], queue["in_flight"]) == (3, 2, 2, 4)
    assert queue["for_budget"] == 0
    assert 0 <= queue["oldest_wait_s"] < 60


@pytest.mark.parametrize(
    "record", [b"", b"[]", b'{"pid": "x", "kind": "leaf"}', b'{"pid": -1, "kind": "leaf"}']
)
def test_a_foreign_record_is_nobody(school: Settings, record: bytes):
    for directory in (school.processes_dir, school.teachers_dir):
        files.ensure_dir(directory)
    (school.processes_dir / "x.json").write_bytes(record)
    (school.teachers_dir / "cto.json").write_bytes(record)
    document = status_document(school)
    assert document["leaves"] == []
    assert [row["state"] for row in document["teachers"] if row["state"] != "dead"] == []


# --- its cost -----------------------------------------------------------------------------------------------

PROGRAM = """
import json, os, sys
from pathlib import Path
import click
opened = []
sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event in ("open", "os.scandir", "os.listdir") else None)
from school.settings import current
from school.status.documents import status_document
document = status_document(current(), repo=Path("."))
heavy = {"pydantic", "rich", "structlog", "psutil", "yaml", "watchdog", "filelock", "school.system.git"}
ours = [os.path.relpath(path, current().bookbag_dir) for path in opened if path.startswith(str(current().bookbag_dir))]
print(json.dumps([document["queue"]["blocked"], sorted(heavy & sys.modules.keys()), ours]))
"""


def test_status_opens_each_waiting_record_once_and_no_archived_one(state: State, school: Settings):
    bead = state.blocked()
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    names = [bead, *(f"coder-python-{number:08x}" for number in range(100))]
    for name in names[1:]:
        (school.bookbag_dir / f"{name}.json").write_text(json.dumps({**bag, "bead": name}, indent=1))
    for number in range(100):
        archived = school.archive_dir / f"coder-gone-{number:08x}"
        archived.mkdir(parents=True)
        (archived / "bookbag.json").write_text(json.dumps({**bag, "bead": archived.name}))
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, check=True, capture_output=True)
    blocked, heavy, opened = json.loads(done.stdout)
    assert (blocked, heavy) == (101, [])
    assert sorted(opened) == sorted([".", *(f"{name}.json" for name in names)])


def test_a_list_of_all_holds_one_archived_record_at_a_time(school: Settings):
    large = 200_000
    for number in range(100):
        bead = f"coder-gone-{number:08x}"
        (school.archive_dir / bead).mkdir(parents=True)
        record = {
            "bead": bead,
            "repo_key": "calc-00000000",
            "timestamp": f"2030-{number:03}",
            "output": "x" * large,
        }
        (school.archive_dir / bead / "bookbag.json").write_text(json.dumps(record))
    tracemalloc.start()
    try:
        rows = list_rows(school, archived=True)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [row["bead"] for row in rows] == [f"coder-gone-{number:08x}" for number in range(100)]
    assert most < 20 * large  # a few copies of one, and never the hundred

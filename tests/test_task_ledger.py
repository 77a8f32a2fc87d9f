"""How far a task has come: what is charged, when it is due, and the same again from the archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from school.errors import BookbagInvalidError, ConfigError
from school.settings import Settings
from school.tasks import Task, TaskLedger, TaskRecord

KEY = "calc-repo-0123abcd"
TASK = Task(id="fix-parse", task="Fix it.", max_attempts=2)
COUNTER = iter(range(1_000_000))


def bag(outcome: str, reason: str = "", task: Task = TASK, **fields: Any) -> dict[str, Any]:
    number = next(COUNTER)
    status = outcome if outcome in ("failed", "blocked") else "open"
    return {
        "bead": f"coder-general-{number:08x}",
        "task_id": task.id,
        "task_digest": task.digest,
        "repo_key": KEY,
        "status": status,
        "reason": reason,
        "outcome": outcome,
        "timestamp": f"2030-01-01T00:00:{number % 60:02d}+00:00",
        **fields,
    }


def archive(school: Settings, *bags: dict[str, Any]) -> None:
    for item in bags:
        folder = school.archive_dir / item["bead"]
        folder.mkdir(parents=True)
        (folder / "bookbag.json").write_text(json.dumps(item))


@pytest.fixture
def ledger(school: Settings) -> TaskLedger:
    return TaskLedger(school, KEY)


def test_a_task_is_due_until_it_is_accepted(ledger: TaskLedger):
    assert ledger.due(TASK)
    ledger.record(bag("rejected"))
    assert ledger.due(TASK)
    record = ledger.record(bag("accepted"))
    assert (record.charged, record.outcome) == (2, "accepted")
    assert ledger.why_not_due(TASK) == "accepted"


def test_no_change_is_an_end_too(ledger: TaskLedger):
    ledger.record(bag("no_change"))
    assert ledger.why_not_due(TASK) == "no_change"


def test_used_up_attempts_keep_their_outcome_until_retry(ledger: TaskLedger):
    ledger.record(bag("rejected"))
    ledger.record(bag("failed", "timeout"))
    assert ledger.why_not_due(TASK) == "failed"
    [record] = ledger.retry(TASK.id)
    assert (record.charged, len(record.attempts)) == (0, 2)
    assert ledger.due(TASK)
    ledger.record(bag("rejected"))
    assert ledger.due(TASK)
    ledger.record(bag("rejected"))
    assert ledger.why_not_due(TASK) == "rejected"


def test_the_same_bead_told_twice_counts_once(ledger: TaskLedger):
    one = bag("rejected")
    ledger.record(one)
    assert ledger.record(one).charged == 1
    assert len(TaskLedger(ledger.settings, KEY).state(TASK).attempts) == 1


@pytest.mark.parametrize("reason", ["interrupted", "conductor_died", "leaf_died", "quota", "disk_full"])
def test_what_was_cut_short_is_not_charged(ledger: TaskLedger, reason: str):
    for _ in range(4):
        ledger.record(bag("failed", reason))
    assert (ledger.state(TASK).charged, ledger.due(TASK)) == (0, True)


def test_leaves_that_die_in_a_row_block_the_task(ledger: TaskLedger):
    for _ in range(4):
        ledger.record(bag("failed", "leaf_died"))
    ledger.record(bag("failed", "interrupted"))  # cut short by a person: neither counts nor ends the row
    assert ledger.due(TASK)
    ledger.record(bag("failed", "leaf_died"))
    assert ledger.why_not_due(TASK) == "blocked"
    assert ledger.due(TASK, max_interruptions=6)
    ledger.retry(TASK.id)
    assert ledger.due(TASK)


def test_a_charged_attempt_ends_the_row(ledger: TaskLedger):
    for reason in ["leaf_died"] * 4 + ["timeout"] + ["leaf_died"] * 4:
        ledger.record(bag("failed", reason))
    assert ledger.due(TASK)
    assert ledger.state(TASK).interruptions == 4


@pytest.mark.parametrize(("reason", "charged"), [("agent", 1), ("setup", 0), ("no_verdict:cto", 0)])
def test_a_blocked_bead_waits_for_retry_and_is_charged_only_for_what_the_agent_said(ledger, reason, charged):
    ledger.record(bag("blocked", reason))
    assert ledger.why_not_due(TASK) == "blocked"
    assert (ledger.state(TASK).charged, ledger.state(TASK).blocked) == (charged, reason)
    ledger.retry(TASK.id)
    assert ledger.due(TASK)


def test_an_edited_task_is_due_again_and_the_old_record_stays(ledger: TaskLedger):
    ledger.record(bag("accepted"))
    edited = TASK.model_copy(update={"task": "Fix it well."})
    edited = Task.model_validate(edited.model_dump())
    assert ledger.due(edited)
    assert not ledger.due(TASK)


def test_another_repository_has_its_own_records(ledger: TaskLedger, school: Settings):
    ledger.record(bag("accepted"))
    assert TaskLedger(school, "calc-repo-ffff0000").due(TASK)


def test_retry_of_what_is_unknown_or_done_is_refused(ledger: TaskLedger):
    with pytest.raises(ConfigError, match="'nope': no task of that id"):
        ledger.retry("nope")
    ledger.record(bag("accepted"))
    with pytest.raises(ConfigError, match="it is accepted; there is nothing to retry"):
        ledger.retry(TASK.id)


def test_a_bag_that_has_not_ended_or_names_no_task_is_refused(ledger: TaskLedger):
    with pytest.raises(BookbagInvalidError, match="not ended"):
        ledger.record(bag(""))
    for task_id in ("../../x", "/abs", "a\0b", ""):
        with pytest.raises(BookbagInvalidError, match="names no task"):
            ledger.record(bag("accepted", task_id=task_id))
    with pytest.raises(BookbagInvalidError, match="names no task"):
        ledger.record(bag("accepted", task_digest="../x"))
    with pytest.raises(BookbagInvalidError, match="no key of a repository"):
        TaskLedger(ledger.settings, "../../etc")


def plain(records: list[TaskRecord]) -> list[dict[str, Any]]:
    return [record.model_dump() for record in records]


def test_rebuilt_from_the_archive_it_is_the_same(ledger: TaskLedger, school: Settings):
    other = Task(id="other-task", task="x")
    bags = [bag("rejected"), bag("accepted"), bag("failed", "leaf_died", other), bag("rejected", "", other)]
    archive(
        school, *bags, bag("accepted", task_id="", task_digest=""), bag("accepted", repo_key="x-00000000")
    )
    for item in bags:
        ledger.record(item)
    before = plain(ledger.records())
    for path in ledger.directory.iterdir():
        path.unlink()
    assert ledger.rebuild() == 2
    assert plain(ledger.records()) == before
    assert ledger.rebuild() == 2
    assert plain(ledger.records()) == before


def test_a_retry_survives_a_rebuild(ledger: TaskLedger, school: Settings):
    bags = [bag("rejected"), bag("rejected")]
    archive(school, *bags)
    for item in bags:
        ledger.record(item)
    ledger.retry(TASK.id)
    before = plain(ledger.records())
    ledger.rebuild()
    assert plain(ledger.records()) == before
    assert ledger.due(TASK)


def test_a_blocked_bead_in_the_archive_was_retried_a_live_one_was_not(ledger: TaskLedger, school: Settings):
    archive(school, bag("blocked", "setup"))
    ledger.rebuild()
    assert ledger.due(TASK)
    live = bag("blocked", "setup")
    school.bookbag_dir.joinpath(f"{live['bead']}.json").write_text(json.dumps(live))
    ledger.rebuild()
    assert ledger.why_not_due(TASK) == "blocked"


@pytest.mark.parametrize("damage", [b"", b"{", b"\0" * 4096, b"[]", b'{"task_id": 1}'])
def test_a_torn_record_is_quarantined_and_made_again(ledger: TaskLedger, school: Settings, damage: bytes):
    one = bag("accepted")
    archive(school, one)
    ledger.record(one)
    [path] = ledger.directory.iterdir()
    path.write_bytes(damage)
    assert ledger.why_not_due(TASK) == "accepted"
    [kept] = school.corrupt_dir.iterdir()
    assert kept.read_bytes() == damage


def test_what_a_newer_writer_added_survives(ledger: TaskLedger):
    ledger.record(bag("rejected"))
    [path] = ledger.directory.iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "note": "kept"}))
    ledger.record(bag("rejected"))
    assert json.loads(path.read_text())["note"] == "kept"


def test_a_long_or_foreign_id_makes_a_file(ledger: TaskLedger, tmp_path: Path):
    for name in ("修复" * 20, "x" * 120):
        task = Task(id=name, task="x")
        ledger.record(bag("accepted", task=task))
        assert not ledger.due(task)

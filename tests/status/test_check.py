"""``check``: each invariant named when it does not hold, with its bead; nothing named when all do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.contracts import dump
from school.settings import Settings
from school.status import doctor
from school.status.check import CHECKS, check_document, failed
from school.system import clock, files, identity, markers
from school.tasks import Task
from tests.building import State
from tests.support import ROOT, git


@pytest.fixture
def state(school: Settings, repo: Path) -> State:
    return State(school, repo)


def violations(school: Settings) -> list[tuple[str, str]]:
    """(check, bead) of everything that does not hold."""
    return [(row["check"], row["bead"]) for row in check_document(school) if not row["ok"]]


def run_ended(school: Settings, repo_key: str, *, ended: bool = True) -> None:
    files.ensure_dir(school.runs_dir)
    record = {"run": "20300101-1", "repo_key": repo_key, "started_at": clock.now(), "request": {}}
    files.write_json(
        school.runs_dir / "20300101-1.json", {**record, "ended_at": clock.now() if ended else ""}
    )


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_bag(school: Settings, bead: str, **changes: Any) -> None:
    archived = school.archive_dir / bead / "bookbag.json"
    edit(archived if archived.exists() else school.bookbag_dir / f"{bead}.json", **changes)


def dead_owner() -> identity.Owner:
    done = subprocess.Popen([sys.executable, "-c", "pass"])
    owner = identity.identity(done.pid)
    done.wait()
    return owner


def dead_record(**fields: Any) -> dict[str, Any]:
    known = asdict(dead_owner())
    return {**{name: known[name] for name in ("pid", "start", "boot", "host", "pidns")}, **fields}


# --- all is well --------------------------------------------------------------------------------------------


def test_an_empty_directory_is_well_and_stays_empty(school: Settings):
    rows = check_document(school)
    assert [row["check"] for row in rows] == list(CHECKS)
    assert not failed(rows)
    assert not school.hermes_home.exists()


def test_every_honest_state_is_well(state: State, school: Settings):
    state.accepted()
    state.rejected()
    state.running()
    state.written()
    state.judge(state.written(), "coo")
    state.reviewed()
    state.score(state.reviewed("FAIL", "FAIL"))
    state.blocked()
    bead = state.reviewed()
    state.score(bead)
    state.deliver(bead)
    assert violations(school) == []
    run_ended(school, state.repository.key)
    assert violations(school) == []


def test_the_documentation_names_every_check():
    text = (ROOT / "docs" / "checks.md").read_text()
    first, second = text.split("## doctor")
    assert re.findall(r"^\| `([a-z-]+)` \|", first, re.MULTILINE) == list(CHECKS)
    named: set[str] = set()
    for line in second.splitlines():
        cells = line.split("|")
        if len(cells) > 2:
            named |= set(re.findall(r"`([a-z-]+(?::NAME)?)`", cells[1]))
    assert named == {*doctor.CHECKS, "agent:NAME", "chore:NAME"}
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in (*CHECKS, *doctor.CHECKS))


# --- one thing is wrong, and exactly that is named -------------------------------------------------------------


def torn(state: State, school: Settings) -> str:
    bead = state.running()
    (school.bookbag_dir / f"{bead}.json").write_bytes(b"{")
    return bead


def names_another(state: State, school: Settings) -> str:
    bead = state.blocked()
    edit(school.bookbag_dir / f"{bead}.json", bead="coder-python-00000000")
    return bead


def torn_archive(state: State, school: Settings) -> str:
    bead = state.rejected()
    (school.archive_dir / bead / "bookbag.json").write_bytes(b"\0" * 10)
    return bead


def no_review_file(state: State, school: Settings) -> str:
    bead = state.rejected()
    for path in school.reviews_dir.iterdir():
        if json.loads(path.read_text())["role"] == "coo":
            path.unlink()
    return bead


def receipt_of_another_tree(state: State, school: Settings) -> str:
    bead = state.written()
    made = state.review(bead, "cto", "FAIL")
    made.review.lenses[0].receipts[0].tree = "0" * 40
    files.create_json(state.review_path(made), dump(made))
    entered = {"cto_verdict": "FAIL", "cto_review": dump(made.review)}
    bookbag.update_bookbag(bead, lambda bag: {**bag, **entered}, by="cto")
    return bead


def wrong_outcome(state: State, school: Settings) -> str:
    bead = state.rejected()
    edit_bag(school, bead, outcome="no_change")
    # The record of its task follows, so that this alone is wrong.
    for path in school.tasks_dir.glob("*/*.json"):
        path.write_text(path.read_text().replace('"rejected"', '"no_change"'))
    return bead


def in_both_places(state: State, school: Settings) -> str:
    bead = state.reviewed()
    state.score(bead)
    path = school.bookbag_dir / f"{bead}.json"
    saved = path.read_bytes()
    state.close(bead)
    path.write_bytes(saved)
    return bead


def commit_lost(state: State, school: Settings) -> str:
    bead = state.running()
    edit_bag(school, bead, head_commit="0" * 40)
    return bead


def scored_twice(state: State, school: Settings) -> str:
    bead = state.rejected()
    line = json.loads(school.score_journal.read_text())
    files.append_json_line(school.score_journal, line)
    school.scores_file.unlink()
    return bead


def score_out_of_line(state: State, school: Settings) -> str:
    bead = state.rejected()
    line = json.loads(school.score_journal.read_text())
    school.score_journal.write_text(json.dumps({**line, "after": 99.0}) + "\n")
    school.scores_file.unlink()
    edit_bag(school, bead, score={"task": line["task"], "before": line["before"], "after": 99.0})
    return bead


def scored_without_line(state: State, school: Settings) -> str:
    bead = state.rejected()
    school.score_journal.unlink()
    school.scores_file.unlink()
    return bead


def delivered_twice(state: State, school: Settings) -> str:
    bead = state.accepted()
    line = list(files.read_json_lines(school.deliveries_journal))[-1]
    files.append_json_line(school.deliveries_journal, {**line, "branch": "school/fix-parse-2"})
    return bead


def delivered_without_line(state: State, school: Settings) -> str:
    bead = state.accepted()
    school.deliveries_journal.unlink()
    return bead


def task_record_lost(state: State, school: Settings) -> str:
    bead = state.rejected()
    for path in school.tasks_dir.glob("*/*.json"):
        path.unlink()
    return bead


def no_flag(state: State, school: Settings) -> str:
    bead = state.written()
    bookbag.BookbagSignal(bead).clear()
    return bead


def flag_left(state: State, school: Settings) -> str:
    bead = state.rejected()
    (school.signal_dir / f"{bead}.ready").write_text("{}")
    return bead


def lock_of_the_dead(state: State, school: Settings) -> str:
    bead = state.blocked()
    (school.lock_dir / f"{bead}.lock").write_text(dead_owner().text)
    return bead


def lock_of_nobody(state: State, school: Settings) -> str:
    bead = state.blocked()
    path = school.lock_dir / f"{bead}.lock"
    path.write_text("")
    os.utime(path, (1e9, 1e9))  # it is taken by its age alone
    return bead


def process_record_left(state: State, school: Settings) -> str:
    bead = state.rejected()
    files.ensure_dir(school.processes_dir)
    record = dead_record(name=bead, kind="leaf", bead=bead)
    files.write_json(school.processes_dir / f"{bead}.json", record)
    return bead


def leaf_lock_left(state: State, school: Settings) -> str:
    bead = state.rejected()
    files.ensure_dir(school.processes_dir)
    (school.processes_dir / f"{bead}.leaf.lock").touch()
    return bead


def worktree_left(state: State, school: Settings) -> str:
    bead = state.rejected()
    path = school.worktrees_dir / state.repository.key / "study-coder-1"
    path.mkdir(parents=True)
    files.ensure_dir(school.worktree_records_dir)
    record = {"name": bead, "kind": "leaf", "bead": bead, "path": str(path), "repo_key": state.repository.key}
    files.write_json(school.worktree_records_dir / f"{bead}.json", record)
    return bead


def unrecorded_directory(state: State, school: Settings) -> str:
    (school.worktrees_dir / state.repository.key / "study-coder-2").mkdir(parents=True)
    return ""


def bead_repository_left(state: State, school: Settings) -> str:
    bead = state.rejected()
    (school.bead_repos_dir / f"{bead}.git").mkdir(parents=True)
    return bead


def temporary_left(state: State, school: Settings) -> str:
    files.ensure_dir(school.bookbag_dir)
    program = "import sys; from school.system import files; print(files.temporary_name(sys.argv[1]))"
    argv = [sys.executable, "-c", program, str(school.bookbag_dir / "x.json")]
    Path(subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()).touch()
    # One that is being written right now is nobody's leftover.
    Path(files.temporary_name(school.bookbag_dir / "y.json")).touch()
    return ""


def accepted_by_hand(state: State, school: Settings) -> str:
    bead = state.rejected()
    edit_bag(school, bead, accepted=True)
    return bead


WRONG: list[tuple[Callable[[State, Settings], str], set[str]]] = [
    (torn, {"bookbag-valid"}),
    (names_another, {"bookbag-valid"}),
    (torn_archive, {"bookbag-valid"}),
    (no_review_file, {"verdict-has-review"}),
    (accepted_by_hand, {"accepted-passed-twice", "bookbag-valid", "outcome-follows-reviews"}),
    (receipt_of_another_tree, {"evidence-on-judged-tree"}),
    (wrong_outcome, {"outcome-follows-reviews"}),
    (in_both_places, {"one-place-a-bead"}),
    (commit_lost, {"work-is-kept"}),
    (scored_twice, {"score-once"}),
    (score_out_of_line, {"score-once"}),
    (scored_without_line, {"scored-has-line"}),
    (delivered_twice, {"delivered-once"}),
    (delivered_without_line, {"delivered-once"}),
    (task_record_lost, {"task-records-agree"}),
    (no_flag, {"flags-in-step"}),
    (flag_left, {"flags-in-step"}),
    (lock_of_the_dead, {"no-dead-locks"}),
    (lock_of_nobody, {"no-dead-locks"}),
    (process_record_left, {"processes-accounted-for"}),
    (leaf_lock_left, {"processes-accounted-for"}),
    (worktree_left, {"worktrees-accounted-for"}),
    (unrecorded_directory, {"worktrees-accounted-for"}),
    (bead_repository_left, {"bead-folders-accounted-for"}),
    (temporary_left, {"no-temporary-files"}),
]


@pytest.mark.parametrize(("spoil", "names"), WRONG, ids=lambda item: getattr(item, "__name__", None))
def test_what_is_wrong_is_named_with_its_bead_and_nothing_else(state: State, school: Settings, spoil, names):
    bead = spoil(state, school)
    found = violations(school)
    assert {name for name, _ in found} == names
    assert {about for _, about in found} == {bead}


REPAIRED = {
    "torn", "in_both_places", "task_record_lost", "no_flag", "flag_left", "lock_of_the_dead", "lock_of_nobody",
    "process_record_left", "leaf_lock_left", "temporary_left",
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "names"), WRONG, ids=lambda item: getattr(item, "__name__", None))
def test_repair_puts_right_what_loses_nothing(state: State, school: Settings, spoil, names):
    spoil(state, school)
    rows = check_document(school, repair=True)
    if spoil.__name__ in REPAIRED:
        assert not failed(rows)
        assert [row["check"] for row in rows if row["detail"] == "repaired"] == sorted(names)
        assert violations(school) == []
    else:
        assert {row["check"] for row in rows if row["ok"] is False} == names


def test_a_repaired_torn_record_is_in_corrupt(state: State, school: Settings):
    bead = torn(state, school)
    check_document(school, repair=True)
    [kept] = school.corrupt_dir.iterdir()
    assert (kept.read_bytes(), kept.name.startswith(bead)) == (b"{", True)


def test_scores_that_are_not_the_fold_are_named_and_folded_again(state: State, school: Settings):
    state.accepted()
    good = school.scores_file.read_bytes()
    edit(school.scores_file, scores=[])
    assert violations(school) == [("scores-follow-journal", "")]
    check_document(school, repair=True)
    assert school.scores_file.read_bytes() == good
    school.scores_file.write_bytes(b"")
    assert violations(school) == [("scores-follow-journal", "")]
    assert not failed(check_document(school, repair=True))


def test_what_a_run_that_was_cut_short_left_is_taken_up_and_no_violation(state: State, school: Settings):
    run_ended(school, state.repository.key, ended=False)
    left = (no_flag, flag_left, lock_of_the_dead, process_record_left, bead_repository_left, temporary_left)
    for spoil in left:
        spoil(state, school)
    unrecorded_directory(state, school)
    worktree_left(state, school)
    assert violations(school) == []
    run_ended(school, state.repository.key)
    assert {name for name, _ in violations(school)} == {
        "flags-in-step",
        "no-dead-locks",
        "processes-accounted-for",
        "worktrees-accounted-for",
        "bead-folders-accounted-for",
        "no-temporary-files",
    }


def test_unsaved_work_that_stays_on_purpose_is_no_violation(state: State, school: Settings):
    bead = worktree_left(state, school)
    edit(school.worktree_records_dir / f"{bead}.json", salvage_failed="disk full")
    assert violations(school) == []


def test_a_lock_and_a_record_of_the_living_are_fine(state: State, school: Settings):
    bead = state.blocked()
    assert bookbag.acquire_lock(bead)
    record = asdict(identity.this_process())
    files.ensure_dir(school.processes_dir)
    files.write_json(school.processes_dir / "x.json", {**record, "name": "x", "kind": "leaf", "bead": "gone"})
    assert violations(school) == []
    bookbag.release_lock(bead)


def test_a_process_that_outlives_its_bead_is_named(state: State, school: Settings):
    bead = state.rejected()
    stray = subprocess.Popen(["sleep", "60"], env={"PATH": "/usr/bin:/bin", markers.VARIABLE: bead})
    try:
        assert violations(school) == [("no-stray-process", bead)]
    finally:
        stray.kill()
        stray.wait()
    assert violations(school) == []


def test_a_record_with_fields_of_the_wrong_kind_does_not_end_the_check(state: State, school: Settings):
    bead = state.blocked()
    edit_bag(school, bead, cto_review={"lenses": [1]}, coo_review=[], history=7, findings="x", score="y")
    assert ("bookbag-valid", bead) in violations(school)


def test_a_commit_that_only_the_user_has_is_kept_work(state: State, school: Settings):
    state.accepted()
    files.remove_tree(state.clone.path)
    assert violations(school) == []
    git(state.repo, "branch", "-D", "school/fix-parse")
    git(state.repo, "for-each-ref", "--format=delete %(refname)", "refs/school")
    assert violations(school) == []


def test_a_flood_of_violations_is_cut_with_its_number(school: Settings):
    school.bookbag_dir.mkdir(parents=True)
    for number in range(150):
        (school.bookbag_dir / f"coder-x-{number:08x}.json").write_text("{")
    rows = [row for row in check_document(school) if not row["ok"]]
    assert len(rows) == 101
    assert rows[-1]["detail"] == "and 50 more"


def test_accepted_without_review_files_is_named_even_in_a_record_of_the_seed(school: Settings):
    bead = "coder-python-0000000a"
    school.bookbag_dir.mkdir(parents=True)
    seed = {
        "bead": bead,
        "task": "x",
        "student": "coder",
        "domain": "p",
        "difficulty": "easy",
        "accepted": True,
    }
    seed |= {"cto_verdict": "PASS", "coo_verdict": "PASS"}
    (school.bookbag_dir / f"{bead}.json").write_text(json.dumps(seed))
    assert ("accepted-passed-twice", bead) in violations(school)


def test_tasks_of_two_definitions_agree(state: State, school: Settings):
    state.rejected()
    state.accepted(task=Task(id="fix-parse", task="Fix it well."))
    assert violations(school) == []

"""The end of a bead that cannot be delivered: set aside with the reason, told honestly, never in anybody's way."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school import delivery
from school.contracts import dump
from school.masking import Mask
from school.settings import Settings
from school.status.check import check_document
from school.supervisor.closing import Closing
from school.supervisor.recovery import recover
from school.supervisor.upkeep import retry
from school.system import files, redaction
from school.tasks import Task, TaskLedger
from tests.building import State
from tests.support import ROOT, git

TASK = Task(id="fix-parse", task="Fix it.")
KEY = "sk-live-9fJ2kQ7xW4nB8vT1"


@pytest.fixture
def state(school: Settings, repo: Path) -> State:
    return State(school, repo)


@pytest.fixture
def closing(state: State) -> Closing:
    ledger = TaskLedger(state.settings, state.repository.key)
    return Closing(state.settings, state.repository, state.clone, delivery.deliver, ledger, lambda _: None)


def bag_of(bead: str) -> dict[str, Any]:
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    return bag


def failing(state: State) -> list[str]:
    return [row["check"] for row in check_document(state.settings) if not row["ok"]]


def test_a_verdict_without_its_review_file_is_neither_scored_nor_delivered(state: State, closing: Closing):
    bead = state.written(TASK)
    state.judge(bead, "cto")
    state.judge(bead, "coo", filed=False)
    assert closing.score(bag_of(bead))
    bag = bag_of(bead)
    assert bookbag.bookbag_state(bag) == "BLOCKED"
    assert bag["reason"].startswith("unproven: there is no review file of the coo")
    assert (bag["accepted"], bag.get("score")) == (False, None)
    assert not state.settings.score_journal.exists()
    assert closing.park(bag)
    assert closing.ledger.why_not_due(TASK) == "blocked"
    assert git(state.repo, "rev-parse", f"refs/school/{bead}") == bag["head_commit"]
    assert state.branches().keys() == {"main"}


def test_a_review_file_that_says_otherwise_is_no_proof(state: State, closing: Closing):
    bead = state.written(TASK)
    state.judge(bead, "cto")
    files.create_json(state.review_path(made := state.review(bead, "coo", "FAIL")), made.model_dump())
    state.judge(bead, "coo", filed=False)
    assert closing.score(bag_of(bead))
    assert bag_of(bead)["reason"] == "unproven: the coo's review file says FAIL, the record PASS"


def test_a_scored_record_that_lies_is_set_aside_and_its_task_can_be_tried_again(
    state: State, closing: Closing
):
    bead = state.reviewed(task=TASK)
    state.score(bead)
    state.review_path(state.review(bead, "cto")).unlink()
    assert closing.close(bag_of(bead))
    bag = bag_of(bead)
    assert (bag["status"], bag["outcome"], bag["accepted"]) == ("blocked", "blocked", False)
    assert bag["reason"].startswith("not_delivered: ")
    assert state.branches().keys() == {"main"}
    assert closing.ledger.why_not_due(TASK) == "blocked"


def test_a_commit_that_nobody_has_holds_up_no_end(state: State, closing: Closing):
    nobody = "1" * 40
    bead = state.running(TASK)
    fields = {"status": "open", "head_commit": nobody, "tree": nobody, "claim": "done"}
    bookbag.update_bookbag(bead, lambda bag: {**bag, **fields}, by="leaf")
    state.judge(bead, "cto")
    state.judge(bead, "coo")
    assert closing.score(bag_of(bead))
    assert closing.close(bag_of(bead))
    assert "is not in the school clone" in bag_of(bead)["reason"]
    assert closing.ledger.why_not_due(TASK) == "blocked"


def test_a_branch_that_came_in_the_way_blocks_the_task_until_retry_delivers_it(
    state: State, closing: Closing
):
    bead = state.reviewed(task=TASK)
    assert closing.score(bag_of(bead))
    git(state.repo, "branch", "school")
    assert closing.close(bag_of(bead))
    bag = bag_of(bead)
    assert bag["outcome"] == "blocked"
    assert "there is a branch 'school'" in bag["reason"]
    assert closing.ledger.why_not_due(TASK) == "blocked"
    assert git(state.repo, "rev-parse", f"refs/school/{bead}") == bag["head_commit"]
    assert failing(state) == []

    # Still in the way: it is set aside again, and nothing is journalled twice.
    assert retry("fix-parse", state.repo, state.settings)["readmitted"] == [bead]
    assert bookbag.bookbag_state(bag_of(bead)) == "SCORED"
    assert bag_of(bead)["accepted"] is True
    assert closing.close(bag_of(bead))
    assert list(files.read_json_lines(state.settings.deliveries_journal)) == []

    git(state.repo, "branch", "-D", "school")
    row = retry("fix-parse", state.repo, state.settings)
    assert (row["archived"], row["readmitted"]) == ([], [bead])
    assert closing.close(bag_of(bead))
    assert state.branches()["school/fix-parse"] == bag["head_commit"]
    assert closing.ledger.why_not_due(TASK) == "accepted"
    assert len(list(files.read_json_lines(state.settings.score_journal))) == 1
    assert failing(state) == []


def test_killed_between_setting_aside_and_parking_the_next_look_parks_it(state: State, closing: Closing):
    bead = state.reviewed(task=TASK)
    assert closing.score(bag_of(bead))
    git(state.repo, "branch", "school")
    died = RuntimeError("killed")

    def dying(_bag: Any) -> bool:
        raise died

    dead = TaskLedger(state.settings, state.repository.key)
    dead.record = dying
    with pytest.raises(RuntimeError):
        replace(closing, ledger=dead).close(bag_of(bead))
    assert bookbag.bookbag_state(bag_of(bead)) == "BLOCKED"
    live = TaskLedger(state.settings, state.repository.key)
    again = Closing(state.settings, state.repository, state.clone, delivery.deliver, live, lambda _: None)
    assert again.park(bag_of(bead))
    assert live.why_not_due(TASK) == "blocked"


def test_what_a_killed_leaf_had_half_written_is_not_archived(state: State, closing: Closing):
    bead = state.running(TASK)
    outputs = files.ensure_dir(state.settings.outputs_dir / bead)
    (outputs / "stdout").write_text("said\n")
    dead = "import os, sys; from school.system import files; open(files.temporary_name(sys.argv[1]), 'x')"
    subprocess.run([sys.executable, "-c", dead, str(outputs / "brief.json")], cwd=ROOT, check=True)
    assert len(list(outputs.iterdir())) == 2
    bookbag.locked_update_bookbag(bead, by="leaf", status="failed", reason="leaf_died")
    assert closing.close(bag_of(bead))
    archived = sorted(path.name for path in (state.settings.archive_dir / bead).iterdir())
    assert archived == ["bookbag.json", "stdout"]


# --- a record that somebody puts back ---------------------------------------------------------------------------


def overwrite(state: State, earlier: dict[str, Any], **changes: Any) -> None:
    """What a test that a teacher runs can do: write an old copy of the record over it, with no lock."""
    path = state.settings.bookbag_dir / f"{earlier['bead']}.json"
    path.write_text(json.dumps({**earlier, **changes}))


def forged(state: State) -> dict[str, Any]:
    """A bead as a forger leaves it: two verdicts in its record, and no review that bears them out."""
    bead = state.written(TASK)
    bag = bag_of(bead)
    said = {role: dump(state.review(bead, role).review) for role in ("cto", "coo")}
    verdicts = {f"{role}_verdict": "PASS" for role in said}
    reviews = {f"{role}_review": review for role, review in said.items()}
    overwrite(state, bag, **verdicts, **reviews)
    return bag_of(bead)


def end(state: State, closing: Closing, bead: str) -> dict[str, Any]:
    """Carry *bead* by the table, as the loop does, until its end holds."""
    steps = {"REVIEWED": closing.score, "SCORED": closing.close, "FAILED": closing.close}
    for _ in range(8):
        bag = bag_of(bead)
        now = bookbag.bookbag_state(bag)
        if steps.get(now, closing.park)(bag) and now == "BLOCKED":
            return bag_of(bead)
    raise AssertionError(f"{bead}: never ended")


def test_a_record_put_back_while_it_is_parked_is_set_aside_again(state: State, closing: Closing):
    old = forged(state)
    assert closing.score(old)
    looked_at = bag_of(old["bead"])
    assert bookbag.bookbag_state(looked_at) == "BLOCKED"
    overwrite(state, old)
    assert not closing.park(looked_at)
    assert closing.ledger.why_not_due(TASK) == ""
    bag = end(state, closing, old["bead"])
    assert (bag["status"], bag["outcome"], bag["accepted"]) == ("blocked", "blocked", False)
    assert bag["reason"].startswith("unproven: there is no review file of the cto")
    assert closing.ledger.why_not_due(TASK) == "blocked"
    assert len(closing.ledger.state(TASK).attempts) == 1
    assert not bookbag.BookbagSignal(old["bead"]).check()
    assert failing(state) == ["verdict-has-review"] * 2


class PutsBack(TaskLedger):
    """A ledger in front of which the record is put back once, as by a process that runs just then."""

    def put_back(self, state: State, old: dict[str, Any]) -> PutsBack:
        self.write = [lambda: overwrite(state, old)]
        return self

    def record(self, bag: Any) -> Any:
        while self.write:
            self.write.pop()()
        return super().record(bag)


def test_a_record_put_back_after_its_task_was_told_does_not_pass_for_parked(state: State, closing: Closing):
    old = forged(state)
    assert closing.score(old)
    ledger = PutsBack(state.settings, state.repository.key).put_back(state, old)
    racing = replace(closing, ledger=ledger)
    assert not racing.park(bag_of(old["bead"]))
    assert end(state, racing, old["bead"])["outcome"] == "blocked"
    assert len(ledger.state(TASK).attempts) == 1


def test_only_the_record_whose_end_was_entered_is_archived(state: State, closing: Closing):
    bead = state.reviewed("FAIL", "PASS", task=TASK)
    old = bag_of(bead)
    assert closing.score(old)
    ledger = PutsBack(state.settings, state.repository.key)
    scored = bag_of(bead)
    ledger.put_back(state, {**scored, "outcome": "no_change", "cto_verdict": "PASS"})
    racing = replace(closing, ledger=ledger)
    assert not racing.close(scored)
    assert bookbag.read_archived(bead) is None
    assert ledger.why_not_due(TASK) == ""
    assert ledger.state(TASK).outcome == "rejected"


def test_a_record_that_names_no_task_any_more_ends_all_the_same(school: Settings, state: State):
    told: list[str] = []
    ledger = TaskLedger(school, state.repository.key)
    closing = Closing(school, state.repository, state.clone, delivery.deliver, ledger, told.append)
    bead = state.running(TASK)
    bookbag.locked_update_bookbag(bead, by="leaf", status="failed", reason="exit")
    overwrite(state, bag_of(bead), task_id="../../elsewhere", task_digest="")
    assert closing.close(bag_of(bead))
    assert bookbag.read_archived(bead)["outcome"] == "failed"
    assert told == [f"{bead}: its record names no task of a file; no task is told of its end"]


# --- a name in the user's repository that is taken ----------------------------------------------------------------


@pytest.mark.parametrize("where", ["refs/school/{}", "refs/school/{}/below"])
@pytest.mark.parametrize("verdict", ["PASS", "FAIL"])
def test_a_ref_that_the_user_made_is_never_moved_and_stops_no_bead(
    school: Settings, state: State, where: str, verdict: str
):
    told: list[str] = []
    ledger = TaskLedger(school, state.repository.key)
    closing = Closing(school, state.repository, state.clone, delivery.deliver, ledger, told.append)
    bead = state.reviewed(verdict, "PASS", task=TASK)
    git(state.repo, "update-ref", taken := where.format(bead), state.base)
    assert closing.score(bag_of(bead))
    assert closing.close(bag_of(bead))
    bag = bookbag.read_archived(bead)
    assert bag is not None
    assert git(state.repo, "rev-parse", taken) == state.base
    assert bag["published_ref"] == f"refs/school/{bead}-2"
    assert git(state.repo, "rev-parse", bag["published_ref"]) == bag["head_commit"]
    assert told == [
        f"{bead}: somebody else's refs/school/{bead} names another commit and stays; its own is refs/school/{bead}-2"
    ]
    assert bag["outcome"] == ledger.state(TASK).outcome == ("accepted" if verdict == "PASS" else "rejected")
    assert failing(state) == []


def test_a_name_of_ours_beside_a_taken_one_is_found_again(state: State, closing: Closing):
    bead = state.blocked(task=TASK)
    head, tree = state.commit({"calc/x.py": "X = 1\n"})
    bag = bag_of(bead)
    overwrite(state, bag, head_commit=head, tree=tree)
    git(state.repo, "update-ref", f"refs/school/{bead}", state.base)
    assert closing.park(bag_of(bead))
    assert closing.park(bag_of(bead))
    refs = git(state.repo, "for-each-ref", "--format=%(refname) %(objectname)", "refs/school").splitlines()
    assert refs == [f"refs/school/{bead} {state.base}", f"refs/school/{bead}-2 {head}"]
    assert bag_of(bead)["published_ref"] == f"refs/school/{bead}-2"


def leaked(state: State, how: str) -> str:
    """A bead that was turned down, or that failed, with a key in its work."""
    if how == "failed":
        bead = state.running(TASK)
        head, tree = state.commit({"calc/word.py": f"WORD = '{KEY.encode().hex()}'\n"})
        ended = {"status": "failed", "reason": "timeout", "head_commit": head, "tree": tree}
        bookbag.update_bookbag(bead, lambda bag: {**bag, **ended}, by="leaf")
        return bead
    bead = state.written(TASK)
    made = state.review(bead, "cto", "FAIL")
    for finding in (finding for lens in made.review.lenses for finding in lens.findings):
        finding.issue_class = "secret"
    files.ensure_dir(state.settings.reviews_dir)
    files.create_json(state.review_path(made), dump(made))
    entered = {"cto_verdict": "FAIL", "cto_review": dump(made.review)}
    bookbag.update_bookbag(bead, lambda bag: {**bag, **entered}, by="cto")
    state.judge(bead, "coo")
    return bead


@pytest.mark.parametrize("how", ["rejected", "failed"])
def test_work_that_holds_a_secret_stays_in_our_clone_until_it_is_asked_for_by_name(state: State, how: str):
    told: list[str] = []
    ledger = TaskLedger(state.settings, state.repository.key)
    closing = Closing(state.settings, state.repository, state.clone, delivery.deliver, ledger, told.append)
    bead = leaked(state, how)
    head = bag_of(bead)["head_commit"]
    redaction.install(Mask.from_environment((), {"SOME_API_KEY": KEY}))
    try:
        assert how == "failed" or closing.score(bag_of(bead))
        assert closing.close(bag_of(bead))
    finally:
        redaction.install(None)
    bag = bookbag.read_archived(bead)
    assert bag is not None
    assert (bag["outcome"], bag["withheld"]) == (how, "secret")
    assert told == [
        f"{bead}: its work holds a secret, so it stays in our own clone; `recover {bead}` brings it"
    ]
    assert not state.repository.git().ok("cat-file", "-e", head)
    assert git(state.repo, "for-each-ref", "refs/school") == ""
    assert failing(state) == []

    (row,) = recover([], state.repo, state.settings)
    assert (row["branch"], row["detail"]) == (
        "", f"it holds a secret and stays in our clone: `recover {bead}` brings it"
    )  # fmt: skip
    assert not state.repository.git().ok("cat-file", "-e", head)
    (row,) = recover([bead], state.repo, state.settings)
    assert row["detail"].startswith("it holds a secret; git -C ")
    assert git(state.repo, "rev-parse", row["branch"]) == head


def test_accepted_work_is_published_whatever_it_holds(state: State, closing: Closing):
    bead = state.reviewed(task=TASK, changed={"calc/word.py": f"WORD = '{KEY}'\n"})
    redaction.install(Mask.from_environment((), {"SOME_API_KEY": KEY}))
    try:
        assert closing.score(bag_of(bead))
        assert closing.close(bag_of(bead))
    finally:
        redaction.install(None)
    assert git(state.repo, "for-each-ref", "--format=%(refname)", "refs/school") == f"refs/school/{bead}"


def test_saved_work_of_which_a_killed_run_fetched_the_objects_only_gets_its_ref(
    state: State, closing: Closing
):
    bead = state.written(TASK)
    ref, head = f"refs/school/{bead}", bag_of(bead)["head_commit"]
    git(state.repo, "fetch", "-q", "--no-write-fetch-head", str(state.clone.path), head)
    state.clone.git.run("update-ref", ref, head)
    closing.rescue(ref)
    assert git(state.repo, "rev-parse", ref) == head
    state.clone.git.run("update-ref", "refs/school/another", head)
    closing.rescue("refs/school/another")  # no news
    assert git(state.repo, "for-each-ref", "--format=%(refname)", "refs/school") == ref


def test_unsaved_work_that_holds_a_key_is_not_published_either(state: State):
    told: list[str] = []
    ledger = TaskLedger(state.settings, state.repository.key)
    closing = Closing(state.settings, state.repository, state.clone, delivery.deliver, ledger, told.append)
    head, _ = state.commit({"calc/word.py": f"WORD = '{KEY[::-1]}'\n"})
    state.clone.git.run("update-ref", "refs/school/lost", head)
    redaction.install(Mask.from_environment((), {"SOME_API_KEY": KEY}))
    try:
        closing.rescue("refs/school/lost")
    finally:
        redaction.install(None)
    assert told == [
        f"work that a run left unsaved holds a secret; it is in {state.clone.path}, refs/school/lost, and nowhere else"
    ]
    assert git(state.repo, "for-each-ref", "refs/school") == ""

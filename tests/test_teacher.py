"""Teachers on real bags, real worktrees and real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import bookbag
import sleep_state
from school.contracts import CheckContext, CheckResult, ReviewFile
from school.errors import ConfigError, HeldError
from school.review import budget
from school.review.verdicts import review_id
from school.settings import Settings
from school.teaching import desk as teaching_desk
from school.teaching.presence import hold_role
from teacher import TeacherWorktree
from tests.records_support import running, written
from tests.support import ROOT, git
from tests.teacher_support import Says, hand_over, passing, record_of, start_teacher, until


@pytest.fixture(autouse=True)
def _no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaching_desk, "BACK_OFF_S", (0.0, 0.0))


def read(bead: str) -> dict[str, Any]:
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    return bag


def review_file(school: Settings, bead: str, role: str) -> Path:
    return school.reviews_dir / f"{review_id(bead, read(bead)['tree'], role)}.json"


def events(school: Settings) -> list[str]:
    return [json.loads(line)["event"] for line in school.library_log.read_text().splitlines()]


# --- one review -------------------------------------------------------------------------------------------


def test_both_teachers_pass_and_it_is_accepted(school: Settings, repo: Path) -> None:
    bead = hand_over(repo)
    assert TeacherWorktree("coo", checks=passing("coo")).review(bead) == "PASS"
    assert bookbag.bookbag_state(read(bead)) == "COO_REVIEWED"
    assert TeacherWorktree("cto", checks=passing("cto")).review(bead) == "PASS"
    bag = read(bead)
    assert bag["accepted"] is True
    for role in ("cto", "coo"):
        kept = ReviewFile.model_validate_json(review_file(school, bead, role).read_text())
        assert kept.review.model_dump(mode="json") == bag[f"{role}_review"]
        assert (kept.verdict, kept.tree, kept.head_commit, kept.bead) == (
            "PASS",
            bag["tree"],
            bag["head_commit"],
            bead,
        )
        assert (kept.review.attempts, kept.review.reason) == (1, "")
    assert TeacherWorktree("cto", checks=passing("cto")).review(bead) == "SKIPPED"
    assert git(repo, "status", "--porcelain") == ""


def test_a_high_finding_fails_it_and_all_checks_still_run(school: Settings, repo: Path) -> None:
    bead = hand_over(repo)
    checks = [Says("CORRECTNESS", severity="HIGH"), Says("SECURITY", severity="MEDIUM", name="second")]
    assert TeacherWorktree("cto", checks=checks).review(bead) == "FAIL"
    bag = read(bead)
    assert [lens["outcome"] for lens in bag["cto_review"]["lenses"]] == ["FAIL", "PASS"]
    assert checks[1].seen == [bead]


def test_the_review_file_is_there_before_the_verdict(school: Settings, repo: Path) -> None:
    """A teacher that dies between the two has judged: its review is entered, not done again, and given once."""
    bead = hand_over(repo)
    checks = passing("cto")
    teacher = TeacherWorktree("cto", checks=checks)
    teacher.review(bead)
    before = read(bead)
    undone = {**before, "cto_verdict": "", "cto_review": {}, "history": before["history"][:-1]}
    (school.bookbag_dir / f"{bead}.json").write_text(json.dumps(undone))
    assert teacher.review(bead) == "PASS"
    assert read(bead)["cto_review"] == before["cto_review"]
    assert checks[0].seen == [bead]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"review_id": "x"}'])
def test_an_unreadable_review_file_counts_for_nothing(school: Settings, repo: Path, content: bytes) -> None:
    bead = hand_over(repo)
    path = review_file(school, bead, "cto")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert TeacherWorktree("cto", checks=passing("cto")).review(bead) == "PASS"
    assert json.loads(path.read_text())["verdict"] == "PASS"
    assert [moved.read_bytes() for moved in (school.reviews_dir / "corrupt").iterdir()] == [content]


def test_a_review_of_something_else_counts_for_nothing(school: Settings, repo: Path) -> None:
    bead = hand_over(repo)
    TeacherWorktree("cto", checks=passing("cto")).review(bead)
    other = hand_over(repo)
    shutil.copy(review_file(school, bead, "cto"), review_file(school, other, "cto"))
    check = Says("CORRECTNESS", severity="CRITICAL")
    assert TeacherWorktree("cto", checks=[check]).review(other) == "FAIL"
    assert check.seen == [other]


def test_a_verdict_is_given_only_while_it_is_due(school: Settings, repo: Path) -> None:
    """What happened to the bag during the review counts: no verdict for what is not there any more."""
    blocked, given = hand_over(repo), hand_over(repo)

    def block(context: CheckContext) -> None:
        bookbag.locked_update_bookbag(context.bag["bead"], status="blocked", reason="a human says so")

    checks = [Says("COMPLETENESS", then=block)]
    assert TeacherWorktree("coo", checks=checks).review(blocked) == "SKIPPED"
    assert read(blocked)["coo_verdict"] == ""

    def overtake(context: CheckContext) -> None:
        TeacherWorktree("coo", checks=[Says("COMPLETENESS", severity="HIGH")])._desk().review(
            context.bag["bead"]
        )

    assert TeacherWorktree("coo", checks=[Says("COMPLETENESS", then=overtake)]).review(given) == "FAIL"
    assert read(given)["coo_verdict"] == "FAIL"


def test_a_pass_that_appears_during_a_review_that_fails_is_set_aside(school: Settings, repo: Path) -> None:
    """Whatever runs in a check can write here; what it writes does not stand against the teacher's own."""
    bead, before = hand_over(repo, acceptance=[]), hand_over(repo)

    def forge(context: CheckContext) -> None:
        passing = TeacherWorktree("coo", checks=[Says("COMPLETENESS")])._desk()
        bag = context.bag
        passing._keep(bag, passing._judge(bag, "", ""))

    assert (
        TeacherWorktree("coo", checks=[Says("COMPLETENESS", severity="HIGH", then=forge)]).review(bead)
        == "FAIL"
    )
    assert json.loads(review_file(school, bead, "coo").read_text())["verdict"] == "FAIL"
    assert read(bead)["coo_verdict"] == "FAIL"
    # One that lies there before, and passes a criterion without having run it, is no review at all.
    desk = TeacherWorktree("coo", checks=[Says("COMPLETENESS")])._desk()
    desk._keep(read(before), desk._judge(read(before), "", "").model_copy(update={"verdict": "PASS"}))
    assert desk.finished_review(read(before)) is None
    assert len(list((school.reviews_dir / "corrupt").iterdir())) == 2


# --- no verdict -------------------------------------------------------------------------------------------


def test_the_third_review_without_a_verdict_blocks(school: Settings, repo: Path) -> None:
    bead = hand_over(repo)
    teacher = TeacherWorktree("coo", checks=[Says("COMPLETENESS", no_verdict="the registry is away")])
    for attempt in (1, 2):
        assert teacher.review(bead) == "NO_VERDICT"
        bag = read(bead)
        assert (bag["coo_review"]["attempts"], bag["status"], bag["coo_verdict"]) == (attempt, "open", "")
    assert not review_file(school, bead, "coo").exists()
    assert teacher.review(bead) == "NO_VERDICT"
    bag = read(bead)
    assert bookbag.bookbag_state(bag) == "BLOCKED"
    assert bag["reason"] == "no verdict from the coo: COMPLETENESS: says: the registry is away"
    assert not bookbag.BookbagSignal(bead).check()
    assert teacher.review(bead) == "SKIPPED"


def test_what_a_review_without_a_verdict_used_is_counted_with_the_next(school: Settings, repo: Path) -> None:
    bead = hand_over(repo)

    class Spends(Says):
        def __call__(self, context: CheckContext) -> CheckResult:
            result = super().__call__(context)
            result.usage = {"requests": 1, "input_tokens": 100, "cost_usd": 0.25}
            result.no_verdict = "" if len(self.seen) > 1 else "later"
            return result

    teacher = TeacherWorktree("coo", checks=[Spends("COMPLETENESS")])
    assert [teacher.review(bead), teacher.review(bead)] == ["NO_VERDICT", "PASS"]
    assert read(bead)["coo_review"]["usage"] == {"requests": 2, "input_tokens": 200, "cost_usd": 0.5}


class Stopped(Says):
    """A check that the budget stops while the bead's share is below 5,000 tokens."""

    def __call__(self, context: CheckContext) -> CheckResult:
        result = super().__call__(context)
        if (context.bag["limits"]["tokens"] or 10**9) < 5_000:
            result.no_verdict, result.short_of = "budget: too few", {"tokens": 5_000, "cost_usd": 0.0}
        return result


def test_a_review_that_the_budget_stops_is_no_attempt_and_waits(school: Settings, repo: Path) -> None:
    bead = hand_over(repo, limits={"tokens": 50})
    check = Stopped("COMPLETENESS")
    teacher = TeacherWorktree("coo", checks=[check])
    assert [teacher.review(bead) for _ in range(4)] == ["NO_VERDICT", "SKIPPED", "SKIPPED", "SKIPPED"]
    assert (teacher.review_cycle(), len(check.seen)) == (0, 1)
    bag = read(bead)
    assert (bookbag.bookbag_state(bag), bag["reason"]) == ("WRITTEN", "")
    review = bag["coo_review"]
    assert (review["attempts"], review["not_before"], review["verdict"]) == (0, "", "")
    assert (review["reason"], review["short_of"]) == (
        "COMPLETENESS: says: budget: too few",
        {"tokens": 5_000, "cost_usd": 0.0},
    )
    assert teacher.sleep()["queued"] == []
    assert sleep_state.execute_wake("coo")[0].episodes == []  # nobody learns anything from it
    # The limit alone frees nobody: whoever raises it says so.
    more = dict(budget.renewed(bag, {"tokens": 9_000}))
    bookbag.update_bookbag(bead, lambda _: more, by="conductor")
    assert teacher.review(bead) == "PASS"
    assert (read(bead)["coo_review"]["attempts"], read(bead)["coo_review"]["short_of"]) == (1, {})
    assert read(bead)["head_commit"] == bag["head_commit"]


def test_one_that_is_stopped_after_an_attempt_keeps_its_count(school: Settings, repo: Path) -> None:
    bead = hand_over(repo, limits={"tokens": 9_000})
    teacher = TeacherWorktree("coo", checks=[Says("COMPLETENESS", no_verdict="later")])
    assert teacher.review(bead) == "NO_VERDICT"

    def now(bag: dict[str, Any]) -> dict[str, Any]:
        return {**bag, "limits": {"tokens": 50}, "coo_review": {**bag["coo_review"], "not_before": ""}}

    bookbag.update_bookbag(bead, now, by="conductor")
    assert TeacherWorktree("coo", checks=[Stopped("COMPLETENESS")]).review(bead) == "NO_VERDICT"
    assert (read(bead)["coo_review"]["attempts"], read(bead)["status"]) == (1, "open")


def test_a_verdict_is_entered_though_the_budget_is_gone_by_then(school: Settings, repo: Path) -> None:
    bead = hand_over(repo, limits={"tokens": 9_000})

    def lowers(_: CheckContext) -> None:
        bookbag.update_bookbag(bead, lambda bag: {**bag, "limits": {"tokens": 1}}, by="conductor")

    assert TeacherWorktree("coo", checks=[Says("COMPLETENESS", then=lowers)]).review(bead) == "PASS"
    assert read(bead)["coo_verdict"] == "PASS"


def test_back_off_is_kept_and_bounded(school: Settings, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaching_desk, "BACK_OFF_S", (60.0, 120.0))
    bead = hand_over(repo)
    teacher = TeacherWorktree("coo", checks=[Says("COMPLETENESS", no_verdict="later")])
    assert teacher.review(bead) == "NO_VERDICT"
    assert teacher.review(bead) == "SKIPPED"
    assert teacher.review_cycle() == 0
    assert 50 < teacher._desk().not_before(read(bead)) <= 60
    monkeypatch.setattr(teaching_desk, "BACK_OFF_S", (0.0, 0.0))  # however far a clock was set back
    assert teacher.review(bead) == "NO_VERDICT"


def test_a_check_that_breaks_judges_nothing_and_hides_nothing(school: Settings, repo: Path) -> None:
    bead, other = hand_over(repo), hand_over(repo)
    broken = Says("CORRECTNESS", name="breaks", raises=ZeroDivisionError("oh"))
    assert TeacherWorktree("cto", checks=[broken, Says("SECURITY")]).review(bead) == "NO_VERDICT"
    assert "CORRECTNESS: breaks: ZeroDivisionError: oh" in read(bead)["cto_review"]["reason"]
    assert TeacherWorktree("cto", checks=[broken, Says("SECURITY", severity="HIGH")]).review(other) == "FAIL"


def test_a_lens_that_nobody_ran_is_no_pass(school: Settings, repo: Path) -> None:
    bead = hand_over(repo)
    assert TeacherWorktree("cto", checks=[Says("CORRECTNESS")]).review(bead) == "NO_VERDICT"
    assert read(bead)["cto_review"]["reason"] == "SECURITY: no check of this lens was run"


def test_a_bead_that_nobody_can_judge_blocks_nobody_else(school: Settings, repo: Path) -> None:
    written("nowhere-1")
    bookbag.BookbagSignal("nowhere-1").ready()
    bead = hand_over(repo)
    teacher = TeacherWorktree("cto", checks=passing("cto"))
    teacher.run_loop(once=True)
    assert read(bead)["cto_verdict"] == "PASS"
    assert bookbag.bookbag_state(read("nowhere-1")) == "BLOCKED"
    assert "names no repo" in read("nowhere-1")["reason"]


def test_a_seed_record_is_declined(school: Settings) -> None:
    bag = running("seed-1")
    for name in ("schema", "rev", "status"):
        del bag[name]
    (school.bookbag_dir / "seed-1.json").write_text(json.dumps(bag))
    assert TeacherWorktree("cto", checks=passing("cto")).review("seed-1") == "SKIPPED"


# --- the order of things ----------------------------------------------------------------------------------


def test_who_waited_longest_comes_first(school: Settings, repo: Path) -> None:
    beads = [hand_over(repo) for _ in range(3)]
    for age, bead in zip((10, 30, 20), beads, strict=True):
        then = time.time() - age
        os.utime(school.signal_dir / f"{bead}.ready", (then, then))
    checks = passing("coo")
    teacher = TeacherWorktree("coo", checks=checks)
    assert [teacher.review_cycle() for _ in range(4)] == [1, 1, 1, 0]
    assert checks[0].seen == [beads[1], beads[2], beads[0]]


def test_boot_twice_changes_nothing_and_makes_again_what_was_deleted(school: Settings, repo: Path) -> None:
    teacher = TeacherWorktree("cto", checks=passing("cto"))
    assert Path(teacher.boot()) == school.worktrees_dir
    bead = hand_over(repo)
    place = Path(teacher.boot())
    assert place.name == "teacher-cto"
    inode = place.stat().st_ino
    assert Path(teacher.boot()) == place
    assert place.stat().st_ino == inode
    shutil.rmtree(place)
    assert Path(teacher.boot()) == place
    assert (place / ".git").is_file()
    assert teacher.review(bead) == "PASS"


# --- sleep and wake ---------------------------------------------------------------------------------------


def test_what_was_slept_on_is_in_the_next_reviews_context(school: Settings, repo: Path) -> None:
    first, second = hand_over(repo), hand_over(repo)
    teacher = TeacherWorktree("cto", checks=[Says("CORRECTNESS", severity="HIGH"), Says("SECURITY")])
    teacher.review(first)
    slept = teacher.sleep()
    assert "too_late in 1 of 1" in slept["digest"]
    checks = passing("cto")
    again = TeacherWorktree("cto", checks=checks)
    woke = again.wake()
    assert (woke["session_id"], woke["digest"], woke["episodes"]) == (slept["session_id"], slept["digest"], 1)
    assert again.review(second) == "PASS"
    assert checks[0].memories == [slept["digest"]]
    assert read(second)["cto_review"]["memory"] == slept["session_id"]
    assert slept["queued"] == [second]


def test_roles_do_not_share_a_memory(school: Settings, repo: Path) -> None:
    bead = hand_over(repo)
    teacher = TeacherWorktree("cto", checks=passing("cto"))
    teacher.review(bead)
    teacher.sleep()
    assert TeacherWorktree("coo").wake() == {
        "role": "coo", "session_id": "", "digest": "", "episodes": 0, "domains": {}, "corrupted": "",
    }  # fmt: skip


def test_a_corrupted_session_is_set_aside_and_said(school: Settings, repo: Path) -> None:
    hand_over(repo)
    teacher = TeacherWorktree("cto", checks=passing("cto"))
    teacher.review_cycle()
    session_id = teacher.sleep()["session_id"]
    (school.sessions_dir / f"{session_id}.json").write_text('{"session_id": "half')
    woke = TeacherWorktree("cto").wake()
    assert woke["digest"] == ""
    assert session_id in woke["corrupted"]
    assert events(school)[-1] == "corrupted"
    assert len(list((school.sessions_dir / "corrupt").iterdir())) == 1
    assert len(list((school.consolidation_dir / "corrupt").iterdir())) == 1


def test_the_eleventh_session_prunes_the_first(school: Settings) -> None:
    teacher = TeacherWorktree("cto", checks=passing("cto"))
    slept = [teacher.sleep()["session_id"] for _ in range(11)]
    assert sorted(path.stem for path in school.sessions_dir.glob("*.json")) == slept[1:]
    assert sorted(path.stem for path in school.consolidation_dir.glob("*.yaml")) == slept[1:]
    assert teacher.prune_sessions(3) == 7
    assert sleep_state.execute_wake("cto")[0].session_id == slept[-1]


def test_twenty_reviews_make_a_sleep(school: Settings, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["teacher"], "REVIEWS_BEFORE_SLEEP", 2)
    beads = [hand_over(repo) for _ in range(3)]
    checks = passing("coo")
    teacher = TeacherWorktree("coo", checks=checks)
    teacher.run_loop(once=True)
    assert [bool(memory) for memory in checks[0].memories] == [False, False, True]
    assert events(school) == ["sleep", "wake", "restored", "sleep"]
    assert sorted(checks[0].seen) == sorted(beads)


# --- one a role -------------------------------------------------------------------------------------------


def test_the_role_is_held_by_one(school: Settings, repo: Path) -> None:
    lock = hold_role("cto", school)
    lock.release()
    teacher = start_teacher(school, "cto", school.hermes_home / "gate")
    until(lambda: record_of(school, "cto").get("state") == "idle")
    with pytest.raises(HeldError, match=f"process {teacher.pid} holds"):
        TeacherWorktree("cto", checks=passing("cto")).run_loop()
    second = subprocess.run(
        [sys.executable, str(ROOT / "teacher.py"), "--role", "cto"],
        env={**os.environ, **school.environment()}, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert second.returncode == 4
    assert f"teacher cto is already there: process {teacher.pid}" in second.stderr
    teacher.send_signal(signal.SIGKILL)
    teacher.communicate()
    hold_role("cto", school).release()


def test_an_inline_review_awaits_who_has_the_role(school: Settings, repo: Path) -> None:
    gate = school.hermes_home / "gate"
    standing = start_teacher(school, "cto", gate)
    until(lambda: record_of(school, "cto").get("state") == "idle")
    bead = hand_over(repo)
    got: list[str] = []
    mine = passing("cto")
    inline = threading.Thread(target=lambda: got.append(TeacherWorktree("cto", checks=mine).review(bead)))
    inline.start()
    until(lambda: record_of(school, "cto").get("bead") == bead)
    gate.touch()
    inline.join(20)
    standing.terminate()
    standing.communicate(timeout=20)
    assert got == ["PASS"]
    assert mine[0].seen == []
    assert read(bead)["cto_review"]["attempts"] == 1


def test_an_inline_review_does_not_await_one_that_the_budget_stopped(school: Settings, repo: Path) -> None:
    standing = start_teacher(school, "cto", school.hermes_home / "gate")
    until(lambda: record_of(school, "cto").get("state") == "idle")
    bead = hand_over(repo)
    got: list[str] = []
    inline = threading.Thread(
        target=lambda: got.append(TeacherWorktree("cto", checks=passing("cto")).review(bead))
    )
    inline.start()
    until(lambda: record_of(school, "cto").get("bead") == bead)
    short_of = {"short_of": {"tokens": 5_000, "cost_usd": 0.0}}
    bookbag.update_bookbag(bead, lambda bag: {**bag, "cto_review": short_of}, by="conductor")
    inline.join(20)
    standing.terminate()
    standing.communicate(timeout=20)
    assert got == ["SKIPPED"]


# --- the process ------------------------------------------------------------------------------------------


def test_sigterm_sleeps_and_exits(school: Settings, repo: Path) -> None:
    gate = school.hermes_home / "gate"
    teacher = start_teacher(school, "coo", gate)
    until(lambda: record_of(school, "coo").get("state") == "idle")
    gate.touch()
    bead = hand_over(repo)
    begun = time.monotonic()
    until(lambda: read(bead)["coo_verdict"])
    assert time.monotonic() - begun < 4.0, "woken by the poll, not by the flag"
    teacher.terminate()
    out, _ = teacher.communicate(timeout=20)
    assert teacher.returncode == 0, out
    state, artifact = sleep_state.execute_wake("coo")
    assert [episode.bead for episode in state.episodes] == [bead]
    assert artifact.key_decisions == [f"PASS {bead}"]
    assert record_of(school, "coo")["state"] == "stopped"
    assert record_of(school, "coo")["reviewed"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_cancels_the_check_in_hand(school: Settings, repo: Path, number: int) -> None:
    bead = hand_over(repo)
    teacher = start_teacher(school, "coo", school.hermes_home / "never")
    until(lambda: record_of(school, "coo").get("check") == "says-completeness: asked")
    teacher.send_signal(number)
    out, _ = teacher.communicate(timeout=20)
    assert teacher.returncode == 0, out
    bag = read(bead)
    assert (bag["coo_verdict"], bag["coo_review"]["attempts"]) == ("", 0)
    assert events(school) == ["sleep"]
    assert bookbag.BookbagSignal(bead).check()


def test_a_killed_teacher_loses_no_verdict_and_gives_none_twice(school: Settings, repo: Path) -> None:
    beads = [hand_over(repo) for _ in range(3)]
    gate = school.hermes_home / "gate"
    ran = Path(f"{gate}.ran")
    for count in (1, 2):
        teacher = start_teacher(school, "cto", gate)
        until(lambda count=count: ran.exists() and len(ran.read_text().splitlines()) == count)
        teacher.kill()
        teacher.communicate()
    gate.touch()
    teacher = start_teacher(school, "cto", gate, "--once")
    out, _ = teacher.communicate(timeout=30)
    assert teacher.returncode == 0, out
    for bead in beads:
        bag = read(bead)
        assert (bag["cto_verdict"], bag["cto_review"]["attempts"]) == ("PASS", 1)
        assert [step["state"] for step in bag["history"]].count("CTO_REVIEWED") == 1
    assert len(list(school.reviews_dir.glob("*.json"))) == 3


def test_others_see_what_it_does_and_that_it_goes_on(school: Settings, repo: Path) -> None:
    bead = hand_over(repo)
    teacher = start_teacher(school, "cto", school.hermes_home / "never", HANDOFF_TIMEOUT="0.4")
    until(lambda: record_of(school, "cto").get("check") == "says-correctness: asked")
    first = record_of(school, "cto")
    assert (first["state"], first["bead"], first["pid"]) == ("reviewing", bead, teacher.pid)
    later = until(lambda: (r := record_of(school, "cto"))["progress"] > first["progress"] + 1 and r)
    assert later["since"] == first["since"]
    assert later["beat"] > first["beat"]
    teacher.terminate()
    teacher.communicate(timeout=20)


def test_a_teacher_ends_with_the_conductor_that_spawned_it(school: Settings) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    teacher = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "teacher_support.py"), "cto", "/nonexistent/gate"],
        env={**os.environ, **school.environment(), "PYTHONPATH": str(ROOT), "SCHOOL_LIFELINE_FD": str(reader)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(reader,),
    )  # fmt: skip
    os.close(reader)
    until(lambda: record_of(school, "cto").get("state") == "idle")
    os.close(writer)
    assert teacher.wait(timeout=5) == 0
    assert record_of(school, "cto")["state"] == "stopped"


def test_idle_costs_next_to_nothing(school: Settings) -> None:
    for number in range(200):
        running(f"blocked-{number}")
        bookbag.locked_update_bookbag(f"blocked-{number}", by="leaf", status="blocked", reason="agent")
    teacher = start_teacher(school, "cto", school.hermes_home / "gate", DEFAULT_POLL_INTERVAL="0.1")
    process = psutil.Process(teacher.pid)
    until(lambda: record_of(school, "cto").get("state") == "idle")
    time.sleep(0.3)
    before, begun = process.cpu_times(), time.monotonic()
    time.sleep(0.9)
    after, ended = process.cpu_times(), time.monotonic()
    share = (after.user + after.system - before.user - before.system) / (ended - begun)
    teacher.terminate()
    teacher.communicate(timeout=20)
    # Polled fifty times as often as by default.
    assert share < 0.05


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--role", "cfo"], "cfo"),
        ([], "--role"),
        (["--role", "cto", "--poll-interval", "0"], "--poll-interval 0.0"),
        (["--role", "cto", "--poll-interval", "soon"], "soon"),
    ],
)
def test_what_is_typed_wrong_is_exit_2(school: Settings, args: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "teacher.py"), *args],
        env={**os.environ, **school.environment()}, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr
    assert not school.hermes_home.exists()


def test_a_bad_variable_is_named(school: Settings) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "teacher.py"), "--role", "cto"],
        env={**os.environ, **school.environment(), "DEFAULT_POLL_INTERVAL": "-1"},
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert "DEFAULT_POLL_INTERVAL" in done.stderr


def test_a_role_that_does_not_exist(school: Settings) -> None:
    with pytest.raises(ConfigError, match="expected one of cto, coo"):
        TeacherWorktree("principal")

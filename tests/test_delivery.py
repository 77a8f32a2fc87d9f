"""Delivery: only what two review files accept, once, under a name that nobody had, whatever dies in between."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school import delivery
from school.errors import BookbagInvalidError, ConfigError
from school.settings import Settings
from school.system import files
from school.tasks import Task
from tests.building import State
from tests.support import git


@pytest.fixture
def state(school: Settings, repo: Path) -> State:
    return State(school, repo)


def bag_of(bead: str) -> dict[str, Any]:
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    return bag


def deliver(state: State, bag: dict[str, Any], **options: Any) -> dict[str, str]:
    return delivery.deliver(bag, state.repository, state.clone, settings=state.settings, **options)


def test_accepted_work_becomes_a_branch_and_a_ref_and_nothing_else_changes(state: State):
    before = git(state.repo, "status", "--porcelain=v2", "--branch"), git(state.repo, "config", "--list")
    bead = state.reviewed()
    bag = bag_of(bead)
    made = deliver(state, bag)
    assert made == {"branch": "school/fix-parse", "commit": bag["head_commit"]}
    assert state.branches() == {"main": state.base, "school/fix-parse": bag["head_commit"]}
    assert git(state.repo, "rev-parse", f"refs/school/{bead}") == bag["head_commit"]
    assert (
        git(state.repo, "status", "--porcelain=v2", "--branch"),
        git(state.repo, "config", "--list"),
    ) == before
    steps = [line["step"] for line in files.read_json_lines(state.settings.deliveries_journal)]
    assert steps == ["intent", "delivered"]


def test_doing_it_again_changes_nothing(state: State):
    bag = bag_of(state.reviewed())
    made = deliver(state, bag)
    journal = state.settings.deliveries_journal.read_bytes()
    assert deliver(state, bag) == made
    assert state.settings.deliveries_journal.read_bytes() == journal
    assert len(state.branches()) == 2


def test_a_delivered_branch_that_the_user_removed_or_moved_stays_as_the_user_left_it(state: State):
    bag = bag_of(state.reviewed())
    made = deliver(state, bag)
    git(state.repo, "branch", "-D", made["branch"])
    assert deliver(state, bag) == made
    assert state.branches() == {"main": state.base}


class Died(BaseException):
    """The conductor is gone."""


def dying(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], bool]:
    """Make the process 'die' after its *step*-th lasting effect; says whether it came to that."""
    done = 0

    def after(act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            result = act(*args, **kwargs)
            done += 1
            if done == step:
                raise Died
            return result

        return acting

    monkeypatch.setattr(delivery, "publish_beside", after(delivery.publish_beside))
    monkeypatch.setattr(delivery, "create_branch", after(delivery.create_branch))
    monkeypatch.setattr(delivery.files, "append_json_line", after(delivery.files.append_json_line))
    return lambda: done >= step


@pytest.mark.parametrize("there_before", [False, True])
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_dead_after_any_step_the_next_one_ends_in_the_same_one_branch(state, monkeypatch, step, there_before):
    bag = bag_of(state.reviewed())
    if there_before:
        git(state.repo, "branch", "school/fix-parse")
    with monkeypatch.context() as patch:
        died = dying(patch, step)
        with pytest.raises(Died):
            deliver(state, bag)
        assert died()
    made = deliver(state, bag)
    name = "school/fix-parse-2" if there_before else "school/fix-parse"
    assert made == {"branch": name, "commit": bag["head_commit"]}
    ours = [branch for branch, commit in state.branches().items() if commit == bag["head_commit"]]
    assert ours == [name]
    steps = [line["step"] for line in files.read_json_lines(state.settings.deliveries_journal)]
    assert steps == ["intent", "delivered"]


def test_the_name_was_taken_between_intent_and_branch(state: State, monkeypatch: pytest.MonkeyPatch):
    bag = bag_of(state.reviewed())
    with monkeypatch.context() as patch:
        dying(patch, 2)  # the intent is journalled, the branch is not made
        with pytest.raises(Died):
            deliver(state, bag)
    git(state.repo, "branch", "school/fix-parse")
    assert deliver(state, bag)["branch"] == "school/fix-parse-2"
    assert state.branches()["school/fix-parse"] == state.base


def test_the_user_built_on_the_branch_before_the_delivery_was_entered(state: State, monkeypatch):
    bag = bag_of(state.reviewed())
    with monkeypatch.context() as patch:
        dying(patch, 3)  # the branch is made, the delivery is not entered
        with pytest.raises(Died):
            deliver(state, bag)
    tree = git(state.repo, "rev-parse", f"{bag['head_commit']}^{{tree}}")
    on_top = git(state.repo, "commit-tree", tree, "-p", bag["head_commit"], "-m", "Mine")
    git(state.repo, "branch", "-f", "school/fix-parse", on_top)
    assert deliver(state, bag)["branch"] == "school/fix-parse"
    assert state.branches() == {"main": state.base, "school/fix-parse": on_top}


def test_a_branch_that_exists_is_never_moved(state: State):
    for name in ("school/fix-parse", "school/fix-parse-2", "school/fix-parse-4"):
        git(state.repo, "branch", name)
    assert deliver(state, bag_of(state.reviewed()))["branch"] == "school/fix-parse-3"
    assert deliver(state, bag_of(state.reviewed()))["branch"] == "school/fix-parse-5"
    branches = state.branches()
    assert {branches[name] for name in ("school/fix-parse", "school/fix-parse-2", "school/fix-parse-4")} == {
        state.base
    }


def test_names_that_a_file_system_may_not_tell_apart_get_a_suffix(state: State):
    git(state.repo, "branch", "school/Fix-Parse")
    assert deliver(state, bag_of(state.reviewed()))["branch"] == "school/fix-parse-2"
    git(state.repo, "branch", "school/other/thing")
    task = Task(id="other", task="x")
    assert deliver(state, bag_of(state.reviewed(task=task)))["branch"] == "school/other-2"


def test_another_prefix_and_none(state: State):
    assert deliver(state, bag_of(state.reviewed()), prefix="bot-")["branch"] == "bot-fix-parse"
    assert deliver(state, bag_of(state.reviewed()), prefix="")["branch"] == "fix-parse"


# --- what is not delivered ----------------------------------------------------------------------------------


def refused(state: State, bag: dict[str, Any], why: str) -> None:
    with pytest.raises(BookbagInvalidError, match=why):
        deliver(state, bag)
    assert state.branches() == {"main": state.base}
    assert git(state.repo, "for-each-ref", "refs/school") == ""
    assert not state.settings.deliveries_journal.exists()


def test_a_bag_that_calls_itself_accepted_is_not_believed(state: State):
    bead = state.written()
    state.judge(bead, "cto", filed=False)
    state.judge(bead, "coo")
    bag = bag_of(bead)
    assert bag["accepted"]
    refused(state, bag, "there is no review file of the cto")


def test_a_fail_on_file_outweighs_a_pass_in_the_bag(state: State):
    bead = state.written()
    made = state.review(bead, "cto", "FAIL")
    files.create_json(state.review_path(made), made.model_dump(mode="json"))
    state.judge(bead, "coo")
    forged = state.review(bead, "cto")
    entered = {"cto_verdict": "PASS", "cto_review": forged.review.model_dump(mode="json")}
    bookbag.update_bookbag(bead, lambda bag: {**bag, **entered}, by="cto")
    refused(state, bag_of(bead), "no PASS from the cto")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"bead": "coder-python-00000000"}, "about something else: bead"),
        ({"tree": "0" * 40}, "about something else: tree"),
        ({"head_commit": "0" * 40}, "about something else: head_commit"),
        ({"role": "coo"}, "about something else: role"),
        ({"review_id": "x"}, "about something else: review_id"),
        ({"verdict": "FAIL"}, "about something else: review.verdict"),
        ({"verdict": "MAYBE"}, "cannot be read"),
    ],
)
def test_a_review_file_about_something_else_is_none(state: State, change: dict[str, str], why: str):
    bead = state.reviewed()
    path = state.review_path(state.review(bead, "cto"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    refused(state, bag_of(bead), why)


@pytest.mark.parametrize("damage", [b"", b"{", b"\0" * 100, b"[]"])
def test_a_torn_review_file_is_none(state: State, damage: bytes):
    bead = state.reviewed()
    state.review_path(state.review(bead, "coo")).write_bytes(damage)
    refused(state, bag_of(bead), "cannot be read|there is no review file")


def test_every_lens_must_have_run_and_nothing_grave_been_found(state: State):
    bead = state.reviewed()
    path = state.review_path(state.review(bead, "cto"))
    whole = json.loads(path.read_text())
    short = {**whole["review"], "lenses": whole["review"]["lenses"][:1]}
    path.write_text(json.dumps({**whole, "review": short}))
    refused(state, bag_of(bead), "did not pass SECURITY")
    whole["review"]["lenses"][1]["findings"] = [
        {"section": "s", "severity": "HIGH", "issue_class": "secret", "description": "d"}
    ]
    path.write_text(json.dumps(whole))
    refused(state, bag_of(bead), "the cto found secret")


def test_the_commit_must_be_what_was_judged(state: State):
    bag = bag_of(state.reviewed())
    other, _ = state.commit({"calc/other.py": "X = 1\n"})
    refused(state, {**bag, "head_commit": other}, "head_commit")
    refused(state, {**bag, "head_commit": "0" * 40}, "head_commit")
    refused(state, {**bag, "base_commit": other}, "does not stand on its base")


def test_no_change_makes_no_branch(state: State):
    bead = state.written(changed={"README.md": (state.repo / "README.md").read_text()})
    for role in ("cto", "coo"):
        state.judge(bead, role)
    refused(state, bag_of(bead), "nothing was changed")
    refused(state, {**bag_of(bead), "claim": "no_change"}, "no change is due")


@pytest.mark.parametrize("verdicts", [("FAIL", "PASS"), ("PASS", "FAIL"), ("FAIL", "FAIL")])
def test_rejected_work_makes_no_branch(state: State, verdicts: tuple[str, str]):
    refused(state, bag_of(state.reviewed(*verdicts)), "no PASS from the c[to]o")


# --- room, and for the user ------------------------------------------------------------------------------


def test_a_branch_in_the_way_is_said_and_the_work_waits_for_room(state: State):
    bag = bag_of(state.reviewed())
    git(state.repo, "branch", "school")
    for _ in range(2):
        with pytest.raises(ConfigError, match="there is a branch 'school'"):
            deliver(state, bag)
    assert not state.settings.deliveries_journal.exists()  # nothing was begun
    assert state.branches() == {"main": state.base, "school": state.base}
    git(state.repo, "branch", "-m", "school", "mine")
    assert deliver(state, bag)["branch"] == "school/fix-parse"
    with pytest.raises(ConfigError, match="can be no branch"):
        deliver(state, bag_of(state.reviewed()), prefix="a..b/")


def test_the_user_is_told_how_to_look_and_how_to_merge(state: State):
    task = Task(id="修复-x", task="x")
    bag = bag_of(state.reviewed(task=task, changed={"calc/wörld.py": "X = 1\n"}))
    made = deliver(state, bag)
    lines = delivery.instructions(bag, state.repository, state.clone, made)
    assert any("calc/wörld.py" in line and "1 +" in line for line in lines)
    assert lines[-3].strip() == "1 file changed, 1 insertion(+)"
    for line, what in ((lines[-2], "look:"), (lines[-1], "merge:")):
        assert line.startswith(what)
    # The commands work as they are printed.
    for line in lines[-2:]:
        subprocess.run(shlex.split(line)[1:], check=True, capture_output=True)
    assert (state.repo / "calc/wörld.py").read_text() == "X = 1\n"

"""Scores: the arithmetic of the contract, each bead once, and the same fold whatever died and when."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from school.errors import BookbagInvalidError
from school.scores import (
    DIFFICULTY_FACTOR,
    SEVERITY_WEIGHT,
    ScoreBook,
    _parsed,
    lines_about,
    quality,
    refold,
    repair_scores,
    weight,
)
from school.settings import Settings
from tests.support import ROOT


def bag(bead: str = "coder-python-00000001", outcome: str = "accepted", **fields: Any) -> dict[str, Any]:
    verdict = "FAIL" if outcome == "rejected" else "PASS"
    return {
        "bead": bead,
        "task_id": "t",
        "student": "coder",
        "domain": "python",
        "difficulty": "medium",
        "agent": {"name": "codex"},
        "cto_verdict": verdict,
        "coo_verdict": verdict,
        "accepted": outcome == "accepted",
        "outcome": outcome,
        "findings": [],
        **fields,
    }


def findings(*severities: str, issue_class: str = "x") -> list[dict[str, str]]:
    return [{"severity": severity, "issue_class": issue_class} for severity in severities]


@pytest.fixture
def book(school: Settings) -> ScoreBook:
    return ScoreBook(school)


@pytest.mark.parametrize(
    ("outcome", "severities", "difficulty", "task", "after"),
    [
        ("accepted", [], "medium", 100.0, 65.0),
        ("accepted", ["MEDIUM", "LOW"], "medium", 90.0, 62.0),
        ("accepted", ["MEDIUM"] * 9, "easy", 60.0, 53.0),  # quality 0: an accepted bead has at least 60
        ("rejected", ["HIGH"], "medium", 40.0, 47.0),  # quality 80: a rejected one at most 40
        ("rejected", ["CRITICAL", "CRITICAL"], "medium", 20.0, 41.0),
        ("rejected", ["CRITICAL", "CRITICAL"], "easy", 0.0, 35.0),
        ("rejected", ["CRITICAL", "CRITICAL"], "blocker", 40.0, 47.0),
    ],
)
def test_the_arithmetic(book: ScoreBook, outcome, severities, difficulty, task, after):
    scored = book.evaluate_and_update(
        bag(outcome=outcome, findings=findings(*severities), difficulty=difficulty)
    )
    assert scored == {"task": task, "before": 50.0, "after": after}
    assert book.score_of("codex", "coder", "python") == after
    assert book.score_of("codex", "coder", "docs") == 50.0


def test_a_mistake_costs_more_the_graver_it_is_and_the_easier_the_task():
    for difficulty in DIFFICULTY_FACTOR:
        weights = [weight(difficulty, severity) for severity in ("LOW", "MEDIUM", "HIGH", "CRITICAL")]
        assert weights == sorted(set(weights))
    for severity in SEVERITY_WEIGHT:
        weights = [weight(difficulty, severity) for difficulty in ("blocker", "hard", "medium", "easy")]
        assert weights == sorted(set(weights))
    assert weight("medium", "sudden") == weight("medium", "HIGH")
    assert weight("medium", "high") == weight("medium", "HIGH")


def test_a_flaky_test_of_the_project_costs_the_student_nothing():
    assert quality(bag(findings=findings("LOW", issue_class="flaky"))) == 100.0


def test_no_change_is_entered_and_moves_nothing(book: ScoreBook):
    assert book.evaluate_and_update(bag(outcome="no_change", accepted=False)) == {
        "task": None,
        "before": 50.0,
        "after": 50.0,
    }
    assert book.leaderboard()[0]["no_change"] == 1


@pytest.mark.parametrize("missing", ["cto_verdict", "coo_verdict"])
def test_what_was_not_judged_is_not_scored(book: ScoreBook, missing: str):
    with pytest.raises(BookbagInvalidError, match="both verdicts"):
        book.evaluate_and_update(bag(**{missing: ""}))
    assert not book.journal.exists()


def test_each_bead_once(book: ScoreBook, school: Settings):
    first = book.evaluate_and_update(bag())
    assert book.evaluate_and_update(bag()) == first
    # Another process, and even a bag that says otherwise by now.
    assert ScoreBook(school).evaluate_and_update(bag(outcome="rejected")) == first
    assert len(book.journal.read_bytes().splitlines()) == 1


def test_a_bead_whose_name_is_part_of_another_is_another(book: ScoreBook):
    book.evaluate_and_update(bag("a-b-00000001-x"))
    book.evaluate_and_update(bag("a-b-00000001"))
    assert [line["bead"] for line in lines_about(book.journal, "a-b-00000001")] == ["a-b-00000001"]
    assert len(book.journal.read_bytes().splitlines()) == 2


def beads(count: int) -> list[dict[str, Any]]:
    choice = random.Random(7)
    return [
        bag(
            f"coder-python-{number:08x}",
            choice.choice(["accepted", "rejected", "no_change"]),
            agent={"name": choice.choice(["a", "b"])},
            difficulty=choice.choice(list(DIFFICULTY_FACTOR)),
            findings=findings(*choice.choices(list(SEVERITY_WEIGHT), k=choice.randrange(4))),
        )
        for number in range(count)
    ]


def without_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "last_at"} for row in rows]


def control(settings: Settings, items: list[dict[str, Any]]) -> tuple[list[Any], list[dict[str, Any]]]:
    """What an undisturbed book answers, and its board; leaves no trace."""
    book = ScoreBook(settings)
    answers = [book.evaluate_and_update(item) for item in items]
    board = without_time(book.leaderboard())
    settings.score_journal.unlink()
    settings.scores_file.unlink()
    return answers, board


def test_cut_anywhere_in_the_last_line_the_replay_gives_the_same(school: Settings):
    items = beads(4)
    answers, board = control(school, items)
    book = ScoreBook(school)
    for item in items[:3]:
        book.evaluate_and_update(item)
    saved, start = school.scores_file.read_bytes(), school.score_journal.stat().st_size
    book.evaluate_and_update(items[3])
    whole = school.score_journal.read_bytes()
    for end in range(start, len(whole) + 1):
        for scores in (saved, None):
            school.score_journal.write_bytes(whole[:end])
            school.scores_file.unlink(missing_ok=True)
            if scores:
                school.scores_file.write_bytes(scores)
            again = ScoreBook(school)
            assert [again.evaluate_and_update(item) for item in items] == answers, end
            assert without_time(again.leaderboard()) == board
            assert without_time(ScoreBook(school).leaderboard()) == board
            assert refold(school.score_journal).board == again._fold.board
            lines = [line for raw in school.score_journal.read_bytes().splitlines() if (line := _parsed(raw))]
            assert sorted(line["bead"] for line in lines) == [item["bead"] for item in items]


@given(st.lists(st.integers(0, 5), max_size=25), st.lists(st.booleans(), min_size=25, max_size=25))
def test_any_order_of_repeats_and_restarts_folds_the_same(tmp_path_factory, order, restarts):
    home = tmp_path_factory.mktemp("scores")
    settings = Settings.from_env({"HOME": str(home)})
    items, book, once = beads(6), ScoreBook(settings), {}
    for number, restart in zip(order, restarts, strict=False):
        book = ScoreBook(settings) if restart else book
        answer = book.evaluate_and_update(items[number])
        assert once.setdefault(number, answer) == answer
    assert refold(settings.score_journal).board == book._current().board
    assert len(settings.score_journal.read_text().splitlines() if once else []) == len(once)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\0" * 4096, b'{"journal_bytes": 1}'])
def test_damaged_scores_are_kept_aside_and_folded_again(book: ScoreBook, school: Settings, damage: bytes):
    book.evaluate_and_update(bag())
    good = school.scores_file.read_bytes()
    school.scores_file.write_bytes(damage)
    again = ScoreBook(school)
    assert again.score_of("codex", "coder", "python") == 65.0
    assert [path.read_bytes() for path in school.corrupt_dir.iterdir()] == [damage]
    repair_scores(school)
    assert school.scores_file.read_bytes() == good


def test_a_journal_shorter_than_its_fold_is_what_counts_and_the_old_scores_are_kept(book, school: Settings):
    items = beads(3)
    for item in items:
        book.evaluate_and_update(item)
    old = school.scores_file.read_bytes()
    lines = school.score_journal.read_bytes().splitlines(keepends=True)
    school.score_journal.write_bytes(lines[0])
    assert sum(row["beads"] for row in ScoreBook(school).leaderboard()) == 1
    assert [path.read_bytes() for path in school.corrupt_dir.iterdir()] == [old]


def test_foreign_lines_in_the_journal_are_no_scores(book: ScoreBook, school: Settings):
    book.evaluate_and_update(bag())
    with school.score_journal.open("ab") as stream:
        stream.write(b'[1]\n{"bead": "x"}\n{"bead": "coder-python-00000002", "task": "100"}\n\xff\xfe\n\n')
    again = ScoreBook(school)
    again.evaluate_and_update(bag("coder-python-00000002"))
    assert [row["beads"] for row in again.leaderboard()] == [2]


WORKER = """
import json, sys
from school.scores import ScoreBook
from school.settings import current
book = ScoreBook(current())
for line in sys.stdin:
    print(json.dumps(book.evaluate_and_update(json.loads(line))), flush=True)
"""


def test_killed_again_and_again_the_scores_end_as_if_it_had_lived(school: Settings):
    items = beads(40)
    answers, board = control(school, items)
    stdin = "\n".join(json.dumps(item) for item in items).encode()
    choice = random.Random(3)
    for _ in range(5):
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert worker.stdin
        assert worker.stdout
        worker.stdin.write(stdin)
        worker.stdin.close()
        for _ in range(choice.randrange(1, 12)):
            worker.stdout.readline()
        worker.kill()
        worker.wait()
        worker.stdout.close()
    book = ScoreBook(school)
    assert [book.evaluate_and_update(item) for item in items] == answers
    assert without_time(book.leaderboard()) == board
    beads_scored = [json.loads(line)["bead"] for line in school.score_journal.read_text().splitlines()]
    assert sorted(beads_scored) == sorted({item["bead"] for item in items})


def test_the_board_is_ordered_by_score(book: ScoreBook):
    book.evaluate_and_update(bag("coder-python-00000001", agent={"name": "low"}, outcome="rejected"))
    book.evaluate_and_update(bag("coder-python-00000002", agent={"name": "high"}))
    rows = book.leaderboard()
    assert [(row["agent"], row["score"], row["accepted"], row["rejected"]) for row in rows] == [
        ("high", 65.0, 1, 0),
        ("low", 47.0, 0, 1),
    ]
    assert rows[0]["bead"] == "coder-python-00000002"


def test_the_best_goes_first_and_the_next_after_a_failure(book: ScoreBook):
    book.evaluate_and_update(bag("coder-python-00000001", agent={"name": "b"}))
    book.evaluate_and_update(bag("coder-python-00000002", agent={"name": "c"}, outcome="rejected"))
    names = ["a", "b", "c"]
    assert book.choose(names, "coder", "python") == (
        "b",
        "best score for coder in python: b 65.0, a 50.0, c 47.0",
    )
    assert book.choose(names, "coder", "python", tried=["b"])[0] == "a"
    chosen, why = book.choose(names, "coder", "python", tried=["b", "a"])
    assert (chosen, "tried: a, b" in why) == ("c", True)
    chosen, why = book.choose(names, "coder", "python", tried=["c", "b", "a"])
    assert (chosen, "all have tried" in why) == ("b", True)
    assert book.choose(["a"], "coder", "python", tried=["a"]) == ("a", "the only agent of this role")
    assert book.choose(["z", "y"], "coder", "python")[0] == "z"  # equal scores keep the order written
    with pytest.raises(ValueError, match="no agent"):
        book.choose([], "coder", "python")


def test_a_long_history_costs_milliseconds_a_bead(school: Settings):
    line = {"agent": "a", "role": "coder", "domain": "python", "outcome": "accepted", "task": 100.0}
    school.score_journal.parent.mkdir(parents=True)
    with school.score_journal.open("w") as stream:
        for number in range(20_000):
            stream.write(json.dumps({"bead": f"coder-x-{number:08d}", **line}) + "\n")
    book = ScoreBook(school)
    book.evaluate_and_update(bag())
    started = time.perf_counter()
    fresh = ScoreBook(school)
    fresh.evaluate_and_update(bag("coder-python-00000002"))
    # A process that starts anew reads the saved fold, not the history: far below what folding 20,000 lines takes.
    assert time.perf_counter() - started < 0.1
    assert sum(row["beads"] for row in fresh.leaderboard()) == 20_002

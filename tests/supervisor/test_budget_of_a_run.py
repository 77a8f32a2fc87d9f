"""What a run that is continued may spend, and what a run says at its end of work that waits for a higher limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from school.settings import Settings
from school.supervisor.plan import prepare
from school.supervisor.request import Request
from school.supervisor.result import Result, for_people
from school.supervisor.rounds import counts
from tests.support import git, write_tree


def commit(repo: Path, limits: str) -> str:
    write_tree(repo, {"school.toml": f"[limits]\n{limits}\n"})
    git(repo, "commit", "-q", "--allow-empty", "-am", limits)
    return git(repo, "rev-parse", "HEAD")


def limits_of(repo: Path, school: Settings, base_commit: str, base: str = "") -> tuple[object, ...]:
    request = Request(repo=str(repo), task="Do it.", run="true", base=base)
    limits = prepare(request, school, base_commit=base_commit).config.limits
    return limits.tokens, limits.cost_usd, limits.leaves


def test_a_continued_run_spends_what_head_allows_and_keeps_the_rest_of_its_base(
    repo: Path, school: Settings
) -> None:
    base = commit(repo, "tokens = 50\ncost_usd = 0.5\nleaves = 3")
    assert limits_of(repo, school, base) == (50, 0.5, 3)
    commit(repo, "tokens = 9_000\nleaves = 1")
    assert limits_of(repo, school, base) == (9_000, None, 3)
    # A base that was named is meant, whole.
    assert limits_of(repo, school, base, base=base) == (50, 0.5, 3)
    assert limits_of(repo, school, "") == (9_000, None, 1)


def test_another_line_of_work_says_nothing_of_it(repo: Path, school: Settings) -> None:
    before = git(repo, "rev-parse", "HEAD")
    base = commit(repo, "tokens = 50")
    git(repo, "checkout", "-q", "--detach", before)
    commit(repo, "leaves = 1")
    assert limits_of(repo, school, base)[0] == 50


@pytest.mark.parametrize("reason", ["budget: too little is left for the cto's review", "no progress by cto"])
def test_people_are_told_how_to_go_on_with_a_review_that_the_budget_stopped(reason: str) -> None:
    row = {"id": "a", "outcome": "expired", "bead": "b", "branch": "", "reason": reason}
    document = {"run": "r", "repo": "/r", "base": "", "tasks": [row], "counts": counts(["expired"])}
    told = "\n".join(for_people(Result(document, 1), lambda *_: []))
    waits = reason.startswith("budget")
    assert (f"\na: {reason}; its work waits for its review\n" in told) is waits
    assert (
        "again:  commit a higher limit in school.toml, then the same command, or --resume" in told
    ) is waits
    assert told.endswith("accepted 0, rejected 0, failed 0, expired 1, blocked 0, no_change 0")

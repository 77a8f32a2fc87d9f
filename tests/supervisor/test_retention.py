"""What a prune removes and what it never does, on real repositories and real archives."""

from __future__ import annotations

from pathlib import Path

import pytest

import bookbag
from school.errors import ConfigError, HeldError
from school.records.store import read_archived
from school.settings import Settings
from school.status.check import check_document
from school.supervisor.opening import hold
from school.supervisor.retention import Keep, prune
from school.worktrees import publish
from tests.building import State
from tests.support import git

EVERYTHING = Keep(beads=0)


@pytest.fixture
def state(school: Settings, repo: Path) -> State:
    return State(school, repo)


def ended(state: State, *verdicts: str) -> str:
    """A bead that came to its end as a run would bring it there."""
    bead = state.reviewed(*verdicts)
    bag = bookbag.read_bookbag(bead)
    assert bag is not None
    state.clone.set_ref(f"refs/school/{bead}", bag["head_commit"])
    state.score(bead)
    if "FAIL" in verdicts:
        publish(state.clone, state.repository, bag["head_commit"], f"refs/school/{bead}")
    else:
        state.deliver(bead)
    state.close(bead)
    return bead


def refs(place: Path) -> set[str]:
    return set(git(place, "for-each-ref", "--format=%(refname)", "refs/school", "refs/heads").split())


def test_nothing_is_removed_before_it_is_asked_for(state: State) -> None:
    bead = ended(state, "FAIL", "PASS")
    before = refs(state.repo)
    rows = prune(state.repo, state.settings, EVERYTHING)
    assert [(row["bead"], row["action"], row["why"]) for row in rows] == [
        (bead, "would_remove", "0 newer ones are kept")
    ]
    assert rows[0]["bytes"] > 500
    assert refs(state.repo) == before
    assert read_archived(bead) is not None


def test_rejected_work_goes_whole_and_leaves_a_clean_house(state: State) -> None:
    bead = ended(state, "FAIL", "PASS")
    rows = prune(state.repo, state.settings, EVERYTHING, apply=True)
    assert [(row["action"], row["ref"]) for row in rows] == [("removed", f"refs/school/{bead}")]
    assert refs(state.repo) == {"refs/heads/main"}
    assert not any(bead in ref for ref in refs(state.clone.path))
    assert read_archived(bead) is None
    assert list(state.settings.reviews_dir.glob("*.json")) == []
    assert [row for row in check_document(state.settings) if not row["ok"]] == []
    assert prune(state.repo, state.settings, EVERYTHING, apply=True) == []


def test_accepted_work_stays_until_it_is_merged(state: State) -> None:
    bead = ended(state)
    kept = prune(state.repo, state.settings, EVERYTHING, apply=True)
    assert [(row["action"], row["why"]) for row in kept] == [
        ("kept", "0 newer ones are kept, but it is accepted and in no branch but its own")
    ]
    git(state.repo, "merge", "-q", "--no-edit", "school/fix-parse")
    assert [row["action"] for row in prune(state.repo, state.settings, EVERYTHING, apply=True)] == ["removed"]
    assert read_archived(bead) is None
    # The branch is the user's by now.
    assert refs(state.repo) == {"refs/heads/main", "refs/heads/school/fix-parse"}


def test_a_deleted_branch_is_no_reason_to_lose_accepted_work(state: State) -> None:
    bead = ended(state)
    git(state.repo, "branch", "-D", "school/fix-parse")
    assert [row["action"] for row in prune(state.repo, state.settings, EVERYTHING, apply=True)] == ["kept"]
    assert f"refs/school/{bead}" in refs(state.repo)


def test_each_limit_keeps_the_newest(state: State) -> None:
    beads = [ended(state, "FAIL", "PASS") for _ in range(3)]
    assert [row["bead"] for row in prune(state.repo, state.settings, Keep(beads=1))] == beads[:2]
    size = prune(state.repo, state.settings, EVERYTHING)[-1]["bytes"]
    by_size = prune(state.repo, state.settings, Keep(size_bytes=2 * size + size // 2))
    assert [row["bead"] for row in by_size] == beads[:1]
    assert prune(state.repo, state.settings, Keep(days=1)) == []
    assert [row["bead"] for row in prune(state.repo, state.settings, Keep(days=0))] == beads
    assert prune(state.repo, state.settings, Keep()) == []  # ninety days


def test_what_is_in_flight_is_not_looked_at(state: State) -> None:
    state.written()
    assert prune(state.repo, state.settings, EVERYTHING, apply=True) == []


def test_beside_a_conductor_and_with_impossible_limits_it_refuses(state: State) -> None:
    with pytest.raises(ConfigError, match="--days -1"):
        prune(state.repo, state.settings, Keep(days=-1))
    with hold(state.repository, state.settings, "run"), pytest.raises(HeldError):
        prune(state.repo, state.settings, EVERYTHING)

"""Whether a turn may end unverified: every reason to ask, every reason not to, and what a reminder says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from school.contracts import Claim
from school.verification.digest import TreeDigest
from school.verification.evidence import Event, Standing, Status
from school.verification.stop import NUDGES_MAX, Scene, decide, edits, is_document, is_temporary
from tests.support import git, write_tree

FAILED = Event(
    7, "2026-01-01T00:00:00+00:00", "s", "/p", "/p", "pytest -q", "pytest", "test", "full", "failed", 1, "c", "t",
    "1 failed in 0.1s",
)  # fmt: skip


def scene(status: Status = "unverified", **fields: Any) -> Scene:
    scope = fields.pop("scope", "")
    event = fields.pop("event", None)
    return Scene(
        Standing(status, scope, event), **{"edited": ["calc/core.py"], "commands": ["pytest"], **fields}
    )


@pytest.mark.parametrize(
    ("asked", "given_", "action", "why"),
    [
        (scene(), 0, "nudge", "unverified after an edit"),
        (scene(), 1, "nudge", "unverified after an edit"),
        (scene(), 2, "end", "2 reminders were given, and no check passed since"),
        (scene("failed", event=FAILED), 0, "nudge", "failed after an edit"),
        (scene("stale"), 0, "nudge", "stale after an edit"),
        (scene("passed", scope="targeted"), 0, "end", "a targeted check passed on these files"),
        (scene("disabled"), 0, "end", "there is no evidence to ask for: disabled"),
        (scene("not_applicable"), 0, "end", "there is no evidence to ask for: not_applicable"),
        (scene(edited=[]), 0, "end", "nothing was edited that a check could tell anything about"),
        (scene(can_run_commands=False), 0, "end", "the agent has no tool that runs commands"),
        (scene(claim=Claim(status="failed")), 0, "end", "the agent says itself that it failed"),
        (scene(claim=Claim(status="blocked", blockers=["no key", "no net"])), 0, "blocked", "no key; no net"),
        (scene(claim=Claim(status="blocked", summary="no compiler")), 0, "blocked", "no compiler"),
        (scene(claim=Claim(status="blocked")), 2, "blocked", "the agent claims blocked"),
        (scene(claim=Claim(status="done", blockers=["pytest is missing"])), 0, "blocked", "pytest is missing"),
        (scene(claim=Claim(status="done", blockers=["x"]), can_run_commands=False), 0, "blocked", "x"),
        (scene("passed", scope="full", claim=Claim(blockers=["x"])), 0, "end", "a full check passed on these files"),
        (scene(edited=[], claim=Claim(status="blocked", blockers=["x"])), 0, "end",
         "nothing was edited that a check could tell anything about"),
    ],
)  # fmt: skip
def test_what_follows(
    asked: Scene, given_: int, action: Literal["end", "nudge", "blocked"], why: str
) -> None:
    found = decide(asked, given_)
    assert (found.action, found.why) == (action, why)
    assert bool(found.message) == (action == "nudge")


CLAIMS = st.builds(
    Claim, status=st.sampled_from(["done", "no_change", "blocked", "failed"]), blockers=st.lists(st.text(), max_size=2)
)  # fmt: skip
SCENES = st.builds(
    Scene,
    standing=st.builds(
        Standing,
        status=st.sampled_from(["disabled", "not_applicable", "unverified", "stale", "passed", "failed"]),
        event=st.sampled_from([None, FAILED]),
    ),
    edited=st.lists(st.text(min_size=1), max_size=12),
    commands=st.lists(st.text(min_size=1), max_size=5),
    recipe=st.sampled_from(["", "conductor.py verify --json"]),
    can_run_commands=st.booleans(),
    claim=CLAIMS,
)


@given(SCENES)
def test_a_session_is_asked_at_most_twice_and_never_without_cause(asked: Scene) -> None:
    given_ = 0
    while decide(asked, given_).action == "nudge":
        given_ += 1
        assert asked.can_run_commands
        assert asked.edited
        assert asked.standing.status in ("unverified", "stale", "failed")
        assert not asked.claim.blockers or asked.claim.status in ("no_change", "failed")
    assert given_ in (0, NUDGES_MAX)


def test_the_projects_own_commands_come_first() -> None:
    said = decide(scene(commands=["a", "b", "c", "d", "e"], recipe="verify --json"), 0).message
    assert re.findall(r"(?m)^    (.+)$", said) == ["a", "b", "c", "(2 more checks are declared)"]
    assert "verify --json" not in said


def test_a_recipe_comes_before_a_script() -> None:
    said = decide(scene(commands=[], recipe="python3 conductor.py verify --json"), 0).message
    assert re.findall(r"(?m)^    (.+)$", said) == ["python3 conductor.py verify --json"]
    assert "hermes-verify-" not in said


def test_a_script_of_the_agents_own_is_the_last_resort_and_called_what_it_is() -> None:
    said = decide(scene(commands=[], scratch="/scratch/bead/"), 0).message
    assert "/scratch/bead/hermes-verify-NAME" in said
    assert "ad-hoc" in said
    assert "does not make the project's suite green" in said


def test_a_reminder_names_paths_status_output_and_the_way_out() -> None:
    paths = [f"calc/m{number}.py" for number in range(11)]
    said = decide(scene("failed", event=FAILED, edited=paths, result_path="/r.json"), 0).message
    assert said.startswith("Automatic reminder, not a new task:")
    assert "calc/m7.py and 3 more." in said
    assert "calc/m8.py" not in said
    assert "Evidence: failed. `pytest -q` ended with exit status 1. It printed:\n\n1 failed in 0.1s" in said
    assert '{"status": "blocked", "blockers": ["what it is"]} to /r.json' in said
    long = Event(*[*_values(FAILED)[:-1], "x" * 5000])
    assert len(decide(scene("failed", event=long), 0).message) < 3000


def _values(event: Event) -> list[Any]:
    return [getattr(event, name) for name in Event.__dataclass_fields__]


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("README.md", True), ("docs/a.rst", True), ("LICENSE", True), ("a/CHANGELOG", True), ("data.csv", True),
        ("Notes.TXT", True), ("requirements.txt", False), ("dev/requirements-dev.txt", False),
        ("CMakeLists.txt", False), ("setup.cfg", False), ("a.json", False), ("a.yaml", False), ("index.html", False),
        ("Makefile", False), (".md", False), ("md", False), ("calc/core.py", False),
    ],
)  # fmt: skip
def test_what_is_documentation(path: str, document: bool) -> None:
    assert is_document(path) == document


@pytest.mark.parametrize(
    ("path", "temporary"),
    [
        ("hermes-verify-1.py", True), ("a/hermes-ad-hoc-x", True), ("a.py~", True), ("tmp/a.py", True),
        (".hermes/outputs/x.json", True), ("a/.b.swp", True), ("a.orig", True), ("a.py", False),
        ("template/a.py", False), ("src/tmp/a.py", False), ("temp.py", False),
    ],
)  # fmt: skip
def test_what_is_temporary(path: str, temporary: bool) -> None:
    assert is_temporary(path) == temporary


def test_only_what_differs_in_the_end_is_an_edit(repo: Path) -> None:
    digest = TreeDigest(repo)
    before = digest.take()
    write_tree(
        repo, {"docs/a.md": "a", "hermes-verify-1.py": "a", "new.py": "a", "gone.py": "a", "x.pyc": "a"}
    )
    (repo / "gone.py").unlink()
    core = repo / "calc" / "core.py"
    kept = core.read_text()
    core.write_text("broken")
    assert edits(before, digest.take()) == ["calc/core.py", "new.py"]
    core.write_text(kept)
    (repo / "calc" / "__init__.py").unlink()  # one that was there, and that code needs
    git(repo, "commit", "-qam", "A commit of the agent's own hides nothing")
    assert edits(before, digest.take()) == ["calc/__init__.py", "new.py"]

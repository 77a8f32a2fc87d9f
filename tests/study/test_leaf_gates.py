"""The gates in a leaf's run: a real agent on a real tree, asked between its turns, and what the bookbag says then."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.contracts import AgentSpec
from school.settings import Settings
from tests.leaves import content, new_bead, run

# Turn by turn: what an agent does in each; it learns its turn from a file of its own in TMPDIR.
AGENT = """
import json, os, pathlib, sys
asked = sys.stdin.read()
log = pathlib.Path(os.environ["TMPDIR"]) / "turns"
turn = log.read_text().count("T") + 1 if log.exists() else 1
log.write_text("T" * turn)
def claim(**said): pathlib.Path(os.environ["SCHOOL_RESULT"]).write_text(json.dumps(said))
def edit(text): pathlib.Path("calc/core.py").write_text(text)
"""
EDIT = "edit(f'x = {turn}\\n') if turn == 1 else None\n"
ADVICE = {"on_stop": "auto"}


def talker(code: str, **fields: Any) -> AgentSpec:
    """A command line agent of several turns, with nothing but what the school offers everybody."""
    argv = [sys.executable, "-c", AGENT + code]
    return AgentSpec(name="talker", kind="command", argv=argv, resume=argv, **fields)


def ended(repo: Path, school: Settings, code: str, *, status: int = 0, **fields: Any) -> dict[str, Any]:
    bead = new_bead(repo, talker(code), advice=ADVICE, **fields)
    return run(bead, school, status=status)


def holds(bag: dict[str, Any]) -> list[tuple[str, int, bool | None]]:
    return [(entry["by"], entry["turn"], entry["followed"]) for entry in bag["guidance"]]


def test_one_that_edits_and_never_tests_is_asked_twice_and_then_ends(repo: Path, school: Settings) -> None:
    bag = ended(repo, school, EDIT + "claim(status='done', summary=f'answer {turn}')\n")
    assert holds(bag) == [("verify_on_stop", 1, False), ("verify_on_stop", 2, False)]
    assert (bag["status"], bag["claim"]) == ("open", "done")
    assert bag["evidence"]["status"] == "unverified"
    assert bag["evidence"]["paths"] == ["calc/core.py"]
    words = "unverified: no check of the project was seen to end after the last edit of calc/core.py"
    assert bag["evidence"]["words"] == words
    assert bag["summary"].startswith("answer 1\n")  # the deliverable, whatever was answered to a reminder
    assert bag["summary"].endswith(f"; {words}")
    assert [entry["candidate"] for entry in bag["guidance"]] == ["answer 1", "answer 2"]
    assert content(bag, school, "calc/core.py") == "x = 1"
    asked = bag["guidance"][0]["text"]
    assert "python3 -m unittest discover" in asked
    assert "calc/core.py" in asked


def test_a_blocker_ends_it_at_once(repo: Path, school: Settings) -> None:
    code = EDIT + "claim(status='blocked', blockers=['there is no compiler'])\n"
    bag = ended(repo, school, code, status=1)
    assert (bag["status"], bag["reason"]) == ("blocked", "agent")
    assert bag["blockers"] == ["there is no compiler"]
    assert bag["guidance"] == []
    assert "there is no compiler; unverified: " in bag["summary"]


def test_a_blocker_beside_done_ends_it_at_once_too(repo: Path, school: Settings) -> None:
    code = EDIT + "claim(status='done', summary='as far as it goes', blockers=['the tests need a network'])\n"
    bag = ended(repo, school, code, status=1)
    assert (bag["status"], bag["reason"], bag["guidance"]) == ("blocked", "agent", [])
    assert bag["blockers"] == ["the tests need a network"]
    assert bag["summary"].startswith("the tests need a network; unverified: ")


def test_a_blocker_named_in_the_second_turn(repo: Path, school: Settings) -> None:
    code = EDIT + "claim(status='blocked', blockers=['no key']) if turn == 2 else claim(summary='one')\n"
    bag = ended(repo, school, code, status=1)
    assert holds(bag) == [("verify_on_stop", 1, False)]
    assert (bag["status"], bag["blockers"]) == ("blocked", ["no key"])


def test_documentation_alone_is_asked_for_nothing(repo: Path, school: Settings) -> None:
    code = "pathlib.Path('README.md').write_text('better')\nclaim(status='done', summary='better words')\n"
    bag = ended(repo, school, code)
    assert (bag["guidance"], bag["summary"]) == ([], "better words")
    assert bag["evidence"]["status"] == "not_applicable"


@pytest.mark.parametrize(("on_stop", "asked"), [(False, 0), (True, 2), ("auto", 2)])
def test_the_switch(repo: Path, school: Settings, on_stop: Any, asked: int) -> None:
    agent = talker(EDIT + "claim(status='done', summary='s')\n")
    bag = run(new_bead(repo, agent, advice={"on_stop": on_stop}), school)
    assert len(bag["guidance"]) == asked
    assert bag["evidence"]["status"] == "unverified"  # the ledger records in any case


def test_a_missing_result_file_is_asked_for_once(repo: Path, school: Settings) -> None:
    code = EDIT + "claim(status='done', summary='late') if 'result file is missing' in asked else None\n"
    bag = run(new_bead(repo, talker(code), advice={"on_stop": False}), school)
    assert holds(bag) == [("handoff", 1, True)]
    assert bag["claim"] == "done"
    assert "late" in bag["summary"]
    silent = run(new_bead(repo, talker(EDIT), advice={"on_stop": False}), school)
    assert holds(silent) == [("handoff", 1, False)]


def test_a_claim_at_odds_with_the_tree(repo: Path, school: Settings) -> None:
    code = EDIT + "claim(status='done' if turn == 2 else 'no_change', summary='s')\n"
    bag = run(new_bead(repo, talker(code), advice={"on_stop": False}), school)
    assert holds(bag) == [("handoff", 1, True)]
    assert "says no_change, and files were changed" in bag["guidance"][0]["text"]
    assert bag["claim"] == "done"


def test_the_gates_come_in_order_each_with_its_own_budget(repo: Path, school: Settings) -> None:
    bag = ended(repo, school, EDIT + "print('words')\n")
    assert holds(bag) == [("verify_on_stop", 1, False), ("verify_on_stop", 2, False), ("handoff", 3, False)]


def test_a_reminder_is_in_no_transcript_of_the_record(repo: Path, school: Settings) -> None:
    bag = ended(repo, school, EDIT + "claim(status='done', summary='s')\n")
    for name in ("output", "summary", "task"):
        assert "Automatic reminder" not in str(bag[name])
    brief = json.loads((school.outputs_dir / bag["bead"] / "brief.json").read_text())
    assert "Automatic reminder" not in json.dumps(brief)
    assert "Automatic reminder" not in (school.outputs_dir / bag["bead"] / "prompt.md").read_text()


def test_a_plain_command_that_is_a_check(repo: Path, school: Settings) -> None:
    argv = ["python3", "-m", "unittest", "discover", "-v"]
    agent = AgentSpec(name="run:python3", kind="run", argv=argv, prompt="none")
    bead = new_bead(repo, agent, advice=ADVICE, terms={"verify": [argv]})
    bag = run(bead, school)
    assert (bag["evidence"]["checks"], bag["evidence"]["status"]) == (1, "not_applicable")
    assert bookbag.read_bookbag(bead) == bag

"""The table of moves: every cell, and one record driven through every arrow of it by every writer."""

from __future__ import annotations

import re
from typing import Any

import pytest

import bookbag
from bookbag import LEGAL_MOVES, STATES, BookbagInvalidError, bookbag_state
from school.records.moves import ACTORS, NEW, OWN_FIELDS, move_refusal
from school.settings import Settings
from tests.records_support import FIELDS, TREE, give, review, running, written
from tests.support import ROOT

BEAD = "coder-python-0a1b2c3d"


def reach(state: str) -> None:
    """A record of BEAD in *state*, brought there by who brings it there."""
    if state == "RUNNING":
        running(BEAD)
    elif state in ("FAILED", "BLOCKED"):
        running(BEAD)
        bookbag.locked_update_bookbag(BEAD, by="leaf", status=state.lower(), reason="agent")
    else:
        written(BEAD)
        if state in ("CTO_REVIEWED", "REVIEWED", "SCORED"):
            give(BEAD, "cto")
        if state in ("COO_REVIEWED", "REVIEWED", "SCORED"):
            give(BEAD, "coo")
        if state == "SCORED":
            bookbag.locked_update_bookbag(BEAD, scored_at="2030-01-01T00:00:00+00:00")


# What a write must say to take a record into a state; None where it only has to stay.
TARGETS: dict[str, dict[str, Any]] = {
    "RUNNING": {"status": "running", "cto_verdict": "", "coo_verdict": "", "scored_at": ""},
    "WRITTEN": {"status": "open", "cto_verdict": "", "coo_verdict": "", "scored_at": ""},
    "CTO_REVIEWED": {"status": "open", "cto_verdict": "PASS", "coo_verdict": "", "scored_at": ""},
    "COO_REVIEWED": {"status": "open", "cto_verdict": "", "coo_verdict": "PASS", "scored_at": ""},
    "REVIEWED": {"status": "open", "cto_verdict": "PASS", "coo_verdict": "PASS", "scored_at": ""},
    "SCORED": {"status": "open", "scored_at": "2030-01-01T00:00:00+00:00"},
    "FAILED": {"status": "failed"},
    "BLOCKED": {"status": "blocked"},
}
LIVE = [state for state in STATES if state != "DISPOSED"]


def target_fields(bag: dict[str, Any], state: str) -> dict[str, Any]:
    fields = dict(TARGETS[state])
    for role in ("cto", "coo"):
        given = fields.get(f"{role}_verdict", bag.get(f"{role}_verdict"))
        if given != bag.get(f"{role}_verdict"):
            fields[f"{role}_review"] = review(role) if given else {}
    return fields


def test_every_cell_is_written() -> None:
    assert LEGAL_MOVES.keys() == {(row, column) for row in (NEW, *STATES) for column in STATES}
    assert all(actors <= ACTORS for actors in LEGAL_MOVES.values())


def test_nobody_moves_what_is_disposed_and_nothing_comes_back_to_running() -> None:
    assert not any(LEGAL_MOVES["DISPOSED", column] for column in STATES)
    assert [row for row in STATES if LEGAL_MOVES[row, "RUNNING"]] == ["RUNNING"]


@pytest.mark.parametrize("by", sorted(ACTORS))
@pytest.mark.parametrize("after", LIVE)
@pytest.mark.parametrize("before", LIVE)
def test_arrow(school: Settings, before: str, after: str, by: str) -> None:
    """Legal: it gets there, once more counted, noted once. Illegal: refused, and the record as it was."""
    reach(before)
    old = bookbag.read_bookbag(BEAD)
    assert old is not None
    assert bookbag_state(old) == before
    fields = target_fields(old, after)
    touches_verdicts = any(
        old.get(name) != fields.get(name, old.get(name)) for name in ("cto_verdict", "coo_verdict")
    )
    foreign = by != "conductor" and any(
        fields[name] != old.get(name) and name not in OWN_FIELDS[by] for name in fields
    )
    takes_back = any(
        old[f"{role}_verdict"] and not fields.get(f"{role}_verdict", "x") for role in ("cto", "coo")
    )
    legal = by in LEGAL_MOVES[before, after] and not foreign and not takes_back
    if before == after and not touches_verdicts:
        assert bookbag.update_bookbag(BEAD, lambda bag: bag | fields, by=by) == old
        return
    if not legal:
        with pytest.raises(BookbagInvalidError, match=BEAD):
            bookbag.update_bookbag(BEAD, lambda bag: bag | fields, by=by)
        assert bookbag.read_bookbag(BEAD) == old
        return
    new = bookbag.update_bookbag(BEAD, lambda bag: bag | fields, by=by)
    assert new is not None
    assert bookbag_state(new) == after
    assert new["rev"] == old["rev"] + 1
    assert [step["state"] for step in new["history"]].count(after) == 1
    assert new["history"][-1]["by"] == by
    assert bookbag.read_bookbag(BEAD) == new


@pytest.mark.parametrize("state", LIVE)
def test_arrow_into_the_archive(school: Settings, state: str) -> None:
    reach(state)
    if state in ("SCORED", "FAILED", "BLOCKED"):
        place = bookbag.archive_bookbag(BEAD, {"diff.patch": b"a patch"})
        assert bookbag.read_bookbag(BEAD) is None
        assert (place / "diff.patch").read_bytes() == b"a patch"
        archived = bookbag.read_archived(BEAD)
        assert archived is not None
        assert bookbag_state(archived, archived=True) == "DISPOSED"
        assert archived["history"][-1]["state"] == "DISPOSED"
        return
    with pytest.raises(BookbagInvalidError, match="nobody may"):
        bookbag.archive_bookbag(BEAD)
    assert bookbag.read_bookbag(BEAD) is not None
    assert not school.archive_dir.exists()


@pytest.mark.parametrize("by", sorted(ACTORS))
@pytest.mark.parametrize("state", LIVE)
def test_arrow_of_birth(school: Settings, state: str, by: str) -> None:
    fields = {**FIELDS, **TARGETS[state]}
    if by in LEGAL_MOVES[NEW, state]:
        bag = bookbag.write_bookbag(BEAD, by=by, **fields)
        assert bookbag_state(bag) == state
        assert bag["accepted"] is False
        assert [(step["state"], step["by"]) for step in bag["history"]] == [(state, by)]
        return
    with pytest.raises(BookbagInvalidError, match=f"{by} may not move it from NEW to {state}"):
        bookbag.write_bookbag(BEAD, by=by, **fields)
    assert bookbag.read_bookbag(BEAD) is None


def test_the_documented_table_is_the_code() -> None:
    text = (ROOT / "docs" / "state-table.md").read_text()
    table = text.partition("<!-- table: begin -->")[2].partition("<!-- table: end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    assert rows[0][1:] == list(STATES)
    letters = {"l": "leaf", "t": "cto", "o": "coo", "c": "conductor", "s": "salvage"}
    documented = {
        (row[0], column): {letters[letter] for letter in cell.strip(".")}
        for row in rows[2:]
        for column, cell in zip(rows[0][1:], row[1:], strict=True)
    }
    assert documented == {pair: set(actors) for pair, actors in LEGAL_MOVES.items()}


def test_first_match_wins() -> None:
    bag = {"status": "failed", "scored_at": "x", "cto_verdict": "PASS", "coo_verdict": "PASS"}
    order = [bookbag_state(bag, archived=True)]
    for drop in ("status", "scored_at", "coo_verdict", "cto_verdict"):
        order.append(bookbag_state(bag))
        del bag[drop]
    assert [*order, bookbag_state(bag)] == [
        "DISPOSED",
        "FAILED",
        "SCORED",
        "REVIEWED",
        "CTO_REVIEWED",
        "WRITTEN",
    ]
    assert bookbag_state({"status": "running"}) == "RUNNING"
    assert bookbag_state({"coo_verdict": "FAIL"}) == "COO_REVIEWED"
    assert bookbag_state({"status": "blocked", "scored_at": "x"}) == "BLOCKED"


def test_a_refusal_says_who_may() -> None:
    assert move_refusal("WRITTEN", "CTO_REVIEWED", "coo") == (
        "coo may not move it from WRITTEN to CTO_REVIEWED: only conductor or cto may"
    )
    assert re.search("unknown writer 'janitor'", move_refusal("WRITTEN", "BLOCKED", "janitor"))


@pytest.mark.parametrize(
    ("by", "fields", "why"),
    [
        ("cto", {"coo_verdict": "PASS"}, "coo may|conductor or coo"),
        ("cto", {"output": "mine now"}, "output: not cto's to write"),
        ("cto", {"anything": 1}, "anything: not cto's to write"),
        ("cto", {"status": "failed"}, "may not move"),
        ("leaf", {"scored_at": "x"}, "may not move"),
        ("leaf", {"score": {"task": 1}}, "score: not leaf's to write"),
        ("conductor", {"tree": "c" * 40}, "tree: fixed since the hand-over"),
        ("conductor", {"acceptance": [{"id": "1", "text": "x"}]}, ""),
        ("conductor", {"rev": 1}, "stale: the record is at rev 2, this write was made from rev 1"),
        ("conductor", {"history": []}, "history: kept by the bookbag itself"),
        ("conductor", {"timestamp": "2030-01-01T00:00:00+00:00"}, "timestamp: kept by"),
        ("conductor", {"accepted": True}, "accepted: no PASS from the cto"),
    ],
)
def test_what_a_writer_may_not(school: Settings, by: str, fields: dict[str, Any], why: str) -> None:
    old = written(BEAD)
    if not why:
        assert bookbag.update_bookbag(BEAD, lambda bag: bag | fields, by=by)
        return
    with pytest.raises(BookbagInvalidError, match=why):
        bookbag.update_bookbag(BEAD, lambda bag: bag | fields, by=by)
    assert bookbag.read_bookbag(BEAD) == old


def test_derived_fields_are_final(school: Settings) -> None:
    reach("REVIEWED")
    for fields in ({"accepted": False}, {"findings": []}, {"verification": "all fine"}):
        bag = bookbag.read_bookbag(BEAD)
        assert bag is not None
        if all(bag[name] == value for name, value in fields.items()):
            continue
        with pytest.raises(BookbagInvalidError, match="derived from the two reviews and final"):
            bookbag.locked_update_bookbag(BEAD, **fields)


def test_a_blocked_record_takes_no_verdict(school: Settings) -> None:
    reach("BLOCKED")
    with pytest.raises(BookbagInvalidError, match="may not move it from BLOCKED"):
        give(BEAD, "cto")


def test_completing_write_derives(school: Settings) -> None:
    written(BEAD, acceptance=[{"id": "a1", "text": "raises ValueError"}, {"id": "a2", "text": "says why"}])
    bookbag.BookbagSignal(BEAD).ready()
    give(BEAD, "coo", criteria={"a1": "met", "a2": "unjudged"})
    assert bookbag.BookbagSignal(BEAD).check()
    bag = give(BEAD, "cto")
    assert bag is not None
    assert bag["accepted"] is True
    assert bag["lens"] == "CORRECTNESS, SECURITY, COMPLETENESS"
    assert bag["ac_met"] == ["raises ValueError"]
    lines = bag["verification"].splitlines()
    assert [line.partition(" (")[0] for line in lines] == ["full passed at head: `true`"] * 3
    assert lines[0].endswith(" (cto-check; exit 0)")
    assert not bookbag.BookbagSignal(BEAD).check()
    assert bag["tree"] == TREE


def test_one_fail_is_no_acceptance_and_its_findings_stay(school: Settings) -> None:
    written(BEAD)
    give(BEAD, "cto", "FAIL")
    bag = give(BEAD, "coo")
    assert bag is not None
    assert bag["accepted"] is False
    assert [finding["issue_class"] for finding in bag["findings"]] == ["broken", "broken"]

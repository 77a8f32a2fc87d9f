"""The ledger: caps that hold when written and when read back, and an eviction in the one order, for any ledger and room."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from school.coach import ledger, prompts
from school.coach.ledger import Ledger, Turn, begun, card, compiled, cut, ended
from school.coach.terms import read_terms

TEXTS = st.text(max_size=40) | st.text(min_size=1, max_size=3).map(lambda text: text * 3000)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    rows: list[dict[str, Any]] = []
    for number in range(1, draw(st.integers(0, 70)) + 1):
        begun(rows, number, f"t{number}", draw(TEXTS))
        ended(rows, draw(TEXTS), draw(st.lists(TEXTS, max_size=4)))
    made = Ledger.read(rows)
    assert made.dump() == rows, "capped when it was written"
    return made


def _held(made: Ledger) -> None:
    assert len(made.turns) <= 60
    for turn in made.turns:
        assert len(turn.user) <= 4000
        assert len(turn.answer) <= 600
        assert all(len(text) <= 240 for text in turn.cards)
        assert len(turn.cards) <= 80


@settings(max_examples=25, deadline=None)
@given(ledgers())
def test_nothing_longer_than_its_cap_is_ever_held(made: Ledger) -> None:
    _held(made)
    stored = json.loads(json.dumps(made.dump()))
    _held(Ledger.read(stored))
    assert Ledger.read(stored).dump() == made.dump()


def test_a_file_that_somebody_else_wrote_is_capped_too() -> None:
    rows = [
        {"number": -1, "user": "u" * 9000, "answer": ["a" * 900], "cards": ["c" * 999] * 100},
        "nonsense",
        {"number": True, "cards": 7},
    ]
    made = Ledger.read(rows * 40)
    _held(made)
    assert made.turns[0].cards_dropped == 20


@settings(max_examples=25, deadline=None)
@given(ledgers(), st.integers(min_value=0, max_value=40_000))
def test_what_is_compiled_fits_and_goes_in_the_seeds_order(made: Ledger, room: int) -> None:
    text = compiled(made.turns, room)
    assert len(text) <= room
    parts = ledger._parts(made.turns)
    order = ledger._in_order_of_eviction(parts)
    kinds = [parts[at].kind for at in order]
    assert kinds == sorted(kinds, key=("cards", "answer", "heading", "user").index)
    for kind in set(kinds):
        same = [at for at in order if parts[at].kind == kind]
        assert same == sorted(same), "the oldest first"
    # What is there is everything but a beginning of that order: the least that had to go.
    for gone in range(len(order) + 1):
        left = [part.text for at, part in enumerate(parts) if at not in order[:gone]]
        if len("\n".join(left)) <= room:
            assert text == "\n".join(left)
            break
    else:
        newest = next((part.text for part in reversed(parts) if part.kind == "user"), "")
        assert text == cut(newest, room)


@given(
    ledgers(),
    st.integers(3_000, 12_000),
    st.text(max_size=900),
    st.text(max_size=900),
    st.text(max_size=3000),
)
def test_the_whole_prompt_fits_the_ceiling_and_has_the_newest_user_message(
    made: Ledger, tokens: int, guidance: str, note: str, question: str
) -> None:
    terms = read_terms({"ledger_max_tokens": tokens, "guidance": guidance})
    for kind in prompts.SYSTEMS:
        asked = prompts.composed(
            kind, terms, cut(note, 600), made.turns, question=prompts.question_of(question)
        )
        assert asked is not None
        assert len(asked[0]) + len(asked[1]) <= tokens * 4
        newest = next((turn.user for turn in reversed(made.turns) if turn.user), "")
        assert newest in asked[1]


@settings(max_examples=25, deadline=None)
@given(ledgers(), st.integers(3_000, 60_000), st.integers(0, 300_000))
def test_with_evidence_too(made: Ledger, tokens: int, length: int) -> None:
    terms = read_terms({"ledger_max_tokens": tokens, "guidance": "g" * 1000})
    room = prompts.evidence_room(terms, "n" * 600, "q" * 700)
    assert 0 < room <= 128_000
    asked = prompts.composed(
        "completion", terms, "n" * 600, made.turns, question="q" * 700, evidence="e" * length
    )
    newest = next((turn.user for turn in reversed(made.turns) if turn.user), "")
    if length <= room:
        assert asked is not None
    if asked is not None:
        assert len(asked[0]) + len(asked[1]) <= tokens * 4
        assert newest in asked[1]
        assert "e" * length in asked[1]


def test_the_last_to_go_are_old_user_messages() -> None:
    turns = [
        Turn(1, user="first", answer="one", cards=["c1", "c2"]),
        Turn(2, user="second", answer="two", cards=["c3"]),
    ]
    whole = "## Turn 1\nUser: first\n- c1\n- c2\nAgent: one\n## Turn 2\nUser: second\n- c3\nAgent: two"
    assert compiled(turns, 1000) == whole
    assert compiled(turns, len(whole) - 1) == whole.replace("- c1\n", "")
    without_cards = "## Turn 1\nUser: first\nAgent: one\n## Turn 2\nUser: second\nAgent: two"
    assert compiled(turns, len(without_cards)) == without_cards
    assert compiled(turns, len(without_cards) - 1) == without_cards.replace("Agent: one\n", "")
    assert compiled(turns, 40) == "User: first\n## Turn 2\nUser: second"
    assert compiled(turns, 30) == "User: first\nUser: second"
    assert compiled(turns, 20) == "User: second"
    assert compiled(turns, 8) == "User: s…"
    assert compiled(turns, 0) == ""


def test_cards_say_the_tool_its_main_argument_and_how_it_went() -> None:
    failed = json.dumps({"output": "E   assert 1 == 2\n1 failed", "exit_code": 1, "error": None})
    assert card("terminal", {"command": "pytest -q\n", "timeout": 5}, "ok", failed) == (
        "terminal(pytest -q) ok: exit 1 E assert 1 == 2 1 failed"
    )
    assert card("read_file", {"limit": 5, "path": "a b.py"}, "ok", "text\n  more") == (
        "read_file(a b.py) ok: text more"
    )
    assert (
        card("patch", {"path": "x"}, "error", json.dumps({"error": "no match"})) == "patch(x) error: no match"
    )
    assert card("odd", None, None, None) == "odd() ok"
    assert card("odd", ["a"], "blocked", '{"a": ' + "[" * 50_000) == 'odd(a) blocked: {"a": ' + "[" * 73 + "…"
    long = json.dumps({"output": "F" + "\nline" * 20_000, "exit_code": 2, "error": None})
    assert card("terminal", {"command": "make"}, "ok", long).startswith(
        "terminal(make) ok: exit 2 F line line"
    )
    assert card("terminal", {"command": "make"}, "ok", long.replace("2,", "0,")).startswith(
        "terminal(make) ok: F line line"
    )
    assert len(card("n" * 500, {"command": "c" * 500_000}, "s" * 100, "r" * 5_000_000)) <= 240


def test_text_is_valid_and_cut_at_its_cap() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert cut("abcd", 0) == ""
    assert cut("\udcff", 10) == "\\udcff"
    assert cut([{"type": "text", "text": "one"}, {"type": "image"}, "two"], 10) == "one\ntwo"
    assert cut(None, 5) == ""

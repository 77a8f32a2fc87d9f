"""What a coach does to a session, as one table: what happens, and what the agent is told. Every host plays it.

A ``Scenario`` names no host. Its turns are a user's messages with what the agent does in each; ``coach`` is what the
coach's model answers, by the kind of review; ``told`` is what the coach put into each message that the agent got, in
order, as ``said_in`` reads it, and ``asked`` how often its model was asked what.

It is played straight through the hooks, by the built-in loop and over ACP (``test_hosts.py``), and by a real Hermes
(``tests/clients/test_hermes_scenarios.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.coach.coaching import OK, finding

MADE = "made.txt"
_HOLD = re.compile(r"^Before you finish: a second model .*\n<coach-note>\n\[(\w+)\] (.*)$", re.MULTILINE)
_NOTE = re.compile(r"^<coach-note>\n\[(\w+)\] (.*)$", re.MULTILINE)
_GUIDANCE = re.compile(r"^<coach-guidance>\n(.*)\n</coach-guidance>$", re.MULTILINE)


@dataclass(frozen=True)
class Said:
    """A turn of the user's, and what the agent writes into ``MADE`` in it: before its answer, and when that is held."""

    user: str
    writes: str = ""
    when_held: str = ""


@dataclass(frozen=True)
class Scenario:
    """See the module. *same_model*: the coach is the agent's own model. *injects*: only a host that can inject tells so."""

    name: str
    settings: dict[str, Any]
    turns: tuple[Said, ...]
    told: tuple[str, ...]
    coach: dict[str, tuple[str, ...]]
    asked: dict[str, int]
    same_model: bool = False
    injects: bool = False
    evidence_chars: tuple[int, int] = field(default=(0, 0))


def said_in(message: str) -> str:
    """What the coach put into *message*, the end of which may be anybody's: ``hold: T``, ``note: T``, ``guidance: T``."""
    if held := _HOLD.search(message):
        return f"hold: {held[2]}"
    notes = [f"note: {title}" for _, title in _NOTE.findall(message)]
    return "; ".join([*notes, *(f"guidance: {text}" for text in _GUIDANCE.findall(message))])


def counted(kinds: Sequence[str]) -> dict[str, int]:
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def evidence_of(prompt: str) -> int:
    """How long the evidence block is in what the coach's model was sent."""
    return len(prompt.split("# Evidence\n")[1].split("\n\n# Question", maxsplit=1)[0])


POST: dict[str, Any] = {"active_every_turns": 1, "completion_review": False}
GATE: dict[str, Any] = {"active": False}
HOLD: dict[str, Any] = {**GATE, "review_authority": "hold_once"}
FIX, NEXT, LAST = Said("Please fix add."), Said("Now parse."), Said("And document it.")
WORK = Said("Please fix add.", writes="one\n")
UNTESTED = finding("Tests were not run")
WRONG = finding("It is still wrong", "blocker", "add(2, 3) gives 6.")
MIND = json.dumps({"guidance": "Mind the sign."})

SCENARIOS = [
    Scenario(
        "a note reaches the next turn's message once",
        POST,
        (FIX, NEXT, LAST),
        ("", "note: Tests were not run", ""),
        {"active": (UNTESTED, OK)},
        {"active": 3},
    ),
    Scenario(
        "the same finding again is not said again",
        POST,
        (FIX, NEXT, LAST),
        ("", "note: Tests were not run", ""),
        {"active": (UNTESTED, finding(" tests WERE not run"))},
        {"active": 3},
    ),
    Scenario(
        "an expired note never arrives",
        {**POST, "note_ttl_s": 1e-6},
        (FIX, NEXT),
        ("", ""),
        {"active": (UNTESTED, OK)},
        {"active": 2},
    ),
    Scenario(
        "a blocker holds the completion once and only once",
        HOLD,
        (Said("Please fix add.", writes="one\n", when_held="two\n"), NEXT),
        ("", "hold: It is still wrong", "note: It is wrong in another way"),
        {"completion": (WRONG, finding("It is wrong in another way", "blocker"))},
        {"completion": 2},
    ),
    Scenario(
        "a blocker without the authority is a note",
        GATE,
        (WORK, NEXT),
        ("", "note: It is still wrong"),
        {"completion": (WRONG,)},
        {"completion": 1},
    ),
    Scenario(
        "what is no blocker holds nothing",
        HOLD,
        (WORK, NEXT),
        ("", "note: Tests were not run"),
        {"completion": (UNTESTED,)},
        {"completion": 1},
    ),
    Scenario(
        "with the corrective cap reached findings become notes",
        {**POST, "delivery": "inject", "corrective_cap": 1},
        (FIX, NEXT),
        ("", "note: Tests were not run", "note: It is still wrong"),
        {"active": (UNTESTED, WRONG, OK)},
        {"active": 3},
        injects=True,
    ),
    Scenario(
        "what a host cannot inject is a note",
        {**POST, "delivery": "inject", "corrective_cap": 1},
        (FIX, NEXT, LAST),
        ("", "note: Tests were not run", "note: It is still wrong"),
        {"active": (UNTESTED, WRONG, OK)},
        {"active": 3},
    ),
    Scenario(
        "the agent's own model is not asked",
        POST,
        (FIX, NEXT),
        ("", ""),
        {"active": (UNTESTED,)},
        {},
        same_model=True,
    ),
    Scenario(
        "unless that is allowed",
        {**POST, "skip_same_model": False},
        (FIX, NEXT),
        ("", "note: Tests were not run"),
        {"active": (UNTESTED, OK)},
        {"active": 2},
        same_model=True,
    ),
    Scenario(
        "guidance before each turn, and no review after it",
        {**POST, "active_timing": "pre"},
        (FIX, NEXT),
        ("guidance: Mind the sign.", "guidance: Mind the sign."),
        {"pre": (MIND,)},
        {"pre": 2},
    ),
    Scenario(
        "both",
        {**POST, "active_timing": "both"},
        (FIX, NEXT),
        ("guidance: Mind the sign.", "note: Tests were not run; guidance: Mind the sign."),
        {"pre": (MIND,), "active": (UNTESTED, OK)},
        {"active": 2, "pre": 2},
    ),
    Scenario(
        "the evidence is as long as is allowed",
        {**GATE, "review_evidence_max_chars": 2000},
        (Said("Please fix add.", writes="a line of many words\n" * 1000),),
        ("",),
        {"completion": (OK,)},
        {"completion": 1},
        evidence_chars=(1000, 2000),
    ),
    Scenario(
        "and whole where it may be",
        {**GATE, "review_evidence_max_chars": 100_000},
        (Said("Please fix add.", writes="a line of many words\n" * 1000),),
        ("",),
        {"completion": (OK,)},
        {"completion": 1},
        evidence_chars=(21_000, 30_000),
    ),
    Scenario(
        "a model that answers with nonsense tells nobody anything",
        {**POST, "completion_review": True, "review_authority": "hold_once", "active_timing": "both"},
        (WORK, NEXT),
        ("", ""),
        {
            "pre": ("I would rather write a poem.",),
            "active": ("{}",),
            "completion": ('{"verdict": "finding"}',),
        },
        {"active": 2, "completion": 1, "pre": 2},
    ),
]

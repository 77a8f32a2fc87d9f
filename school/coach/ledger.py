"""The ledger: what a coach knows of a session. Not a transcript: capped when written, evicted when read.

``Ledger`` holds at most ``TURNS_MAX`` turns: the user's message, the answer and a one-line card for each tool call, each
cut to its cap as it is written, so that nothing longer is ever held in memory or on disk. ``compiled(turns, room)`` is
the text for a prompt within *room* characters. What does not fit goes in this order: tool cards, oldest first; then
answers, oldest first; then headings, oldest first; user messages only as the very last, oldest first, and the newest
never. It is shortened if it alone is longer than the room, which the least ``ledger_max_tokens`` prevents.

Not promised: that a reader can tell apart what a user wrote and what looks like our headings in it.
No errors are raised; values of the wrong kind become texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from school.system.documents import loads, well_formed

TURNS_MAX: Final = 60
USER_CHARS_MAX: Final = 4_000
ANSWER_CHARS_MAX: Final = 600
CARD_CHARS_MAX: Final = 240
CARDS_A_TURN_MAX: Final = 80
_NAME_CHARS_MAX: Final = 60
_ARGUMENT_CHARS_MAX: Final = 80
_PREVIEW_CHARS_MAX: Final = 80
_TURN_ID_CHARS_MAX: Final = 120
# A longer result is looked at where it begins and ends only.
_PARSED_CHARS_MAX: Final = 8 * 1024
_TAIL_CHARS: Final = 200
_EXIT_CODE: Final = re.compile(r'"exit_code": ?(-?\d{1,9})\b')
_FIRST_KEY: Final = re.compile(r'^\{"(?:output|content|error)": ?"')
# The argument that says most, by the name that tools give it.
_MAIN_ARGUMENTS: Final = ("command", "path", "file_path", "pattern", "query", "url", "goal", "name")


def cut(text: object, chars_max: int) -> str:
    """*text* as valid text of at most *chars_max* characters; a cut one ends in an ellipsis."""
    whole = text if isinstance(text, str) else said(text)
    # Spelling an odd character out makes it longer, so it is cut before (against huge input) and after.
    whole = well_formed(whole[: chars_max + 1])
    return whole if len(whole) <= chars_max else whole[: max(chars_max - 1, 0)] + "…"[: min(chars_max, 1)]


def said(message: object) -> str:
    """A message as text: hosts give a text, or a list of parts of which some have one."""
    if isinstance(message, str):
        return message
    if isinstance(message, Sequence):
        texts = [part if isinstance(part, str) else _part_text(part) for part in message]
        return "\n".join(text for text in texts if text)
    return "" if message is None else str(message)


def _part_text(part: object) -> str:
    text = part.get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else ""


def card(tool: object, args: object, status: object, result: object) -> str:
    """One line for one tool call: its name, its main argument, how it went, the beginning of what it gave."""
    shown = f"{line(tool, _NAME_CHARS_MAX)}({line(_main_argument(args), _ARGUMENT_CHARS_MAX)})"
    preview = line(_preview(result), _PREVIEW_CHARS_MAX)
    return cut(f"{shown} {line(status, 20) or 'ok'}" + (f": {preview}" if preview else ""), CARD_CHARS_MAX)


def line(text: object, chars_max: int) -> str:
    """*text* on one line; only what can be shown is looked at."""
    start = (text if isinstance(text, str) else said(text))[: chars_max * 8]
    return cut(" ".join(start.split()), chars_max)


def _main_argument(args: object) -> object:
    if not isinstance(args, Mapping):
        return args
    for name in _MAIN_ARGUMENTS:
        if args.get(name):
            return args[name]
    return next((value for value in args.values() if isinstance(value, str) and value), "")


def _preview(result: object) -> str:
    """What a result says: of a shell's, the exit code and the output; of others, error or text."""
    text = said(result)
    if len(text) > _PARSED_CHARS_MAX:
        return _preview_of_long(text)
    try:
        value = loads(text.encode()) if text.startswith("{") else None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return text
    told = next((value[key] for key in ("error", "output", "content") if value.get(key)), None)
    shown = "" if told is None and "output" in value else said(text if told is None else told)
    return _with_code(value.get("exit_code"), shown)


def _preview_of_long(text: str) -> str:
    """The same, without taking apart what would cost the turn more than a millisecond."""
    code = _EXIT_CODE.search(text, len(text) - _TAIL_CHARS)
    beginning = _FIRST_KEY.sub("", text[: _PREVIEW_CHARS_MAX * 8]).replace("\\n", " ")
    return _with_code(int(code[1]) if code else None, beginning)


def _with_code(code: object, shown: str) -> str:
    return f"exit {code} {shown}" if isinstance(code, int) and code else shown


@dataclass(slots=True)
class Turn:
    """One turn, capped. ``number`` counts up in its session and is what notes refer to."""

    number: int
    turn_id: str = ""
    user: str = ""
    answer: str = ""
    cards: list[str] = field(default_factory=list)
    cards_dropped: int = 0

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Turn:
        """A turn from disk, capped again: nobody says that we wrote it."""
        cards = record.get("cards")
        turn = cls(_count(record.get("number")))
        turn.turn_id = cut(record.get("turn_id", ""), _TURN_ID_CHARS_MAX)
        turn.user = cut(record.get("user", ""), USER_CHARS_MAX)
        turn.answer = cut(record.get("answer", ""), ANSWER_CHARS_MAX)
        turn.add_cards(cards if isinstance(cards, list) else ())
        turn.cards_dropped += _count(record.get("cards_dropped"))
        return turn

    def dump(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "turn_id": self.turn_id,
            "user": self.user,
            "answer": self.answer,
            "cards": self.cards,
            "cards_dropped": self.cards_dropped,
        }

    def add_cards(self, cards: Iterable[object]) -> None:
        """Add *cards*; of too many the oldest go, and are counted."""
        self.cards.extend(cut(text, CARD_CHARS_MAX) for text in cards)
        surplus = len(self.cards) - CARDS_A_TURN_MAX
        if surplus > 0:
            del self.cards[:surplus]
            self.cards_dropped += surplus


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def begun(rows: list[dict[str, Any]], number: int, turn_id: object, user: object) -> None:
    """Add a turn to *rows*, as they are kept; only what is new is looked at, because this happens at each turn."""
    rows.append(Turn(number, cut(turn_id, _TURN_ID_CHARS_MAX), cut(user, USER_CHARS_MAX)).dump())
    del rows[:-TURNS_MAX]


def ended(rows: list[dict[str, Any]], answer: object, cards: Iterable[str] = ()) -> None:
    """Enter the answer and the tool calls of the newest turn of *rows*."""
    if rows:
        turn = Turn.read(rows[-1])
        if answer is not None:
            turn.answer = cut(answer, ANSWER_CHARS_MAX)
        turn.add_cards(cards)
        rows[-1] = turn.dump()


class Ledger:
    """The turns of one session, newest last; capped as they are read."""

    def __init__(self, turns: Sequence[Turn] = ()) -> None:
        self.turns = list(turns)[-TURNS_MAX:]

    @classmethod
    def read(cls, records: object) -> Ledger:
        rows = records if isinstance(records, list) else []
        return cls([Turn.read(row) for row in rows[-TURNS_MAX:] if isinstance(row, Mapping)])

    def dump(self) -> list[dict[str, Any]]:
        return [turn.dump() for turn in self.turns]


# --- the text for a prompt ------------------------------------------------------------------------------------

EVICTION: Final = ("cards", "answer", "heading", "user")


@dataclass(frozen=True, slots=True)
class _Part:
    kind: str
    text: str


def compiled(turns: Sequence[Turn], room: int) -> str:
    """*turns* as text of at most *room* characters; see the module for what goes first."""
    parts = _parts(turns)
    length = sum(len(part.text) + 1 for part in parts) - 1
    gone: set[int] = set()
    for at in _in_order_of_eviction(parts):
        if length <= room:
            break
        gone.add(at)
        length -= len(parts[at].text) + 1
    text = "\n".join(part.text for at, part in enumerate(parts) if at not in gone)
    return text if len(text) <= room else cut(text, max(room, 0))


def _parts(turns: Sequence[Turn]) -> list[_Part]:
    """Each turn's parts in the order in which they are read; a card is a part of its own."""
    parts: list[_Part] = []
    for turn in turns:
        dropped = f" ({turn.cards_dropped} earlier calls not shown)" if turn.cards_dropped else ""
        parts.append(_Part("heading", f"## Turn {turn.number}{dropped}"))
        if turn.user:
            parts.append(_Part("user", f"User: {turn.user}"))
        parts.extend(_Part("cards", f"- {text}") for text in turn.cards)
        if turn.answer:
            parts.append(_Part("answer", f"Agent: {turn.answer}"))
    return parts


def _in_order_of_eviction(parts: Sequence[_Part]) -> list[int]:
    newest_user = max((at for at, part in enumerate(parts) if part.kind == "user"), default=-1)
    return [
        at for kind in EVICTION for at, part in enumerate(parts) if part.kind == kind and at != newest_user
    ]

"""What a user types behind ``/coach``: how it stands, settings, pause, notes. The answer is always a text for people.

``answer(text, coach, session_id)``: no word or ``status``; ``settings``; ``set KEY VALUE``; ``pause``, ``resume``; ``note TEXT``
(empty takes it away); ``cards``; ``help``. Errors: none for what was typed; MachineError for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from school.coach.state import SESSION_NOTE_CHARS_MAX, State
from school.coach.terms import keys
from school.errors import ConfigError

if TYPE_CHECKING:
    from school.coach.coach import Coach

HELP: Final = (
    "/coach [status] · settings · set KEY VALUE · pause · resume · note TEXT · cards · help\n"
    "Settings: " + ", ".join(keys())
)
_CARDS_SHOWN_MAX: Final = 10


def answer(text: str, coach: Coach, session_id: str) -> str:
    """See the module."""
    word, _, rest = text.strip().partition(" ")
    command = _COMMANDS.get(word or "status")
    if command is None:
        return f"{word}: no such command.\n{HELP}"
    if not session_id and word in _OF_A_SESSION:
        return "There is no session yet."
    return command(coach, session_id, rest.strip())


def _help(_coach: Coach, _session_id: str, _rest: str) -> str:
    return HELP


def _settings(coach: Coach, _session_id: str, _rest: str) -> str:
    return "\n".join(f"{key} = {value!r}" for key, value in coach.terms.model_dump().items())


def _pause(coach: Coach, session_id: str, _rest: str) -> str:
    with coach.memory.session(session_id) as state:
        state.paused = True
    return "Paused: nothing is asked until /coach resume."


def _resume(coach: Coach, session_id: str, _rest: str) -> str:
    with coach.memory.session(session_id) as state:
        state.paused = False
    return "Resumed."


def _note(coach: Coach, session_id: str, rest: str) -> str:
    with coach.memory.session(session_id) as state:
        state.note = rest[:SESSION_NOTE_CHARS_MAX]
    return "Noted for this session." if rest else "The note is taken away."


def _set(coach: Coach, _session_id: str, rest: str) -> str:
    key, _, value = rest.partition(" ")
    if not key or not value.strip():
        return "/coach set KEY VALUE"
    try:
        return f"{key} = {coach.adjust(key, value)!r}"
    except ConfigError as cause:
        return f"Not set: {cause}"


def _status(coach: Coach, session_id: str, _rest: str) -> str:
    lines = [f"The coach is {'on' if coach.terms.enabled else 'off'}; model {coach.model or 'none'}."]
    lines += coach.troubles
    if session_id:
        lines += _session_lines(coach, coach.memory.look(session_id))
    return "\n".join(lines)


def _session_lines(coach: Coach, state: State) -> list[str]:
    spent = state.spent
    unpriced = f" and {spent.unpriced} of unknown cost" if spent.unpriced else ""
    tokens = f"{spent.input_tokens} tokens in, {spent.output_tokens} out"
    lines = [
        f"Session {state.session}: turn {state.turn}{', paused' if state.paused else ''}.",
        f"Spent: {spent.calls} of {coach.terms.budget_calls} calls, {tokens}, ${spent.cost_usd:.4f}{unpriced}.",
        f"Findings: {len(state.cards)}; waiting for the next turn: {len(state.pending)}; held: {len(state.held)}.",
    ]
    wrong = [row for row in state.advice if row.get("kind") in ("error", "skipped")]
    if wrong:
        last = wrong[-1]
        lines.append(f"Last {last['kind']}: {last.get('title', '')} {last.get('detail', '')}".rstrip())
    return lines


def _cards(coach: Coach, session_id: str, _rest: str) -> str:
    cards = coach.memory.look(session_id).cards[-_CARDS_SHOWN_MAX:] if session_id else []
    rows = [
        f"turn {row.get('turn')} [{row.get('severity')}] {row.get('title')}: {row.get('body')}"
        for row in cards
    ]
    return "\n".join(rows) or "No findings."


_COMMANDS: Final[dict[str, Callable[[Coach, str, str], str]]] = {
    "status": _status,
    "settings": _settings,
    "set": _set,
    "pause": _pause,
    "resume": _resume,
    "note": _note,
    "cards": _cards,
    "help": _help,
}
_OF_A_SESSION: Final = frozenset({"pause", "resume", "note"})

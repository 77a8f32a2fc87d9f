"""A packet in words: why the session is stuck, what it is after, what was tried, and what to do instead.

``words(packet, delegation=...)`` is at most ``PACKET_CHARS_MAX`` long whatever happened in the session; of too many
actions the oldest are left out, and it says how many. It holds nothing that the session did not say itself. Where there
is no ``delegate_task`` the way out is another approach or an honest end. No errors.
"""

from __future__ import annotations

from typing import Final

from school.governor.signals import Action, Packet

PACKET_CHARS_MAX: Final = 6000
BEGIN: Final = "<escalation-packet>"
END: Final = "</escalation-packet>"
_WHY: Final = {
    "errors": "{count} tool calls in a row failed",
    "repeats": "the same tool call was made {count} times, and nothing else succeeded in between",
    "requests": "{count} requests to the model failed since a tool call last succeeded",
    "progress": "the model was called {count} times since a tool call last succeeded",
}
# Where the facts end and the advice to the session begins.
ADVICE: Final = "Do not try any of this again in the same way."
_DELEGATE: Final = f"""\
{ADVICE} Instead:
1. Call delegate_task with this packet as the brief, so that a stronger model takes over what is left to do without \
repeating what failed.
2. If you cannot delegate, stop, and give this packet to the user as your report of what blocks you."""
_ALONE: Final = f"""\
{ADVICE} Instead:
1. Say which assumption all of these attempts share, and take an approach that does not need it.
2. If there is none, stop, and end as blocked with this packet as your report of what blocks you."""


def words(packet: Packet, *, delegation: bool = True) -> str:
    """*packet* as it is put before the model."""
    head = [BEGIN, f"This session is stuck: {why(packet)}.", f"Goal: {packet.goal or '(not said)'}"]
    if packet.asked and packet.asked != packet.goal:
        head.append(f"Asked last: {packet.asked}")
    tail = [_DELEGATE if delegation else _ALONE, END]
    lines = [_line(action) for action in packet.tried]
    room = PACKET_CHARS_MAX - sum(len(line) + 1 for line in (*head, *tail)) - 100
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            break
        kept.insert(0, line)
    left_out = len(lines) - len(kept)
    title = "What was tried, and how it ended" + (f" ({left_out} earlier left out):" if left_out else ":")
    return "\n".join([*head, *([title, *kept] if lines else []), *tail])


def why(packet: Packet) -> str:
    """The signals that tripped, in words, with their thresholds."""
    said = [
        _WHY[name].format(count=count) + f" (threshold {threshold})" for name, count, threshold in packet.why
    ]
    return "; ".join(said) or "it was asked for"


def _line(action: Action) -> str:
    target = f" `{action.target}`" if action.target else ""
    times = f" ({action.times} times)" if action.times > 1 else ""
    return f"- {action.tool}{target}: {action.outcome}{times}"

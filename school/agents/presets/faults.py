"""What an error of a CLI or its endpoint means: quota, login, an endpoint that is not there, or none of these.

``fault(text, now) -> Fault`` reads error text as CLIs print it. Only text that a CLI reported *as an error* may be
given to it: what an agent says of its work may hold any of these words. ``retry_at`` is ISO-8601, from a stated moment
or a stated number of seconds, minutes, hours or days; '' where none is stated. ``failed(reading, said)`` puts what the
errors of a reading mean into it, for a turn that did not end well. Pure.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from school.agents.presets.base import DETAIL_BYTES_MAX, Reading, Said
from school.contracts import bounded
from school.system.documents import well_formed

_PRINTED_BYTES: Final = 2000
# Of an agent that was mute from its start until it was ended.
NEVER_BEGAN: Final = (
    "it never began: perhaps it waits for a login, for trust in the folder, or for its endpoint"
)
# Of one whose first turn ended in good order, and empty.
SILENT: Final = "its turn ended without a word and without a call: its model answered nothing"
TEXT_CHARS_MAX: Final = 4000
LONGEST: Final = timedelta(days=31)
_QUOTA: Final = re.compile(
    r"\b429\b|rate.?limit|too many requests|usage limit|quota|insufficient_quota|hit your limit|limit reached"
    r"|out of credits|credits exhausted|credit balance|\b402\b",
    re.IGNORECASE,
)
_LOGIN: Final = re.compile(
    r"\b401\b|\b403\b|unauthori[sz]ed|not logged in|log ?in first|please (?:log|sign) ?in\b|please (?:run|log|sign)[^.]{0,30}log ?in|/login"
    r"|invalid.?(?:x-)?api.?key|incorrect api key|missing (?:environment variable|api key)|no api key"
    r"|api key (?:is )?(?:missing|required|not set)|authentication|credentials?\b|no inference provider"
    r"|no provider (?:is )?configured",
    re.IGNORECASE,
)
_ABSENT: Final = re.compile(
    r"\b5\d\d\b|connection (?:refused|error|reset|aborted|failed)|connect(?:ion)? (?:timed? ?out|error)|unable to connect"
    r"|econn\w+|etimedout|enotfound|eai_again|could not resolve|name or service not known|network|overloaded"
    r"|service unavailable|bad gateway|internal server error|server.?error|stream (?:was )?(?:disconnected|closed|cut)"
    r"|codec can't decode|utf-?8 error|invalid utf-?8|unterminated string|expecting value|json.?parse|jsondecode"
    r"|error sending request|timed? ?out|empty (?:response|stream|content)|apiconnection\w*|fetch failed|cannot connect"
    r"|idle timeout|incomplete chunked|peer closed|socket (?:hang up|closed|connection was closed)|high demand",
    re.IGNORECASE,
)
_NUMBER: Final = r"(\d{1,9}(?:\.\d+)?)"
_UNIT: Final = r"\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)\b"
_AFTER: Final = re.compile(
    r"(?:retry|try again|resets?|available again|wait|reset)[\w\s\"':=_-]{0,30}?(?:in|after|:|=|for)?\s*\"?"
    + _NUMBER
    + _UNIT,
    re.IGNORECASE,
)
_MORE: Final = re.compile(r"\s*(?:,|and)?\s*" + _NUMBER + _UNIT, re.IGNORECASE)
_SECONDS: Final = re.compile(
    r"(?:retry.after|resets?_in_seconds|retry_after_seconds)[\"'\s:=]{1,6}" + _NUMBER + r"(?![\d.]*\s*[a-z])",
    re.IGNORECASE,
)
_EPOCH: Final = re.compile(
    r"(?:resets?_at|reset|limit reached\|)[\"'\s:=]{0,6}(1\d{9})(?:\d{3})?\b", re.IGNORECASE
)
_MOMENT: Final = re.compile(r"\b(20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)")
# A time of day, perhaps with its date, as codex says it: in the zone of whoever reads it.
_HOUR: Final = re.compile(
    r"try again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th),? (\d{4}),? )?(\d{1,2}):(\d{2}) ?([AP]M)"
)
_FACTORS: Final = {"ms": 0.001, "m": 60, "s": 1, "h": 3600, "d": 86400}


class Fault(NamedTuple):
    """What an error means; ``reason`` '' where it is none of the three."""

    reason: str = ""
    retry_at: str = ""


def fault(said: str, now: datetime) -> Fault:
    """What the error *said* means, at *now*."""
    # Prompts and errors are broken into lines anywhere.
    part = " ".join(said[:TEXT_CHARS_MAX].split())
    if _QUOTA.search(part):
        return Fault("quota", reset_in(part, now))
    if _LOGIN.search(part):
        return Fault("login")
    if _ABSENT.search(part):
        return Fault("unavailable")
    return Fault()


def _never_began(reading: Reading, said: Said) -> None:
    """Note what a CLI printed that failed before it told of anything: a login prompt, a wrong option, a crash.

    Only for a turn without a single event: nothing of that can be the words of an agent.
    """
    if said.exit_code and not reading.errors:
        printed = b"\n".join(part[-_PRINTED_BYTES:].strip() for part in (said.stderr, said.stdout))
        if words := printed.decode("utf-8", "backslashreplace").strip():
            reading.errors.append(bounded(well_formed(words), DETAIL_BYTES_MAX))


def failed(reading: Reading, said: Said, *, began: bool = True) -> Reading:
    """*reading* with the reason of its last error, unless the turn ended well; an error of no known kind is ``exit``.

    One that never *began* told of no event at all: what it printed then are its errors.
    """
    if not began:
        _never_began(reading, said)
    if reading.ended or not reading.errors:
        return reading
    reading.detail = bounded(reading.errors[-1], DETAIL_BYTES_MAX)
    meant = fault(reading.errors[-1], said.now)
    reading.reason, reading.retry_at = meant.reason or "exit", meant.retry_at
    return reading


def reset_in(said: str, now: datetime) -> str:
    """The moment that *said* states for another try, as ISO-8601 UTC; '' for none."""
    moment = _stated(said, now)
    if moment is None or not now - timedelta(days=1) <= moment <= now + LONGEST:
        return ""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _stated(said: str, now: datetime) -> datetime | None:
    if found := _EPOCH.search(said):
        return datetime.fromtimestamp(int(found[1]), UTC)
    if found := _SECONDS.search(said):
        return now + timedelta(seconds=min(float(found[1]), LONGEST.total_seconds() * 2))
    if found := _AFTER.search(said):
        return now + timedelta(seconds=_duration(said, found))
    if found := _HOUR.search(said):
        return _time_of_day(found, now)
    found = _MOMENT.search(said)
    return _moment(found[1]) if found else None


def _moment(said: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(said)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _time_of_day(found: re.Match[str], now: datetime) -> datetime | None:
    month, day, year, hour, minute, half = found.groups()
    here = now.astimezone()
    try:
        moment = here.replace(
            hour=int(hour) % 12 + (12 if half == "PM" else 0), minute=int(minute), second=0, microsecond=0
        )
        if month:
            number = datetime.strptime(month, "%b").month  # noqa: DTZ007 - only the name of the month
            return moment.replace(year=int(year), month=number, day=int(day))
    except ValueError:
        return None
    return moment if moment > here - timedelta(minutes=2) else moment + timedelta(days=1)


def _duration(said: str, found: re.Match[str]) -> float:
    """``2 days 3 hours 5 minutes`` from where *found* begins, in seconds."""
    total = 0.0
    part: re.Match[str] | None = found
    while part is not None:
        unit = part[2].lower()
        factor = _FACTORS["ms"] if unit.startswith(("ms", "milli")) else _FACTORS[unit[0]]
        total += float(part[1]) * factor
        part = _MORE.match(said, part.end())
    return min(total, LONGEST.total_seconds() * 2)

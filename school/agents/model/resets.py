"""When an endpoint that refused a call will take calls again: pure, from headers and from the body of its answer.

``seconds_until(headers, body, now)`` understands ``Retry-After`` (seconds or an HTTP date) and ``retry-after-ms``, the
``x-ratelimit-reset…`` headers (``1s``, ``6m0s``, seconds, or an epoch in seconds or milliseconds), Anthropic's
``anthropic-ratelimit-…-reset`` (ISO), and ``resets_at``, ``reset_at``, ``retry_after``, ``resets_in_seconds`` in a JSON
body. Header names in lower case. Of several the explicit one wins, else the latest reset of a bucket that is used up.
None where nothing that can be understood is said; what is said is an endpoint's word and bounded to ``LONGEST_S``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

LONGEST_S: Final = 31 * 86400.0
_EPOCH_LEAST: Final = 1_000_000_000.0
_EPOCH_MS_LEAST: Final = 1_000_000_000_000.0
_DURATION: Final = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?"
)
_UNITS: Final = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_BUCKET: Final = re.compile(r"x-ratelimit-reset|anthropic-ratelimit-.+-reset$")
_BODY_KEYS: Final = ("resets_at", "reset_at", "resets_in_seconds", "retry_after", "retry_after_seconds")
_DEPTH_MAX: Final = 4


def seconds_until(headers: Mapping[str, str], body: object, now: datetime) -> float | None:
    """Seconds from *now* until calls are taken again; None where nobody says."""
    found = next(iter(_explicit(headers, now)), None)
    if found is None:
        found = max(_buckets(headers, now), default=None)
    if found is None:
        found = next(iter(_in_body(body, now, 0)), None)
    return None if found is None else min(max(0.0, found), LONGEST_S)


def _explicit(headers: Mapping[str, str], now: datetime) -> Iterator[float]:
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        yield milliseconds / 1000
    after = _moment(headers.get("retry-after"), now)
    if after is not None:
        yield after


def _buckets(headers: Mapping[str, str], now: datetime) -> Iterator[float]:
    """The resets of the buckets that are used up; of all, where none says how much is left."""
    resets = {name: _moment(value, now) for name, value in headers.items() if _BUCKET.match(name)}
    left = {name: _number(headers.get(name.replace("reset", "remaining"))) for name in resets}
    empty = {name for name, count in left.items() if count is not None and count <= 0}
    for name, seconds in resets.items():
        if seconds is not None and (not empty or name in empty):
            yield seconds


def _in_body(value: object, now: datetime, depth: int) -> Iterator[float]:
    if not isinstance(value, dict) or depth > _DEPTH_MAX:
        return
    for key in _BODY_KEYS:
        seconds = _moment(value.get(key), now)
        if seconds is not None:
            yield seconds
    for inner in value.values():
        yield from _in_body(inner, now, depth + 1)


def _moment(value: Any, now: datetime) -> float | None:  # noqa: ANN401 - what an endpoint sent
    """Seconds from *now* to what *value* names: a number of seconds, an epoch, a duration, or a date."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    number = _number(value)
    if number is not None:
        return _from_number(number, now)
    text = str(value).strip()
    match = _DURATION.fullmatch(text)
    if text and match and any(match.groups()):
        return sum(
            float(part) * unit for part, unit in zip(match.groups(), _UNITS, strict=True) if part is not None
        )
    return _from_date(text, now)


def _from_number(number: float, now: datetime) -> float:
    if number >= _EPOCH_MS_LEAST:
        return number / 1000 - now.timestamp()
    return number - now.timestamp() if number >= _EPOCH_LEAST else number


def _from_date(text: str, now: datetime) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError):
            return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - now).total_seconds()


def _number(value: Any) -> float | None:  # noqa: ANN401 - what an endpoint sent
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if number == number and 0 <= number < float("inf") else None  # noqa: PLR0124 - no NaN

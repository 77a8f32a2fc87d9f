"""Which thresholds hold: the environment over ``escalation-governor.json`` in the Hermes home over ``[governor]``.

``read(settings, table)`` never fails: an adviser's configuration must not keep a session from starting. What cannot be
(a file that is no JSON object, a key that there is not, a value that is no whole number from 1 on) is named in
``problems`` and ignored, key by key. The environment was checked when the settings were read, and ``school.toml`` when it
was loaded: there a bad value is a usage error that names it. 1 trips at the first event; there is no value for "never",
a large number serves. ``GOVERNOR_DISABLE`` ends it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from school.governor.signals import Thresholds
from school.settings import Settings
from school.system import files

FILE_BYTES_MAX: Final = 64 * 1024
ACTIONS_MAX: Final = 100
PROBLEMS_MAX: Final = 20
_KEYS: Final = tuple(one.name for one in fields(Thresholds))
_FROM_ENVIRONMENT: Final = {
    "consecutive_error_threshold": "governor_consecutive_errors",
    "repeat_call_threshold": "governor_repeat_calls",
    "api_error_threshold": "governor_api_errors",
    "no_progress_api_calls": "governor_no_progress_calls",
}


@dataclass(frozen=True, slots=True)
class Terms:
    """The thresholds, where each of them is from, whether there is a governor at all, and what was ignored."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    sources: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    problems: tuple[str, ...] = ()


def read(settings: Settings, table: Mapping[str, Any] | None = None) -> Terms:
    """The terms of this process; *table* is ``[governor]`` of the project's configuration."""
    path = settings.governor_file
    given, problems = _of_file(path)
    terms = _with(Terms(), table or {}, "[governor]")
    terms = _with(replace(terms, problems=(*terms.problems, *problems)), given, path.name)
    environment = {key: getattr(settings, name) for key, name in _FROM_ENVIRONMENT.items()}
    terms = _with(
        terms, {key: value for key, value in environment.items() if value is not None}, "environment"
    )
    return replace(
        terms, enabled=not settings.governor_disabled, problems=tuple(terms.problems[:PROBLEMS_MAX])
    )


def _of_file(path: Path) -> tuple[Mapping[str, Any], list[str]]:
    try:
        raw = files.read_bytes(path, limit_bytes=FILE_BYTES_MAX, follow=True)
        if raw is None:
            return {}, []
        found = files.loads(raw)
    except (OSError, ValueError, RecursionError) as cause:
        return {}, [f"{path.name}: ignored: {cause}"]
    if not isinstance(found, dict):
        return {}, [f"{path.name}: ignored: it is no JSON object"]
    return found, []


def _with(terms: Terms, table: Mapping[str, Any], source: str) -> Terms:
    """*terms* with what *table* of *source* says, as far as it can be."""
    good = {key: value for key, value in table.items() if not _problem(key, value)}
    bad = [
        f"{source}: {str(key)[:60]}: {problem}"
        for key, value in table.items()
        if (problem := _problem(key, value))
    ]
    return replace(
        terms,
        thresholds=replace(terms.thresholds, **good),
        sources={**terms.sources, **dict.fromkeys(good, source)},
        problems=(*terms.problems, *bad),
    )


def _problem(key: object, value: object) -> str:
    """Why *key* cannot have *value*, or ''."""
    if key not in _KEYS:
        return f"ignored: there is no such key; there are {', '.join(_KEYS)}"
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return f"{str(value)[:60]!r} is ignored: expected a whole number of at least 1"
    if key == "max_packet_actions" and value > ACTIONS_MAX:
        return f"{value} is ignored: expected at most {ACTIONS_MAX}"
    return ""

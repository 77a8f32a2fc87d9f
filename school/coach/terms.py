"""The coach's settings: every key of ``[coach]`` with its default and bounds, and ``/coach set KEY VALUE``.

``read_terms(table)`` checks a table from a configuration; ``changed(terms, key, text)`` is the terms with one key set
from what somebody typed. What each key does is in docs/coach.md. Errors: ConfigError, naming the key that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from school.contracts import CoachConfig
from school.errors import ConfigError

CHARS_A_TOKEN: Final = 4
# Who the coach is and where it may be asked is not for the session that it watches to change.
_FIXED: Final = frozenset({"model", "base_url", "api_key_env"})


class CoachTerms(CoachConfig):
    """The settings of one coach."""

    @property
    def prompt_chars_max(self) -> int:
        """How long system text and prompt together may be."""
        return self.ledger_max_tokens * CHARS_A_TOKEN


def read_terms(table: Mapping[str, Any], *, where: str = "[coach]") -> CoachTerms:
    """The terms that *table* states, over the defaults."""
    try:
        return CoachTerms.model_validate(dict(table))
    except ValidationError as cause:
        wrong = cause.errors(include_url=False)[0]
        key = ".".join(str(part) for part in wrong["loc"]) or "it"
        if wrong["type"] == "extra_forbidden":
            raise ConfigError(f"{where} {key}: no such key; there are {', '.join(keys())}") from None
        raise ConfigError(f"{where} {key} = {wrong['input']!r}: {wrong['msg']}") from None


def keys() -> list[str]:
    """Every key that there is."""
    return list(CoachTerms.model_fields)


def set_over(terms: CoachTerms, key: str, value: object, *, where: str) -> CoachTerms:
    """*terms* with *key* set to *value* by a session's user."""
    if key in _FIXED:
        raise ConfigError(f"{key}: it is set in the configuration only")
    return read_terms({**terms.model_dump(), key: value}, where=where)


def changed(terms: CoachTerms, key: str, text: str) -> tuple[CoachTerms, object]:
    """*terms* with *key* set to what *text* says (``none`` is the absence of a limit), and the value, as it can be kept."""
    value = None if text.strip().lower() == "none" else text.strip()
    new = set_over(terms, key, value, where="coach")
    return new, new.model_dump()[key]

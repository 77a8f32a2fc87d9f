"""The coach's settings: every key of ``[coach]`` with its default and bounds, and ``/coach set KEY VALUE``.

``read_terms(table)`` checks a table from a configuration; ``changed(terms, key, text)`` is the terms with one key set
from what somebody typed. What each key does is in docs/coach.md. Errors: ConfigError, naming the key that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from school.contracts import Strict
from school.errors import ConfigError

CHARS_A_TOKEN: Final = 4
# Below this, system text, guidance, session note, question and the newest user message would not fit together.
LEDGER_TOKENS_MIN: Final = 3_000
GUIDANCE_CHARS_MAX: Final = 1_000
# Who the coach is and where it may be asked is not for the session that it watches to change.
_FIXED: Final = frozenset({"model", "base_url", "api_key_env"})


class CoachTerms(Strict):
    """What a coach may do and spend. A budget of None has no limit of its own; the others still hold."""

    enabled: bool = True
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    guidance: str = Field(default="", max_length=GUIDANCE_CHARS_MAX)

    active: bool = True
    active_timing: Literal["pre", "post", "both"] = "post"
    active_every_turns: int = Field(default=3, ge=1, le=1000)
    active_timeout_s: float = Field(default=45.0, gt=0, le=300)
    pre_timeout_s: float = Field(default=10.0, gt=0, le=60)

    completion_review: bool = True
    gate_timeout_s: float = Field(default=20.0, gt=0, le=300)
    review_authority: Literal["advise", "hold_once"] = "advise"
    review_evidence_max_chars: int = Field(default=128_000, ge=1_000, le=2_000_000)

    delivery: Literal["note", "inject"] = "note"
    corrective_cap: int = Field(default=2, ge=0, le=1000)
    note_ttl_s: float = Field(default=1800.0, gt=0)

    consult_per_turn: int = Field(default=2, ge=0, le=100)
    decide_per_turn: int = Field(default=2, ge=0, le=100)
    consult_timeout_s: float = Field(default=45.0, gt=0, le=300)

    skip_same_model: bool = True
    allow_in_subagents: bool = False

    ledger_max_tokens: int = Field(default=40_000, ge=LEDGER_TOKENS_MIN, le=1_000_000)
    budget_calls: int = Field(default=40, ge=0)
    budget_tokens: int | None = Field(default=None, ge=0)
    budget_usd: float | None = Field(default=None, ge=0)

    sessions_max: int = Field(default=200, ge=1)
    sessions_days: float = Field(default=30.0, gt=0)

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


def typed(key: str, text: str) -> object:
    """What *text* stands for as a value of *key*: ``none`` is the absence of a limit, the rest is read by the key."""
    if key in _FIXED:
        raise ConfigError(f"{key}: it is set in the configuration only")
    return None if text.strip().lower() == "none" else text.strip()


def changed(terms: CoachTerms, key: str, text: str) -> tuple[CoachTerms, object]:
    """*terms* with *key* set to what *text* says, and the value itself, as it can be kept."""
    new = read_terms({**terms.model_dump(), key: typed(key, text)}, where="coach")
    return new, new.model_dump()[key]

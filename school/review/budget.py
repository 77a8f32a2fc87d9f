"""What a bead may still spend on its reviews, and which of them its budget stopped. Pure.

``left_of(bag)`` is the bead's share of ``[limits] tokens`` and ``cost_usd`` less all that it used. A review that may not make
its next call leaves in its record what going on would take (``Review.short_of``): it is over until the conductor takes that
away, which ``renewed`` does once the share suffices. ``owing`` names who is still to judge now, ``lacks`` what a stopped
review is short of, in a sentence.

What it takes is what the stopped review had used by then, since it begins anew, and the prompt that was not sent: always more
than was left, so that nobody asks twice with the same share. Not promised: that it is enough for an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from school.contracts import TEACHER_ROLES, Limits, TeacherRole

_TOKENS: Final = ("input_tokens", "output_tokens")

Bag = Mapping[str, Any]


def spent(usages: Iterable[object]) -> tuple[int, float]:
    """(tokens, USD) of all *usages* together; what nobody knows, or is no number, is nothing."""
    known = list(usages)
    tokens = sum(_number(usage, name) for usage in known for name in _TOKENS)
    return int(tokens), sum(_number(usage, "cost_usd") for usage in known)


def used_by(bag: Bag) -> tuple[int, float]:
    """(tokens, USD) of one bead: its student with its coach, and its two reviewers."""
    usage = bag.get("usage") or {}
    return spent([usage, usage.get("coach"), *(_review(bag, role).get("usage") for role in TEACHER_ROLES)])


def left_of(bag: Bag, more: Iterable[object] = ()) -> tuple[float, float]:
    """What of *bag*'s share is left, in tokens and USD, after what it used and *more*; below 0 where it was exceeded."""
    limits = Limits.model_validate(bag.get("limits") or {})
    tokens, cost = (mine + others for mine, others in zip(used_by(bag), spent(more), strict=True))
    return (
        math.inf if limits.tokens is None else limits.tokens - tokens,
        math.inf if limits.cost_usd is None else limits.cost_usd - cost,
    )


def stopped(bag: Bag, role: TeacherRole) -> bool:
    """Whether the budget stopped the review of *role*, and nobody has said since that it may go on."""
    return bool(_review(bag, role).get("short_of")) and not bag.get(f"{role}_verdict")


def owing(bag: Bag) -> list[TeacherRole]:
    """The roles that owe *bag* a verdict and may get on with it."""
    return [role for role in TEACHER_ROLES if not bag.get(f"{role}_verdict") and not stopped(bag, role)]


def lacks(bag: Bag, role: TeacherRole) -> str:
    """What the stopped review of *role* is short of, in a sentence; '' where enough is left."""
    short_of = _review(bag, role).get("short_of")
    tokens, cost = left_of(bag)
    why = []
    if (more := _number(short_of, "tokens") - tokens) > 0:
        why.append(f"[limits] tokens: {max(tokens, 0):.0f} left, raise it by {more:.0f} at least")
    if (more := _number(short_of, "cost_usd") - cost) >= 0:
        why.append(f"[limits] cost_usd: {max(cost, 0):.6g} left, raise it by more than {more:.6g}")
    return f"too little is left for the {role}'s review ({'; '.join(why)})" if why else ""


def said(bag: Bag) -> str:
    """What the stopped reviews of *bag* are short of; '' where the budget stopped none."""
    return "; ".join(why for role in TEACHER_ROLES if stopped(bag, role) and (why := lacks(bag, role)))


def renewed(bag: Bag, share: Mapping[str, Any]) -> Bag:
    """*bag* with *share* as its limits, and the reviews that it suffices for free to go on; *bag* itself where all is so."""
    limits = bag.get("limits") or {}
    if any(limits.get(name) != value for name, value in share.items()):
        bag = {**bag, "limits": {**limits, **share}}
    free = [role for role in TEACHER_ROLES if stopped(bag, role) and not lacks(bag, role)]
    return (
        {**bag, **{f"{role}_review": {**_review(bag, role), "short_of": {}} for role in free}}
        if free
        else bag
    )


def _review(bag: Bag, role: str) -> Mapping[str, Any]:
    return bag.get(f"{role}_review") or {}


def _number(usage: object, name: str) -> float:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return max(0.0, float(value)) if fine else 0.0  # type: ignore[arg-type]

"""What a bead may spend on its reviews; which the budget stopped, what they take, and when they may go on."""

from __future__ import annotations

import math
from typing import Any

import pytest

from school.contracts import CheckResult
from school.review.budget import lacks, left_of, owing, renewed, said, spent, stopped
from school.review.verdicts import decide


def bag(**fields: Any) -> dict[str, Any]:
    return {"bead": "b", "limits": {"tokens": 1_000}, **fields}


def stop(tokens: float = 0, cost_usd: float = 0.0, used: int = 0) -> dict[str, Any]:
    return {"short_of": {"tokens": tokens, "cost_usd": cost_usd}, "usage": {"input_tokens": used}}


def test_what_is_left_is_the_share_less_all_that_was_used() -> None:
    used = {"input_tokens": 300, "output_tokens": 50, "cost_usd": 0.25}
    assert left_of({}) == (math.inf, math.inf)
    assert left_of(bag(usage=used), [used]) == (300, math.inf)
    assert left_of(bag(limits={"cost_usd": 0.5, "tokens": 100}, cto_review={"usage": used})) == (-250, 0.25)
    assert spent([used, None, "nonsense", {"input_tokens": -5, "cost_usd": math.nan}]) == (350, 0.25)


def test_whom_the_budget_stopped_nobody_waits_for() -> None:
    waits = bag(cto_review=stop(5_000))
    assert [stopped(waits, "cto"), stopped(waits, "coo"), owing(waits)] == [True, False, ["coo"]]
    assert owing({**waits, "coo_verdict": "PASS"}) == []
    assert owing(bag()) == ["cto", "coo"]
    # A verdict that is in tells that its review went on.
    assert not stopped({**waits, "cto_verdict": "FAIL"}, "cto")


@pytest.mark.parametrize(
    ("limits", "review", "why"),
    [
        ({"tokens": 1_000}, stop(1_000), ""),
        ({"tokens": 1_000}, stop(1_001), "[limits] tokens: 1000 left, raise it by 1 at least"),
        ({"tokens": 1_000}, stop(900, used=200), "[limits] tokens: 800 left, raise it by 100 at least"),
        ({"tokens": 1_000}, stop(900, used=1_200), "[limits] tokens: 0 left, raise it by 1100 at least"),
        ({"tokens": None}, stop(10**9), ""),
        ({}, stop(10**9), ""),
        ({"cost_usd": 0.02}, stop(), ""),
        ({"cost_usd": 0.0}, stop(), "[limits] cost_usd: 0 left, raise it by more than 0"),
        ({"cost_usd": 0.02}, stop(0, 0.02), "[limits] cost_usd: 0.02 left, raise it by more than 0"),
        ({"cost_usd": 0.02}, stop(0, 0.05), "[limits] cost_usd: 0.02 left, raise it by more than 0.03"),
        ({"tokens": 1_000}, {"short_of": {"tokens": "all", "cost_usd": math.nan}}, ""),
    ],
)
def test_what_a_stopped_review_is_short_of(limits: dict[str, Any], review: dict[str, Any], why: str) -> None:
    told = lacks(bag(limits=limits, coo_review=review), "coo")
    assert told == (f"too little is left for the coo's review ({why})" if why else "")
    assert said(bag(limits=limits, coo_review=review)) == told


def test_both_limits_and_both_reviews_are_told() -> None:
    told = said(bag(limits={"tokens": 10, "cost_usd": 0.0}, cto_review=stop(20), coo_review=stop(30)))
    assert told.count("[limits] tokens: 10 left") == told.count("[limits] cost_usd: 0 left") == 2


def test_a_share_frees_those_that_it_suffices_for_and_nothing_else() -> None:
    waits = bag(cto_review=stop(5_000), coo_review={**stop(2_000), "attempts": 1})
    assert renewed(waits, {"tokens": 1_000}) is waits
    more = renewed(waits, {"tokens": 3_000})
    assert (more["limits"], stopped(more, "cto"), stopped(more, "coo")) == ({"tokens": 3_000}, True, False)
    assert more["coo_review"] == {**stop(2_000), "attempts": 1, "short_of": {}}
    less = renewed(more, {"tokens": 10})
    assert (less["limits"], stopped(less, "coo")) == ({"tokens": 10}, False)
    free = renewed(waits, {"tokens": None, "cost_usd": None})
    assert owing(free) == ["cto", "coo"]
    assert renewed({"bead": "b"}, {"tokens": None, "cost_usd": None}) == {"bead": "b"}


def result(tokens: int = 0, short_of: int = 0, **fields: Any) -> CheckResult:
    usage = {"input_tokens": tokens, "cost_usd": tokens / 1_000} if tokens else {}
    stop_ = {"tokens": short_of, "cost_usd": 0.0} if short_of else {}
    why = "budget: too few" if short_of else ""
    return CheckResult("m", "COMPLETENESS", usage=usage, no_verdict=why, short_of=stop_, **fields)


def test_going_on_takes_all_that_was_used_and_what_was_not_sent() -> None:
    found = decide("coo", [result(400), result(100, 700), result(0, 900)])
    assert (found.verdict, found.short_of) == ("", {"tokens": 2_100, "cost_usd": 0.5})
    assert decide("coo", [result(400)]).short_of == {}
    # Who began with less than that is stopped again, so that many are more than were left.
    left = 500 + 699
    assert lacks(bag(limits={"tokens": left}, coo_review={"short_of": found.short_of}), "coo")


def test_what_fails_fails_whatever_the_budget_left_unseen() -> None:
    from school.contracts import Finding

    bad = Finding(section="x", severity="HIGH", issue_class="x", description="x")
    found = decide("coo", [result(0, 700, findings=[bad])])
    assert (found.verdict, found.short_of) == ("FAIL", {})

"""What attempts used, against the limits of a run: from students and reviewers alike, each bead once."""

import pytest

from school.review.budget import used_by
from school.supervisor.spending import Spending


def bag(bead="b", usage=None, cto=None, coo=None):
    return {
        "bead": bead,
        "usage": usage or {},
        "cto_review": {"usage": cto or {}},
        "coo_review": {"usage": coo or {}},
    }


def test_student_and_reviewers_are_added():
    used = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.5}
    review = {"input_tokens": 7, "output_tokens": 3, "cost_usd": None, "requests": 2}
    assert used_by(bag(usage=used, cto=review, coo=review)) == (140, 0.5)
    coach = {"calls": 2, "input_tokens": 30, "output_tokens": 4, "cost_usd": 0.125, "by": {"completion": 2}}
    assert used_by(bag(usage={**used, "coach": coach}, cto=review, coo=review)) == (174, 0.625)
    assert used_by(bag(usage={"input_tokens": 1, "coach": "nonsense"})) == (1, 0.0)
    assert used_by({"bead": "b"}) == (0, 0.0)


@pytest.mark.parametrize("junk", ["12", None, [], True, -5, float("nan"), float("inf")])
def test_what_is_no_number_counts_as_nothing(junk):
    assert used_by(bag(usage={"input_tokens": junk, "output_tokens": 1, "cost_usd": junk})) == (1, 0.0)


def test_a_bead_counts_once_with_the_newest_that_is_known_of_it():
    spending = Spending(tokens=100, cost_usd=None)
    spending.count(bag(usage={"input_tokens": 40}))
    spending.count(bag(usage={"input_tokens": 40}, cto={"input_tokens": 9}))
    assert spending.over() == ""
    assert spending.left() == {"tokens": 51, "cost_usd": None}
    spending.count(bag("c", usage={"output_tokens": 51}))
    assert spending.over() == "[limits] tokens = 100 are used up (100 by the attempts at these tasks)"


def test_a_cost_is_a_limit_of_its_own():
    spending = Spending(tokens=None, cost_usd=0.01)
    assert spending.limited
    spending.count(bag(usage={"cost_usd": 0.004}))
    assert spending.left() == {"tokens": None, "cost_usd": 0.006}
    spending.count(bag("c", coo={"cost_usd": 0.0061}))
    assert spending.over() == "[limits] cost_usd = 0.01 is used up (0.0101 by the attempts at these tasks)"
    assert spending.left()["cost_usd"] == 1e-6


def test_no_limit_is_never_over():
    spending = Spending(None, None)
    spending.count(bag(usage={"input_tokens": 10**12, "cost_usd": 1e9}))
    assert (spending.limited, spending.over()) == (False, "")


def test_a_share_is_the_limits_less_what_the_others_used():
    spending = Spending(tokens=100, cost_usd=0.5)
    spending.count(bag(usage={"input_tokens": 40, "cost_usd": 0.2}))
    spending.count(bag("c", coo={"input_tokens": 70, "cost_usd": 0.4}))
    assert spending.share({"bead": "b"}) == {"tokens": 30, "cost_usd": 0.1}
    assert spending.share({"bead": "c"}) == {"tokens": 60, "cost_usd": 0.3}
    # Below 0, so that what is said of how much is lacking is true.
    assert spending.share({"bead": "new"}) == {"tokens": -10, "cost_usd": -0.1}
    assert Spending(None, None).share({"bead": "b"}) == {"tokens": None, "cost_usd": None}

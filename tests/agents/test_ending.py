"""Where a bead stands after its agent: the whole table."""

from __future__ import annotations

import itertools

import pytest

from school.agents.ending import Ending, decide
from school.contracts import AgentOutcome, AgentSpec, Claim

RUN = AgentSpec(name="run:x", kind="run", argv=["x"])
CHORE = AgentSpec(name="chore:format", kind="run", argv=["x"], chore="format")
COMMAND = AgentSpec(name="cli", kind="command", argv=["x"])
OUTSIDE = ("timeout", "stalled", "startup", "killed", "quota", "not_installed", "interrupted", "disk_full")
OPEN = Ending("open", "")


def outcome(status: str, reason: str = "", *, claimed: bool) -> AgentOutcome:
    return AgentOutcome(Claim.model_validate({"status": status}), reason, claimed=claimed)


@pytest.mark.parametrize("spec", [RUN, CHORE, COMMAND])
@pytest.mark.parametrize("reason", OUTSIDE)
def test_ended_from_outside_has_failed_whatever_it_claims(reason: str, spec: AgentSpec) -> None:
    for status, changed in itertools.product(("done", "no_change", "blocked", "failed"), (True, False)):
        assert decide(outcome(status, reason, claimed=True), spec, changed=changed) == Ending(
            "failed", reason
        )


@pytest.mark.parametrize("spec", [RUN, CHORE, COMMAND])
@pytest.mark.parametrize("reason", ["", "exit"])
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("done", OPEN),
        ("no_change", OPEN),
        ("blocked", Ending("blocked", "agent")),
        ("failed", Ending("failed", "agent")),
    ],
)
def test_a_claim_counts_more_than_an_exit_status(
    status: str, expected: Ending, reason: str, spec: AgentSpec
) -> None:
    assert decide(outcome(status, reason, claimed=True), spec, changed=False) == expected


@pytest.mark.parametrize(
    ("spec", "changed", "expected"),
    [
        (RUN, True, OPEN),
        (RUN, False, Ending("failed", "exit")),
        (CHORE, True, Ending("failed", "exit")),
        (COMMAND, True, Ending("failed", "exit")),
        (COMMAND, False, Ending("failed", "exit")),
    ],
)
def test_a_bad_exit_without_a_claim(spec: AgentSpec, changed: bool, expected: Ending) -> None:
    assert decide(outcome("done", "exit", claimed=False), spec, changed=changed) == expected


@pytest.mark.parametrize("spec", [RUN, CHORE, COMMAND])
@pytest.mark.parametrize("changed", [True, False])
def test_a_good_exit_without_a_claim_is_handed_over(spec: AgentSpec, changed: bool) -> None:
    assert decide(outcome("done", claimed=False), spec, changed=changed) == OPEN

"""``check``: is the state directory what it must be; each invariant by name, each violation with its bead.

``check_document(settings)`` returns the rows of the contract: one ``ok`` row for each invariant that holds, and for
one that does not, a row for each violation, with its ``bead``. ``failed(rows)`` says whether any does not hold.
With *repair* what can be put right without losing anything is put right first (the caller holds the repository's
lock), and looked at again; ``docs/checks.md`` says what that is.

While a process of the school is at work, things may be between two steps: then everything is looked at twice, and
only what is wrong both times counts. Nothing here raises for a bad record; MachineError for a disk that refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from school.settings import Settings
from school.status.checks import journals, leftovers, records
from school.status.checks.world import Bag, Violation, World

SHOWN_MAX: Final = 100

_OF_RECORDS: Final[Mapping[str, Callable[[str, Bag, Settings], Iterator[Violation]]]] = {
    "verdict-has-review": records.verdict_has_review,
    "accepted-passed-twice": records.accepted_passed_twice,
    "evidence-on-judged-tree": records.evidence_on_judged_tree,
    "outcome-follows-reviews": records.outcome_follows,
}
_OF_THE_WHOLE: Final[Mapping[str, Callable[[World], Iterator[Violation]]]] = {
    "one-place-a-bead": records.one_place,
    "work-is-kept": records.work_is_kept,
    "score-once": journals.score_once,
    "scores-follow-journal": journals.scores_follow_journal,
    "scored-has-line": journals.scored_has_line,
    "delivered-once": journals.delivered_once,
    "task-records-agree": journals.task_records_agree,
    "flags-in-step": leftovers.flags_in_step,
    "no-dead-locks": leftovers.no_dead_locks,
    "processes-accounted-for": leftovers.processes_accounted,
    "no-stray-process": leftovers.no_strays,
    "worktrees-accounted-for": leftovers.worktrees_accounted,
    "bead-folders-accounted-for": leftovers.bead_repositories_accounted,
    "no-temporary-files": leftovers.no_temporaries,
}
CHECKS: Final = ("bookbag-valid", *_OF_RECORDS, *_OF_THE_WHOLE)

Found = dict[str, list[Violation]]


def check_document(settings: Settings, *, repair: bool = False) -> list[dict[str, Any]]:
    """The rows of ``check``."""
    world = World(settings)
    found = _settled(world)
    repaired: set[str] = set()
    if repair and any(found.values()):
        from school.status.repair import put_right

        before = {name for name, violations in found.items() if violations}
        put_right(settings, found)
        world = World(settings)
        found = _settled(world)
        repaired = {name for name in before if not found[name]}
    seen = f"{len(world.beads)} bookbags"
    return [row for name in CHECKS for row in _rows(name, found[name], seen, repaired)]


def failed(rows: Iterable[Mapping[str, Any]]) -> bool:
    return any(row["ok"] is False for row in rows)


def _settled(world: World) -> Found:
    """What is wrong, and stays wrong on a second look if somebody is at work."""
    found = find(world)
    if any(found.values()) and world.someone_lives():
        again = find(World(world.settings))
        found = {name: [item for item in found[name] if item in again[name]] for name in CHECKS}
    return found


def find(world: World) -> Found:
    """Every violation, by the name of its invariant."""
    found: Found = {name: [] for name in CHECKS}
    for path, bead, bag, _ in world.records():
        found["bookbag-valid"] += records.bookbag_valid(bead, bag, path)
        if bag is not None:
            for name, invariant in _OF_RECORDS.items():
                found[name] += _safely(bead, invariant(bead, bag, world.settings))
    for name, invariant_of_all in _OF_THE_WHOLE.items():
        found[name] += invariant_of_all(world)
    return found


def _safely(bead: str, violations: Iterator[Violation]) -> Iterator[Violation]:
    """A record whose fields are of the wrong kind is a violation, not the end of the check."""
    try:
        yield from violations
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        yield Violation(bead, f"its fields are of the wrong kind: {error}")


def _rows(name: str, violations: list[Violation], seen: str, repaired: set[str]) -> Iterator[dict[str, Any]]:
    if not violations:
        yield {"check": name, "ok": True, "detail": "repaired" if name in repaired else seen}
    for violation in violations[:SHOWN_MAX]:
        yield {"check": name, "ok": False, "detail": violation.detail, "bead": violation.bead}
    if len(violations) > SHOWN_MAX:
        yield {"check": name, "ok": False, "detail": f"and {len(violations) - SHOWN_MAX} more", "bead": ""}

"""Invariants of what is entered once: scores, deliveries, and the records of tasks (P4, P10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from school.scores import Fold, is_score_line, refold, scores_document
from school.status import look
from school.status.checks.world import Violation, World
from school.system import files


def score_once(world: World) -> Iterator[Violation]:
    """A bead has at most one line in the score journal, and each line follows from those before it."""
    counted: Counter[str] = Counter()
    fold = Fold()
    for line in files.read_json_lines(world.settings.score_journal):
        if not is_score_line(line):
            continue
        counted[line["bead"]] += 1
        before, after = fold.take(line)
        if (line.get("before"), line.get("after")) != (before, after) and counted[line["bead"]] == 1:
            said = f"{line.get('before')} to {line.get('after')}"
            yield Violation(line["bead"], f"its line says {said}, the journal before it {before} to {after}")
    for bead, number in sorted(counted.items()):
        if number > 1:
            yield Violation(bead, f"it has {number} lines in the score journal")


def scores_follow_journal(world: World) -> Iterator[Violation]:
    """``scores.json`` is the fold of the part of the journal that it says it has folded."""
    path = world.settings.scores_file
    if not path.exists():
        return
    saved = look.read(path)
    if saved is None:
        yield Violation("", f"{path}: it cannot be read")
        return
    folded = scores_document(refold(world.settings.score_journal, until=saved.get("journal_bytes")))
    if saved != folded:
        yield Violation("", f"{path}: it is not what the journal adds up to")


def scored_has_line(world: World) -> Iterator[Violation]:
    """A record that says it was scored has its line in the journal, with the same numbers."""
    lines = {line.get("bead"): line for line in files.read_json_lines(world.settings.score_journal)}
    for bead, facts in sorted(world.beads.items()):
        if not facts.scored:
            continue
        line = lines.get(bead)
        if line is None:
            yield Violation(bead, "it says that it was scored, and the journal knows nothing of it")
            continue
        said = {key: (facts.score or {}).get(key) for key in ("task", "before", "after")}
        if said != {key: line.get(key) for key in said}:
            yield Violation(bead, f"its score {said} is not what the journal says")


def delivered_once(world: World) -> Iterator[Violation]:
    """A bead is delivered at most once, what its record says is what was done, and it was accepted."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for line in files.read_json_lines(world.settings.deliveries_journal):
        if line.get("step") == "delivered" and isinstance(line.get("bead"), str):
            lines.setdefault(line["bead"], []).append(line)
    for bead, found in sorted(lines.items()):
        if len(found) > 1:
            yield Violation(bead, f"it was delivered {len(found)} times")
        facts = world.beads.get(bead)
        if facts and not facts.accepted:
            yield Violation(bead, f"it was delivered as {found[0].get('branch')}, and is not accepted")
    for bead, facts in sorted(world.beads.items()):
        if facts.delivered is None:
            continue
        known = {(line.get("branch"), line.get("commit")) for line in lines.get(bead, [])}
        said = (facts.delivered.get("branch"), facts.delivered.get("commit"))
        if said not in known:
            yield Violation(bead, f"it says that it was delivered as {said[0]}, and the journal does not")
        if said[1] != facts.head_commit:
            yield Violation(bead, f"{said[0]} was made of {said[1]}, not of its commit {facts.head_commit}")


def task_records_agree(world: World) -> Iterator[Violation]:
    """What the record of a task says of an archived bead is how that bead ended, and no bead is left out."""
    entered: dict[str, str] = {}
    for path in sorted(world.settings.tasks_dir.glob("*/*.json")):
        record = look.read(path) if not path.name.startswith(".") else {}
        if record is None:
            yield Violation("", f"{path}: it cannot be read")
            continue
        for attempt in record.get("attempts") or []:
            entered[str(attempt.get("bead"))] = str(attempt.get("outcome"))
    for bead, facts in sorted(world.beads.items()):
        if not (facts.archived and facts.task_id and facts.task_digest and facts.attempt_outcome):
            continue
        if entered.get(bead) != facts.attempt_outcome:
            said = entered.get(bead, "nothing")
            yield Violation(bead, f"it ended {facts.attempt_outcome}, the record of its task says {said}")

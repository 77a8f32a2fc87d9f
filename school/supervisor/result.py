"""What a run says at its end: the JSON document of the contract, and the same for people.

Built from the records on disk, not from what the run remembers, so the screen says what the disk says.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from school.supervisor.board import Register, bag_of, refused, remarks, why_ended
from school.supervisor.plan import Plan
from school.supervisor.rounds import TaskState, counts, last_line
from school.worktrees import Repository, SchoolClone, clone_for

SIGNALLED: Final = 128
FINDINGS_MAX: Final = 20
_ENDED_WITHOUT_BRANCH: Final = ("rejected", "failed", "blocked")
# (bag, repository, clone, row) to the lines that say how to look and how to merge.
Instructions = Callable[[Mapping[str, Any], Repository, SchoolClone, Mapping[str, str]], list[str]]


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a run. ``error`` says what ended it early, in a sentence."""

    document: dict[str, Any]
    exit: int
    error: str = ""
    said: str = ""
    plan: Plan | None = None


def task_row(state: TaskState, outcome: str, reason: str) -> dict[str, Any]:
    """One entry of ``tasks``."""
    bag = (bag_of(state.bead) if state.bead else None) or {}
    delivered = bag.get("delivered") or {}
    published = bag.get("head_commit") if bag.get("head_commit") != bag.get("base_commit") else ""
    withheld = str(bag.get("withheld") or "")
    found = (bag.get("findings") or [])[:FINDINGS_MAX]
    return {
        "id": state.id,
        "outcome": outcome,
        "attempts": state.charged,
        "bead": state.bead,
        "cto_verdict": bag.get("cto_verdict", ""),
        "coo_verdict": bag.get("coo_verdict", ""),
        "branch": delivered.get("branch", ""),
        "commit": delivered.get("commit") or published or "",
        "ref": str(bag.get("published_ref") or f"refs/school/{state.bead}")
        if published and not withheld
        else "",
        "reason": reason or (why_ended(bag) if outcome == "rejected" else ""),
        "withheld": withheld,
        "findings": [
            {name: f.get(name, "") for name in ("severity", "issue_class", "citation")} for f in found
        ],
        "refused": refused(bag),
    }


def document(plan: Plan, run: str, register: Register, cut_short: str = "") -> dict[str, Any]:
    """The document without its ``exit``, which also depends on how the run ended; *cut_short* says by what, if it was."""
    rows = [task_row(state, *register.board.final(state, cut_short)) for state in register.states()]
    return {
        "run": run,
        "repo": str(plan.repository.path),
        "base": plan.base_commit,
        "tasks": rows,
        "counts": counts(row["outcome"] for row in rows),
    }


def nothing_to_resume(repo: str) -> Result:
    """The result of continuing what was never begun."""
    found = {"run": "", "repo": repo, "base": "", "tasks": [], "counts": counts([]), "exit": 0}
    return Result(found, 0, said=f"Nothing to resume: no run was ever begun on {repo}.")


def for_people(result: Result, instructions: Instructions) -> Iterator[str]:
    """What a person wants to know at the end; the last line is the counts."""
    if result.said:
        yield result.said
    for row in result.document["tasks"]:
        if row["branch"] and result.plan is not None and (bag := bag_of(row["bead"])) is not None:
            yield f"\n{row['id']} is on branch {row['branch']}:"
            found = instructions(
                bag, result.plan.repository, clone_for(bag, settings=result.plan.settings), row
            )
            yield from (f"  {line}" for line in found)
            if known := remarks(bag):
                yield f"  accepted {known}"
                yield f"  more:   python conductor.py show {row['bead']}"
        elif row["bead"] and row["outcome"] in _ENDED_WITHOUT_BRANCH and result.plan is not None:
            yield from _undelivered(row, result.plan.repository)
        elif row["outcome"] == "expired" and row["reason"].startswith("budget: "):
            yield f"\n{row['id']}: {row['reason']}; its work waits for its review"
            yield "  again:  commit a higher limit in school.toml, then the same command, or --resume"
    if result.exit > SIGNALLED or result.error:
        yield f"Continue with: python conductor.py --resume --repo {shlex.quote(result.document['repo'])}"
    yield last_line(result.document["counts"])


def _undelivered(row: Mapping[str, Any], repository: Repository) -> Iterator[str]:
    """Where the work of a task lies that ended without a branch, and the commands to look at it and to keep it."""
    bead, ref, place = row["bead"], row["ref"], shlex.quote(str(repository.path))
    git = repository.git()
    there = bool(ref) and git.ok("show-ref", "--verify", "--quiet", ref)
    kept = there and not git.ok("diff-tree", "--quiet", f"{ref}^", ref)
    yield f"\n{row['id']}: {row['outcome']}" + (f", its work is kept as {ref}:" if kept else ":")
    yield f"  why:    python conductor.py show {bead}"
    if row.get("withheld"):
        yield "  it holds a secret, so its work stays in our own clone, and nothing of it is in your repository"
        yield f"  bring:  python conductor.py recover {bead} --repo {place}"
    if kept:
        yield f"  look:   git -C {place} show {ref}"
        yield f"  keep:   git -C {place} branch {bead} {ref}"
    if row["outcome"] == "blocked":
        yield f"  again:  python conductor.py retry {row['id']} --repo {place}"

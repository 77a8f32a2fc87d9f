"""What the invariants look at: one pass over every record, and what is kept of it.

Bookbags are looked at one by one and only a few facts of each are kept, so that an archive of a hundred thousand
beads fits. Review files are read when a record names them.

What it does not promise: one instant. A state directory that is at work is looked at twice by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from school.records.moves import bookbag_state
from school.settings import Settings
from school.status import look

Bag = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One thing that is not as it must be; ``bead`` is empty where it is about none."""

    bead: str
    detail: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is kept of one bookbag."""

    bead: str
    state: str
    archived: bool
    repo: str
    repo_key: str
    task_id: str
    task_digest: str
    head_commit: str
    outcome: str
    attempt_outcome: str
    scored: bool
    score: dict[str, Any] | None
    accepted: bool
    delivered: dict[str, Any] | None


def facts_of(bead: str, bag: Mapping[str, Any], state: str, *, archived: bool) -> Facts:
    status, outcome = str(bag.get("status") or "open"), str(bag.get("outcome") or "")
    score, delivered = bag.get("score"), bag.get("delivered")
    return Facts(
        bead=bead,
        state=state,
        archived=archived,
        repo=str(bag.get("repo") or ""),
        repo_key=str(bag.get("repo_key") or ""),
        task_id=str(bag.get("task_id") or ""),
        task_digest=str(bag.get("task_digest") or ""),
        head_commit=str(bag.get("head_commit") or ""),
        outcome=outcome,
        attempt_outcome=status if status in ("failed", "blocked") else outcome,
        scored=bool(bag.get("scored_at")),
        score=score if isinstance(score, dict) else None,
        accepted=bool(bag.get("accepted")),
        delivered=delivered if isinstance(delivered, dict) else None,
    )


@dataclass
class World:
    """One state directory. ``beads`` fills as ``records`` is walked; walk it first."""

    settings: Settings
    beads: dict[str, Facts] = field(default_factory=dict)

    def records(self) -> Iterator[tuple[Path, str, Bag | None, bool]]:
        """(file, bead, record or None, archived) of every bookbag, live ones first."""
        for bead in sorted(look.names(self.settings.bookbag_dir, ".json")):
            path = self.settings.bookbag_dir / f"{bead}.json"
            yield from self._record(path, bead, archived=False)
        for bead in sorted(look.names(self.settings.archive_dir, "")):
            yield from self._record(self.settings.archive_dir / bead / "bookbag.json", bead, archived=True)

    def _record(
        self, path: Path, bead: str, *, archived: bool
    ) -> Iterator[tuple[Path, str, Bag | None, bool]]:
        bag = look.read(path)
        if bag is None and not path.exists() and not archived:
            return  # it went while we were looking
        if bag is not None:
            self.beads[bead] = facts_of(bead, bag, bookbag_state(bag, archived=archived), archived=archived)
        yield path, bead, bag, archived

    @cached_property
    def live(self) -> set[str]:
        """Beads on the shelf, unreadable ones too: what is unknown is not over."""
        return {bead for bead, _, _ in look.live(self.settings)}

    @cached_property
    def unfinished(self) -> set[str]:
        """Repositories whose newest run has no end: what it left is taken up by the next."""
        newest: dict[str, bool] = {}
        for name in sorted(look.names(self.settings.runs_dir, ".json")):
            record = look.read(self.settings.runs_dir / f"{name}.json")
            if record is not None and record.get("repo_key"):
                newest[str(record["repo_key"])] = bool(record.get("ended_at"))
        return {key for key, ended in newest.items() if not ended}

    def someone_lives(self) -> bool:
        """Whether a process of the school is at work here, so that things may be between two steps."""
        kinds = [record for kind in KINDS for record in look.processes(self.settings, kind)]
        teachers = (look.read(path) for path in sorted(self.settings.teachers_dir.glob("*.json")))
        return any(look.lives(record) for record in (*kinds, *filter(None, teachers)))


KINDS: Final = ("conductor", "teacher", "leaf", "agent")

"""How well each agent does, per role and domain: a journal that is the truth, and scores that are its fold.

``ScoreBook(settings).evaluate_and_update(bag)`` scores one reviewed bead: a line in ``score-journal.jsonl``,
durable, and then ``scores.json``, which is only the fold of the journal up to a byte. Whatever dies between the
two, the next reader folds the rest; a bead that has a line is never scored again and gets the same answer.

A score lies in 0..100 and begins at 50; new = 0.7 old + 0.3 task. The task's score is ``max(60, quality)`` for
an accepted bead and ``min(40, quality)`` for a rejected one, where quality = 100 - the sum of the weights of its
findings. A finding weighs ``SEVERITY_WEIGHT[severity] * DIFFICULTY_FACTOR[difficulty]``: the easier the task,
the more a mistake in it says. A flaky test (the project's own) weighs nothing. An honest ``no_change`` is entered
without a task score and moves nothing; so would anything that was not judged, which is refused.

Only the conductor writes. Raises BookbagInvalidError for a bag that has not both verdicts, MachineError where
the disk refuses.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from school.errors import BookbagInvalidError
from school.settings import Settings
from school.system import clock, faults, files

START: Final = 50.0
KEEP: Final = 0.7
ACCEPTED_LEAST: Final = 60.0
REJECTED_MOST: Final = 40.0
SEVERITY_WEIGHT: Final = {"CRITICAL": 40.0, "HIGH": 20.0, "MEDIUM": 8.0, "LOW": 2.0}
DIFFICULTY_FACTOR: Final = {"easy": 1.5, "medium": 1.0, "hard": 0.75, "blocker": 0.5}
_NOT_THE_STUDENTS: Final = frozenset({"flaky"})
_DECIMALS: Final = 4

Key = tuple[str, str, str]


def weight(difficulty: str, severity: str) -> float:
    """What one finding costs; an unknown severity counts as HIGH, an unknown difficulty as medium."""
    factor = DIFFICULTY_FACTOR.get(difficulty, DIFFICULTY_FACTOR["medium"])
    return SEVERITY_WEIGHT.get(severity.upper(), SEVERITY_WEIGHT["HIGH"]) * factor


def quality(bag: Mapping[str, Any]) -> float:
    """100 less the weights of the findings, at least 0."""
    difficulty = str(bag.get("difficulty") or "")
    findings = [
        finding
        for finding in bag.get("findings") or []
        if finding.get("issue_class") not in _NOT_THE_STUDENTS
    ]
    lost = sum(weight(difficulty, str(finding.get("severity") or "")) for finding in findings)
    return max(0.0, 100.0 - lost)


def task_score(outcome: str, worth: float) -> float | None:
    """The score of one bead; None where nothing was won or lost."""
    if outcome == "accepted":
        return max(ACCEPTED_LEAST, worth)
    return min(REJECTED_MOST, worth) if outcome == "rejected" else None


def moved(before: float, task: float | None) -> float:
    """The new score."""
    return before if task is None else round(KEEP * before + (1 - KEEP) * task, _DECIMALS)


@dataclass
class Standing:
    """One row of the board."""

    score: float = START
    accepted: int = 0
    rejected: int = 0
    no_change: int = 0
    last_at: str = ""
    last_bead: str = ""

    def take(self, line: Mapping[str, Any]) -> tuple[float, float]:
        """Fold one line in; the score before and after."""
        before = self.score
        task = line.get("task")
        self.score = moved(before, None if task is None else float(task))
        outcome = line.get("outcome")
        self.accepted += outcome == "accepted"
        self.rejected += outcome == "rejected"
        self.no_change += outcome == "no_change"
        self.last_at, self.last_bead = str(line.get("at") or ""), str(line.get("bead") or "")
        return before, self.score


@dataclass
class Fold:
    """The board after the first *offset* bytes of the journal."""

    offset: int = 0
    board: dict[Key, Standing] = field(default_factory=dict)

    def take(self, line: Mapping[str, Any]) -> tuple[float, float]:
        return self.board.setdefault(key_of(line), Standing()).take(line)


def key_of(line: Mapping[str, Any]) -> Key:
    return str(line.get("agent") or ""), str(line.get("role") or ""), str(line.get("domain") or "")


def is_score_line(line: object) -> bool:
    """Whether a line of the journal is one of ours, whole."""
    return (
        isinstance(line, dict)
        and all(isinstance(line.get(name), str) for name in ("bead", "agent", "role", "domain", "outcome"))
        and (line.get("task") is None or isinstance(line.get("task"), int | float))
    )


class ScoreBook:
    """The scores of one state directory."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.journal = settings.score_journal
        self._fold: Fold | None = None

    def evaluate_and_update(self, bag: Mapping[str, Any]) -> dict[str, Any]:
        """Score *bag*, once: ``{"task", "before", "after"}`` as its journal line says."""
        if not (bag.get("cto_verdict") and bag.get("coo_verdict")):
            raise BookbagInvalidError(f"{bag.get('bead')}: not scored, for it has not both verdicts")
        fold = self._current()
        line = self._line_of(str(bag["bead"]))
        if line is None:
            line = self._line(bag, fold)
            with faults.around("score.journalled"):
                files.append_json_line(self.journal, line)
            fold = self._current()
        self._save(fold)
        return {name: line.get(name) for name in ("task", "before", "after")}

    def score_of(self, agent: str, role: str, domain: str) -> float:
        """The score; 50 where nothing is known."""
        standing = self._current().board.get((agent, role, domain))
        return standing.score if standing else START

    def leaderboard(self) -> list[dict[str, Any]]:
        """Every row, the best first."""
        rows = [
            {
                "agent": agent,
                "role": role,
                "domain": domain,
                "score": round(standing.score, 2),
                "beads": standing.accepted + standing.rejected + standing.no_change,
                "accepted": standing.accepted,
                "rejected": standing.rejected,
                "no_change": standing.no_change,
                "last_at": standing.last_at,
                "bead": standing.last_bead,
            }
            for (agent, role, domain), standing in self._current().board.items()
        ]
        return sorted(rows, key=lambda row: (-row["score"], row["agent"], row["role"], row["domain"]))

    def choose(
        self, agents: Sequence[str], role: str, domain: str, *, tried: Iterable[str] = ()
    ) -> tuple[str, str]:
        """Which of *agents* goes next, and why: the best score first, then the next that has not failed yet.

        *tried* names those of this task's earlier attempts; when all were tried, the best begins again. Equal
        scores keep the order of *agents*. ValueError for no agents at all.
        """
        if not agents:
            raise ValueError(f"no agent to choose from for {role}")
        if len(agents) == 1:
            return agents[0], "the only agent of this role"
        failed = set(tried) & set(agents)
        fresh = [name for name in agents if name not in failed] or list(agents)
        scores = {name: self.score_of(name, role, domain) for name in agents}
        chosen = max(fresh, key=lambda name: scores[name])
        listed = ", ".join(f"{name} {scores[name]:.1f}" for name in sorted(agents, key=lambda n: -scores[n]))
        if not failed:
            why = "best score"
        elif len(failed) < len(set(agents)):
            why = f"best score of those that have not tried yet (tried: {', '.join(sorted(failed))})"
        else:
            why = "all have tried; best score again"
        return chosen, f"{why} for {role} in {domain}: {listed}"

    # --- the fold ---------------------------------------------------------------------------------------

    def _line_of(self, bead: str) -> dict[str, Any] | None:
        return next(iter(lines_about(self.journal, bead, is_score_line)), None)

    def _line(self, bag: Mapping[str, Any], fold: Fold) -> dict[str, Any]:
        outcome = str(bag.get("outcome") or ("accepted" if bag.get("accepted") else "rejected"))
        worth = quality(bag)
        agent = bag.get("agent") or {}
        line: dict[str, Any] = {
            "bead": str(bag["bead"]),
            "task_id": str(bag.get("task_id") or ""),
            "agent": str(agent.get("name") or ""),
            "role": str(bag.get("student") or ""),
            "domain": str(bag.get("domain") or ""),
            "difficulty": str(bag.get("difficulty") or ""),
            "outcome": outcome,
            "quality": worth,
            "task": task_score(outcome, worth),
        }
        standing = fold.board.get(key_of(line), Standing())
        line["before"], line["after"] = standing.score, moved(standing.score, line["task"])
        return {**line, "at": clock.now()}

    def _current(self) -> Fold:
        """The fold of the whole journal; reads only what was added since."""
        if self._fold is None:
            self._fold = self._load()
        if self._fold.offset == 0:
            self._fold = refold(self.journal)
        for end, line in _whole_lines(self.journal, self._fold.offset):
            if line is not None and not self._known_before(line, self._fold.offset):
                self._fold.take(line)
            self._fold.offset = end
        return self._fold

    def _known_before(self, line: Mapping[str, Any], offset: int) -> bool:
        """Whether the bead has an earlier line: two writers in a row may both have entered it."""
        return bool(lines_about(self.journal, str(line["bead"]), is_score_line, before=offset))

    def _load(self) -> Fold:
        """The saved fold if it fits the journal, else an empty one: the journal can always be folded again."""
        path = self.settings.scores_file
        try:
            raw = files.read_json(path)
            if raw is None:
                return Fold()
            fold = _fold_from(raw)
        except (ValueError, TypeError, KeyError, AttributeError):
            files.quarantine(path, self.settings.corrupt_dir)
            return Fold()
        if not _reaches(self.journal, fold.offset):
            # The journal is shorter than what was folded: it was cut or exchanged. What it says now counts; the
            # old scores are kept for whoever has to find out.
            files.quarantine(path, self.settings.corrupt_dir)
            return Fold()
        return fold

    def _save(self, fold: Fold) -> None:
        document = scores_document(fold)
        try:
            if files.read_json(self.settings.scores_file) == document:
                return
        except ValueError:
            files.quarantine(self.settings.scores_file, self.settings.corrupt_dir)
        files.ensure_dir(self.settings.scores_file.parent)
        with faults.around("score.saved"):
            files.write_json(self.settings.scores_file, document)


def scores_document(fold: Fold) -> dict[str, Any]:
    """``scores.json``: the fold of the first ``journal_bytes`` of the journal."""
    rows = [
        {"agent": agent, "role": role, "domain": domain, **vars(standing)}
        for (agent, role, domain), standing in sorted(fold.board.items())
    ]
    return {"schema": 1, "journal_bytes": fold.offset, "scores": rows}


def _fold_from(raw: Mapping[str, Any]) -> Fold:
    fold = Fold(offset=int(raw["journal_bytes"]))
    for row in raw["scores"]:
        values = {name: row[name] for name in Standing.__dataclass_fields__}
        fold.board[key_of(row)] = Standing(**values)
    return fold


def refold(journal: Path, *, until: int | None = None) -> Fold:
    """The fold of the journal, or of its first *until* bytes, made from nothing."""
    fold, seen = Fold(), set()
    for end, line in _whole_lines(journal, 0):
        if until is not None and end > until:
            break
        if line is not None and line["bead"] not in seen:
            seen.add(line["bead"])
            fold.take(line)
        fold.offset = end
    return fold


def repair_scores(settings: Settings) -> None:
    """Make ``scores.json`` anew from the journal."""
    book = ScoreBook(settings)
    book._save(refold(settings.score_journal))  # noqa: SLF001 - this module's own class


# --- reading a journal that only grows -----------------------------------------------------------------------


def _whole_lines(path: Path, offset: int) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """(offset after it, score line or None) for every whole line behind *offset*.

    A last line without its end counts if it parses, since no part of a JSON object is one: a crash took its
    newline only, and the next append brings it.
    """
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return
    with stream:
        stream.seek(offset)
        for raw in stream:
            line = _parsed(raw)
            if line is None and not raw.endswith(b"\n"):
                return
            offset += len(raw)
            yield offset, line


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = files.loads(raw)
    except ValueError:
        return None
    return line if is_score_line(line) else None


def _reaches(path: Path, offset: int) -> bool:
    """Whether the journal is at least as long as what was folded of it."""
    try:
        return path.stat().st_size >= offset
    except FileNotFoundError:
        return offset == 0


def lines_about(
    path: Path,
    bead: str,
    wanted: Callable[[dict[str, Any]], bool] | None = None,
    *,
    before: int | None = None,
) -> list[dict[str, Any]]:
    """The whole lines of the journal *path* whose ``bead`` is *bead*, oldest first.

    Searched as bytes, so that a journal of a hundred thousand lines costs milliseconds and no memory.
    """
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return []
    with stream:
        size = stream.seek(0, 2) if before is None else min(before, stream.seek(0, 2))
        if not size:
            return []
        with mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ) as view:
            return [line for line in _matching(view, bead) if wanted is None or wanted(line)]


def _matching(view: mmap.mmap, bead: str) -> Iterator[dict[str, Any]]:
    position = view.find(bead.encode())
    while position >= 0:
        start, end = view.rfind(b"\n", 0, position) + 1, view.find(b"\n", position)
        end = len(view) if end < 0 else end
        try:
            line = files.loads(bytes(view[start:end]))
        except ValueError:
            line = None
        if isinstance(line, dict) and line.get("bead") == bead:
            yield line
        position = view.find(bead.encode(), end)

"""The words that records are written in, their two base classes, and text that fits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION: Final = 1

Role = Literal["searcher", "executor", "coder", "reviewer", "browser"]
TeacherRole = Literal["cto", "coo"]
Difficulty = Literal["easy", "medium", "hard", "blocker"]
Severity = Literal["CRITICAL", "HIGH", "MEDIUM", "LOW"]
Verdict = Literal["", "PASS", "FAIL"]
ReviewOutcome = Literal["PASS", "FAIL", "NO_VERDICT"]
Status = Literal["running", "open", "failed", "blocked"]
ClaimStatus = Literal["done", "no_change", "blocked", "failed"]
Outcome = Literal["", "accepted", "rejected", "failed", "blocked", "no_change"]

STUDENT_ROLES: Final[tuple[Role, ...]] = ("searcher", "executor", "coder", "reviewer", "browser")
TEACHER_ROLES: Final[tuple[TeacherRole, ...]] = ("cto", "coo")
DIFFICULTIES: Final[tuple[Difficulty, ...]] = ("easy", "medium", "hard", "blocker")
SEVERITIES: Final[tuple[Severity, ...]] = ("CRITICAL", "HIGH", "MEDIUM", "LOW")
LENSES: Final[dict[TeacherRole, tuple[str, ...]]] = {
    "cto": ("CORRECTNESS", "SECURITY"),
    "coo": ("COMPLETENESS",),
}
READ_ONLY_ROLES: Final = frozenset({"searcher", "reviewer"})

OUTPUT_BYTES_MAX: Final = 64 * 1024

# Reasons of an attempt that is cut short by something that is not the student's fault: it costs no attempt.
UNCHARGED_REASONS: Final = frozenset(
    {"interrupted", "conductor_died", "leaf_died", "disk_full", "machine", "repository_changed"}
    # Of the agent's model: its quota is used up, its endpoint does not answer, nobody is logged in there.
    | {"quota", "unavailable", "login"}
    # The user's own: what was to be spent at most is spent.
    | {"budget"}
)


class Record(BaseModel):
    """A record on disk: unknown fields survive."""

    model_config = ConfigDict(extra="allow", validate_assignment=True)


class Strict(BaseModel):
    """What a user wrote: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


def bounded(text: str, limit_bytes: int = OUTPUT_BYTES_MAX) -> str:
    """*text* within *limit_bytes* of UTF-8: a head of one third, a tail of two, and a line that says what is cut."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= limit_bytes:
        return raw.decode("utf-8")
    mark = f"\n[… {len(raw) - limit_bytes} bytes and this line left out …]\n"
    room = max(0, limit_bytes - len(mark.encode()))
    head = raw[: room // 3].decode("utf-8", "ignore")
    tail = raw[len(raw) - (room - room // 3) :].decode("utf-8", "ignore")
    return head + mark + tail


def dump(record: BaseModel | Mapping[str, Any] | Sequence[Any]) -> Any:  # noqa: ANN401 - JSON is any of them
    """A record as plain JSON values, field aliases as on disk."""
    if isinstance(record, BaseModel):
        return record.model_dump(mode="json", by_alias=True)
    return record

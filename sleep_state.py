"""What a teacher keeps over its sleep: its memory of reviews, and a digest of it for the reviews that come.

``execute_sleep`` consolidates the episodes into an artifact (YAML, for people) and persists the state (JSON, for
the next wake): the artifact first, so that a session that is there is whole. ``execute_wake`` loads the newest
session *of this role*; both say in the Library Log what they did. A session carries the episodes of those before
it, within ``EPISODES_MAX``: a teacher does not forget yesterday because it slept twice.

Errors: SessionNotFoundError where none was ever saved; SessionCorruptedError when the newest, or its artifact,
cannot be read: both were moved to ``corrupt/`` beside them, and the teacher starts fresh. A corrupted session is
never passed over for an older one in silence.

Not promised: that two processes may sleep for one role (the role's lock sees to that).
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from school import settings
from school.contracts import Finding, Record, TeacherRole, dump
from school.errors import SessionCorruptedError, SessionNotFoundError
from school.system import clock, faults, files, log

EPISODES_MAX: Final = 200
DIGEST_CHARACTERS_MAX: Final = 4000
LOG_ROTATE_BYTES: Final = 1024 * 1024
_DECISIONS_MAX: Final = 20
_PATTERNS_MAX: Final = 10
_NOTE_CHARACTERS_MAX: Final = 300
_SESSION: Final = re.compile(r"teacher-(?P<role>cto|coo)-(?P<sequence>\d{6,})-[0-9a-f]{8}")


class Episode(Record):
    """One review as its teacher remembers it."""

    bead: str
    task_id: str = ""
    domain: str = ""
    difficulty: str = ""
    repo_key: str = ""
    verdict: str = ""
    issue_classes: list[str] = Field(default_factory=list)
    note: str = ""
    at: str = ""


class SleepState(Record):
    """``school/sessions/<session_id>.json``."""

    session_id: str
    role: TeacherRole
    sequence: int
    episodes: list[Episode] = Field(default_factory=list)
    reviewed: int = 0
    scores: dict[str, Any] = Field(default_factory=dict)
    queued: list[str] = Field(default_factory=list)
    digest: str = ""
    woke_from: str = ""
    started_at: str = ""
    slept_at: str = ""
    duration_minutes: float = 0.0


class ConsolidationArtifact(Record):
    """``school/consolidation/<session_id>.yaml``: what a session comes down to."""

    session_id: str
    role: TeacherRole
    duration_minutes: float = 0.0
    reviewed: int = 0
    domains: dict[str, int] = Field(default_factory=dict)
    key_decisions: list[str] = Field(default_factory=list)
    patterns: list[str] = Field(default_factory=list)
    failed_approaches: list[str] = Field(default_factory=list)
    consolidated_at: str = ""


def episode_of(bag: Mapping[str, Any], verdict: str, findings: Iterable[Finding]) -> Episode:
    """What is worth remembering of the review of *bead*."""
    found = list(findings)
    note = found[0].description if found else str(bag.get("summary") or "")
    return Episode(
        bead=bag["bead"],
        task_id=bag.get("task_id", ""),
        domain=bag.get("domain", ""),
        difficulty=bag.get("difficulty", ""),
        repo_key=bag.get("repo_key", ""),
        verdict=verdict,
        issue_classes=list(dict.fromkeys(finding.issue_class for finding in found)),
        note=" ".join(note.split())[:_NOTE_CHARACTERS_MAX],
        at=clock.now(),
    )


# --- sleep ------------------------------------------------------------------------------------------------


def execute_sleep(
    role: TeacherRole,
    episodes: Sequence[Episode],
    *,
    before: SleepState | None = None,
    queued: Sequence[str] = (),
    started_at: str = "",
    duration_minutes: float = 0.0,
) -> SleepState:
    """Consolidate and persist; returns what was persisted. *episodes* are those since *before*, the last session."""
    remembered = [*(before.episodes if before else []), *episodes][-EPISODES_MAX:]
    sequence = max((number for number, _ in _sessions(role)), default=0) + 1
    artifact = consolidate(role, _session_id(role, sequence), remembered, duration_minutes)
    state = SleepState(
        session_id=artifact.session_id,
        role=role,
        sequence=sequence,
        episodes=remembered,
        reviewed=(before.reviewed if before else 0) + len(episodes),
        scores=_scores(),
        queued=list(queued),
        digest=digest(artifact),
        woke_from=before.session_id if before else "",
        started_at=started_at,
        slept_at=clock.now(),
        duration_minutes=duration_minutes,
    )
    with faults.around("session.consolidated"):
        _write_artifact(artifact)
    with faults.around("session.written"):
        files.write_json(_session_path(state.session_id), dump(state))
    library_log("sleep", role, state.session_id, reviewed=len(episodes), queued=len(state.queued))
    return state


def _session_id(role: str, sequence: int) -> str:
    return f"teacher-{role}-{sequence:06d}-{uuid.uuid4().hex[:8]}"


def _scores() -> dict[str, Any]:
    """The scores as they stood, for people; the conductor alone keeps them, so unreadable is no concern here."""
    try:
        scores = files.read_json(settings.current().scores_file, limit_bytes=LOG_ROTATE_BYTES)
    except ValueError:
        return {}
    return scores if isinstance(scores, dict) else {}


def consolidate(
    role: TeacherRole, session_id: str, episodes: Sequence[Episode], duration_minutes: float = 0.0
) -> ConsolidationArtifact:
    """What *episodes* come down to; the same episodes always come down to the same."""
    classes = Counter(name for episode in episodes for name in episode.issue_classes)
    failed = [episode for episode in episodes if episode.verdict == "FAIL"]
    return ConsolidationArtifact(
        session_id=session_id,
        role=role,
        duration_minutes=duration_minutes,
        reviewed=len(episodes),
        domains=dict(Counter(episode.domain or "unnamed" for episode in episodes).most_common()),
        key_decisions=[_decision(episode) for episode in episodes[-_DECISIONS_MAX:]],
        patterns=[
            f"{name} in {count} of {len(episodes)}" for name, count in classes.most_common(_PATTERNS_MAX)
        ],
        failed_approaches=[f"{episode.bead}: {episode.note}" for episode in failed[-_DECISIONS_MAX:]],
        consolidated_at=clock.now(),
    )


def _decision(episode: Episode) -> str:
    why = f" ({', '.join(episode.issue_classes)})" if episode.issue_classes else ""
    return f"{episode.verdict} {episode.bead}{why}"


def digest(artifact: ConsolidationArtifact) -> str:
    """*artifact* as the text that reviews see, within DIGEST_CHARACTERS_MAX; empty when nothing was reviewed."""
    if not artifact.reviewed:
        return ""
    domains = ", ".join(f"{name} {count}" for name, count in artifact.domains.items())
    lines = [f"Reviewed before: {artifact.reviewed} ({domains})."]
    for title, items in (
        ("Found again and again", artifact.patterns),
        ("What failed", list(reversed(artifact.failed_approaches))),
        ("Decided last", list(reversed(artifact.key_decisions))),
    ):
        if items:
            lines += [f"{title}:", *(f"- {item}" for item in items)]
    return _whole_lines(lines)


def _whole_lines(lines: list[str]) -> str:
    text = "\n".join(lines)
    return text if len(text) <= DIGEST_CHARACTERS_MAX else text[:DIGEST_CHARACTERS_MAX].rpartition("\n")[0]


def _write_artifact(artifact: ConsolidationArtifact) -> None:
    import yaml

    text = yaml.safe_dump(dump(artifact), sort_keys=False, allow_unicode=True)
    files.write_atomic(_artifact_path(artifact.session_id), files.well_formed(text).encode())


# --- wake -------------------------------------------------------------------------------------------------


def execute_wake(role: TeacherRole) -> tuple[SleepState, ConsolidationArtifact]:
    """The newest session of *role* and its artifact, and a line in the Library Log."""
    sessions = _sessions(role)
    if not sessions:
        raise SessionNotFoundError(f"{settings.current().sessions_dir}: no session of teacher {role} yet")
    session_id = max(sessions)[1]
    try:
        state = SleepState.model_validate(_present(files.read_json(_session_path(session_id)), session_id))
        artifact = _read_artifact(session_id)
        _same(state, artifact, role, session_id)
    except (ValueError, ValidationError) as error:
        raise SessionCorruptedError(_set_aside(role, session_id, error)) from None
    library_log("wake", role, session_id)
    library_log("restored", role, session_id, episodes=len(state.episodes), digest=len(state.digest))
    return state, artifact


def _present(value: Any, session_id: str) -> Any:  # noqa: ANN401 - any JSON value may lie there
    if value is None:
        raise ValueError(f"{session_id}: empty")
    return value


def _read_artifact(session_id: str) -> ConsolidationArtifact:
    import yaml

    raw = files.read_bytes(_artifact_path(session_id))
    if raw is None:
        raise ValueError(f"{session_id}: it has no consolidation")
    try:
        return ConsolidationArtifact.model_validate(yaml.safe_load(raw.decode("utf-8")))
    except yaml.YAMLError as error:
        raise ValueError(f"{_artifact_path(session_id)}: {error}") from None


def _same(state: SleepState, artifact: ConsolidationArtifact, role: str, session_id: str) -> None:
    for said in (state, artifact):
        if said.session_id != session_id or said.role != role:
            raise ValueError(f"{session_id}: it says that it is {said.session_id} of {said.role}")


def _set_aside(role: str, session_id: str, why: Exception) -> str:
    there = [path for path in (_session_path(session_id), _artifact_path(session_id)) if path.exists()]
    moved = [str(files.quarantine(path, path.parent / "corrupt")) for path in there]
    first = str(why).splitlines()[0]
    library_log("corrupted", role, session_id, why=first, moved=moved)
    log.get("sleep_state").error(
        "session.corrupted", role=role, session_id=session_id, why=first, moved=moved
    )
    return f"{session_id}: {first}; moved to {', '.join(moved)}"


# --- keeping few ------------------------------------------------------------------------------------------


def prune_sessions(role: TeacherRole, keep: int) -> int:
    """Remove all but the newest *keep* sessions of *role*, and artifacts without a session; how many sessions went."""
    ordered = sorted(_sessions(role))
    gone = ordered[: max(0, len(ordered) - keep)]
    for _, session_id in gone:
        # The session first: an artifact without one is swept below, a session without one would be corrupted.
        _session_path(session_id).unlink(missing_ok=True)
    kept = {session_id for _, session_id in ordered[len(gone) :]}
    folder = settings.current().consolidation_dir
    for path in folder.glob(f"teacher-{role}-*.yaml") if folder.is_dir() else ():
        if _SESSION.fullmatch(path.stem) and path.stem not in kept:
            path.unlink(missing_ok=True)
    if gone:
        library_log("pruned", role, gone[-1][1], sessions=[session_id for _, session_id in gone])
    return len(gone)


def library_log(event: str, role: str, session_id: str, **facts: object) -> None:
    """One line in the Library Log: transitions only, so that it does not grow by waiting."""
    line = {"at": clock.now(), "event": event, "role": role, "session_id": session_id, **facts}
    files.append_json_line(settings.current().library_log, line, rotate_bytes=LOG_ROTATE_BYTES)


def _sessions(role: str) -> list[tuple[int, str]]:
    """Sequence and id of every saved session of *role*."""
    folder = settings.current().sessions_dir
    if not folder.is_dir():
        return []
    matches = (_SESSION.fullmatch(path.stem) for path in folder.glob(f"teacher-{role}-*.json"))
    return [(int(match["sequence"]), match[0]) for match in matches if match and match["role"] == role]


def _session_path(session_id: str) -> Path:
    return settings.current().sessions_dir / f"{session_id}.json"


def _artifact_path(session_id: str) -> Path:
    return settings.current().consolidation_dir / f"{session_id}.yaml"

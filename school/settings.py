"""Where things lie and how long things may take: the process environment, read once.

``Settings.from_env`` reads the variables of the contract (section 10) and refuses a bad value with the name of
the variable. A process reads them once, at its start; ``current()`` hands out that reading. Composition roots
and tests may install another with ``configure``; nothing else does. No ``.env`` file is ever loaded.

Every path of section 4 is a property here, so that no other module spells one out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from school.errors import ConfigError

ROLES: Final = ("cto", "coo")
DIR_MODE: Final = 0o700
FILE_MODE: Final = 0o600
GOVERNOR_VARIABLES: Final = {
    "governor_consecutive_errors": "GOVERNOR_CONSECUTIVE_ERRORS",
    "governor_repeat_calls": "GOVERNOR_REPEAT_CALLS",
    "governor_api_errors": "GOVERNOR_API_ERRORS",
    "governor_no_progress_calls": "GOVERNOR_NO_PROGRESS_CALLS",
}
_OFF: Final = frozenset({"0", "false", "no", "off"})


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r}: expected a number of seconds") from None
    if not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{name}={text!r}: expected a positive, finite number of seconds")
    return value


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r}: expected a whole number") from None
    if value < 1:
        raise ConfigError(f"{name}={text!r}: expected a whole number of at least 1")
    return value


def _count_or_none(env: Mapping[str, str], name: str) -> int | None:
    return _count(env, name, 1) if env.get(name, "").strip() else None


def _switch(env: Mapping[str, str], name: str) -> bool | None:
    """None when it is not set; off only for the four words that say so, as the seed reads its switches."""
    text = env.get(name)
    return None if text is None else text.strip().lower() not in _OFF


def _path(env: Mapping[str, str], name: str, default: Path) -> Path:
    text = env.get(name, "")
    if not text:
        return default
    if "\0" in text:
        raise ConfigError(f"{name}: a path cannot hold a NUL byte")
    path = Path(text).expanduser()
    if not path.is_absolute():
        path = Path.cwd() / path
    return Path(os.path.normpath(path))


@dataclass(frozen=True, slots=True)
class Settings:
    """One reading of the environment. Paths are absolute; durations are seconds."""

    hermes_home: Path
    bookbag_dir: Path
    signal_dir: Path
    lock_dir: Path
    school_dir: Path
    worktrees_dir: Path
    handoff_timeout_s: float = 120.0
    handoff_poll_interval_s: float = 5.0
    poll_interval_s: float = 5.0
    review_timeout_s: float = 90.0
    max_session_cycles: int = 10
    governor_consecutive_errors: int | None = None
    governor_repeat_calls: int | None = None
    governor_api_errors: int | None = None
    governor_no_progress_calls: int | None = None
    governor_disabled: bool = False
    verify_on_stop: bool | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Read the variables; raises ConfigError naming the one that is wrong."""
        env = os.environ if env is None else env
        user_home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - HOME may be unset
        home = _path(env, "HERMES_HOME", Path(user_home) / ".hermes")
        return cls(
            hermes_home=home,
            bookbag_dir=_path(env, "BOOKBAG_DIR", home / "bookbag"),
            signal_dir=_path(env, "SIGNAL_DIR", home / "signals"),
            lock_dir=_path(env, "LOCK_DIR", home / "locks"),
            school_dir=_path(env, "SCHOOL_DATA_DIR", home / "school"),
            worktrees_dir=_path(env, "SCHOOL_WORKTREES_DIR", home / "worktrees"),
            handoff_timeout_s=_seconds(env, "HANDOFF_TIMEOUT", 120.0),
            handoff_poll_interval_s=_seconds(env, "HANDOFF_POLL_INTERVAL", 5.0),
            poll_interval_s=_seconds(env, "DEFAULT_POLL_INTERVAL", 5.0),
            review_timeout_s=_seconds(env, "DEFAULT_REVIEW_TIMEOUT", 90.0),
            max_session_cycles=_count(env, "MAX_SESSION_CYCLES", 10),
            **{field: _count_or_none(env, name) for field, name in GOVERNOR_VARIABLES.items()},
            governor_disabled=bool(env.get("GOVERNOR_DISABLE") and _switch(env, "GOVERNOR_DISABLE")),
            verify_on_stop=_switch(env, "HERMES_VERIFY_ON_STOP"),
        )

    def environment(self) -> dict[str, str]:
        """The variables that make a child process read exactly these settings."""
        return {
            "HERMES_HOME": str(self.hermes_home),
            "BOOKBAG_DIR": str(self.bookbag_dir),
            "SIGNAL_DIR": str(self.signal_dir),
            "LOCK_DIR": str(self.lock_dir),
            "SCHOOL_DATA_DIR": str(self.school_dir),
            "SCHOOL_WORKTREES_DIR": str(self.worktrees_dir),
            "HANDOFF_TIMEOUT": repr(self.handoff_timeout_s),
            "HANDOFF_POLL_INTERVAL": repr(self.handoff_poll_interval_s),
            "DEFAULT_POLL_INTERVAL": repr(self.poll_interval_s),
            "DEFAULT_REVIEW_TIMEOUT": repr(self.review_timeout_s),
            "MAX_SESSION_CYCLES": str(self.max_session_cycles),
            **{
                name: str(value)
                for field, name in GOVERNOR_VARIABLES.items()
                if (value := getattr(self, field)) is not None
            },
            **({"GOVERNOR_DISABLE": "1"} if self.governor_disabled else {}),
            **(
                {}
                if self.verify_on_stop is None
                else {"HERMES_VERIFY_ON_STOP": str(int(self.verify_on_stop))}
            ),
        }

    # --- bookbags -------------------------------------------------------------------------------------

    @property
    def archive_dir(self) -> Path:
        return self.bookbag_dir / "archive"

    @property
    def corrupt_dir(self) -> Path:
        return self.bookbag_dir / "corrupt"

    # --- teachers -------------------------------------------------------------------------------------

    @property
    def sessions_dir(self) -> Path:
        return self.school_dir / "sessions"

    @property
    def consolidation_dir(self) -> Path:
        return self.school_dir / "consolidation"

    @property
    def library_log(self) -> Path:
        return self.school_dir / "library-log.jsonl"

    @property
    def teachers_dir(self) -> Path:
        return self.school_dir / "teachers"

    @property
    def reviews_dir(self) -> Path:
        return self.school_dir / "reviews"

    @property
    def baselines_dir(self) -> Path:
        """Per role: what a command did at a base tree, so that it is not run again for every bead."""
        return self.school_dir / "baselines"

    # --- conductor and leaves -------------------------------------------------------------------------

    @property
    def processes_dir(self) -> Path:
        return self.school_dir / "processes"

    @property
    def worktree_records_dir(self) -> Path:
        return self.school_dir / "worktrees"

    @property
    def runs_dir(self) -> Path:
        return self.school_dir / "runs"

    @property
    def tasks_dir(self) -> Path:
        return self.school_dir / "tasks"

    @property
    def scores_file(self) -> Path:
        return self.school_dir / "scores.json"

    @property
    def score_journal(self) -> Path:
        return self.school_dir / "score-journal.jsonl"

    @property
    def deliveries_journal(self) -> Path:
        return self.school_dir / "deliveries.jsonl"

    @property
    def clones_dir(self) -> Path:
        return self.school_dir / "clones"

    @property
    def bead_repos_dir(self) -> Path:
        return self.school_dir / "beads"

    @property
    def outputs_dir(self) -> Path:
        """Per bead: what its agent printed, bounded, until the conductor has archived it."""
        return self.school_dir / "outputs"

    @property
    def scratch_dir(self) -> Path:
        """Per bead: the TMPDIR of its agent; the leaf makes it and takes it away."""
        return self.school_dir / "tmp"

    @property
    def caches_dir(self) -> Path:
        """What confined set-up commands have downloaded, per who; all of it may be removed at any time."""
        return self.school_dir / "caches"

    @property
    def evidence_db(self) -> Path:
        """The ledger of checks that really ran, per session and project root."""
        return self.school_dir / "evidence.db"

    @property
    def governor_dir(self) -> Path:
        """Per session that has a governor: how it stands, for whoever looks from outside."""
        return self.school_dir / "governor"

    @property
    def config_file(self) -> Path:
        """The user's ``school.toml``, below that of each project."""
        return self.hermes_home / "school.toml"

    @property
    def governor_file(self) -> Path:
        return self.hermes_home / "escalation-governor.json"

    @property
    def governor_reports(self) -> Path:
        return self.hermes_home / "escalation-governor-reports.jsonl"

    @property
    def advisers_log(self) -> Path:
        """Where a fault of an adviser is told."""
        return self.logs_dir / "advisers.jsonl"

    @property
    def coach_dir(self) -> Path:
        """What the coach remembers of sessions, and what was set for it."""
        return self.school_dir / "coach"

    @property
    def logs_dir(self) -> Path:
        return self.school_dir / "logs"

    @property
    def own_dirs(self) -> tuple[Path, ...]:
        """The folders that only the school's own processes write to."""
        return (self.bookbag_dir, self.signal_dir, self.lock_dir, self.school_dir, self.worktrees_dir)

    def record_dirs(self) -> list[Path]:
        """Where records are written, one by one and durably; a killed writer leaves its temporary file there."""
        return [
            self.bookbag_dir,
            self.archive_dir,
            self.signal_dir,
            self.lock_dir,
            self.school_dir,
            self.processes_dir,
            self.worktree_records_dir,
            self.runs_dir,
            self.teachers_dir,
            self.reviews_dir,
            self.sessions_dir,
            self.consolidation_dir,
            self.coach_dir,
            self.coach_dir / "sessions",
            *sorted(path for path in self.tasks_dir.glob("*") if path.is_dir()),
        ]


_installed: Settings | None = None


def current() -> Settings:
    """This process' settings, read from the environment at the first call."""
    global _installed  # noqa: PLW0603 - one reading a process is the contract
    if _installed is None:
        _installed = Settings.from_env()
    return _installed


def configure(settings: Settings | None) -> None:
    """Install *settings* for this process; None makes the next ``current()`` read the environment again."""
    global _installed  # noqa: PLW0603 - see current()
    _installed = settings

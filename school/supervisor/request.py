"""What a run was asked to do, and the record of it: ``school/runs/<run>.json``.

A ``Request`` is the command line as data, so that ``--resume`` can be asked the same again; what is given again
wins. The record is written when a run begins, at each round, and at its end; a reader that finds no ``ended_at``
knows that the run was cut short (or still goes on, which the repository's lock tells). A torn or foreign file in
``runs/`` is passed over: it is history, and nothing is decided by it but what ``--resume`` continues.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from school import masking
from school.errors import ConfigError
from school.settings import Settings
from school.system import clock, faults, files
from school.worktrees import inspect_repository

RUNS_KEPT_MAX: Final = 200
# How the task is described, when it is not in a file; all of these belong to ``--task``.
TASK_FIELDS: Final = ("task", "role", "domain", "difficulty", "run", "chore", "accept", "check")
_TEXTS: Final = ("task", "role", "domain", "difficulty", "agent", "run", "chore", "base", "sandbox")


@dataclass(frozen=True, slots=True)
class Request:
    """One command line. Empty and None mean "not given"; paths are absolute."""

    repo: str
    tasks: str = ""
    task: str = ""
    role: str = ""
    domain: str = ""
    difficulty: str = ""
    agent: str = ""
    run: str = ""
    chore: str = ""
    accept: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    base: str = ""
    loop: bool = False
    rounds: int | None = None
    leaves: int | None = None
    sync: bool = False
    handoff_timeout_s: float | None = None
    sandbox: str = ""

    def over(self, earlier: Request) -> Request:
        """This request where it says something, *earlier* where it does not."""
        given = {f.name: value for f in fields(self) if (value := getattr(self, f.name))}
        if "tasks" in given:
            earlier = replace(earlier, task="", run="", chore="", role="", domain="", difficulty="")
            earlier = replace(earlier, accept=(), check=())
        if "task" in given:
            earlier = replace(earlier, tasks="")
        return replace(earlier, **given)

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> Request:
        """The command line as it was parsed; ConfigError for flags that do not go together."""
        if flags["task"] is not None and flags["tasks"] is not None:
            raise ConfigError("--task and --tasks exclude each other")
        if flags["task"] is None and not flags["resume"]:
            for name in TASK_FIELDS:
                if flags[name]:
                    raise ConfigError(f"--{name} describes one task and needs --task")
        for name in ("tasks", *_TEXTS):
            if flags[name] is not None and not flags[name].strip():
                raise ConfigError(f"--{name}: is empty")
        return cls(
            repo=str(Path(flags["repo"] or ".").absolute()),
            tasks=str(Path(flags["tasks"]).absolute()) if flags["tasks"] else "",
            accept=tuple(flags["accept"]),
            check=tuple(flags["check"]),
            loop=flags["loop"],
            rounds=flags["rounds"],
            leaves=flags["leaves"],
            sync=flags["sync"],
            handoff_timeout_s=flags["handoff_timeout"],
            # As the record of the run will hold them, so that a resumed run finds its own tasks again.
            **{name: masking.text(flags[name] or "") for name in _TEXTS},
        )

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Request:
        """A request as it lies in a run's record; fields of a newer version are passed over."""
        known = {f.name for f in fields(cls)}
        kept = {name: value for name, value in record.items() if name in known}
        return cls(**{**kept, "accept": tuple(kept.get("accept", ())), "check": tuple(kept.get("check", ()))})


def new_run_id() -> str:
    """A name that sorts by time and that two conductors never share: ``20260131-235959-123456-a1b2``."""
    stamp = clock.now()
    digits = "".join(character for character in stamp[: stamp.index("+")] if character.isdigit())
    return f"{digits[:8]}-{digits[8:14]}-{digits[14:20]}-{secrets.token_hex(2)}"


class RunRecord:
    """The record of one run; ``put`` changes some of it, durably."""

    def __init__(self, settings: Settings, run: str, first: Mapping[str, Any]) -> None:
        self.path = settings.runs_dir / f"{run}.json"
        self.data: dict[str, Any] = {"run": run, **first}

    def put(self, **changes: Any) -> None:  # noqa: ANN401 - JSON values
        self.data.update(changes)
        with faults.around("run.recorded"):
            files.write_json(self.path, self.data)


def begin_record(settings: Settings, run: str, request: Request, facts: Mapping[str, Any]) -> RunRecord:
    """A new record of *run*, on disk; the oldest ones beyond what is kept go."""
    record = RunRecord(settings, run, {"request": asdict(request), "started_at": clock.now(), **facts})
    record.put(round=1, ended_at="", exit=None)
    for old in sorted(settings.runs_dir.glob("*.json"))[:-RUNS_KEPT_MAX]:
        old.unlink(missing_ok=True)
    return record


def last_run(settings: Settings, repo_key: str) -> dict[str, Any] | None:
    """The newest readable record of a run on this repository."""
    return next(_records(settings, repo_key), None)


def _records(settings: Settings, repo_key: str) -> Iterator[dict[str, Any]]:
    for path in sorted(settings.runs_dir.glob("*.json"), reverse=True):
        record = files.read_object(path)
        if (
            record is not None
            and record.get("repo_key") == repo_key
            and isinstance(record.get("request"), dict)
        ):
            yield record


def to_resume(request: Request, settings: Settings) -> tuple[Request, str] | None:
    """The last run's request under what was given again, and its base; None when no run was ever begun."""
    earlier = last_run(settings, inspect_repository(Path(request.repo)).key)
    if earlier is None:
        return None
    return request.over(Request.read(earlier["request"])), str(earlier.get("base", ""))

"""Everything that must be right before a run makes anything: ``prepare`` reads, checks, and creates nothing.

Order of refusals: what the machine lacks for looking at all (folder, repository), what the user typed or wrote
(base, configuration, limits, tasks, judges, agents, names), what the machine lacks for running (agent CLIs, space).
ConfigError and TaskFileError are the user's (exit 2), MachineError the machine's (exit 3).

Not promised: that it stays so. What is checked here may change while the run goes on; each hand checks again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from school import confinement
from school.agents import chores, registry
from school.config import FILE_NAME, is_left_out, load_config, refuse_impossible_limits
from school.contracts import AgentSpec, ProjectConfig, SandboxTerms
from school.errors import ConfigError, MachineError, TaskFileError
from school.settings import Settings
from school.supervisor.request import Request
from school.supervisor.reviewers import Reviewers, not_ready, reviewer_terms, same_models
from school.system.git import Git
from school.tasks import Task, TaskFile, load_tasks, refuse_unjudgeable, single_task
from school.verification.due import due
from school.verification.trees import GitTree
from school.worktrees import Repository, branch_name_problem, inspect_repository, resolve_base

TASKS_FILE: Final = "school-tasks.yaml"
CONFIG_BYTES_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that may begin. ``agents`` are each task's candidates.

    ``verify`` are the repository's own checks, ``setup`` is what they need first: both are of the base commit.
    ``reviewers`` are the models that judge beside the teachers' checks; ``remarks`` is what a person should know first.
    """

    request: Request
    settings: Settings
    repository: Repository
    base_commit: str
    config: ProjectConfig
    tasks: TaskFile
    verify: list[list[str]]
    setup: list[list[str]]
    agents: Mapping[str, list[AgentSpec]]
    reviewers: Reviewers
    remarks: Sequence[str] = ()
    resumed: bool = False
    config_left_out: bool = False

    @property
    def leaves(self) -> int:
        return self.config.limits.leaves

    @property
    def rounds(self) -> int | None:
        """How many rounds at most; None is "until nothing is ready"."""
        return self.request.rounds if self.request.loop else 1


def prepare(request: Request, settings: Settings, *, base_commit: str = "") -> Plan:
    """The plan of *request*; *base_commit* is a resumed run's, used where no other base was given."""
    refuse_bad_numbers(request)
    repository = inspect_repository(Path(request.repo))
    refuse_state_inside(repository, settings)
    base = resolve_base(repository, request.base or base_commit or None)
    git = Git(git_dir=repository.common_dir)
    config = configuration(repository, base, settings, request)
    head = repository.head_commit
    if base_commit and not request.base and git.ok("merge-base", "--is-ancestor", base, head):
        config = with_budget_of(configuration(repository, head, settings, request), config)
    settings = replace(settings, handoff_timeout_s=request.handoff_timeout_s or settings.handoff_timeout_s)
    refuse_impossible_limits(config, settings)
    refuse_missing_sandbox(config)
    registry.refuse_models(config)
    tasks = read_tasks(request, repository, config)
    checks = due(GitTree(git, base), config)
    reviewers = reviewer_terms(config)
    refuse_unjudgeable(tasks, verifies=bool(checks.verify), model_reviews="coo" in reviewers)
    refuse_branches(tasks, repository, config.delivery.prefix)
    named = {task.id: candidates(task, config, request, tasks) for task in tasks}
    refuse_missing_reviewers(reviewers)
    agents, absent = installed(named)
    remarks = [*checks.problems, *same_models(reviewers, agents, config), *not_ready(reviewers), *absent]
    return Plan(
        request,
        settings,
        repository,
        base,
        config,
        tasks,
        checks.verify,
        checks.setup,
        agents,
        reviewers,
        remarks,
        resumed=bool(base_commit),
        config_left_out=is_left_out(repository.path, _file_at(git, base, FILE_NAME)),
    )


def refuse_bad_numbers(request: Request) -> None:
    for flag, value in (("--rounds", request.rounds), ("--leaves", request.leaves)):
        if value is not None and value < 1:
            raise ConfigError(f"{flag} {value}: must be at least 1")
    if (request.rounds or 1) > 1 and not request.loop:
        raise ConfigError(f"--rounds {request.rounds}: without --loop there is one round; give --loop too")
    if request.handoff_timeout_s is not None and not 0 < request.handoff_timeout_s < float("inf"):
        raise ConfigError(
            f"--handoff-timeout {request.handoff_timeout_s:g}: must be a positive number of seconds"
        )


def refuse_state_inside(repository: Repository, settings: Settings) -> None:
    """Working trees inside the repository would show up in it, and git would find the wrong one of two."""
    inside, outer = os.path.realpath(settings.worktrees_dir), os.path.realpath(repository.path)
    if os.path.commonpath([inside, outer]) == outer:
        raise ConfigError(
            f"SCHOOL_WORKTREES_DIR={settings.worktrees_dir} lies inside the repository {repository.path}: "
            "choose a directory outside it"
        )


def configuration(repository: Repository, base: str, settings: Settings, request: Request) -> ProjectConfig:
    """``school.toml`` of the base commit over HERMES_HOME's over the defaults; flags over all."""
    overrides: dict[str, Any] = {}
    if request.leaves is not None:
        overrides["limits"] = {"leaves": request.leaves}
    if request.sandbox:
        overrides["sandbox"] = {"mode": request.sandbox}
    text, path = _file_at(Git(git_dir=repository.common_dir), base, FILE_NAME), repository.path / FILE_NAME
    return load_config(
        text,
        _home_text(settings),
        overrides,
        base_name=f"{path} at {base[:12]}" if is_left_out(repository.path, text) else str(path),
        home_name=str(settings.hermes_home / FILE_NAME),
    )


def with_budget_of(newer: ProjectConfig, config: ProjectConfig) -> ProjectConfig:
    """*config*, but for what may be spent: a run that is continued goes by what its user says of that by now."""
    budget = {"tokens": newer.limits.tokens, "cost_usd": newer.limits.cost_usd}
    return config.model_copy(update={"limits": config.limits.model_copy(update=budget)})


def _file_at(git: Git, commit: str, name: str) -> str | None:
    if not git.ok("cat-file", "-e", f"{commit}:{name}"):
        return None
    raw = git.run("cat-file", "blob", f"{commit}:{name}", limit_bytes=CONFIG_BYTES_MAX).stdout
    return _text(raw, f"{name} at {commit[:12]}")


def _home_text(settings: Settings) -> str | None:
    path = settings.hermes_home / FILE_NAME
    try:
        return _text(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise MachineError(f"{settings.hermes_home}: not a directory") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _text(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 at byte {error.start}") from None


def refuse_missing_sandbox(config: ProjectConfig) -> None:
    """What ``[sandbox]`` asks for must be had here, and name places."""
    sandbox = SandboxTerms(**config.sandbox.model_dump())
    confinement.refuse_relative(sandbox)
    confinement.available(sandbox)


# --- tasks --------------------------------------------------------------------------------------------------


def read_tasks(request: Request, repository: Repository, config: ProjectConfig) -> TaskFile:
    """The task file, or the one task of ``--task``; what is wrong names file and line, or the flag."""
    agents = [*config.agents, *registry.BUILT_IN]
    prefix = config.delivery.prefix
    if request.task:
        return single_task(
            request.task,
            role=request.role or None,
            domain=request.domain or None,
            difficulty=request.difficulty or None,
            agent=request.agent or None,
            run=request.run or None,
            chore=request.chore or None,
            accept=request.accept,
            check=request.check,
            agents=agents,
            chores=chores.CHORES,
            prefix=prefix,
        )
    path = Path(request.tasks) if request.tasks else repository.path / TASKS_FILE
    if not request.tasks and not path.is_file():
        raise TaskFileError(
            f"{path}: no such file, and no --tasks or --task was given; "
            "`conductor.py init` writes one to begin with, `conductor.py demo` shows how it goes"
        )
    if request.agent and request.agent not in agents:
        raise ConfigError(f"--agent: {request.agent!r} is no known agent ({', '.join(agents)})")
    return load_tasks(path, agents=agents, chores=chores.CHORES, prefix=prefix)


def refuse_branches(tasks: TaskFile, repository: Repository, prefix: str) -> None:
    """A branch that stands where ours must go is found before the work, not after it."""
    problems = [
        f"{tasks.where(task.id, 'id')}: {prefix + task.id!r} can be no branch: {why}"
        for task in tasks
        if (why := branch_name_problem(repository, prefix + task.id))
    ]
    if problems:
        raise TaskFileError("\n".join(problems))


# --- agents -------------------------------------------------------------------------------------------------


def candidates(task: Task, config: ProjectConfig, request: Request, tasks: TaskFile) -> list[AgentSpec]:
    """Who may do *task*, in the order of the configuration; scores choose among several."""
    if task.run:
        return [registry.for_run(task.run)]
    if task.chore:
        return [registry.for_chore(task.chore, task.allow)]
    role = config.roles.get(task.student_role)
    names = [task.agent] if task.agent else [request.agent] if request.agent else role.agents if role else []
    if not names:
        raise TaskFileError(
            f"{tasks.where(task.id)}: nobody is to do it: give it `run`, `chore` or `agent`, "
            f"or name agents in [roles.{task.student_role}] of school.toml"
        )
    chosen = f"{config.where('roles', task.student_role, 'agents')}: [roles.{task.student_role}]"
    try:
        found = [registry.resolve(name, config) for name in names]
    except ConfigError as error:
        raise ConfigError(
            str(error) if task.agent or request.agent else f"{chosen} agents: {error}"
        ) from None
    if role is None or not role.model:
        return found
    specs = [spec.model_copy(update={"model": role.model}) for spec in found]
    for spec in specs:
        if spec.kind == "model" and (why := registry.model_problem(spec.model, spec.base_url)):
            raise ConfigError(f"{chosen} {why}")
    return specs


def installed(agents: Mapping[str, list[AgentSpec]]) -> tuple[dict[str, list[AgentSpec]], list[str]]:
    """Of each task's agents those that could start here, at least one, and a sentence for each that could not.

    One that cannot start would cost its task an attempt, if it were the first choice.
    """
    found: dict[str, list[AgentSpec]] = {}
    absent: dict[str, None] = {}
    for task_id, specs in agents.items():
        missing = {spec.name: why for spec in specs if (why := registry.missing(spec))}
        if len(missing) == len(specs):
            raise MachineError(f"task {task_id}: {'; '.join(missing.values())}")
        found[task_id] = [spec for spec in specs if spec.name not in missing]
        absent |= dict.fromkeys(f"{why}, so it is not asked" for why in missing.values())
    return found, list(absent)


def refuse_missing_reviewers(reviewers: Reviewers) -> None:
    """A command that judges must be installed here."""
    for role, terms in reviewers.items():
        spec = terms.agent
        if spec is not None and spec.kind == "command" and (why := registry.missing(spec)):
            raise MachineError(f"[reviewers.{role}]: {why}")

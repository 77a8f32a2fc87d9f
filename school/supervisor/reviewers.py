"""Which model judges beside a teacher's checks: ``[reviewers.cto|coo]`` of the configuration as terms of a bead. Pure.

``reviewer_terms(config)`` resolves the named agents, so that a teacher needs nothing but the bookbag. ``same_models`` says
where a reviewer is the very model that a student works with: such a reviewer shares the student's blind spots. That is a
warning, or with ``require_distinct_model`` a refusal before anything is begun. ``not_ready`` says what one lacks here.

ConfigError names table and key. Not promised: that two names are two models. Only what is written is compared, and a
command line tool that chooses its model by itself names none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from school.agents import registry
from school.contracts import AgentSpec, ProjectConfig, ReviewerConfig, ReviewerTerms, TeacherRole
from school.errors import ConfigError

_KINDS: Final = ("model", "command")

Reviewers = dict[TeacherRole, ReviewerTerms]


def reviewer_terms(config: ProjectConfig) -> Reviewers:
    """What is configured, by role; a role without a reviewer is not in it."""
    found: Reviewers = {}
    for role, reviewer in config.reviewers.items():
        if reviewer.agent or reviewer.model:
            found[role] = _terms(role, reviewer, config)
        elif reviewer.require_distinct_model:
            raise ConfigError(
                f"{_where(config, role, 'require_distinct_model')} require_distinct_model: there is no agent and no model in it"
            )
    return found


def _terms(role: TeacherRole, reviewer: ReviewerConfig, config: ProjectConfig) -> ReviewerTerms:
    where = _where(config, role, "agent")
    if not reviewer.agent:
        spec = AgentSpec(name=reviewer.model, kind="model", model=reviewer.model, prompt="none")
    else:
        try:
            spec = registry.resolve(reviewer.agent, config)
        except ConfigError as error:
            raise ConfigError(f"{where} agent: {error}") from None
    if spec.kind not in _KINDS:
        raise ConfigError(
            f"{where} agent: {spec.name} is of kind {spec.kind!r}; a reviewer is of kind {' or '.join(_KINDS)}"
        )
    if reviewer.model:
        spec = spec.model_copy(update={"model": reviewer.model})
    return ReviewerTerms(agent=spec, model=spec.model, require_distinct_model=reviewer.require_distinct_model)


def _where(config: ProjectConfig, role: TeacherRole, key: str) -> str:
    return f"{config.where('reviewers', role, key)}: [reviewers.{role}]"


def same_models(
    reviewers: Reviewers, agents: Mapping[str, Sequence[AgentSpec]], config: ProjectConfig
) -> list[str]:
    """A sentence for each reviewer that is the model of a student; ConfigError where that was to be refused."""
    said: list[str] = []
    refused: list[str] = []
    for role, terms in reviewers.items():
        if clash := "; ".join(_clashes(terms.model, agents)):
            text = f"the {role.upper()}'s model {terms.model} also is the student's ({clash})"
            if terms.require_distinct_model:
                where = _where(config, role, "require_distinct_model")
                refused.append(f"{where} require_distinct_model: {text}")
            else:
                said.append(f"{text}: it shares what the student does not see")
    if refused:
        raise ConfigError("\n".join(refused))
    return said


def not_ready(reviewers: Reviewers) -> list[str]:
    """A sentence for each model that cannot be asked from here; a teacher that runs elsewhere may have what it needs."""
    found = {role: terms.agent for role, terms in reviewers.items() if terms.agent is not None}
    return [
        f"[reviewers.{role}]: {why}, so there may be no verdict"
        for role, spec in found.items()
        if spec.kind == "model" and (why := registry.missing(spec))
    ]


def _clashes(model: str, agents: Mapping[str, Sequence[AgentSpec]]) -> Iterator[str]:
    for task_id, specs in agents.items():
        names = [spec.name for spec in specs if is_same_model(spec.model, model)]
        if names:
            yield f"task {task_id}: {', '.join(names)}"


def is_same_model(one: str, other: str) -> bool:
    """Whether two names say one model; a name without its provider may be any provider's. An empty one is unknown."""
    (provider, name), (second_provider, second) = _parts(one), _parts(other)
    known = bool(name) and bool(second)
    return known and name == second and (not provider or not second_provider or provider == second_provider)


def _parts(model: str) -> tuple[str, str]:
    provider, colon, name = model.strip().casefold().partition(":")
    return (provider, name) if colon else ("", provider)

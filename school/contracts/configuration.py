"""``school.toml``: the tables and keys that a user may write, with their defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, PrivateAttr

from school.contracts.vocabulary import Strict, TeacherRole


class VerifyConfig(Strict):
    commands: list[list[str]] = Field(default_factory=list)
    timeout_s: float = Field(default=600.0, gt=0)
    on_stop: bool | Literal["auto"] = "auto"


class SetupConfig(Strict):
    commands: list[list[str]] = Field(default_factory=list)
    copy_files: list[str] = Field(default_factory=list)
    keep: list[str] = Field(default_factory=lambda: [".venv", "node_modules"])
    submodules: bool = False
    timeout_s: float = Field(default=600.0, gt=0)


class AgentConfig(Strict):
    kind: Literal["command", "run", "acp", "model"] = "command"
    preset: str = ""
    argv: list[str] = Field(default_factory=list)
    prompt: Literal["stdin", "file", "none"] = "stdin"
    resume: list[str] = Field(default_factory=list)
    env: list[str] = Field(default_factory=list)
    set_env: dict[str, str] = Field(default_factory=dict)
    write: list[str] = Field(default_factory=list)
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    timeout_s: float | None = Field(default=None, gt=0)


class RoleConfig(Strict):
    agents: list[str] = Field(default_factory=list)
    model: str = ""


class ReviewerConfig(Strict):
    agent: str = ""
    model: str = ""
    require_distinct_model: bool = False


class LimitsConfig(Strict):
    leaves: int = Field(default=2, ge=1)
    startup_timeout_s: float = Field(default=60.0, gt=0)
    stall_timeout_s: float = Field(default=300.0, gt=0)
    agent_timeout_s: float = Field(default=3600.0, gt=0)
    command_timeout_s: float = Field(default=900.0, gt=0)
    queue_timeout_s: float = Field(default=3600.0, gt=0)
    max_interruptions: int = Field(default=5, ge=1)
    output_bytes: int = Field(default=64 * 1024 * 1024, ge=4096)
    cost_usd: float | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, gt=0)
    memory_bytes: int | None = Field(default=None, gt=0)
    processes: int | None = Field(default=None, gt=0)
    disk_bytes: int | None = Field(default=None, gt=0)


class SandboxConfig(Strict):
    mode: Literal["auto", "require", "off"] = "auto"
    write: list[str] = Field(default_factory=list)
    read: list[str] = Field(default_factory=list)
    network: bool = True


class DeliveryConfig(Strict):
    prefix: str = "school/"


class GovernorConfig(Strict):
    """What is not given is left to ``escalation-governor.json`` and the defaults."""

    consecutive_error_threshold: int | None = Field(default=None, ge=1)
    repeat_call_threshold: int | None = Field(default=None, ge=1)
    api_error_threshold: int | None = Field(default=None, ge=1)
    no_progress_api_calls: int | None = Field(default=None, ge=1)
    max_packet_actions: int | None = Field(default=None, ge=1, le=100)


# Below this, system text, guidance, session note, question and the newest user message would not fit together.
LEDGER_TOKENS_MIN: Final = 3_000


class CoachConfig(Strict):
    """What a coach may do and spend (docs/coach.md). A budget of None has no limit of its own; the others hold."""

    enabled: bool = True
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    guidance: str = Field(default="", max_length=1_000)

    active: bool = True
    active_timing: Literal["pre", "post", "both"] = "post"
    active_every_turns: int = Field(default=3, ge=1, le=1000)
    active_timeout_s: float = Field(default=45.0, gt=0, le=300)
    pre_timeout_s: float = Field(default=10.0, gt=0, le=60)

    completion_review: bool = True
    gate_timeout_s: float = Field(default=20.0, gt=0, le=300)
    review_authority: Literal["advise", "hold_once"] = "advise"
    review_evidence_max_chars: int = Field(default=128_000, ge=1_000, le=2_000_000)

    delivery: Literal["note", "inject"] = "note"
    corrective_cap: int = Field(default=2, ge=0, le=1000)
    note_ttl_s: float = Field(default=1800.0, gt=0, allow_inf_nan=False)

    consult_per_turn: int = Field(default=2, ge=0, le=100)
    decide_per_turn: int = Field(default=2, ge=0, le=100)
    consult_timeout_s: float = Field(default=45.0, gt=0, le=300)

    skip_same_model: bool = True
    allow_in_subagents: bool = False

    ledger_max_tokens: int = Field(default=40_000, ge=LEDGER_TOKENS_MIN, le=1_000_000)
    budget_calls: int = Field(default=40, ge=0)
    budget_tokens: int | None = Field(default=None, ge=0)
    budget_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    sessions_max: int = Field(default=200, ge=1)
    sessions_days: float = Field(default=30.0, gt=0, le=36_500)


class ProjectConfig(Strict):
    """``school.toml`` of the base commit over ``HERMES_HOME/school.toml`` over these defaults."""

    verify: VerifyConfig = Field(default_factory=VerifyConfig)
    setup: SetupConfig = Field(default_factory=SetupConfig)
    agents: dict[str, AgentConfig] = Field(default_factory=dict)
    roles: dict[str, RoleConfig] = Field(default_factory=dict)
    reviewers: dict[TeacherRole, ReviewerConfig] = Field(default_factory=dict)
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    sandbox: SandboxConfig = Field(default_factory=SandboxConfig)
    delivery: DeliveryConfig = Field(default_factory=DeliveryConfig)
    governor: GovernorConfig = Field(default_factory=GovernorConfig)
    coach: CoachConfig = Field(default_factory=CoachConfig)
    # What messages call each file that it was read from, and what that says, the lowest first.
    _layers: list[tuple[str, Mapping[str, Any]]] = PrivateAttr(default_factory=list)

    def read_from(self, layers: Iterable[tuple[str, Mapping[str, Any]]]) -> Self:
        """Itself, knowing what it was read from."""
        self._layers = [(name, layer) for name, layer in layers if layer]
        return self

    def where(self, *keys: str) -> str:
        """What the file is called whose word on *keys* counts; nobody's word is called by the file's plain name."""
        for name, layer in self._layers[::-1]:
            found: Any = layer
            for key in keys:
                found = found.get(key) if isinstance(found, Mapping) else None
            if found is not None:
                return name
        return self.where(*keys[:-1]) if keys[1:] else "school.toml"

"""``school.toml``: the tables and keys that a user may write, with their defaults."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

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
    coach: dict[str, Any] = Field(default_factory=dict)

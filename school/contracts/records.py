"""The records on disk, one model each: bookbag, review, brief, claim, and what processes note of themselves."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from school.contracts.vocabulary import (
    SCHEMA_VERSION,
    ClaimStatus,
    Outcome,
    Record,
    ReviewOutcome,
    Severity,
    Status,
    TeacherRole,
    Verdict,
)

# --- what a review is made of -----------------------------------------------------------------------------


class Finding(Record):
    """One structured objection. ``section`` is the lens or check that made it."""

    section: str
    severity: Severity
    issue_class: str
    description: str
    citation: str = ""
    suggestion: str = ""


class Receipt(Record):
    """One executed check, and on exactly what it ran.

    ``scope`` is ``full`` or ``targeted``; ``outcome`` ``passed``, ``failed``, ``timed_out``, ``not_run`` or
    ``no_tests``; ``at`` says whether it ran on ``base`` or ``head``. ``tests`` counts by outcome where the runner
    names tests ({passed, failed, errors, skipped}), else is empty. ``output`` is a bounded tail; its digest is of
    the whole. ``refused`` quotes what it said of doors that its confinement keeps shut, and names what it left running.
    """

    check: str
    argv: list[str] = Field(default_factory=list)
    scope: Literal["full", "targeted"] = "full"
    at: Literal["base", "head"] = "head"
    outcome: Literal["passed", "failed", "timed_out", "not_run", "no_tests"] = "not_run"
    exit_code: int | None = None
    commit: str = ""
    tree: str = ""
    environment: str = ""
    started_at: str = ""
    duration_s: float = 0.0
    tests: dict[str, int] = Field(default_factory=dict)
    output: str = ""
    output_sha256: str = ""
    cached: bool = False
    refused: list[str] = Field(default_factory=list)


class LensResult(Record):
    """One lens of one review: which outcome, by whom (``checks`` or a model's name), on what evidence."""

    lens: str
    outcome: ReviewOutcome
    by: str = "checks"
    receipts: list[Receipt] = Field(default_factory=list)
    findings: list[Finding] = Field(default_factory=list)
    reason: str = ""
    checks: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)


class Review(Record):
    """What one teacher says of one bead; lives in the bag as ``cto_review`` / ``coo_review``.

    ``verdict`` stays empty while only NO_VERDICT attempts were made; ``attempts`` counts those and the reached one.
    ``criteria`` (COO only) maps a criterion's id to ``met``, ``unmet`` or ``unjudged``. ``memory`` is the session
    whose digest the review had before it. ``retry_at`` is when a model that could not be asked can be asked again,
    ``confinement`` what the review's commands ran within. ``short_of`` (``tokens``, ``cost_usd``) is what going on takes where
    the budget stopped it: such a review is no attempt, and none is begun while it says anything.
    """

    verdict: Verdict = ""
    tree: str = ""
    review_id: str = ""
    lenses: list[LensResult] = Field(default_factory=list)
    criteria: dict[str, str] = Field(default_factory=dict)
    attempts: int = 0
    reason: str = ""
    not_before: str = ""
    retry_at: str = ""
    short_of: dict[str, float] = Field(default_factory=dict)
    memory: str = ""
    confinement: str = ""
    started_at: str = ""
    ended_at: str = ""
    usage: dict[str, Any] = Field(default_factory=dict)


class ReviewFile(Record):
    """``school/reviews/<review_id>.json``: the finished review, durable before its verdict is entered."""

    review_id: str
    bead: str
    role: TeacherRole
    tree: str
    head_commit: str
    verdict: Literal["PASS", "FAIL"]
    review: Review
    by: str = ""
    written_at: str = ""


# --- the bookbag ------------------------------------------------------------------------------------------


class Criterion(Record):
    """An acceptance criterion; ``check`` is an argv or empty (then only a model can judge it)."""

    id: str
    text: str
    check: list[str] = Field(default_factory=list)


class AgentSpec(Record):
    """Which agent runs a bead, complete: a leaf needs nothing else to start it.

    ``kind`` ``run`` has ``argv`` (a plain command) or ``chore``; ``command`` has ``argv`` with the prompt on stdin
    (``prompt = "stdin"``) or in a file whose path replaces ``{prompt_file}`` in argv (``prompt = "file"``).
    ``resume`` is the argv of a further turn of the same session ({session} is what the agent called it); without it
    a ``command`` agent has one turn. ``acp`` has ``argv``; ``model`` has ``model`` (``provider:name``), ``base_url`` and
    ``api_key_env``, the variable that holds the key. ``env`` names the variables passed through from the user's
    environment, ``set_env`` sets literal ones; ``write`` lists state paths of its own that it may write when confined.
    """

    name: str
    kind: Literal["run", "command", "acp", "model"]
    model: str = ""
    argv: list[str] = Field(default_factory=list)
    chore: str = ""
    preset: str = ""
    prompt: Literal["stdin", "file", "none"] = "stdin"
    resume: list[str] = Field(default_factory=list)
    env: list[str] = Field(default_factory=list)
    set_env: dict[str, str] = Field(default_factory=dict)
    write: list[str] = Field(default_factory=list)
    base_url: str = ""
    api_key_env: str = ""
    timeout_s: float | None = None
    reason: str = ""


class ReviewerTerms(Record):
    """Which model judges for one teacher beside its checks; neither set means none.

    ``agent`` is of kind ``model`` or ``command``. ``require_distinct_model`` refuses one that is the student's.
    """

    agent: AgentSpec | None = None
    model: str = ""
    require_distinct_model: bool = False


class SandboxTerms(Record):
    """How what runs for this bead is confined: see ``[sandbox]``."""

    mode: Literal["auto", "require", "off"] = "auto"
    write: list[str] = Field(default_factory=list)
    read: list[str] = Field(default_factory=list)
    network: bool = True


class Advice(Record):
    """What stands beside a leaf's agent: the verify-on-stop gate, the governor's and the coach's settings."""

    on_stop: bool | Literal["auto"] = "auto"
    governor: dict[str, Any] = Field(default_factory=dict)
    coach: dict[str, Any] = Field(default_factory=dict)


class Persona(Record):
    name: str
    source: str
    sha256: str


class Terms(Record):
    """Everything that affects a verdict and is not the change itself, so that a teacher serves any conductor."""

    allow: list[str] = Field(default_factory=list)
    preserve: list[Literal["ast", "api"]] = Field(default_factory=list)
    require_exercised: bool = False
    verify: list[list[str]] = Field(default_factory=list)
    verify_timeout_s: float = 600.0
    setup: list[list[str]] = Field(default_factory=list)
    setup_timeout_s: float = 600.0
    copy_files: list[str] = Field(default_factory=list)
    keep: list[str] = Field(default_factory=list)
    submodules: bool = False
    chore: str = ""
    sandbox: SandboxTerms = Field(default_factory=SandboxTerms)
    reviewers: dict[TeacherRole, ReviewerTerms] = Field(default_factory=dict)


class Limits(Record):
    """Limits of one leaf, in seconds and bytes."""

    startup_timeout_s: float = 60.0
    stall_timeout_s: float = 300.0
    agent_timeout_s: float = 3600.0
    command_timeout_s: float = 900.0
    output_bytes: int = 64 * 1024 * 1024
    cost_usd: float | None = None
    tokens: int | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    disk_bytes: int | None = None


class Step(Record):
    """One entry of ``history``: a state, when it was first reached, and by whom."""

    state: str
    at: str
    by: str


class Bookbag(Record):
    """The record of one bead; the only truth about it (contract, section 5)."""

    # the seed's fields
    bead: str
    task: str | None = None
    student: str = ""
    domain: str = ""
    difficulty: str = "easy"
    output: str = ""
    lens: str = ""
    cto_verdict: Verdict = ""
    coo_verdict: Verdict = ""
    findings: list[Finding] = Field(default_factory=list)
    ac_met: list[str] = Field(default_factory=list)
    files_changed: list[str] = Field(default_factory=list)
    verification: str = ""
    summary: str = ""
    blockers: list[str] = Field(default_factory=list)
    accepted: bool = False
    timestamp: str = ""
    # ours
    schema_: int = Field(default=SCHEMA_VERSION, alias="schema")
    rev: int = 0
    task_id: str = ""
    task_digest: str = ""
    attempt: int = 1
    max_attempts: int = 1
    run: str = ""
    repo: str = ""
    repo_key: str = ""
    base_commit: str = ""
    head_commit: str = ""
    tree: str = ""
    ref: str = ""
    acceptance: list[Criterion] = Field(default_factory=list)
    agent: AgentSpec | None = None
    persona: Persona | None = None
    confinement: str = ""
    terms: Terms = Field(default_factory=Terms)
    limits: Limits = Field(default_factory=Limits)
    advice: Advice = Field(default_factory=Advice)
    guidance: list[dict[str, Any]] = Field(default_factory=list)
    evidence: dict[str, Any] = Field(default_factory=dict)
    earlier_findings: list[Finding] = Field(default_factory=list)
    worktree: str = ""
    status: Status = "open"
    reason: str = ""
    claim: Literal["", "done", "no_change", "blocked", "failed"] = ""
    cto_review: Review = Field(default_factory=Review)
    coo_review: Review = Field(default_factory=Review)
    usage: dict[str, Any] = Field(default_factory=dict)
    score: dict[str, Any] | None = None
    scored_at: str = ""
    outcome: Outcome = ""
    history: list[Step] = Field(default_factory=list)
    delivered: dict[str, str] | None = None

    model_config = ConfigDict(extra="allow", validate_assignment=True, populate_by_name=True)


# --- briefs, claims, process and worktree records ---------------------------------------------------------


class Brief(Record):
    """``.hermes/briefs/<bead>.json`` in the leaf's worktree: the task contract that an agent reads."""

    bead: str
    task_id: str
    attempt: int
    role: str
    domain: str
    difficulty: str
    task: str
    acceptance: list[Criterion] = Field(default_factory=list)
    allow: list[str] = Field(default_factory=list)
    preserve: list[str] = Field(default_factory=list)
    findings: list[Finding] = Field(default_factory=list)
    project: str = ""
    persona: str = ""
    guardrails: list[str] = Field(default_factory=list)
    result_path: str = ""


class Claim(Record):
    """The JSON file that ``SCHOOL_RESULT`` names; what the agent *says*, never what is so.

    ``retry_at`` is when a quota is there again; ``session`` what the agent calls this session, for a further turn.
    """

    status: ClaimStatus = "done"
    summary: str = ""
    ac_met: list[str] = Field(default_factory=list)
    blockers: list[str] = Field(default_factory=list)
    retry_at: str = ""
    session: str = ""


class ProcessRecord(Record):
    """``school/processes/<name>.json``: one child process, written before it exists (``pid`` 0 until it does)."""

    name: str
    kind: Literal["conductor", "teacher", "leaf", "agent"]
    bead: str = ""
    role: str = ""
    pid: int = 0
    start: int = 0
    boot: str = ""
    host: str = ""
    pidns: str = ""
    parent: int = 0
    step: str = ""
    since: str = ""
    argv: list[str] = Field(default_factory=list)


class WorktreeRecord(Record):
    """``school/worktrees/<name>.json``: one working tree, written before it exists.

    ``made`` turns true once the tree was verified: before that no agent can have written into it. ``removing``
    turns true before the first file of it goes: after that what is left is no longer the agent's work.
    ``manager`` says who made it (``git`` or ``orca``), ``manager_id`` how it calls it.
    """

    name: str
    kind: Literal["leaf", "teacher"]
    path: str
    repo: str
    repo_key: str
    bead: str = ""
    role: str = ""
    base_commit: str = ""
    created_at: str = ""
    salvage_failed: str = ""
    manager: str = "git"
    manager_id: str = ""
    made: bool = False
    removing: bool = False


class TeacherRecord(Record):
    """``school/teachers/<role>.json``: who it is, what it has in hand, since when; renewed at least every 10 s."""

    role: TeacherRole
    pid: int
    start: int = 0
    boot: str = ""
    host: str = ""
    pidns: str = ""
    state: Literal["booting", "idle", "reviewing", "sleeping", "stopped"] = "booting"
    bead: str = ""
    check: str = ""
    since: str = ""
    progress: int = 0
    beat: str = ""
    reviewed: int = 0
    session_id: str = ""
    spawned_by: int = 0
    watching: str = ""

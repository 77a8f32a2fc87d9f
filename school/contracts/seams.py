"""The seams between rooms: what an implementation must look like, and what is handed over at each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from school.contracts.records import Claim, Finding, Receipt
from school.contracts.vocabulary import TeacherRole
from school.system.confine import Policy


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a leaf's worktree held, as one commit on base; all commits lie in the school clone."""

    head_commit: str
    tree: str
    ref: str
    files_changed: list[str]
    rescue_ref: str = ""
    agent_ref: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Workspace:
    """A leaf's working tree and the repositories behind it; absolute paths."""

    bead: str
    path: Path
    git_dir: Path
    clone: Path
    repo: Path
    repo_key: str
    base_commit: str


class LeafWorktrees(Protocol):
    """How a leaf gets its working tree; ``git`` is the default, ``orca`` an optional adapter."""

    name: str

    def create(self, bag: Mapping[str, Any]) -> Workspace: ...

    def remove(self, workspace: Workspace) -> None: ...


@dataclass(slots=True)
class AgentOutcome:
    """How an agent's run ended; the work is in the tree, the claim in ``claim``.

    ``reason`` is empty when it ended by itself, else one of ``timeout``, ``stalled``, ``startup``, ``killed``,
    ``exit``, ``quota``, ``unavailable`` (its model's endpoint), ``login``, ``not_installed``, ``interrupted``,
    ``output_limit``, ``disk_full``, ``memory_limit``, ``process_limit``, ``disk_limit``, ``budget`` (what may be spent
    is spent), ``refused`` (by the model), ``limit`` (of its context or of requests). ``detail`` is a sentence for
    people. ``output`` is head and tail within 64 KiB, valid text; ``output_path`` the bounded file.
    ``claimed`` tells a claim that was really made from the ``done`` that stands for none; ``notes`` are oddities.
    """

    claim: Claim
    reason: str = ""
    detail: str = ""
    exit_code: int | None = None
    output: str = ""
    output_path: Path | None = None
    output_bytes: int = 0
    usage: dict[str, Any] = field(default_factory=dict)
    claimed: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """One turn of an agent that ended by itself and could be followed by another of the same session.

    ``turn`` counts from 1; ``answer`` is its last text, the candidate. ``can_run_commands`` is whether the agent has a
    tool that runs commands: one that has none is never asked to.
    """

    turn: int
    answer: str
    claim: Claim
    can_run_commands: bool = True


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool that an agent may be lent beside its own; it is done by whoever lends it, not by the agent's process.

    ``schema`` is the JSON schema of its arguments. ``handler(args, session_id=…)`` gives a JSON object as text and raises
    nothing; whose session it is comes from the host, never from *args*.
    """

    name: str
    description: str
    schema: dict[str, Any]
    handler: Callable[..., str]


# The message of a further turn, '' to let the agent end. Asked only where the agent can take one.
Gate = Callable[[TurnEnd], str]


@dataclass(slots=True)
class Answer:
    """What a model said to one call. ``reason`` is empty for an answer that came whole.

    Otherwise ``timeout``, ``quota`` (``retry_at`` is its reset, where stated), ``unavailable``, ``refused``, ``cut``,
    ``not_installed`` or ``limit``, with ``detail`` as a sentence. ``usage`` has requests, input_tokens, output_tokens
    and cost_usd (None where unknown).
    """

    text: str = ""
    model: str = ""
    reason: str = ""
    detail: str = ""
    retry_at: str = ""
    usage: dict[str, Any] = field(default_factory=dict)


class Asks(Protocol):
    """A model that answers one call: nothing is remembered between calls, and it has no tools."""

    model: str

    def __call__(self, system: str, prompt: str, *, timeout_s: float) -> Answer: ...


class Progress(Protocol):
    """Told of each step of a long work, so that whoever waits can tell progress from silence."""

    def __call__(self, step: str, /) -> None: ...


@dataclass(slots=True)
class CheckContext:
    """What a teacher's check may look at: the bag, its own worktree (at head), the school clone.

    ``worktree`` stands clean at ``bag["head_commit"]`` when a check begins, and the check leaves it so.
    ``cancelled`` is asked while a check runs a command; once it says yes the command is ended, and the check
    answers with ``no_verdict``. ``confinement`` is what commands run within (None: nothing is confined), ``caches`` where
    set-up commands at base keep what they download. ``memory`` is the digest of what this teacher has seen before (its
    last session),
    ``earlier`` what this review's checks have found so far.
    """

    bag: Mapping[str, Any]
    role: TeacherRole
    worktree: Path
    clone: Path
    scratch: Path
    baselines: Path
    environment: str
    env: Mapping[str, str]
    progress: Progress
    cancelled: Callable[[], bool] | None = None
    memory: str = ""
    confinement: Policy | None = None
    caches: Path | None = None
    earlier: Sequence[CheckResult] = ()


@dataclass(slots=True)
class CheckResult:
    """What one check found. ``no_verdict`` says why it could not judge; that is never the student's fault.

    ``by`` names the model that judged, where one did, ``usage`` what it used; ``retry_at`` is when it can be asked
    again, where it said so; ``short_of`` what the call takes that the budget did not allow.
    """

    name: str
    lens: str
    findings: list[Finding] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    criteria: dict[str, str] = field(default_factory=dict)
    no_verdict: str = ""
    notes: list[str] = field(default_factory=list)
    by: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    retry_at: str = ""
    short_of: dict[str, float] = field(default_factory=dict)


class Check(Protocol):
    """One deterministic check of a teacher."""

    name: str
    lens: str

    def __call__(self, context: CheckContext) -> CheckResult: ...

"""Verify-on-stop: whether a turn may end as it is, decided from what is known at its end; and the reminder's words. Pure.

``edits(before, now)`` names the paths whose content differs from where the session began and that code depends on:
no documentation, nothing temporary, nothing that was made and deleted again. ``decide(scene, given)`` says what follows,
*given* being the reminders that were given already:

- ``end``: nothing of that kind was edited, a check passed on exactly these files, the agent cannot run one, the
  reminders are used up, or there is no ledger to say;
- ``blocked``: a check is due and the agent names what keeps it from one; asking again would only make it guess;
- ``nudge``: with ``message``, which names the project's own commands first, then ``verify --json`` where there is a
  recipe, and a script of the agent's own only where the project declares neither.

A reminder is no word of the user's: whoever keeps a transcript leaves it out. That reminders are used up proves nothing,
the standing stays what it is. No errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from school.contracts import Claim, bounded
from school.verification.digest import TreeState, changed
from school.verification.evidence import Standing

NUDGES_MAX: Final = 2
PATHS_SHOWN: Final = 8
COMMANDS_SHOWN: Final = 3
OUTPUT_SHOWN: Final = 1200
SCRIPT_PREFIX: Final = "hermes-verify-"


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DOCUMENTS: Final = _set(".md .markdown .mdx .rst .txt .text .adoc .asciidoc .org .log .csv .tsv")
_DOCUMENT_NAMES: Final = _set(
    "license licence copying notice authors contributors changelog changes codeowners readme"
)
# Requirements and the like end in .txt and decide what runs.
_NO_DOCUMENT: Final = re.compile(r"(?:requirements|constraints)[^/]*\.txt|CMakeLists\.txt|robots\.txt")
_TEMPORARY: Final = re.compile(
    rf"(?:{SCRIPT_PREFIX}|hermes-ad-hoc-).*|.*(?:~|\.sw[op]|\.tmp|\.temp|\.bak|\.orig|\.rej)|\.#.*|#.*#"
)
_TEMPORARY_FOLDERS: Final = frozenset({"tmp", ".tmp", "temp", ".hermes"})


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known when a turn ends. ``edited`` is what ``edits`` names; ``commands`` are the project's own checks.

    ``recipe`` is the command line that runs the project's recipe, empty without one; ``scratch`` the folder for a
    script of the agent's own; ``result_path`` where a claim goes.
    """

    standing: Standing
    edited: Sequence[str]
    commands: Sequence[str] = ()
    recipe: str = ""
    scratch: str = ""
    result_path: str = ""
    can_run_commands: bool = True
    claim: Claim = field(default_factory=Claim)


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows at the end of a turn; ``why`` is a sentence for people."""

    action: Literal["end", "nudge", "blocked"]
    why: str
    message: str = ""


def edits(before: TreeState, now: TreeState) -> list[str]:
    """The paths that are not as they were, and that a check could tell something about."""
    return [path for path in changed(before, now) if not (is_document(path) or is_temporary(path))]


def is_document(path: str) -> bool:
    """Whether *path* is prose or data that no check reads."""
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    if _NO_DOCUMENT.fullmatch(name):
        return False
    return (f".{ending.lower()}" in _DOCUMENTS and bool(stem)) if dot else name.lower() in _DOCUMENT_NAMES


def is_temporary(path: str) -> bool:
    """Whether *path* is named like something that its maker means to delete."""
    folders = path.split("/")
    return folders[0] in _TEMPORARY_FOLDERS or _TEMPORARY.fullmatch(folders[-1]) is not None


def decide(scene: Scene, given: int) -> Decision:
    """What follows at this end of a turn, after *given* reminders."""
    if why := _nothing_due(scene):
        return Decision("end", why)
    if named := _blocker(scene.claim):
        return Decision("blocked", named)
    if why := _nothing_to_ask(scene, given):
        return Decision("end", why)
    return Decision("nudge", f"{scene.standing.status} after an edit", _nudge(scene))


def _nothing_due(scene: Scene) -> str:
    """Why no check is due at all; '' when one is."""
    status = scene.standing.status
    if status in ("disabled", "not_applicable"):
        return f"there is no evidence to ask for: {status}"
    if not scene.edited:
        return "nothing was edited that a check could tell anything about"
    return f"a {scene.standing.scope} check passed on these files" if status == "passed" else ""


def _nothing_to_ask(scene: Scene, given: int) -> str:
    """Why asking for a check that is due would bring none; '' when it may."""
    if scene.claim.status == "failed":
        return "the agent says itself that it failed"
    if not scene.can_run_commands:
        return "the agent has no tool that runs commands"
    return f"{given} reminders were given, and no check passed since" if given >= NUDGES_MAX else ""


def _blocker(claim: Claim) -> str:
    """What the agent names as keeping it from its work; '' for nothing."""
    if claim.status not in ("blocked", "done") or (claim.status == "done" and not claim.blockers):
        return ""
    return "; ".join(claim.blockers) or claim.summary or "the agent claims blocked"


# --- the reminder -------------------------------------------------------------------------------------------

_DUE: Final = (
    "Automatic reminder, not a new task: you changed code, and no check of this project has passed on the files as they "
    "are now."
)
_THEN: Final = (
    "Read what fails, repair it and run it again. Then say in one sentence what ran and how it ended; what you have "
    "answered before stands, do not repeat it. Do not call the work verified while nothing has passed."
)
_ELSE: Final = (
    'If something concrete keeps you from running it, do not guess: write {{"status": "blocked", "blockers": ["what it '
    'is"]}} to {result} and end.'
)


def _nudge(scene: Scene) -> str:
    result = scene.result_path or "the result file"
    parts = [_DUE, f"Changed: {_paths(scene.edited)}.", _known(scene.standing), _to_run(scene), _THEN]
    return "\n\n".join([*parts, _ELSE.format(result=result)])


def _paths(edited: Sequence[str]) -> str:
    shown = ", ".join(edited[:PATHS_SHOWN])
    return f"{shown} and {len(edited) - PATHS_SHOWN} more" if len(edited) > PATHS_SHOWN else shown


def _known(standing: Standing) -> str:
    """The check that is known of, if there is one."""
    event = standing.event
    if event is None:
        return f"Evidence: {standing.status}."
    output = bounded(event.output_summary, OUTPUT_SHOWN).strip()
    told = f" It printed:\n\n{output}" if output else ""
    return f"Evidence: {standing.status}. `{event.command}` ended with exit status {event.exit_code}.{told}"


def _to_run(scene: Scene) -> str:
    if scene.commands:
        shown = [f"    {command}" for command in scene.commands[:COMMANDS_SHOWN]]
        more = len(scene.commands) - len(shown)
        rest = f"\n    ({more} more checks are declared)" if more > 0 else ""
        return "Run now, in the project's root:\n\n" + "\n".join(shown) + rest
    if scene.recipe:
        return f"Run the project's recipe now, in its root:\n\n    {scene.recipe}"
    return (
        "The project declares no check. Write a short script that exercises what you changed, outside the project, as "
        f"{scene.scratch.rstrip('/') or '$TMPDIR'}/{SCRIPT_PREFIX}NAME (run it by its whole path), run it, and delete it. "
        "That is an ad-hoc check of what it covers; it does not make the project's suite green."
    )

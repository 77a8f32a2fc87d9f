"""What a student is given before it begins: its brief, and the folder in its working tree that is for our files.

``brief_of(bag, worktree, result_path, task, settings)`` is the brief as JSON values and the persona that is in it.
``hidden(tree, identity, name, outside)`` is ``.hermes/<name>`` in the working tree, or *outside* where that would lead
somewhere else; ``identity(path)`` tells one folder from another that took its place. Errors: OSError as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from school.contracts import Persona, dump
from school.settings import Settings
from school.system import files, log

OURS: Final = ".hermes"

_log = log.get("study.briefing")


def brief_of(
    bag: Mapping[str, Any], worktree: Path, result_path: Path, task: str, settings: Settings
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The brief of *bag* with *task* for its text, and the persona that it speaks as."""
    from school.agents.prompt import brief_for
    from school.souls import load_soul
    from school.verification.facts import DirectoryTree, facts, rendered

    soul = load_soul(f"student-{bag['student']}", settings=settings)
    if soul.overridden:
        _log.warning("soul.overridden", bead=bag["bead"], persona=soul.name, source=soul.source)
    declared = (bag.get("terms") or {}).get("verify") or []
    project = rendered(facts(DirectoryTree(worktree), declared))
    brief = brief_for(bag, task=task, persona=soul.text, result_path=str(result_path), project=project)
    persona = Persona(name=soul.name, source=soul.source, sha256=soul.sha256)
    return dict(dump(brief)), dict(dump(persona))


def hidden(tree: Path, was: tuple[int, int] | None, name: str, outside: Path) -> Path:
    """``.hermes/<name>`` in *tree*, made if need be; ``outside/<name>`` where that would lead through a link.

    A repository may hold ``.hermes`` as a link or a file, and an agent may make one of it, or put another folder
    or a link in the place of its whole tree: what is written through it would change something that is not ours.
    """
    if was is not None and identity(tree) != was:
        return files.ensure_dir(outside / name)
    folder = tree
    for part in (OURS, name):
        folder /= part
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            return files.ensure_dir(outside / name)
        folder.mkdir(exist_ok=True)
    return folder


def identity(path: Path) -> tuple[int, int] | None:
    """Which folder lies at *path* itself, links not followed; None when nothing does."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino

"""Which commands a teacher runs on a repository, and how it sets up for them: from its base commit, never from a change.

``due(tree, config) -> Due``: what ``school.toml`` declares; where that says nothing, the recipe that the repository
itself has saved (``.hermes/environment.json``: its build and test lines, its bootstrap as set-up); where there is none,
what its files plainly declare (``facts``). A line of a recipe that is one plain command becomes its argv, so that its
runner can name its tests; any other is run by ``sh -c``. A service is not started: what a review runs must end.

``problems`` says what of a saved recipe cannot be used. Errors: GitError where a commit cannot be read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final, Literal

from school.contracts import ProjectConfig
from school.verification import shell
from school.verification.facts import facts
from school.verification.recipe import MANIFEST, Recipe, parsed
from school.verification.trees import Tree

# What a plain command has nothing of; a shell would make something else of it.
_SPECIAL: Final = frozenset("*?[]{}~$`!#\n")


@dataclass(frozen=True, slots=True)
class Due:
    """Commands as argv, in order; ``source`` is ``school.toml``, ``manifest`` or ``detected``."""

    verify: list[list[str]]
    setup: list[list[str]]
    source: Literal["school.toml", "manifest", "detected"]
    problems: list[str] = field(default_factory=list)


def due(tree: Tree, config: ProjectConfig) -> Due:
    """What is run on *tree*, the base commit."""
    recipe, problems = _saved(tree)
    setup = [list(argv) for argv in config.setup.commands]
    if recipe is not None and not setup:
        setup = [argv_of(line) for line in recipe.bootstrap]
    if config.verify.commands:
        return Due([list(argv) for argv in config.verify.commands], setup, "school.toml", problems)
    if recipe is not None and (recipe.build or recipe.test):
        return Due([argv_of(line) for line in (*recipe.build, *recipe.test)], setup, "manifest", problems)
    return Due([list(argv) for argv in facts(tree).verify_commands], setup, "detected", problems)


def _saved(tree: Tree) -> tuple[Recipe | None, list[str]]:
    raw = tree.read(MANIFEST)
    if raw is None:
        return None, []
    try:
        recipe, problems = parsed(json.loads(raw.decode("utf-8-sig")))
    except (ValueError, RecursionError) as cause:
        recipe, problems = None, [f"cannot be used: {cause}"]
    return recipe, [f"{MANIFEST}: {problem}" for problem in problems]


def argv_of(line: str) -> list[str]:
    """A shell line as an argv that does the same."""
    segments = None if _SPECIAL & set(line) else shell.parse(line)
    if not segments or len(segments) != 1:
        return ["sh", "-c", line]
    segment = segments[0]
    plain = segment.words and not segment.redirections and not segment.after
    if not plain or not all(word.literal for word in segment.words):
        return ["sh", "-c", line]
    if not segment.assignments:
        return segment.argv
    if not all(word.literal for _, word in segment.assignments):
        return ["sh", "-c", line]
    return ["env", *(f"{name}={word.text}" for name, word in segment.assignments), *segment.argv]

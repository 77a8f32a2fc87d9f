"""Accepted work becomes a branch in the user's repository, once, under a name that nobody had.

``deliver(bag, repository, clone, prefix=...)`` re-derives ``accepted`` from the two review *files* (a bag that says
so is not believed), brings the commit in as ``refs/school/<bead>``, and makes the branch ``<prefix><task-id>``.
A branch that exists is never moved: the new one gets ``-2``, ``-3``, and so on. Each step is journalled in
``deliveries.jsonl``, the intent before the branch and the delivery after it; whatever dies in between, doing it
again ends in the same one branch. A delivered bead is not delivered again, whatever became of its branch.

``instructions`` are the lines that tell the user how to look and how to merge.

Only the conductor calls this, under the repository's lock. Raises BookbagInvalidError for work that is not
accepted, ConfigError for a name that git can never have or that another branch is in the way of, WorktreeError where
the repository did not take the commit or the ref: both of the first are final, the last may go better another time.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from school import settings as school_settings
from school.errors import BookbagInvalidError, ConfigError
from school.review.filed import filed_refusal
from school.scores import lines_about
from school.settings import Settings
from school.system import clock, faults, files
from school.wording import branch_problem, shown
from school.worktrees import Repository, SchoolClone, branch_name_problem, create_branch, publish_beside

SUFFIX_MAX: Final = 10_000
INTENT: Final = "intent"
DELIVERED: Final = "delivered"


def deliver(
    bag: Mapping[str, Any],
    repository: Repository,
    clone: SchoolClone,
    *,
    prefix: str = "school/",
    settings: Settings | None = None,
) -> dict[str, str]:
    """Deliver *bag*'s commit; ``{"branch", "commit"}``, the same however often it is called."""
    settings = settings or school_settings.current()
    lines = list(lines_about(settings.deliveries_journal, str(bag.get("bead"))))
    for line in lines:
        if line.get("step") == DELIVERED:
            return {"branch": str(line["branch"]), "commit": str(line["commit"])}
    if why := refusal(bag, clone, settings):
        raise BookbagInvalidError(f"{bag.get('bead')}: not delivered: {why}")
    commit = str(bag["head_commit"])
    publish_beside(clone, repository, commit, f"refs/school/{bag['bead']}")
    planned = [str(line["branch"]) for line in lines if line.get("step") == INTENT]
    branch = _branch_of_ours(repository, planned, commit) or _new_branch(bag, repository, prefix, settings)
    with faults.around("delivery.told"):
        files.append_json_line(settings.deliveries_journal, _line(bag, DELIVERED, branch))
    return {"branch": branch, "commit": commit}


def refusal(bag: Mapping[str, Any], clone: SchoolClone, settings: Settings) -> str:
    """Why *bag* is not to be delivered, by its review files and the commit itself; '' if it is."""
    return filed_refusal(bag, settings) or _commit_refusal(bag, clone)


def _commit_refusal(bag: Mapping[str, Any], clone: SchoolClone) -> str:
    """Whether the commit is really what was judged: that tree, one commit on that base, and a change."""
    head, base, tree = (str(bag.get(name) or "") for name in ("head_commit", "base_commit", "tree"))
    shown_as = ("show", "-s", "--format=%T %P", "--end-of-options")
    holds = clone.git.run(*shown_as, f"{head}^{{commit}}", check=False)
    if holds.returncode != 0:
        return f"its commit {head} is not in the school clone"
    found, _, parents = holds.stdout.decode().strip().partition(" ")
    if found != tree:
        return f"its commit {head} holds another tree than the judged {tree}"
    if parents != base:
        return f"its commit {head} does not stand on its base {base}"
    return "its tree is the base's: nothing was changed" if clone.tree_of(base) == tree else ""


# --- the branch ---------------------------------------------------------------------------------------------


def _line(bag: Mapping[str, Any], step: str, branch: str) -> dict[str, str]:
    names = ("bead", "task_id", "repo", "repo_key")
    facts = {name: str(bag.get(name) or "") for name in names}
    return {**facts, "step": step, "branch": branch, "commit": str(bag["head_commit"]), "at": clock.now()}


def branches(repository: Repository) -> dict[str, str]:
    """Every branch of the repository and its commit."""
    done = repository.git().run("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads/")
    lines = (os.fsdecode(line).partition(" ") for line in done.stdout.splitlines())
    return {name.removeprefix("refs/heads/"): commit for commit, _, name in lines}


def _branch_of_ours(repository: Repository, planned: list[str], commit: str) -> str:
    """The branch of an earlier try: made already, or still to be made; '' if somebody else has the name now."""
    found = branches(repository) if planned else {}
    for name in planned:
        there = found.get(name)
        if there == commit or (there and _descends(repository, there, commit)):
            return name
    for name in planned[-1:]:
        free = not _taken(name, found) and not branch_name_problem(repository, name)
        if free and create_branch(repository, name, commit, asked=True):
            return name
    return ""


def _descends(repository: Repository, commit: str, ancestor: str) -> bool:
    return repository.git().ok("merge-base", "--is-ancestor", ancestor, commit)


def _new_branch(bag: Mapping[str, Any], repository: Repository, prefix: str, settings: Settings) -> str:
    wanted = prefix + str(bag.get("task_id") or bag["bead"])
    if why := branch_problem(wanted):
        raise ConfigError(f"{shown(wanted)} can be no branch: {why}")
    for name in _names(wanted):
        found = branches(repository)
        if found.get(name) == bag["head_commit"]:
            return name
        if _taken(name, found):
            continue
        if why := branch_name_problem(repository, name):
            raise ConfigError(f"{shown(name)} can be no branch: {why}")
        with faults.around("delivery.intended"):
            files.append_json_line(settings.deliveries_journal, _line(bag, INTENT, name))
        with faults.around("branch.made"):
            made = create_branch(repository, name, str(bag["head_commit"]), asked=True)
        if made:
            return name
    raise ConfigError(f"{shown(wanted)}: {SUFFIX_MAX} branches of that name exist already")


def _names(wanted: str) -> Iterator[str]:
    yield wanted
    yield from (f"{wanted}-{number}" for number in range(2, SUFFIX_MAX))


def _taken(name: str, found: Mapping[str, str]) -> bool:
    """Whether a branch has that name, or one that a file system may not tell from it, or lies below it."""
    folded = name.casefold()
    return any(other.casefold() == folded or other.startswith(f"{name}/") for other in found)


# --- what the user is told ----------------------------------------------------------------------------------


def instructions(
    bag: Mapping[str, Any], repository: Repository, clone: SchoolClone, delivered: Mapping[str, str]
) -> list[str]:
    """The diffstat, and the exact commands to look at the work and to merge it."""
    base, head = str(bag["base_commit"]), str(bag["head_commit"])
    stat = clone.git.run("diff-tree", "--stat=100", "-r", "--no-color", base, head, limit_bytes=256 * 1024)
    lines = os.fsdecode(stat.stdout).splitlines()
    git = f"git -C {shlex.quote(str(repository.path))}"
    branch = shlex.quote(delivered["branch"])
    return [*lines, f"look:   {git} diff {base[:12]} {branch}", f"merge:  {git} merge {branch}"]

"""What the user's repository gains: a ref for each finished bead, and branches for accepted work. Nothing else.

Objects come in by a fetch from the clone, by path and commit id, that writes no FETCH_HEAD, no tag, no shallow
boundary and no reflog and starts no maintenance; refs are created, never moved. Every step may be done again.
``publish_beside`` takes the next free name where somebody else has the one that was meant.

Errors: ``WorktreeError`` (the repository refused the objects, or a ref of another commit is there), ``MachineError``
for a repository that is gone or whose disk takes nothing: no other bead's work would fit there either.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from school.errors import GitError, MachineError, WorktreeError
from school.system import faults, log
from school.system.git import Git
from school.worktrees.clone import FETCH_CONFIG, FETCH_TIMEOUT_S, SchoolClone, durable
from school.worktrees.repository import Repository

# What git would do beside the fetch, if the repository's own configuration asked for it.
_ONLY_OBJECTS: Final = {**FETCH_CONFIG, "fetch.pruneTags": "false", "fetch.all": "false"}
BRANCH_BYTES_MAX: Final = 200
NAMES_MAX: Final = 100
_DISK_SAYS: Final = re.compile("No space left on device|Disk quota exceeded|Read-only file system")

_log = log.get(__name__)


def publish(clone: SchoolClone, repository: Repository, commit: str, ref: str) -> bool:
    """Make *ref* name *commit* in the user's repository; False when it already did."""
    there = _ref(_user_git(repository), ref)
    if there == commit:
        return False
    if there:
        raise WorktreeError(f"{repository.path}: {ref} is there already and names {there}, not {commit}")
    _bring(clone, repository, commit, ref)
    return True


def _bring(clone: SchoolClone, repository: Repository, commit: str, ref: str) -> None:
    """Fetch *commit* and create *ref*, which is free."""
    git = _user_git(repository)
    how = [
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-auto-maintenance",
        "--no-recurse-submodules",
    ]
    try:
        with faults.around("objects.fetched"):
            git.run("fetch", *how, str(clone.path), commit, timeout_s=FETCH_TIMEOUT_S)
    except GitError as cause:
        if why := _DISK_SAYS.search(str(cause)):
            raise MachineError(
                f"{repository.common_dir}: cannot take commit {commit}, to be kept as {ref}: {why[0]}"
            ) from cause
        raise WorktreeError(
            f"{repository.path}: did not take commit {commit} from {clone.path}: {cause}"
        ) from cause
    with faults.around("ref.published"):
        made = create_ref(repository, ref, commit)
    if not made:
        raise WorktreeError(f"{repository.path}: {ref} was made by somebody else meanwhile")
    _log.info("ref.published", repo=str(repository.path), ref=ref, commit=commit)


def publish_beside(clone: SchoolClone, repository: Repository, commit: str, ref: str) -> str:
    """Publish *commit* as *ref*, or where somebody else has that name as ``<ref>-2``, ``-3``, …; the name it has now."""
    git = _user_git(repository)
    for number in range(1, NAMES_MAX + 1):
        name = ref if number == 1 else f"{ref}-{number}"
        # The ref itself or, as there cannot be both, one below it.
        there = git.text("for-each-ref", "--count=1", "--format=%(objectname) %(refname)", name)
        if there not in ("", f"{commit} {name}"):
            continue
        if not there:
            _bring(clone, repository, commit, name)
        return name
    raise WorktreeError(f"{repository.path}: {ref} and {NAMES_MAX - 1} names after it are taken already")


def create_branch(repository: Repository, name: str, commit: str, *, asked: bool = False) -> bool:
    """Make branch *name* at *commit*; True when it names *commit* now, False when it names something else.

    *asked*: ``branch_name_problem`` has just seen none.
    """
    if not asked and (why := branch_name_problem(repository, name)):
        raise WorktreeError(f"{repository.path}: {name!r} can be no branch: {why}")
    return create_ref(repository, f"refs/heads/{name}", commit)


def create_ref(repository: Repository, ref: str, commit: str) -> bool:
    """Create *ref*; whether it names *commit* afterwards. One that exists is left as it is."""
    git = _user_git(repository)
    made = git.run("update-ref", "--stdin", stdin=f"create {ref} {commit}\n".encode(), check=False)
    there = _ref(git, ref)
    if there:
        return there == commit
    raise WorktreeError(
        f"{repository.path}: {ref} could not be created: {made.stderr.decode('utf-8', 'replace').strip()}"
    )


def branch_name_ok(repository: Repository, name: str) -> bool:
    """Whether git can have a branch *name* beside those that it has."""
    return not branch_name_problem(repository, name)


def branch_name_problem(repository: Repository, name: str) -> str:
    """Why the repository cannot have a branch *name*; empty when it can, or has it already."""
    git = _user_git(repository)
    if "\0" in name or "\n" in name or not git.ok("check-ref-format", "--branch", name):
        return "git allows no such name"
    if any(len(part.encode("utf-8", "surrogateescape")) > BRANCH_BYTES_MAX for part in name.split("/")):
        return f"a part of it is longer than {BRANCH_BYTES_MAX} bytes"
    parts = name.split("/")
    for end in range(1, len(parts)):
        above = "/".join(parts[:end])
        if _ref(git, f"refs/heads/{above}"):
            return f"there is a branch {above!r}, and git cannot have one below it"
    below = git.text("for-each-ref", "--count=1", "--format=%(refname:short)", f"refs/heads/{name}/")
    return f"there is a branch {below!r}, and git cannot have one above it" if below else ""


def _ref(git: Git, name: str) -> str:
    asked = git.run("rev-parse", "--verify", "--quiet", name, check=False)
    return asked.stdout.decode().strip()


def _user_git(repository: Repository) -> Git:
    if not Path(repository.common_dir).is_dir():
        raise MachineError(f"{repository.path}: the repository is gone")
    return Git(repository.common_dir, config={**_ONLY_OBJECTS, **durable()})

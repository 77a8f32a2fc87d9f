"""Leaf worktrees that Orca makes and shows: an adapter that drives its command line, where it is installed.

Orca is told of the *bead repository*, never of the user's; so its worktree hangs on that, and everything else
(snapshot, removal, what the agent can reach) is as with plain git. Assumed are these command lines of its 1.x, each
answering one JSON document ``{"ok": bool, "result": {…}, "error": {"code", "message"}}``:

    orca status --json
    orca repo add --path BEAD_REPOSITORY --json
    orca worktree create --repo path:BEAD_REPOSITORY --name NAME --base-branch REF --no-parent --setup skip --json
    orca worktree rm --worktree path:PATH --force --json

The executable is ``$ORCA_CLI_COMMAND``, else ``orca-ide`` on Linux, else ``orca``; on Linux a program ``orca`` that
is the screen reader of that name is not taken for it. Orca chooses the directory; it is moved to where leaf
worktrees belong (``git worktree move``) unless it is there already, so that no removal ever leaves our directory. What
Orca answers is not believed: the tree is verified as one that git made, its branch is left and HEAD detached at base.

Not promised: that other versions of Orca take these flags, or that its window shows a tree that was moved.

Errors: ``OrcaUnavailableError`` when it is not installed, does not run, or refuses; callers wrap it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from school.contracts import Workspace
from school.errors import OrcaUnavailableError, SchoolError, WorktreeError
from school.settings import Settings
from school.system import files, log, processes
from school.system.git import Git
from school.worktrees.clone import SchoolClone
from school.worktrees.leaves import CHECKOUT_TIMEOUT_S, GitLeafWorktrees, make_bead_repository

COMMAND_TIMEOUT_S: Final = 120.0
ANSWER_BYTES_MAX: Final = 1024 * 1024
_NAMES: Final = ("orca-ide", "orca") if sys.platform.startswith("linux") else ("orca",)
# Words in the first bytes of the screen reader's launcher, none of which Orca's has.
_SCREEN_READER: Final = (b"pyatspi", b"gi.repository", b"AT-SPI", b"orca.orca")
# A branch is what `--base-branch` names; the agent may use it like any other.
_BASE_BRANCH: Final = "school-base"

_log = log.get(__name__)


def find_orca(environ: Mapping[str, str] | None = None) -> list[str]:
    """The argv that starts Orca's command line; OrcaUnavailableError says what was looked for."""
    environ = os.environ if environ is None else environ
    configured = shlex.split(environ.get("ORCA_CLI_COMMAND", ""))
    if configured:
        return configured
    search = environ.get("PATH")
    for name in _NAMES:
        found = shutil.which(name, path=search)
        if found and not _is_screen_reader(Path(found)):
            return [found]
    raise OrcaUnavailableError(
        f"the orca command line is not installed: no {' and no '.join(_NAMES)} on PATH, and ORCA_CLI_COMMAND is "
        "not set; leave it out, or use the leaf worktrees called git"
    )


def _is_screen_reader(path: Path) -> bool:
    try:
        with path.open("rb") as program:
            head = program.read(65536)
    except OSError:
        return False
    return sys.platform.startswith("linux") and any(word in head for word in _SCREEN_READER)


class OrcaLeafWorktrees(GitLeafWorktrees):
    """Leaf worktrees made through the ``orca`` command line."""

    name = "orca"

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._argv = find_orca()

    def available(self) -> str:
        """What ``orca status`` says in one line; OrcaUnavailableError when it does not run."""
        answer = self._orca("status")
        return json.dumps(answer, ensure_ascii=True)[:200]

    # --- create -----------------------------------------------------------------------------------------

    def _make(self, workspace: Workspace, clone: SchoolClone) -> None:
        self._orca("status")
        make_bead_repository(workspace, clone)
        git = Git(workspace.git_dir)
        git.run("update-ref", f"refs/heads/{_BASE_BRANCH}", workspace.base_commit)
        git.run("symbolic-ref", "HEAD", f"refs/heads/{_BASE_BRANCH}")
        self._orca("repo", "add", "--path", str(workspace.git_dir))
        answer = self._orca(
            "worktree", "create", "--repo", f"path:{workspace.git_dir}", "--name", workspace.path.name,
            "--base-branch", _BASE_BRANCH, "--no-parent", "--setup", "skip",
        )  # fmt: skip
        made = self._path_in(answer)
        self._take_over(made, workspace)

    def _path_in(self, answer: Mapping[str, Any]) -> Path:
        worktree = answer.get("worktree")
        said = worktree.get("path") if isinstance(worktree, dict) else None
        if not isinstance(said, str) or not said.startswith("/"):
            raise OrcaUnavailableError(f"orca worktree create: no path in its answer: {str(answer)[:300]}")
        return Path(said)

    def _take_over(self, made: Path, workspace: Workspace) -> None:
        """Make Orca's tree ours: in its place, HEAD detached at base; only if it is one of the bead repository."""
        git = Git(workspace.git_dir)
        listed = git.run("worktree", "list", "--porcelain", "-z").stdout.split(b"\0")
        if b"worktree " + os.fsencode(made.resolve()) not in listed:
            raise WorktreeError(
                f"{made}: orca said it was made for {workspace.git_dir}, and git knows nothing of it"
            )
        if made != workspace.path:
            files.ensure_dir(workspace.path.parent)
            git.run(
                "worktree", "move", "--force", str(made), str(workspace.path), timeout_s=CHECKOUT_TIMEOUT_S
            )
        Git(cwd=workspace.path).run("checkout", "--quiet", "--detach", "--force", workspace.base_commit)

    # --- remove -----------------------------------------------------------------------------------------

    def _remove_tree(self, workspace: Workspace) -> None:
        """Orca forgets it first; the files are removed here in any case, also when Orca is not there any more."""
        with suppress(SchoolError):
            self._orca("worktree", "rm", "--worktree", f"path:{workspace.path}", "--force")
        super()._remove_tree(workspace)

    # --- the command line -------------------------------------------------------------------------------

    def _orca(self, *args: str) -> dict[str, Any]:
        """The ``result`` of one command."""
        argv = [*self._argv, *args, "--json"]
        shown = shlex.join([Path(argv[0]).name, *args])
        env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        with tempfile.TemporaryDirectory(prefix="school-orca-") as folder:
            done = processes.run(
                argv,
                cwd=Path(folder),
                env=env,
                limits=processes.RunLimits(timeout_s=COMMAND_TIMEOUT_S, output_bytes=ANSWER_BYTES_MAX),
                stderr_path=Path(folder) / "stderr",
                marker="orca",
            )
        if done.reason:
            raise OrcaUnavailableError(f"{shown}: {done.reason}: {done.detail}")
        return _result(shown, done.exit_code, done.stdout)


def _result(shown: str, code: int | None, out: bytes) -> dict[str, Any]:
    text = out.decode("utf-8", "replace").strip()
    try:
        answer = json.loads(text)
    except ValueError:
        raise OrcaUnavailableError(f"{shown}: exit {code}, and no JSON: {text[-300:]!r}") from None
    if not isinstance(answer, dict) or answer.get("ok") is not True or code != 0:
        error = answer.get("error") if isinstance(answer, dict) else None
        raise OrcaUnavailableError(f"{shown}: refused (exit {code}): {str(error or text)[:300]}")
    result = answer.get("result")
    return result if isinstance(result, dict) else {}

"""Which commit is checked out in a directory, and which tree its files make at this moment, changes included.

``look(root)``: the tree is that of all tracked and new files that git does not ignore, worked out with an index and
an object store of our own, so that nothing in the repository is written. Environments that set-up makes (``.venv``,
``node_modules``) do not count even where nobody ignores them. Empty where there is no repository, or no commit.
No errors: what git cannot tell is empty.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from school.errors import GitError, MachineError
from school.system.git import Git

_NOT_THE_PROJECT: Final = (".venv", "node_modules")
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A commit and a tree; *changed* when the files are not what the commit has. ``files``: mode, content and path."""

    commit: str = ""
    tree: str = ""
    changed: bool = False
    files: frozenset[bytes] = field(default=frozenset(), repr=False, compare=False)

    def paths_that_differ(self, other: Seen) -> list[str]:
        """The paths that the two trees do not have alike."""
        unlike = {line.partition(b"\t")[2] for line in self.files ^ other.files}
        return sorted(path.decode("utf-8", "replace") for path in unlike)


def look(root: Path) -> Seen:
    """The commit and tree of the repository that *root* lies in."""
    commit = ""
    try:
        plain = Git(cwd=root, config={"core.excludesFile": _users_excludes(root)})
        top = Path(plain.text("rev-parse", "--show-toplevel"))
        git_dir = Path(plain.text("rev-parse", "--absolute-git-dir"))
        commit = plain.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        tree, entries, whole = _tree(top, git_dir, plain)
        changed = not whole or tree != plain.text("rev-parse", f"{commit}^{{tree}}")
        return Seen(commit, tree, changed, frozenset(entries))
    except (GitError, MachineError):
        return Seen(commit)


def _users_excludes(root: Path) -> str:
    """What this user ignores everywhere; our own git reads no configuration of theirs."""
    named = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    usual = Path(named) / "git" / "ignore"
    return str(usual) if usual.is_file() and root.is_dir() else "/dev/null"


def _tree(top: Path, git_dir: Path, plain: Git) -> tuple[str, list[bytes], bool]:
    """The tree, its entries, and whether git could take everything (not an unreadable file, an unborn repository)."""
    objects = plain.text("rev-parse", "--path-format=absolute", "--git-path", "objects")
    with tempfile.TemporaryDirectory(prefix="school-tree-") as scratch:
        own = Path(scratch)
        (own / "objects").mkdir()
        index = own / "index"
        if (git_dir / "index").is_file():  # its times spare reading every file again
            shutil.copyfile(git_dir / "index", index)
        git = Git(
            git_dir=git_dir,
            work_tree=top,
            index=index,
            config={"core.excludesFile": _users_excludes(top)},
            env={
                "GIT_OBJECT_DIRECTORY": str(own / "objects"),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects,
            },
        )
        left_out = [f":(exclude,glob)**/{name}/**" for name in _NOT_THE_PROJECT]
        add = ("add", "--all", "--ignore-errors", "--", ".", *left_out)
        whole = git.run(*add, check=False, timeout_s=_TIMEOUT_S).returncode == 0
        entries = git.run("ls-files", "--stage", "-z").stdout.split(b"\0")
        tree = git.text("write-tree", timeout_s=_TIMEOUT_S)
        return tree, [entry for entry in entries if entry], whole

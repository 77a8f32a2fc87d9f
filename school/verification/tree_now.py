"""Which commit is checked out in a directory, and which tree its files make at this moment, changes included.

``TreeNow(root).look() -> Seen``, again for a later moment; ``look(root)`` for one. The tree is the ``digest`` of the whole
repository that *root* lies in: what is there byte for byte, whatever an index says, nothing written, no filter run.
``changed`` compares it with the commit: content that git itself converts on checkout (line ends, a large file for its
pointer) is no change. Environments that set-up makes (``.venv``, ``node_modules``) and what the user ignores everywhere
do not count. Empty where there is no repository, or no commit. No errors: what cannot be read leaves the tree empty.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from school.errors import GitError, MachineError
from school.system.git import Git
from school.verification.digest import Entry, TreeDigest, TreeState, changed, object_id

_TIMEOUT_S: Final = 120.0
_GITLINK: Final = b"160000"
# Larger ones are taken for changed where their bytes are not the commit's: most are no text.
_CONVERTED_BYTES_MAX: Final = 16 * 1024 * 1024
_EMPTY: Final = TreeState("", "", {})


@dataclass(frozen=True, slots=True)
class Seen:
    """A commit and a tree; *changed* when the files are not what the commit has."""

    commit: str = ""
    tree: str = ""
    changed: bool = False
    state: TreeState = field(default=_EMPTY, repr=False, compare=False)

    def paths_that_differ(self, other: Seen) -> list[str]:
        """The paths that the two trees do not have alike."""
        return [path.encode("utf-8", "replace").decode() for path in changed(self.state, other.state)]


def look(root: Path) -> Seen:
    """The commit and tree of the repository that *root* lies in."""
    return TreeNow(root).look()


class TreeNow:
    """One directory, looked at again and again: what did not change since is not read twice."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._digest: TreeDigest | None = None

    def look(self) -> Seen:
        """What is checked out, and what is there."""
        commit = ""
        try:
            git = Git(cwd=self.root)
            top = Path(git.text("rev-parse", "--show-toplevel"))
            commit = git.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
            if self._digest is None or self._digest.root != top:
                self._digest = TreeDigest(top, excludes=_users_excludes())
            state = self._digest.take()
            return Seen(commit, state.tree, _differs(top, git, commit, state), state)
        except (GitError, MachineError):
            return Seen(commit)


def _users_excludes() -> str:
    """What this user ignores everywhere; our own git reads no configuration of theirs."""
    named = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    usual = Path(named) / "git" / "ignore"
    return str(usual) if usual.is_file() else ""


def _differs(top: Path, git: Git, commit: str, state: TreeState) -> bool:
    """Whether *state* is anything else than a checkout of *commit*."""
    raw = git.run("ls-tree", "-r", "-z", "--full-tree", commit, timeout_s=_TIMEOUT_S).stdout
    committed: dict[bytes, Entry] = {}
    for line in raw.split(b"\0"):
        if line:
            facts, _, path = line.partition(b"\t")
            mode, _, oid = facts.split(b" ")
            committed[path] = (mode, oid.decode("ascii"))
    if committed.keys() != state.entries.keys():
        return True
    return any(
        found != committed[path] and not _is_checkout(top / os.fsdecode(path), committed[path], found)
        for path, found in state.entries.items()
    )


def _is_checkout(path: Path, committed: Entry, found: Entry) -> bool:
    """Whether what lies at *path* is what git puts there for what is *committed*, though not the same bytes."""
    if committed[0] == _GITLINK:
        return _is_submodule_at(path, committed[1])
    if committed[0] != found[0] or not path.is_file() or path.stat().st_size > _CONVERTED_BYTES_MAX:
        return False
    content = path.read_bytes()
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{hashlib.sha256(content).hexdigest()}\n"
        f"size {len(content)}\n"
    )
    kept = (content.replace(b"\r\n", b"\n"), pointer.encode())
    return any(object_id(b"blob", one) == committed[1] for one in kept)


def _is_submodule_at(path: Path, commit: str) -> bool:
    """Whether the submodule at *path* is clean at *commit*, or was never fetched."""
    if not any(path.iterdir()):
        return True
    inside = look(path)
    return inside.commit == commit and not inside.changed

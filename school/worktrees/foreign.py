"""Objects out of repositories that an agent wrote, brought into the school clone without running git in them.

A git directory that an agent could write may hold configuration that starts programs. So its object directory is
only ever *borrowed* by a git of ours, whose own configuration is all that counts; what is copied is packed, then
indexed again, which computes every object's id from its content.

``tips`` finds the newest commits that are not in base's history: whatever named them, a branch, the stash, a reflog
or nothing any more. ``bring`` copies them and their history into the clone; ``bundle`` makes one file of a nested
repository's history.

Not promised: objects that git itself cannot read any more. They are said in notes, never an error.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from school.errors import GitError
from school.system import files
from school.system.git import Git
from school.worktrees.clone import durable

PACK_TIMEOUT_S: Final = 1800.0
_UNPACK_BYTES_MAX: Final = 1024 * 1024
_OID: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
INDEX_BYTES_MAX: Final = 512 * 1024 * 1024


def borrowing(
    git_dir: Path, objects: Path, *, index: Path | None = None, env: Mapping[str, str] | None = None
) -> Git:
    """Git on *git_dir* that also sees *objects*."""
    name = str(objects)
    if re.search(r'[":\\\n]', name):
        name = '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    seen = {**(env or {}), "GIT_ALTERNATE_OBJECT_DIRECTORIES": name}
    return Git(git_dir, index=index, env=seen, config=durable())


def own_alternates(objects: Path, borrowed: Path) -> None:
    """Make the list of borrowed object directories what we know it to be, whatever the agent made of it."""
    if _real_dir(objects) and _real_dir(objects / "info"):
        plain_alternates(objects)
        files.write_atomic(objects / "info" / "alternates", os.fsencode(borrowed) + b"\n")


def plain_alternates(objects: Path) -> None:
    """Remove a list of borrowed object directories that is no plain file: git would wait on a pipe for ever."""
    target = objects / "info" / "alternates"
    if os.path.lexists(target) and not _real_file(target):
        files.remove_tree(target) if _real_dir(target) else target.unlink()


def _real_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _real_dir(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def object_ids(git: Git, objects: Path) -> Iterator[str]:
    """The ids of all objects that lie in *objects* itself, loose and packed."""
    if not _real_dir(objects):
        return
    for folder in sorted(objects.iterdir()):
        if re.fullmatch(r"[0-9a-f]{2}", folder.name) and _real_dir(folder):
            for name in sorted(os.listdir(folder)):  # noqa: PTH208 - names only
                if _OID.fullmatch(folder.name + name):
                    yield folder.name + name
    pack = objects / "pack"
    for index in sorted(pack.glob("*.idx")) if _real_dir(pack) else ():
        if not _real_file(index) or index.lstat().st_size > INDEX_BYTES_MAX:
            continue
        listed = git.run("show-index", stdin=index.read_bytes(), check=False, limit_bytes=INDEX_BYTES_MAX)
        for line in listed.stdout.decode("ascii", "replace").splitlines():
            found = line.split()
            if len(found) > 1 and _OID.fullmatch(found[1]):
                yield found[1]


def commits_among(git: Git, ids: Sequence[str]) -> list[str]:
    """Those of *ids* that are commits git can read."""
    if not ids:
        return []
    asked = "".join(f"{oid}\n" for oid in ids).encode()
    answer = git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked, check=False)
    lines = (line.split() for line in answer.stdout.decode("ascii", "replace").splitlines())
    return [line[1] for line in lines if len(line) == 2 and line[0] == "commit"]  # noqa: PLR2004


def tips(git: Git, objects: Path, known: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """The newest commits in *objects* outside the history of *known*, sorted; and what could not be read."""
    commits = commits_among(git, list(dict.fromkeys(object_ids(git, objects))))
    if not commits:
        return [], []
    lines, notes = _parents(git, commits, known)
    parents = {parent for line in lines for parent in line[1:]}
    return sorted({line[0] for line in lines} - parents), notes


def _parents(git: Git, commits: list[str], known: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    ask = ["rev-list", "--parents", "--stdin"]
    done = git.run(*ask, stdin=_revisions(commits, known), check=False)
    if done.returncode == 0:
        return [line.split() for line in done.stdout.decode().splitlines()], []
    if len(commits) == 1:
        return [], [
            f"commit {commits[0]} cannot be read: {done.stderr.decode('utf-8', 'replace').strip()[-200:]}"
        ]
    # One broken history must not hide the whole ones.
    lines: list[list[str]] = []
    notes: list[str] = []
    for commit in commits:
        more, said = _parents(git, [commit], known)
        lines.extend(more)
        notes.extend(said)
    return lines, notes


def _revisions(wanted: Sequence[str], known: Sequence[str]) -> bytes:
    return "".join([*(f"{oid}\n" for oid in wanted), *(f"^{oid}\n" for oid in known)]).encode()


def bring(git: Git, clone: Path, found: Sequence[str], known: Sequence[str], scratch: Path) -> dict[str, str]:
    """Copy *found* and their history since *known* into *clone*; those that could not be, with the reason."""
    if not found or _pack_into(git, clone, found, known, scratch) == "":
        return {}
    reasons = {commit: _pack_into(git, clone, [commit], known, scratch) for commit in found}
    return {commit: reason for commit, reason in reasons.items() if reason}


def _pack_into(git: Git, clone: Path, found: Sequence[str], known: Sequence[str], scratch: Path) -> str:
    """Empty when *found* lie whole in *clone* now, otherwise what git said."""
    revisions = _revisions(found, known)
    try:
        made = git.run(
            "pack-objects", "--revs", "--quiet", str(scratch / "foreign"), stdin=revisions, timeout_s=PACK_TIMEOUT_S
        )  # fmt: skip
        name = made.stdout.decode().strip()
        pack = scratch / f"foreign-{name}.pack"
        if name and pack.is_file():
            _adopt(clone, pack)
        Git(clone).run(
            "rev-list", "--objects", "--quiet", "--stdin", stdin=revisions, timeout_s=PACK_TIMEOUT_S
        )
    except GitError as cause:
        return str(cause)[-300:]
    return ""


def _adopt(clone: Path, pack: Path) -> None:
    """Put the objects of *pack* into the clone, every id computed again from its content.

    Few become loose objects: a pack for each bead would slow every later look-up. Many stay a pack, indexed afresh;
    the index goes in last, for it makes the pack count.
    """
    git = Git(clone, config=durable())
    pack.with_suffix(".idx").unlink(missing_ok=True)
    pack.with_suffix(".rev").unlink(missing_ok=True)
    if pack.stat().st_size <= _UNPACK_BYTES_MAX:
        git.run("unpack-objects", "-q", stdin=pack.read_bytes(), timeout_s=PACK_TIMEOUT_S)
        return
    git.run("index-pack", "--no-rev-index", str(pack), timeout_s=PACK_TIMEOUT_S)
    target = clone / "objects" / "pack"
    files.ensure_dir(target)
    for suffix in (".pack", ".idx"):
        name = target / pack.with_suffix(suffix).name.replace("foreign-", "pack-")
        pack.with_suffix(suffix).replace(name)
    files.fsync_dir(target)


def bundle(nested: Path, scratch: Path) -> tuple[bytes, list[str]]:
    """All commits of the repository at *nested*, as one bundle file; empty when it has none."""
    admin = nested / ".git"
    if not _real_dir(admin):
        return b"", []
    plain_alternates(admin / "objects")
    scratch.mkdir(exist_ok=True)
    object_format = _object_format(admin, scratch)
    asked = ("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
    Git(cwd=scratch).run(*asked, str(scratch / "reader.git"))
    git = borrowing(scratch / "reader.git", admin / "objects")
    found, notes = tips(git, admin / "objects")
    for number, commit in enumerate(found):
        git.run("update-ref", f"refs/heads/saved-{number}", commit)
    if not found:
        return b"", notes
    target = scratch / "history.bundle"
    done = git.run("bundle", "create", "--quiet", str(target), "--all", check=False, timeout_s=PACK_TIMEOUT_S)
    if done.returncode != 0 or not target.is_file():
        return b"", [*notes, f"{nested}: no bundle: {done.stderr.decode('utf-8', 'replace').strip()[-200:]}"]
    return target.read_bytes(), notes


def _object_format(admin: Path, cwd: Path) -> str:
    if not _real_file(admin / "config"):
        return "sha1"
    asked = ("config", "--file", str(admin / "config"), "--no-includes", "--get", "extensions.objectformat")
    said = Git(cwd=cwd).run(*asked, check=False).stdout.decode("ascii", "replace").strip().lower()
    return said if said in {"sha1", "sha256"} else "sha1"

"""Submodules, where ``[setup] submodules`` asks for them: files out of the user's own ``.git/modules``.

Nothing is fetched. Each submodule's commit must be in the user's copy of it; its files are written as plain files,
exact bytes, without a ``.git`` of their own, nested ones too. A snapshot keeps the link as base has it, and compares
what lies in the folder with what was put there.

Errors: ``WorktreeError`` that names the submodule and what to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from school.errors import GitError, WorktreeError
from school.system import files
from school.system.git import Git
from school.worktrees.clone import EXACT_ATTRIBUTES

CHECKOUT_TIMEOUT_S: Final = 1800.0
DEPTH_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Submodule:
    """One link: where it is in the tree, which commit it names, and the repository that should have it."""

    path: str
    commit: str
    modules: Path


def of_commit(git: Git, commit: str, modules: Path, above: str = "") -> Iterator[Submodule]:
    """The submodules of *commit*; *modules* is where the repositories of them lie."""
    links = _links(git, commit)
    names = _names(git, commit) if links else {}
    for path, oid in links.items():
        name = names.get(path, path)
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise WorktreeError(f"submodule {path!r}: its name {name!r} leads elsewhere")
        yield Submodule(above + path, oid, modules / name)


def _links(git: Git, commit: str) -> dict[str, str]:
    listed = git.run("ls-tree", "-r", "-z", "--full-tree", commit).stdout.split(b"\0")
    heads = (entry.partition(b"\t") for entry in listed if entry.startswith(b"160000 "))
    return {os.fsdecode(path): head.split()[2].decode() for head, _, path in heads}


def _names(git: Git, commit: str) -> dict[str, str]:
    """Path to name, from ``.gitmodules`` at *commit*."""
    asked = ("config", "--blob", f"{commit}:.gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$")
    names = {}
    for entry in git.run(*asked, check=False).stdout.split(b"\0"):
        key, separator, path = os.fsdecode(entry).partition("\n")
        if separator:
            names[path] = key.removeprefix("submodule.").removesuffix(".path")
    return names


def modules_of(repo: Path) -> Path:
    """Where the user's repository at *repo* keeps its submodules."""
    common = Git(cwd=repo).run("rev-parse", "--path-format=absolute", "--git-common-dir").stdout
    return Path(os.fsdecode(common).removesuffix("\n")) / "modules"


class Reader:
    """Reads the user's copies of submodules through repositories of ours, made below *scratch*."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._made: dict[Path, Git] = {}

    def git(self, submodule: Submodule) -> Git:
        """A repository of ours that sees the submodule's objects; WorktreeError when its commit is not there."""
        reader = self._made.get(submodule.modules)
        if reader is None:
            reader = self._made[submodule.modules] = self._make(submodule)
        if not reader.ok("cat-file", "-e", f"{submodule.commit}^{{commit}}"):
            raise _missing(submodule)
        return reader

    def _make(self, submodule: Submodule) -> Git:
        if not (submodule.modules / "objects").is_dir():
            raise _missing(submodule)
        asked = Git(submodule.modules).run("rev-parse", "--show-object-format", check=False)
        object_format = asked.stdout.decode().strip() or "sha1"
        files.ensure_dir(self.scratch)
        target = self.scratch / f"submodule-{len(self._made)}.git"
        files.remove_tree(target)
        made = ("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", str(target))
        Git(cwd=self.scratch).run(*made)
        for name, content in (
            ("objects/info/alternates", os.fsencode(submodule.modules / "objects") + b"\n"),
            ("info/attributes", EXACT_ATTRIBUTES.encode()),
        ):
            (target / name).parent.mkdir(exist_ok=True)
            (target / name).write_bytes(content)
        return Git(target)

    def entries(self, submodule: Submodule) -> dict[bytes, tuple[str, str]]:
        """Every file of the submodule and of those in it: path below it to (mode, object)."""
        found: dict[bytes, tuple[str, str]] = {}
        listed = self.git(submodule).run("ls-tree", "-r", "-z", "--full-tree", submodule.commit).stdout
        for entry in listed.split(b"\0"):
            head, separator, path = entry.partition(b"\t")
            mode, _, oid = [*head.decode().split(), "", "", ""][:3]
            if separator and mode != "160000":
                found[path] = (mode, oid)
        for nested in self.nested(submodule):
            below = os.fsencode(nested.path.removeprefix(submodule.path + "/")) + b"/"
            found.update({below + path: what for path, what in self.entries(nested).items()})
        return found

    def nested(self, submodule: Submodule) -> list[Submodule]:
        if submodule.modules.parts.count("modules") > DEPTH_MAX:
            raise WorktreeError(f"submodule {submodule.path!r}: nested too deep")
        above = submodule.path + "/"
        return list(of_commit(self.git(submodule), submodule.commit, submodule.modules / "modules", above))

    def check_out(self, submodule: Submodule, tree: Path) -> None:
        """Write the submodule's files, and those of the ones in it, into *tree*."""
        target = tree / submodule.path
        if target.is_symlink() or not target.resolve().is_relative_to(tree.resolve()):
            raise WorktreeError(f"submodule {submodule.path!r}: its folder leads elsewhere")
        files.ensure_dir(target)
        git = self.git(submodule)
        index = self.scratch / "submodule-index"
        index.unlink(missing_ok=True)
        assert git.git_dir is not None
        writing = Git(git.git_dir, target, index=index, config={"core.bare": "false"})
        writing.run("read-tree", submodule.commit)
        writing.run("checkout-index", "--all", "--force", "--quiet", timeout_s=CHECKOUT_TIMEOUT_S)
        for nested in self.nested(submodule):
            self.check_out(nested, tree)


def populate(tree: Path, clone: Git, commit: str, repo: Path, scratch: Path) -> list[str]:
    """Put the files of every submodule of *commit* into *tree*; their paths."""
    files.remove_tree(scratch)  # of one that was killed
    reader = Reader(scratch)
    try:
        found = list(of_commit(clone, commit, modules_of(repo)))
        for submodule in found:
            reader.check_out(submodule, tree)
    except GitError as cause:
        raise WorktreeError(f"{tree}: its submodules could not be put in place: {cause}") from cause
    finally:
        files.remove_tree(scratch)
    return [submodule.path for submodule in found]


def _missing(submodule: Submodule) -> WorktreeError:
    shown = re.sub(r"\s", " ", submodule.path)
    return WorktreeError(
        f"submodule {shown!r}: commit {submodule.commit} is not in {submodule.modules}; "
        "in the repository, run: git submodule update --init --recursive"
    )

"""A leaf's working tree: its own bare bead repository, and a real git worktree on it.

The bead repository borrows the clone's objects and starts without one of its own, so whatever object, ref, stash
or reflog is in it later, the agent made. ``create`` writes the record first, checks what git made, and undoes all
of it on any failure; ``remove`` is idempotent, goes on where a killed one stopped, and refuses what it did not
make or what holds unsaved work.

Not promised: that an agent stays inside. Only confinement can promise that; here it has no name, no remote and no
configuration that leads anywhere else.

Errors: ``WorktreeError`` that names path and cause.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from school import settings as school_settings
from school.contracts import Workspace, WorktreeRecord
from school.errors import OrcaUnavailableError, SchoolError, WorktreeError
from school.settings import Settings
from school.system import clock, faults, files, log
from school.system.git import Git
from school.worktrees import layout, submodules
from school.worktrees.clone import EXACT_ATTRIBUTES, SchoolClone, clone_for
from school.worktrees.mending import read_or_mend

CHECKOUT_TIMEOUT_S: Final = 1800.0
BASE_REF: Final = "refs/school/base"
# What the agent's own git obeys in its tree. The identity is only there so that a commit of the agent's does not
# fail on a machine without one; hooks and signing of the user's global configuration must not stop it either.
_BEAD_CONFIG: Final[Mapping[str, str]] = {
    "gc.auto": "0",
    "maintenance.auto": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "user.name": "Student",
    "user.email": "student@localhost",
    "advice.detachedHead": "false",
}

_log = log.get(__name__)


def checkout_workers() -> int:
    """How many processes write a large checkout; git itself leaves small ones to one."""
    return max(1, min(8, os.cpu_count() or 1))


class GitLeafWorktrees:
    """Leaf worktrees made by git alone."""

    name = "git"

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or school_settings.current()

    # --- create -----------------------------------------------------------------------------------------

    def create(self, bag: Mapping[str, Any]) -> Workspace:
        """The working tree of *bag*'s bead at its recorded base commit, empty of anything else."""
        clone = clone_for(bag, settings=self.settings)
        workspace = planned(bag, clone, self.settings)
        record_path = layout.leaf_record_path(self.settings, workspace.bead)
        self._refuse_existing(workspace, record_path)
        record = new_record(workspace, manager=self.name)
        try:
            layout.write_record(record_path, record)
            self._make(workspace, clone)
            verify(workspace)
            self._populate(workspace, clone, bag)
            record.made = True
            layout.write_record(record_path, record)
        except OrcaUnavailableError:
            self._undo(workspace, record_path)
            raise
        except (SchoolError, OSError) as cause:
            self._undo(workspace, record_path)
            raise WorktreeError(f"{workspace.path}: could not be made: {cause}") from cause
        _log.info("leaf.worktree_made", bead=workspace.bead, path=str(workspace.path))
        return workspace

    def _refuse_existing(self, workspace: Workspace, record_path: Path) -> None:
        record = layout.read_record(record_path)
        if record is not None and record.made:
            raise WorktreeError(f"{record.path}: bead {workspace.bead} has a working tree already")
        if os.path.lexists(workspace.path):
            if record is None:
                raise WorktreeError(
                    f"{workspace.path}: is there already, and was not made for {workspace.bead}"
                )
            # Begun and never finished: no agent was ever let into it.
            layout.refuse_removal(self.settings, workspace.path, workspace.repo)
            files.remove_tree(workspace.path)
        if os.path.lexists(workspace.git_dir):
            if record is None and has_objects(workspace.git_dir):
                raise WorktreeError(f"{workspace.git_dir}: is there already, and holds work; clean up first")
            files.remove_tree(workspace.git_dir)

    def _make(self, workspace: Workspace, clone: SchoolClone) -> None:
        with faults.around("bead_repository.made"):
            make_bead_repository(workspace, clone)
        files.ensure_dir(workspace.path.parent)
        git = Git(workspace.git_dir, config={"checkout.workers": str(checkout_workers())})
        with faults.around("worktree.added"):
            git.run(
                "worktree", "add", "--quiet", "--detach", str(workspace.path), workspace.base_commit,
                timeout_s=CHECKOUT_TIMEOUT_S,
            )  # fmt: skip

    def _populate(self, workspace: Workspace, clone: SchoolClone, bag: Mapping[str, Any]) -> None:
        if (bag.get("terms") or {}).get("submodules"):
            scratch = clone.path / "scratch" / f"{workspace.bead}-submodules"
            submodules.populate(workspace.path, clone.git, workspace.base_commit, workspace.repo, scratch)

    def _undo(self, workspace: Workspace, record_path: Path) -> None:
        """Take back what a failed ``create`` made; what cannot be is left to the reaper, with its record."""
        with suppress(SchoolError, OSError):
            layout.refuse_removal(self.settings, workspace.path, workspace.repo)
            files.remove_tree(workspace.path)
            files.remove_tree(workspace.git_dir)
            layout.remove_record(record_path)

    # --- remove -----------------------------------------------------------------------------------------

    def remove(self, workspace: Workspace) -> None:
        """Remove working tree, bead repository and record; twice is fine. Refuses what is not saved."""
        record_path = layout.leaf_record_path(self.settings, workspace.bead)
        record = layout.read_record(record_path)
        layout.refuse_removal(self.settings, workspace.path, workspace.repo)
        present = os.path.lexists(workspace.path)
        if record is None and not present:
            self._remove_rest(workspace, record_path)
            return
        self._refuse_unsaved(workspace, record, present=present)
        if record is not None and not record.removing:
            record.removing = True
            layout.write_record(record_path, record)
        self._remove_tree(workspace)
        self._remove_rest(workspace, record_path)
        _log.info("leaf.worktree_removed", bead=workspace.bead, path=str(workspace.path))

    def _refuse_unsaved(self, workspace: Workspace, record: WorktreeRecord | None, *, present: bool) -> None:
        if record is None:
            raise WorktreeError(f"{workspace.path}: refused to remove: no record says that it was made here")
        if Path(record.path) != workspace.path or record.kind != "leaf":
            raise WorktreeError(f"{workspace.path}: refused to remove: its record names {record.path}")
        if record.salvage_failed:
            raise WorktreeError(f"{workspace.path}: refused to remove: not saved: {record.salvage_failed}")
        if not present or not record.made or record.removing:
            return
        if not SchoolClone(workspace.clone).ref(layout.snapshot_ref(workspace.bead)):
            raise WorktreeError(f"{workspace.path}: refused to remove: there is no snapshot of it yet")

    def _remove_tree(self, workspace: Workspace) -> None:
        """Rename first: a tree of which a part is gone must never look like one that an agent left."""
        doomed = workspace.path.with_name(layout.REMOVING + workspace.path.name)
        if os.path.lexists(workspace.path):
            if os.path.lexists(doomed):
                files.remove_tree(doomed)
            try:
                with faults.around("worktree.doomed"):
                    workspace.path.rename(doomed)
            except OSError as cause:
                raise files.machine_error("remove", workspace.path, cause) from cause
        if os.path.lexists(doomed):
            with faults.around("worktree.removed"):
                files.remove_tree(doomed)

    def _remove_rest(self, workspace: Workspace, record_path: Path) -> None:
        if os.path.lexists(workspace.git_dir):
            with faults.around("bead_repository.removed"):
                files.remove_tree(workspace.git_dir)
        with faults.around("worktree.forgotten"):
            layout.remove_record(record_path)
        with suppress(OSError):
            workspace.path.parent.rmdir()  # the repository's folder, once it is empty


# --- shared with the other ways of making one ---------------------------------------------------------------


def planned(bag: Mapping[str, Any], clone: SchoolClone, settings: Settings) -> Workspace:
    """Where the working tree of *bag* belongs; WorktreeError when the bag cannot have one."""
    bead = layout.check_bead(str(bag.get("bead") or ""))
    base = str(bag.get("base_commit") or "")
    if not base or not clone.has(base):
        raise WorktreeError(f"{bead}: its base commit {base or '(none)'} is not in {clone.path}")
    return Workspace(
        bead=bead,
        path=layout.leaf_path(settings, str(bag["repo_key"]), bead),
        git_dir=layout.bead_repository(settings, bead),
        clone=clone.path,
        repo=Path(str(bag.get("repo") or "")),
        repo_key=str(bag["repo_key"]),
        base_commit=base,
    )


def new_record(workspace: Workspace, *, manager: str) -> WorktreeRecord:
    return WorktreeRecord(
        name=workspace.path.name,
        kind="leaf",
        path=str(workspace.path),
        repo=str(workspace.repo),
        repo_key=workspace.repo_key,
        bead=workspace.bead,
        base_commit=workspace.base_commit,
        created_at=clock.now(),
        manager=manager,
    )


def make_bead_repository(workspace: Workspace, clone: SchoolClone) -> None:
    """A bare repository that borrows the clone's objects, knows its tags, and has nothing of its own."""
    files.ensure_dir(workspace.git_dir.parent)
    object_format = clone.git.text("rev-parse", "--show-object-format")
    asked = ("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
    Git(cwd=workspace.git_dir.parent).run(*asked, str(workspace.git_dir))
    (workspace.git_dir / "objects" / "info").mkdir(exist_ok=True)
    (workspace.git_dir / "objects" / "info" / "alternates").write_bytes(
        os.fsencode(clone.path / "objects") + b"\n"
    )
    if (clone.path / "shallow").is_file():
        shutil.copyfile(clone.path / "shallow", workspace.git_dir / "shallow")
    info = workspace.git_dir / "info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text(EXACT_ATTRIBUTES)
    shutil.copyfile(clone.path / "info" / "exclude", info / "exclude")
    (workspace.git_dir / "hooks").mkdir(exist_ok=True)
    _configure(workspace.git_dir)
    tags = clone.git.run("for-each-ref", "--format=%(objectname) %(refname)", "refs/tags").stdout
    (workspace.git_dir / "packed-refs").write_bytes(b"# pack-refs with: sorted \n" + tags)
    Git(workspace.git_dir).run("update-ref", BASE_REF, workspace.base_commit)


def _configure(git_dir: Path) -> None:
    hooks = _quoted(str(git_dir / "hooks"))
    lines: dict[str, list[str]] = {"core": [f"\thooksPath = {hooks}", "\tfsmonitor = false"]}
    for key, value in _BEAD_CONFIG.items():
        section, name = key.split(".")
        lines.setdefault(section, []).append(f"\t{name} = {value}")
    text = "".join(f"[{section}]\n" + "\n".join(entries) + "\n" for section, entries in lines.items())
    with (git_dir / "config").open("a", encoding="utf-8", errors="surrogateescape") as config:
        config.write(text)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def verify(workspace: Workspace) -> None:
    """That git made what it said: the right repository, the right commit, the tree's own ``.git`` file."""
    marker = files.read_bytes(workspace.path / ".git") if workspace.path.is_dir() else None
    if marker is None or not marker.startswith(b"gitdir: "):
        raise WorktreeError(f"{workspace.path}: git said it was made, and it is not there")
    admin = Path(os.fsdecode(marker[len(b"gitdir: ") :].rstrip(b"\n")))
    if admin.parent.resolve() != (workspace.git_dir / "worktrees").resolve():
        raise WorktreeError(f"{workspace.path}: belongs to {admin}, not to {workspace.git_dir}")
    git = Git(cwd=workspace.path)
    asked = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir", "HEAD")
    answer = git.run(*asked, check=False)
    top, common, head = [*os.fsdecode(answer.stdout).split("\n"), "", "", ""][:3]
    if (
        Path(top).resolve() != workspace.path.resolve()
        or Path(common).resolve() != workspace.git_dir.resolve()
    ):
        raise WorktreeError(f"{workspace.path}: git finds {top} of {common} there")
    if head != workspace.base_commit:
        raise WorktreeError(
            f"{workspace.path}: stands at {head or 'no commit'}, not at {workspace.base_commit}"
        )
    if not (admin / "index").is_file():
        raise WorktreeError(f"{workspace.path}: git said it was checked out, and it has no index")


def has_objects(git_dir: Path) -> bool:
    """Whether the bead repository *git_dir* has objects of its own."""
    objects = git_dir / "objects"
    loose = any(len(entry.name) == 2 for entry in objects.glob("[0-9a-f][0-9a-f]"))  # noqa: PLR2004
    return loose or any(objects.glob("pack/*.pack"))


def workspace_of(bag: Mapping[str, Any], *, settings: Settings | None = None) -> Workspace | None:
    """The working tree that *bag*'s bead has according to its record; None when it has none (any more)."""
    settings = settings or school_settings.current()
    record = read_or_mend(bag, settings)
    return None if record is None else workspace_from(record, settings)


def workspace_from(record: WorktreeRecord, settings: Settings) -> Workspace:
    return Workspace(
        bead=layout.check_bead(record.bead),
        path=Path(record.path),
        git_dir=layout.bead_repository(settings, record.bead),
        clone=layout.clone_path(settings, record.repo_key),
        repo=Path(record.repo),
        repo_key=record.repo_key,
        base_commit=record.base_commit,
    )

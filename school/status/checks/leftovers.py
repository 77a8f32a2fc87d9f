"""Invariants of what must go with its owner: flags, locks, processes, worktrees, temporary files (P6).

What a run that was cut short left is taken up by the next one and is no violation before that; what outlives a run
that ended is. Work that could not be saved stays on purpose and is named by ``--clean-worktrees``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from school.records.moves import WAITING
from school.settings import Settings
from school.status import look
from school.status.checks.world import KINDS, Violation, World
from school.system import files, identity, locks, markers

_LEAF_LOCK: Final = ".leaf.lock"


def flags_in_step(world: World) -> Iterator[Violation]:
    """Every bead that waits for a verdict has its flag, and no other has one."""
    if world.unfinished:
        return
    flagged = set(look.names(world.settings.signal_dir, ".ready"))
    waiting = {bead for bead, _, state in look.live(world.settings) if state in WAITING}
    for bead in sorted(waiting - flagged):
        yield Violation(bead, "it waits for a verdict and has no flag")
    for bead in sorted(flagged - waiting):
        yield Violation(bead, "it has a flag and does not wait for a verdict")


def no_dead_locks(world: World) -> Iterator[Violation]:
    """No bead lock is left of a process that is proven dead, and none names nobody."""
    if world.unfinished:
        return
    for bead in sorted(look.names(world.settings.lock_dir, ".lock")):
        lock = bead_lock(world.settings, bead)
        owner = lock.owner()
        if owner is None and Path(lock.path).exists():
            yield Violation(bead, "its lock names nobody")
        elif owner is not None and identity.is_dead(owner):
            yield Violation(bead, f"its lock is held by process {owner.pid}, which is dead")


def bead_lock(settings: Settings, bead: str) -> locks.OwnedLock:
    return locks.OwnedLock(settings.lock_dir / f"{bead}.lock", settings.lock_dir / ".guard")


def processes_accounted(world: World) -> Iterator[Violation]:
    """No record of a dead process outlives its run, and no leaf's record or lock outlives its bead."""
    for kind in KINDS:
        for record in look.processes(world.settings, kind):
            bead = str(record.get("bead") or "")
            if bead in world.live or look.lives(record) or _excused(world, str(record.get("repo_key") or "")):
                continue
            yield Violation(bead, f"record {record.get('name')}: its process {record.get('pid')} is dead")
    if world.unfinished:
        return
    for bead in sorted(look.names(world.settings.processes_dir, _LEAF_LOCK)):
        path = world.settings.processes_dir / f"{bead}{_LEAF_LOCK}"
        if bead not in world.live and not locks.held_elsewhere(path):
            yield Violation(bead, f"{path.name}: the lock of a leaf whose bead is over")


def no_strays(world: World) -> Iterator[Violation]:
    """No process that carries the mark of a bead runs on when that bead is over."""
    over = {bead for bead, facts in world.beads.items() if facts.archived}
    for pid, marker in sorted(markers.all_marked().items()):
        if marker in over:
            yield Violation(marker, f"process {pid} of it still runs")


def _excused(world: World, repo_key: str) -> bool:
    """Whether the next run will take it up: that of its repository, or where none is named, of any."""
    return repo_key in world.unfinished if repo_key else bool(world.unfinished)


def worktrees_accounted(world: World) -> Iterator[Violation]:
    """Every working tree has a record, and a leaf's is gone when its bead is over and its work saved."""
    recorded: set[Path] = set()
    for name in sorted(look.names(world.settings.worktree_records_dir, ".json")):
        record = look.read(world.settings.worktree_records_dir / f"{name}.json")
        if record is None:
            yield Violation("", f"worktree record {name}: it cannot be read")
            continue
        recorded.add(files.place_of(Path(str(record.get("path") or ""))))
        yield from _outlived(world, record)
    for path in _directories(world.settings.worktrees_dir):
        if files.place_of(path) not in recorded and not _excused(world, path.parent.name):
            yield Violation("", f"{path}: a directory without a record")


def _outlived(world: World, record: dict[str, Any]) -> Iterator[Violation]:
    bead, path = str(record.get("bead") or ""), str(record.get("path") or "")
    over = record.get("kind") == "leaf" and bead not in world.live
    if over and not record.get("salvage_failed") and not _excused(world, str(record.get("repo_key") or "")):
        yield Violation(bead, f"{path}: the working tree of a bead that is over")


def _directories(root: Path) -> Iterator[Path]:
    for key in sorted(look.names(root, "")):
        if (root / key).is_dir():
            yield from (root / key / name for name in sorted(look.names(root / key, "")))


def bead_repositories_accounted(world: World) -> Iterator[Violation]:
    """A bead repository, an agent's output and its scratch directory are gone when their bead is over."""
    if world.unfinished:
        return
    kept = {
        str((look.read(world.settings.worktree_records_dir / f"{name}.json") or {}).get("bead"))
        for name in look.names(world.settings.worktree_records_dir, ".json")
    }
    places = (
        (world.settings.bead_repos_dir, ".git"),
        (world.settings.outputs_dir, ""),
        (world.settings.scratch_dir, ""),
    )
    for directory, suffix in places:
        for bead in sorted(look.names(directory, suffix)):
            if bead not in world.live and bead not in kept:
                yield Violation(bead, f"{directory / (bead + suffix)}: its bead is over")


def no_temporaries(world: World) -> Iterator[Violation]:
    """No half-written file of a dead writer is left."""
    if world.unfinished:
        return
    for directory in world.settings.record_dirs():
        for path in sorted(files.left_temporaries(directory)):
            yield Violation("", f"{path}: half-written, and whoever wrote it is dead")

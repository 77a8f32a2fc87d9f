"""What lies on disk right now, read quickly and without touching any of it.

``status``, ``list`` and ``show`` stand on this. It loads no model library, no git and no log, moves nothing to
``corrupt/`` and takes no lock, so it may be asked at any time, beside anything. What cannot be read is named as
such (state ``UNREADABLE``) and never left out. Its cost grows with what is open, not with what was ever done.

What it does not promise: that two records it hands out are of the same instant.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from school.errors import SchoolError
from school.records.moves import BEAD_NAME, BLOCKED, DISPOSED, FAILED, SCORED, bookbag_state
from school.settings import Settings
from school.system import files, identity

UNREADABLE: Final = "UNREADABLE"
# What an ended record may leave behind between its archive and its removal: then the archive wins.
_MAY_BE_ARCHIVED: Final = frozenset({SCORED, FAILED, BLOCKED})

Bag = dict[str, Any]


def read(path: Path | str) -> Bag | None:
    """The JSON object at *path*; None where there is none or it cannot be read as one."""
    try:
        return files.read_object(path)
    except SchoolError:
        return None


def names(directory: Path, suffix: str) -> list[str]:
    """The names in *directory* that end so, without the ending; hidden ones (temporary files) left out."""
    try:
        found = os.listdir(directory)  # noqa: PTH208 - plain names, a thousand of them
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name.removesuffix(suffix) for name in found if name.endswith(suffix) and not name.startswith(".")]


def live(settings: Settings) -> Iterator[tuple[str, Bag | None, str]]:
    """(bead, record, state) of everything on the shelf; record None and UNREADABLE for what cannot be read."""
    # Plain strings: with a thousand records, making paths of them costs more than reading them.
    shelf, archive = os.fspath(settings.bookbag_dir), os.fspath(settings.archive_dir)
    for bead in names(settings.bookbag_dir, ".json"):
        if not BEAD_NAME.fullmatch(bead):
            continue
        path = f"{shelf}/{bead}.json"
        bag = read(path)
        if bag is None or bag.get("bead") != bead:
            if os.path.lexists(path):
                yield bead, None, UNREADABLE
            continue
        state = bookbag_state(bag)
        if not (state in _MAY_BE_ARCHIVED and os.path.isdir(f"{archive}/{bead}")):  # noqa: PTH112
            yield bead, bag, state


def archived(settings: Settings) -> Iterator[tuple[str, Bag | None, str]]:
    """(bead, record, state) of everything in the archive."""
    for bead in names(settings.archive_dir, ""):
        if not BEAD_NAME.fullmatch(bead):
            continue
        bag = read(settings.archive_dir / bead / "bookbag.json")
        ours = bag is not None and bag.get("bead") == bead
        yield bead, bag if ours else None, DISPOSED if ours else UNREADABLE


def find(settings: Settings, bead: str) -> tuple[Bag | None, str]:
    """(record, state) of one bead, archive first; (None, '') where there is no such bead."""
    if not BEAD_NAME.fullmatch(bead):
        return None, ""
    for path, is_archived in (
        (settings.archive_dir / bead / "bookbag.json", True),
        (settings.bookbag_dir / f"{bead}.json", False),
    ):
        if path.exists():
            bag = read(path)
            whole = bag is not None and bag.get("bead") == bead
            state = bookbag_state(bag, archived=is_archived) if whole and bag is not None else UNREADABLE
            return (bag if whole else None), state
    return None, ""


def lives(record: Mapping[str, Any]) -> bool:
    """Whether the process of a record may still run: there is no proof that it does not."""
    owner = identity.owner_of(record)
    return owner is not None and identity.alive(owner)


def processes(settings: Settings, kind: str) -> list[Bag]:
    """The records of child processes and conductors of that kind, by name."""
    found = (read(settings.processes_dir / f"{name}.json") for name in names(settings.processes_dir, ".json"))
    kept = [record for record in found if record is not None and record.get("kind") == kind]
    return sorted(kept, key=lambda record: str(record.get("name")))

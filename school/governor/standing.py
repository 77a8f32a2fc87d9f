"""How a session stands, on disk for whoever looks from outside: ``school/governor/<session>.json``, hints that may be lost.

``write`` puts one file whole without waiting for the disk, and of more than ``KEPT_MAX`` removes the oldest; ``read`` and
``every`` read them, passing over what is damaged. ``Standing`` says when it is time to write again: at once when it
matters, otherwise at most once a second. Errors: MachineError from ``write``.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Final

from school.settings import Settings
from school.system import files

KEPT_MAX: Final = 64
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def path_of(settings: Settings, session_id: str) -> Path:
    """The file of *session_id*, whatever characters that has."""
    name = session_id
    if not _PLAIN.fullmatch(name):
        name = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return settings.governor_dir / f"{name}.json"


def write(settings: Settings, session_id: str, document: dict[str, Any]) -> None:
    """Let *document* say how *session_id* stands."""
    path = path_of(settings, session_id)
    new = not path.exists()
    if new:
        files.ensure_dir(path.parent)
    files.write_plain(path, files.dumps(document))
    if new:
        _thin_out(path.parent)


def read(settings: Settings, session_id: str) -> dict[str, Any] | None:
    """How *session_id* stands, if that is known."""
    return _read(path_of(settings, session_id))


def every(settings: Settings) -> list[dict[str, Any]]:
    """Every session that is known, the one heard of last at the end."""
    found = [document for path in _aged(settings.governor_dir) if (document := _read(path))]
    return sorted(found, key=lambda document: str(document.get("heard_at") or ""))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = files.read_json(path)
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and isinstance(document.get("session_id"), str) else None


def _aged(directory: Path) -> list[Path]:
    """The files, the oldest first; one that goes away meanwhile counts as oldest."""

    def age(path: Path) -> float:
        try:
            return path.lstat().st_mtime
        except OSError:
            return 0.0

    return sorted(directory.glob("*.json"), key=age)


def _thin_out(directory: Path) -> None:
    for path in _aged(directory)[:-KEPT_MAX]:
        files.discard(path)

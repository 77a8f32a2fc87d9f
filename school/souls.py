"""Personas: who a participant is, what it may do, how it answers.

``load_soul(name)`` finds ``config/profiles/<name>/SOUL.md`` beside the root modules (a clone) or
``school/profiles/<name>/SOUL.md`` (an installed wheel). A file ``HERMES_HOME/profiles/<name>/SOUL.md`` overrides
it when it exists, and only then; ``overridden`` and ``source`` say so, for the log, ``doctor`` and the bookbag.

Not promised: that the text is any good, and that the file stays the same between two calls. Errors: ConfigError
for a name that is no persona's, and for an override that is there but cannot be used; MachineError where the
shipped persona itself is missing, which means that the installation is broken.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from school import settings as school_settings
from school.contracts import STUDENT_ROLES, TEACHER_ROLES
from school.errors import ConfigError, MachineError
from school.settings import Settings

PERSONAS: Final[tuple[str, ...]] = (
    "principal",
    *(f"teacher-{role}" for role in TEACHER_ROLES),
    *(f"student-{role}" for role in STUDENT_ROLES),
)
SOUL_BYTES_MAX: Final = 64 * 1024
_SCHOOL: Final = Path(__file__).resolve().parent
_SHIPPED: Final = (_SCHOOL.parent / "config" / "profiles", _SCHOOL / "profiles")


@dataclass(frozen=True, slots=True)
class Soul:
    """One persona as it was read: its text, the file it came from, and whether a local file replaced ours."""

    name: str
    text: str
    source: str
    sha256: str
    overridden: bool


def load_soul(name: str, *, settings: Settings | None = None) -> Soul:
    """The persona *name*, from its override if there is one."""
    if name not in PERSONAS:
        raise ConfigError(f"no persona is called {name!r}; there are {', '.join(PERSONAS)}")
    settings = settings or school_settings.current()
    override = settings.hermes_home / "profiles" / name / "SOUL.md"
    # A dangling link or a directory of that name is there on purpose or by mistake; either way it is said.
    if override.exists() or override.is_symlink():
        return _read(name, override, overridden=True)
    return _read(name, _shipped(name), overridden=False)


def _shipped(name: str) -> Path:
    candidates = [folder / name / "SOUL.md" for folder in _SHIPPED]
    for path in candidates:
        if path.is_file():
            return path
    raise MachineError(
        f"the persona {name} is not installed: neither {candidates[0]} nor {candidates[1]} is there"
    )


def _read(name: str, path: Path, *, overridden: bool) -> Soul:
    if not path.is_file():  # Opening a FIFO would wait for a writer for ever.
        raise ConfigError(f"the persona {name} cannot be read from {path}: not a regular file")
    try:
        with path.open("rb") as file:
            raw = file.read(SOUL_BYTES_MAX + 1)
        text = raw.decode("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"the persona {name} cannot be read from {path}: {error}") from error
    if len(raw) > SOUL_BYTES_MAX:
        raise ConfigError(f"the persona {name} in {path} is longer than {SOUL_BYTES_MAX} bytes")
    if not text.strip():
        raise ConfigError(f"the persona {name} in {path} is empty; remove the file to use the shipped one")
    return Soul(name, text, str(path), hashlib.sha256(raw).hexdigest(), overridden)

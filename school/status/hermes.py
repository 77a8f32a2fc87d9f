"""``conductor.py hermes install|status``: our plugin in a Hermes home, and nothing else there touched.

``install(settings)`` copies the plugin with what it needs of this program into ``plugins/schoolhouse`` and names it in
``plugins.enabled`` of ``config.yaml`` (see ``school.status.hermes_config``: comments, order and everything else stay; a backup is
made). Doing it again changes nothing, or brings the copy up to date. ``state(settings)`` says how it is. Both give rows
``{"check", "ok", "detail"}``; ``ok`` is null for what is not known yet, such as hooks before a first session.

The copy is the plugin's own: Hermes runs in another environment, maybe of another Python, and a clone may move or change
under it. It carries ``filelock`` and ``structlog`` (plain Python) besides, which Hermes does not have.

Errors: ConfigError for a ``config.yaml`` that cannot be edited, with the reason, before anything is written; MachineError.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from importlib import util
from pathlib import Path
from typing import Any, Final

from school.errors import MachineError
from school.settings import Settings
from school.status import hermes_config
from school.system import files
from school.wording import printable

NAME: Final = "schoolhouse"
VENDORED: Final = ("school", "filelock", "structlog")
DIGEST: Final = "digest"
_HERE: Final = Path(__file__).resolve().parents[1]
# In a clone, and in an installed wheel.
_SHIPPED: Final = (_HERE.parent / "plugins" / "hermes", _HERE / "hermes" / "plugin")
Row = dict[str, Any]


def install(settings: Settings) -> list[Row]:
    """Put the plugin there and turn it on; what was done, and how it is then."""
    config = settings.hermes_home / "config.yaml"
    hermes_config.enabled(config, NAME)  # a file that cannot be edited is refused before anything is written
    wanted = {str(path): data for path, data in _wanted()}
    changed = _copy(wanted, _place(settings))
    backup = hermes_config.enable(config, NAME)
    rows = state(settings)
    rows[0]["detail"] += f"; {changed} files written" if changed else "; nothing to do"
    if backup:
        rows[1]["detail"] += f"; the file before is {backup}"
    return rows


def state(settings: Settings) -> list[Row]:
    """How the plugin is in this Hermes home."""
    return [_files(settings), _enabled(settings), _command(), _heard(settings)]


def _place(settings: Settings) -> Path:
    return settings.hermes_home / "plugins" / NAME


def _files(settings: Settings) -> Row:
    place = _place(settings)
    there = _digest_there(place)
    if not there:
        return _row("hermes-plugin", False, f"not in {place}; `hermes install` puts it there")
    if there != _digest({str(path): data for path, data in _wanted()}):
        return _row("hermes-plugin", False, f"{place} is of another version; `hermes install` renews it")
    return _row("hermes-plugin", True, str(place))


def _enabled(settings: Settings) -> Row:
    config = settings.hermes_home / "config.yaml"
    on = hermes_config.enabled(config, NAME)
    if on == hermes_config.DISABLED:
        return _row(
            "hermes-enabled", False, f"{config}: plugins.disabled names {NAME}, which wins; remove it there"
        )
    return _row("hermes-enabled", on == hermes_config.ENABLED, f"plugins.enabled of {config}: {on}")


def _command() -> Row:
    found = shutil.which("hermes")
    return _row("hermes-command", True if found else None, found or "no `hermes` on the PATH")


def _heard(settings: Settings) -> Row:
    """What the plugin said of itself when it ran last: a hook that never fires is a reason to look."""
    try:
        said = files.read_object(settings.governor_dir / "hermes-plugin.state")
    except (OSError, ValueError) as cause:
        return _row("hermes-hooks", None, f"not known: {cause}")
    if said is None:
        return _row("hermes-hooks", None, "no session has run with the plugin yet")
    heard = said.get("heard")
    names = sorted(heard) if isinstance(heard, Mapping) else []
    problems = said.get("problems")
    if isinstance(problems, list) and problems:
        return _row("hermes-hooks", False, printable("; ".join(map(str, problems))))
    return _row("hermes-hooks", True, f"heard at {said.get('at')}: {', '.join(names) or 'none yet'}")


def _row(check: str, ok: bool | None, detail: str) -> Row:
    return {"check": check, "ok": ok, "detail": detail}


def _wanted() -> Iterator[tuple[Path, bytes]]:
    """The files of the plugin, by their path in it."""
    shipped = next((folder for folder in _SHIPPED if (folder / "plugin.yaml").is_file()), None)
    if shipped is None:
        raise MachineError(f"the plugin is not installed: neither {_SHIPPED[0]} nor {_SHIPPED[1]} is there")
    for name in ("plugin.yaml", "__init__.py"):
        yield Path(name), (shipped / name).read_bytes()
    for package in VENDORED:
        root = _package(package)
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".md", ".typed") and path.is_file() and "__pycache__" not in path.parts:
                yield Path("vendor") / package / path.relative_to(root), path.read_bytes()


def _package(name: str) -> Path:
    spec = util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise MachineError(f"the package {name} is not installed here; install this program's dependencies")
    return Path(next(iter(spec.submodule_search_locations)))


def _copy(wanted: Mapping[str, bytes], place: Path) -> int:
    """Make *place* hold exactly *wanted*; how many files were written. The digest goes last: it says "whole"."""
    digest = _digest(wanted)
    if _digest_there(place) == digest:
        return 0
    files.discard(place / DIGEST)
    for path in sorted(place.rglob("*"), reverse=True):
        if path.is_file() and str(path.relative_to(place)) not in wanted:
            files.discard(path)
    for name, data in wanted.items():
        files.write_plain(place / name, data)
    files.write_atomic(place / DIGEST, digest.encode())
    return len(wanted)


def _digest(wanted: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(wanted.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _digest_there(place: Path) -> str:
    """What the copy says it is, if what lies there is that."""
    try:
        said = (place / DIGEST).read_text()
        there = {
            str(path.relative_to(place)): path.read_bytes()
            for path in place.rglob("*")
            if path.is_file() and path.name != DIGEST and "__pycache__" not in path.parts
        }
    except (OSError, ValueError):
        return ""
    return said if _digest(there) == said else ""

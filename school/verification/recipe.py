"""A recipe: how a project is installed, built, tested and started, as data; saved and read.

``load`` reads a saved ``.hermes/environment.json`` and says what is wrong with it, ``save`` writes it, and
``detection`` finds one where none is saved. Its commands are shell lines, each run by ``sh -c`` in the project's root.

Saved form: ``{"version": 1, "recipe": {...}, "updatedAt": ...}`` or a bare recipe, with the names that Hermes uses and
its older aliases. ``timeouts`` (seconds by phase) is ours. Errors: MachineError where it cannot be written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

from school.system import clock, files

Phase = Literal["bootstrap", "build", "test", "start"]
PHASES: Final[tuple[Phase, ...]] = ("bootstrap", "build", "test", "start")
MANIFEST: Final = ".hermes/environment.json"
VERSION: Final = 1
MANIFEST_BYTES_MAX: Final = 256 * 1024
PORT_MAX: Final = 65535
_LISTS: Final = ("bootstrap", "build", "test", "evidence")
_ALIASES: Final = {
    "appLabel": "name",
    "appKind": "kind",
    "installCommands": "bootstrap",
    "buildCommands": "build",
    "testCommands": "test",
    "startCommand": "start",
    "startPort": "port",
    "readiness_path": "readinessPath",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is run, in this order. ``port`` None: the service is asked on whatever port it opens."""

    name: str
    kind: str = ""
    bootstrap: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    start: str = ""
    port: int | None = None
    readiness_path: str = "/"
    evidence: tuple[str, ...] = ()
    timeouts: Mapping[str, float] = field(default_factory=dict)

    def commands(self, phase: Phase) -> tuple[str, ...]:
        """The shell lines of *phase*."""
        if phase == "start":
            return (self.start,) if self.start else ()
        return cast("tuple[str, ...]", getattr(self, phase))

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Those that it declares something for."""
        return tuple(phase for phase in PHASES if self.commands(phase))

    def document(self) -> dict[str, Any]:
        """The recipe as JSON values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "bootstrap": list(self.bootstrap),
            "build": list(self.build),
            "test": list(self.test),
            "start": self.start or None,
            "port": self.port,
            "readinessPath": self.readiness_path,
            "evidence": list(self.evidence),
            **({"timeouts": dict(self.timeouts)} if self.timeouts else {}),
        }


@dataclass(frozen=True, slots=True)
class Found:
    """A recipe and where it is from; ``problems`` says what is wrong with a saved one."""

    recipe: Recipe | None
    source: Literal["manifest", "detected"]
    problems: tuple[str, ...] = ()


def load(root: Path) -> tuple[Recipe | None, list[str]]:
    """The saved recipe, if it can be used, and everything that is wrong with it."""
    path = root / MANIFEST
    try:
        raw = files.read_bytes(path, limit_bytes=MANIFEST_BYTES_MAX, follow=True)
        if raw is None:
            return None, []
        value = json.loads(raw.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as cause:
        said = str(cause).removeprefix(f"{path}: ")
        return None, [f"{MANIFEST}: cannot be used: {said}; looking at the project itself instead"]
    recipe, problems = parsed(value)
    if recipe is None:
        problems[-1:] = [f"{problem}; looking at the project itself instead" for problem in problems[-1:]]
    return recipe, [f"{MANIFEST}: {problem}" for problem in problems]


def parsed(value: Any) -> tuple[Recipe | None, list[str]]:  # noqa: ANN401 - whatever JSON there is
    """The recipe that a JSON value spells, and what in it is not as it should be."""
    if not isinstance(value, Mapping):
        return None, ["expected a JSON object"]
    if "recipe" in value:
        if value.get("version", VERSION) != VERSION:
            return None, [f"version {value['version']!r} is not known; this reads version {VERSION}"]
        value = value["recipe"]
        if not isinstance(value, Mapping):
            return None, ["recipe: expected a JSON object"]
    return _Reader(value).recipe()


class _Reader:
    """One JSON object, key by key; ``problems`` collects what is dropped."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.problems: list[str] = []
        self.broken = False
        self.given: dict[str, Any] = {}
        for key, item in value.items():
            name = _ALIASES.get(key, key)
            if name not in ("name", "kind", "start", "port", "readinessPath", "timeouts", *_LISTS):
                self.problems.append(f"{key}: no such key; ignored")
            elif item is not None and (key == name or name not in value):
                self.given[name] = item

    def recipe(self) -> tuple[Recipe | None, list[str]]:
        name = self._text("name")
        if not name:
            return None, [*self.problems, '"name" is missing (any text)']
        bootstrap, build, test, evidence = (self._lines(key) for key in _LISTS)
        recipe = Recipe(
            name=name,
            kind=self._text("kind"),
            bootstrap=bootstrap,
            build=build,
            test=test,
            start=self._text("start"),
            port=self._port(),
            readiness_path=self._path(),
            evidence=evidence,
            timeouts=self._timeouts(),
        )
        if self.broken:
            return None, self.problems
        if not recipe.phases:
            return None, [*self.problems, "it declares nothing to run"]
        return recipe, self.problems

    def _drop(self, key: str, expected: str) -> None:
        """Part of it cannot be read. Without some of its commands, though, it would prove less than it says."""
        commands = key in ("bootstrap", "build", "test", "start")
        self.broken |= commands
        found = f"{key}: expected {expected}, found {str(self.given[key])[:80]!r}"
        self.problems.append(found if commands else f"{found}; ignored")

    def _text(self, key: str) -> str:
        value = self.given.get(key, "")
        if isinstance(value, str) and "\0" not in value:
            return value.strip()
        self._drop(key, "a string")
        return ""

    def _lines(self, key: str) -> tuple[str, ...]:
        value = self.given.get(key, [])
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list):
            self._drop(key, "a list of commands")
            return ()
        if not all(isinstance(item, str) and item.strip() and "\0" not in item for item in items):
            self._drop(key, "commands that are strings, not empty")
            return ()
        return tuple(item.strip() for item in items)

    def _port(self) -> int | None:
        value = self.given.get("port")
        if value is None:
            return None
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= PORT_MAX:
            return value
        self._drop("port", f"a number from 1 to {PORT_MAX}")
        return None

    def _path(self) -> str:
        value = self.given.get("readinessPath", "/")
        if isinstance(value, str) and value.startswith("/") and value.isascii() and value.isprintable():
            return value.replace(" ", "%20")
        self._drop("readinessPath", "a path that begins with /")
        return "/"

    def _timeouts(self) -> dict[str, float]:
        value = self.given.get("timeouts", {})
        if isinstance(value, Mapping) and all(
            key in PHASES and _is_seconds(item) for key, item in value.items()
        ):
            return {key: float(item) for key, item in value.items()}
        self._drop("timeouts", f"seconds by phase ({', '.join(PHASES)})")
        return {}


def _is_seconds(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and math.isfinite(value)
    )


def save(root: Path, recipe: Recipe) -> Path:
    """Write *recipe* as the saved one of the project in *root*; where it lies."""
    path = root / MANIFEST
    document = {"version": VERSION, "recipe": recipe.document(), "updatedAt": clock.now()}
    path.parent.mkdir(mode=0o755, exist_ok=True)
    files.write_atomic(path, files.dumps(document, indent=2), mode=0o644)
    return path

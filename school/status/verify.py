"""``verify``: install, build, test and start a project as its recipe says, and tell how that went.

``perform(wish, settings, emit) -> exit code`` tells what runs while it runs: one line that renews itself on a
terminal, whole lines in a pipe, stderr where stdout is for JSON; and how it ended. The document is Hermes'
``verify --json`` (recipe, ok, phases, readiness, source) with what it is evidence of: scope, commit, tree.

Exit: 0 passed · 1 failed, or no recipe. ConfigError (2) for a place that is no directory, or a wish that cannot be.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, cast

from school.config import BYTES_MAX, FILE_NAME, load_config
from school.contracts import ProjectConfig
from school.errors import ConfigError
from school.settings import Settings
from school.status.recording import Record
from school.status.render import is_screen
from school.system import files
from school.verification import recipe as recipes
from school.verification.detection import load_or_detect
from school.verification.facts import ProjectFacts, as_document, facts, rendered
from school.verification.phases import PhaseRun, Result, Selection, verify
from school.verification.recipe import PHASES, Found, Phase
from school.verification.roots import root_meant
from school.verification.service import READY_S, Readiness
from school.verification.tree_now import TreeNow
from school.verification.trees import DirectoryTree
from school.wording import printable

QUIET_S: Final = 30.0
OUTPUT_LINES: Final = 20
PATHS_MAX: Final = 200
PATHS_SHOWN: Final = 3
_GREEN, _RED, _DIM, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asked for."""

    place: Path
    phases: Sequence[str] = ()
    skip_start: bool = False
    port: int | None = None
    timeout_s: float | None = None
    ready_s: float | None = None
    save: bool = False
    detect_only: bool = False

    @classmethod
    def of(cls, repo: Path, flags: Mapping[str, Any]) -> Wish:
        """The wish that the command line spells; the place is its own, or *repo*."""
        return cls(**{**flags, "place": Path(flags["place"] or repo)})

    def selection(self, config: ProjectConfig, found: Found) -> Selection:
        """The part of the recipe that is meant, with its limits: the flag's, the recipe's, the configuration's."""
        own = found.recipe.timeouts if found.recipe else {}
        usual = {"bootstrap": config.setup.timeout_s, "build": config.verify.timeout_s}
        limits = {**usual, "test": config.verify.timeout_s, **own}
        if self.timeout_s is not None:
            limits |= dict.fromkeys(("bootstrap", "build", "test"), self.timeout_s)
        if self.ready_s is not None:
            limits["start"] = self.ready_s
        phases = cast("Sequence[Phase]", self.phases) or PHASES
        return Selection(phases, self.skip_start, self.port, limits, READY_S)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The one JSON document, and what else there is to say to people. ``facts`` is None where there is no project."""

    document: dict[str, Any]
    facts: ProjectFacts | None = None
    detect_only: bool = False


def perform(wish: Wish, settings: Settings, emit: Callable[[object], None] | None = None) -> int:
    """Do what *wish* says and tell it, with *emit* as one document; the exit code."""
    screen = PhaseScreen(sys.stderr) if emit else PhaseScreen(sys.stdout, live=is_screen(sys.stdout))
    outcome = _perform(wish, settings, screen)
    if emit:
        emit(outcome.document)
    else:
        for line in told(outcome):
            screen.say(line)
    return 0 if outcome.document["ok"] else 1


def _perform(wish: Wish, settings: Settings, screen: PhaseScreen) -> Outcome:
    if not wish.place.is_dir():
        raise ConfigError(f"{wish.place}: no such directory")
    if wish.skip_start and set(wish.phases) == {"start"}:
        raise ConfigError("--phase start and --skip-start leave nothing to run")
    root = root_meant(wish.place)
    if root is None:
        note = "no project: a home directory, or one for temporary files, is never one"
        return Outcome(_nothing(Path(os.path.realpath(wish.place)), note))
    here, home = root / FILE_NAME, settings.hermes_home / FILE_NAME
    config = load_config(_text(here), _text(home), base_name=str(here), home_name=str(home))
    found = load_or_detect(root, config)
    known = facts(DirectoryTree(root), config.verify.commands)
    document = _nothing(root, "") | {
        "recipe": found.recipe.document() if found.recipe else None,
        "source": found.source,
        "problems": list(found.problems),
        "facts": as_document(known),
    }
    if wish.save and found.recipe is not None and found.source == "detected":
        document["saved"] = str(recipes.save(root, found.recipe))
    if found.recipe is None:
        document["note"] = "no recipe: its files do not say how it is built, tested or started"
    elif wish.detect_only:
        document["ok"] = True
    else:
        screen.opened(document)
        _run(document, found, wish.selection(config, found), root, settings, screen)
    return Outcome(document, known, wish.detect_only)


def _text(path: Path) -> str | None:
    try:
        raw = files.read_bytes(path, limit_bytes=BYTES_MAX, follow=True)
    except ValueError as cause:
        raise ConfigError(str(cause)) from None
    return None if raw is None else raw.decode("utf-8", "replace")


def _nothing(root: Path, note: str) -> dict[str, Any]:
    return {
        "recipe": None,
        "ok": False,
        "scope": None,
        "phases": [],
        "readiness": None,
        "source": None,
        "root": str(root),
        "commit": "",
        "tree": "",
        "uncommitted": False,
        "changedDuringRun": False,
        "changedPaths": [],
        "problems": [],
        "facts": None,
        "saved": None,
        "evidence": None,
        "note": note,
    }


def _run(
    document: dict[str, Any],
    found: Found,
    selection: Selection,
    root: Path,
    settings: Settings,
    screen: PhaseScreen,
) -> None:
    assert found.recipe is not None
    place = TreeNow(root)
    before = place.look()
    with Record(root, settings) as record:
        result: Result = verify(found.recipe, root, selection, screen)
        document["evidence"] = record.of(result, selection)
    after = place.look()
    document |= {
        "ok": result.ok,
        "scope": result.scope,
        "phases": [run.document() for run in result.phases],
        "readiness": result.readiness.document() if result.readiness else None,
        "commit": before.commit,
        "tree": before.tree,
        "uncommitted": before.changed,
        "changedDuringRun": before != after,
        "changedPaths": before.paths_that_differ(after)[:PATHS_MAX],
        "note": result.note,
    }


# --- while it runs ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PhaseScreen:
    """Tells a stream what runs. A stream that nobody reads any more is not an error of the project."""

    stream: IO[str]
    live: bool = False
    _said_at: float = field(default=0.0)
    _broken: bool = False

    def opened(self, document: Mapping[str, Any]) -> None:
        for line in _opening(document):
            self.say(line)

    def began(self, phase: str, command: str) -> None:
        self._said_at = 0.0
        if self.live:
            self.goes_on(phase, command, 0.0, "")
        else:
            self.say(f"  ...  {phase:<9}  {command}")

    def goes_on(self, phase: str, command: str, seconds: float, last_line: str) -> None:
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            text = printable(f"  ...  {phase:<9}  {command}  {seconds:.0f} s  {last_line}")[:width]
            self._write(f"\r\x1b[K{text}")
        elif seconds - self._said_at >= QUIET_S:
            self._said_at = seconds
            self.say(f"       {phase:<9}  still running after {seconds:.0f} s: {last_line}")

    def ended(self, run: PhaseRun) -> None:
        self.say(_phase_line(run.document()), _GREEN if run.ok else _RED)

    def answered(self, readiness: Readiness) -> None:
        self.say(_start_line(readiness.document()), _GREEN if readiness.ready else _RED)

    def say(self, text: str, colour: str = "") -> None:
        shown = printable(text)
        if self.live:
            coloured = colour and not os.environ.get("NO_COLOR")
            shown = "\r\x1b[K" + (f"{colour}{shown[:6]}{_PLAIN}{shown[6:]}" if coloured else shown)
        self._write(f"{shown}\n")

    def _write(self, text: str) -> None:
        if self._broken:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except UnicodeEncodeError:  # a terminal that knows only ASCII
            self.stream.write(text.encode("ascii", "replace").decode())
        except (BrokenPipeError, ValueError):
            self._broken = True


def _opening(document: Mapping[str, Any]) -> Iterator[str]:
    recipe = document["recipe"]
    kind = f" ({recipe['kind']})" if recipe["kind"] else ""
    by = f"{recipes.MANIFEST} says" if document["source"] == "manifest" else "its files say"
    yield f"{recipe['name']}{kind} in {document['root']}, as {by}"
    for problem in document["problems"]:
        yield f"note: {problem}"
    if document["saved"]:
        yield f"saved as {document['saved']}"


def _phase_line(run: Mapping[str, Any]) -> str:
    mark = "ok" if run["ok"] else "FAIL"
    how = "" if run["ok"] else run["note"] or f"exit {run['exitCode']}"
    return f"  {mark:<4} {run['phase']:<9}  {run['command']}  {run['duration']:.1f} s" + (
        f"  {how}" if how else ""
    )


def _start_line(readiness: Mapping[str, Any]) -> str:
    mark = "ok" if readiness["ready"] else "FAIL"
    how = (
        f"answered {readiness['statusCode']} at {readiness['url']} after {readiness['duration']:.1f} s"
        if readiness["ready"]
        else readiness["error"]
    )
    return f"  {mark:<4} {'start':<9}  {readiness['command']}  {how}"


# --- the end ------------------------------------------------------------------------------------------------


def told(outcome: Outcome) -> Iterator[str]:
    """What remains to be said to people when all has run."""
    document = outcome.document
    if document["recipe"] is None:
        yield from (f"note: {problem}" for problem in document["problems"])
        yield f"{document['root']}: {document['note']}"
        yield f"say it in {recipes.MANIFEST}, or in {FILE_NAME} ([verify] commands)"
        return
    if outcome.detect_only:
        yield from _opening(document)
        if outcome.facts is not None:
            yield from rendered(outcome.facts).splitlines()[1:]
        yield from _recipe_lines(document["recipe"])
        return
    failed = next((run for run in document["phases"] if not run["ok"]), None)
    readiness = document["readiness"]
    if failed is None and readiness is not None and not readiness["ready"]:
        failed = {"phase": "start", **readiness}
    if failed is not None:
        yield from _output(failed["outputTail"])
    yield ""
    yield _verdict(document, failed)


def _recipe_lines(recipe: Mapping[str, Any]) -> Iterator[str]:
    for phase in PHASES:
        lines = recipe[phase] if isinstance(recipe[phase], list) else [recipe[phase]] * bool(recipe[phase])
        for number, line in enumerate(lines):
            yield f"  {phase if number == 0 else '':<9}  {line}"
    if recipe["start"]:
        where = f"port {recipe['port']}" if recipe["port"] else "whichever port it opens"
        yield f"  {'':<9}  asked on {where}, {recipe['readinessPath']}"


def _output(text: str) -> Iterator[str]:
    lines = text.rstrip().splitlines()
    if len(lines) > OUTPUT_LINES:
        yield f"       ({len(lines) - OUTPUT_LINES} lines before)"
    yield from (f"       | {line}" for line in lines[-OUTPUT_LINES:])


def _verdict(document: Mapping[str, Any], failed: Mapping[str, Any] | None) -> str:
    of = f"commit {document['commit'][:12]}" if document["commit"] else "files that no commit holds"
    of += " with uncommitted changes" if document["uncommitted"] else ""
    if document["note"]:
        return f"failed: {document['note']}"
    if failed is not None:
        return f"failed in {failed['phase']}: {failed['command']}, on {of}"
    ran = list(dict.fromkeys(run["phase"] for run in document["phases"]))
    ran += ["start"] if document["readiness"] else []
    what = "full" if document["scope"] == "full" else "targeted, which says nothing of the rest"
    text = f"passed: {', '.join(ran)} ({what}), on {of}"
    if document["changedDuringRun"]:
        what = ", ".join(document["changedPaths"][:PATHS_SHOWN]) or "the commit"
        text += f"; while it ran, {what} changed: this is evidence of neither state"
    return text

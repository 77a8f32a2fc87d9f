"""What checks run in: the variables they see, and the folders that set-up commands build and that stay between beads.

``prepare(worktree, terms, role=…, settings=…, progress=…, bag=…) -> Prepared`` is what a teacher calls before its
checks, the worktree standing at head, before any code of head has run there: the environment of base is there
(built if need be, *at base*), or, where head changes what an environment is built from, a throw-away one of head.
``Environment.ensure(side)`` is the same for ``bench``, which moves between base and head.

What is kept (``terms.keep``, such as ``.venv``) is surveyed when it is built. Before each use the survey is
compared, and where one entry differs all is built anew, so a ``sitecustomize.py`` or ``.pth`` that one bead leaves
there never meets the next, nor the base runs of the same bead. Without set-up commands nothing is kept at all. A
throw-away environment is known by its bead and never used again. Where set-up commands make files outside the kept
folders, they are run again at every move, since cleaning the tree takes those away.

The fingerprint covers set-up commands, what is kept and copied, manifests and lock files, files that the set-up
commands name, and the interpreters on PATH with their packages' folders.

Confined, the kept folders can only be written by set-up commands, and the caches that these fill at base stay for
them alone: all else has caches of its side of the bead, which go with the review.

Not promised: that a set-up command gives the same twice; that nothing outside the kept folders (the user's own
site-packages, HOME) is written by code under test, unless that is confined.

Errors: ``SetupFailedError`` says whose environment could not be built (``side``) and why (``output``). At base it is
a TeacherError like any other (no verdict); at head the change is at fault.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from school import confinement
from school.confinement import UNCONFINED, Confinement
from school.contracts import Progress, Terms, bounded
from school.errors import TeacherError
from school.settings import Settings
from school.system import files, log, processes
from school.system.confine import Policy
from school.verification import interpreters, survey
from school.verification.facts import GitTree, is_manifest
from school.verification.place import Place, copies_from

Side = Literal["base", "head"]

SURVEY_BYTES_MAX: Final = 128 * 1024 * 1024
OUTPUT_BYTES_MAX: Final = 256 * 1024
SHOWN_BYTES: Final = 6000
GRACE_S: Final = 2.0
# By-products of building and testing that nothing needs later.
_BY_PRODUCTS: Final = ("*.egg-info", "__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache")


class SetupFailedError(TeacherError):
    """A set-up command failed; ``side`` is whose environment it was to build, ``output`` what it printed."""

    def __init__(self, side: Side, why: str, output: str) -> None:
        super().__init__(f"set-up failed at {side}: {why}" + (f"\n{output}" if output else ""))
        self.side = side
        self.why = why
        self.output = output


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a teacher hands to its checks. ``failed`` says why head's own environment could not be built; the check
    ``verification`` makes a finding of that.
    """

    fingerprint: str
    env: dict[str, str]
    throwaway: bool = False
    failed: str = ""
    confinement: Confinement = UNCONFINED
    caches: Path | None = None


def kept_names(terms: Terms, tracked: frozenset[str]) -> list[str]:
    """The folders that stay: inside the tree, not git's, and nothing that the project itself tracks."""
    names = set()
    for raw in terms.keep if terms.setup else ():
        path = PurePosixPath(raw)
        name = path.as_posix()
        inside = not path.is_absolute() and name != "." and not {"..", ".git"} & set(path.parts)
        if inside and not any(known == name or known.startswith(f"{name}/") for known in tracked):
            names.add(name)
    return sorted(names)


def variables(worktree: Path, terms: Terms, tmpdir: Path) -> dict[str, str]:
    """The reduced environment of a check: the worktree's own ``.venv`` first, this program's tools last."""
    set_values = {"PYTHONDONTWRITEBYTECODE": "1"}
    first: list[Path] = []
    if terms.setup and ".venv" in terms.keep:
        first = [worktree / ".venv" / "bin"]
        set_values["VIRTUAL_ENV"] = str(worktree / ".venv")
    return processes.child_environment(
        set_values=set_values, tmpdir=tmpdir, path_first=first, path_last=[Path(sys.executable).parent]
    )


@dataclass(slots=True)
class Environment:
    """The environments of one teacher's worktree, for base and for head of one bead."""

    place: Place
    terms: Terms
    store: Path
    bead: str
    commits: Mapping[Side, str]
    env: Mapping[str, str]
    marker: str
    progress: Progress
    cancelled: Callable[[], bool] | None = None
    confinement: Policy | None = None
    caches: Path | None = None
    _prints: dict[Side, str] = field(default_factory=dict)
    _trees: dict[Side, GitTree] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._trees = {side: GitTree(self.place.git, commit) for side, commit in self.commits.items()}
        tracked = self._trees["base"].files | self._trees["head"].files
        self.place.keep = kept_names(self.terms, tracked)

    def tracked(self, side: Side) -> frozenset[str]:
        """The paths that a side's commit holds."""
        return self._trees[side].files

    # --- fingerprint ---

    def fingerprint(self, side: Side) -> str:
        """What identifies this side's environment; the same for both where head changes nothing it is built from."""
        if side not in self._prints:
            inputs = {side: self._inputs(side) for side in self.commits}
            copies = {name: hashlib.sha256(raw).hexdigest() for name, (raw, _) in self.place.copies.items()}
            what: dict[str, Any] = {
                "setup": self.terms.setup,
                "keep": list(self.place.keep),
                "copies": copies,
                "inputs": inputs[side],
                "interpreters": interpreters.describe(self.env, self.place.worktree),
            }
            if self.confinement is not None:
                what["confined"] = True
            if inputs[side] != inputs["base"]:
                what["throwaway"] = self.bead
            self._prints[side] = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
        return self._prints[side]

    def _inputs(self, side: Side) -> dict[str, str]:
        """The contents that an environment is built from: path to object."""
        if not self.terms.setup:
            return {}
        words = {word.removeprefix("./") for argv in self.terms.setup for word in argv}
        raw = self.place.git.fixed("ls-tree", "-r", "-z", "--full-tree", self.commits[side])
        found = {}
        for entry in raw.split(b"\0"):
            facts, _, name = entry.partition(b"\t")
            path = name.decode("utf-8", "backslashreplace")
            if path and (is_manifest(path) or path in words):
                found[path] = facts.decode()
        return found

    @property
    def throwaway(self) -> bool:
        """Whether head needs an environment of its own."""
        return self.fingerprint("head") != self.fingerprint("base")

    # --- use ---

    def go(self, side: Side) -> None:
        """The worktree clean at *side*, its environment as it was built."""
        self.place.go(self.commits[side])
        if self.terms.setup:
            self._ensure(side)

    def _ensure(self, side: Side) -> None:
        record = self._record()
        if record.get("fingerprint") != self.fingerprint(side) or not self._intact(record):
            self._build(side)
        elif not record.get("ok"):
            raise SetupFailedError(side, record.get("why", ""), record.get("output", ""))
        elif record.get("scattered"):
            self._run_all(side)
            if side == "base":
                self._write(side, scattered=True)

    @property
    def _path(self) -> Path:
        digest = hashlib.sha256(os.fsencode(self.place.worktree)).hexdigest()[:16]
        return self.store / f"environment-{digest}.json"

    def _record(self) -> dict[str, Any]:
        try:
            record = files.read_json(self._path, limit_bytes=SURVEY_BYTES_MAX)
        except ValueError:
            record = None  # Not a fact: built anew, and written again.
        return record if isinstance(record, dict) else {}

    def _intact(self, record: Mapping[str, Any]) -> bool:
        known = record.get("survey") or {}
        now = survey.take(self.place.worktree, self._kept(), known)
        if survey.same(now, known):
            return True
        _log().info("environment.changed", worktree=str(self.place.worktree), bead=self.bead)
        return False

    # --- confinement ---

    def _cache(self, side: Side) -> Path:
        return self.place.index.parent / f"cache-{side}"

    def env_at(self, side: Side) -> Mapping[str, str]:
        """The environment of a check at *side*."""
        return {**self.env, **confinement.environment(self.confinement, self._cache(side))}

    def confined_at(self, side: Side) -> Policy | None:
        """What a check at *side* runs within: what set-up built can be read there, no more."""
        kept = [self.place.worktree / name for name in self.place.keep]
        return confinement.closing(confinement.opening(self.confinement, self._cache(side)), *kept)

    # --- building ---

    def _build(self, side: Side) -> None:
        self._path.unlink(missing_ok=True)
        self._remove_kept()
        try:
            self._run_all(side)
        except SetupFailedError as failed:
            self._write(side, ok=False, why=failed.why, output=failed.output)
            raise
        scattered = self._scattered()
        self._write(side, scattered=scattered)
        if not scattered:
            self.place.go(self.commits[side])

    def _kept(self) -> list[str]:
        """What is kept and lies in the tree: what a link leads to is somebody else's, and never surveyed or removed."""
        return [name for name in self.place.keep if self.place.holds(name)]

    def _remove_kept(self) -> None:
        for name in self._kept():
            path = self.place.worktree / name
            if path.is_symlink():
                path.unlink()
            elif path.exists():
                files.remove_tree(path)

    def _write(self, side: Side, *, ok: bool = True, **facts: object) -> None:
        kept = survey.take(self.place.worktree, self._kept())
        files.ensure_dir(self.store)
        record = {"fingerprint": self.fingerprint(side), "ok": ok, **facts, "survey": kept}
        files.write_json(self._path, record)
        _log().info("environment.built", worktree=str(self.place.worktree), side=side, ok=ok)

    def _scattered(self) -> bool:
        """Whether set-up made anything outside the kept folders that a later command may need."""
        strangers = [PurePosixPath(name) for name in self.place.strangers(_BY_PRODUCTS)]
        return any(name.as_posix() not in self.place.copies for name in strangers)

    def _run_all(self, side: Side) -> None:
        for argv in self.terms.setup:
            self._run(side, argv)

    def _run(self, side: Side, argv: Sequence[str]) -> None:
        # At base nothing runs that was not accepted before: what it downloads may serve the next bead.
        cache = self.caches if side == "base" and self.caches is not None else self._cache(side)
        finished = processes.run(
            argv,
            cwd=self.place.worktree,
            env={**self.env, **confinement.environment(self.confinement, cache)},
            confinement=confinement.opening(self.confinement, cache),
            limits=processes.RunLimits(
                timeout_s=self.terms.setup_timeout_s, output_bytes=OUTPUT_BYTES_MAX, grace_s=GRACE_S
            ),
            marker=self.marker,
            cancelled=self.cancelled,
            on_tick=lambda: self.progress(f"set-up at {side}"),
        )
        if finished.reason == "cancelled":
            raise TeacherError("set-up was cancelled")
        if finished.reason or finished.exit_code != 0:
            why = finished.detail or finished.reason or f"exit {finished.exit_code}"
            output = bounded(finished.stdout.decode("utf-8", "backslashreplace"), SHOWN_BYTES)
            raise SetupFailedError(side, f"{' '.join(argv)}: {why}", output)


def _log() -> Any:  # noqa: ANN401 - structlog's own
    return log.get("verification.environment")


def prepare(  # noqa: PLR0913 - what one review needs, all but two by name
    worktree: Path,
    terms: Terms,
    *,
    role: str,
    settings: Settings,
    progress: Progress,
    bag: Mapping[str, Any],
    scratch: Path | None = None,
    cancelled: Callable[[], bool] | None = None,
    proven: Path | None = None,
) -> Prepared:
    """The environment for this bead's checks in *worktree*; it stands clean at head afterwards.

    *proven* is an index that says that the tree stands at head already: it need not be written once more.
    A fresh TMPDIR lies in *scratch* (default: the teacher's own below ``settings.scratch_dir``). Raises
    SetupFailedError where base's environment cannot be built: then nobody can judge.
    """
    scratch = scratch or settings.scratch_dir / f"teacher-{role}"
    tmpdir = scratch / "tmp"
    files.remove_tree(tmpdir)
    files.ensure_dir(tmpdir)
    place = Place.find(worktree, scratch)
    if proven is not None:
        place.adopt(proven, str(bag["head_commit"]))
    place.copies = copies_from(Path(str(bag.get("repo", ""))), terms.copy_files)
    confined = confinement.for_checks(
        terms.sandbox,
        worktree=worktree,
        clone=place.git_dir.parent.parent,
        repo=Path(str(bag.get("repo", ""))),
        tmpdir=tmpdir,
        settings=settings,
    )
    kept = None if confined.policy is None else confinement.kept_caches(settings, role)
    environment = Environment(
        place=place,
        terms=terms,
        store=settings.baselines_dir / role,
        bead=str(bag["bead"]),
        commits={"base": str(bag["base_commit"]), "head": str(bag["head_commit"])},
        env=variables(worktree, terms, tmpdir),
        marker=f"{bag['bead']}-{role}",
        progress=progress,
        cancelled=cancelled,
        confinement=confined.policy,
        caches=kept,
    )
    failed = _stand(environment)
    place.settle(environment.commits["head"])
    files.remove_tree(tmpdir)
    files.ensure_dir(tmpdir)
    fingerprint = environment.fingerprint("head")
    return Prepared(fingerprint, dict(environment.env), environment.throwaway, failed, confined, kept)


def _stand(environment: Environment) -> str:
    """Bring up head's environment; why it cannot be, where that is the change's fault."""
    if not environment.terms.setup:
        return ""
    if not environment.throwaway:
        environment.go("base")
        return ""
    try:
        environment.go("head")
    except SetupFailedError as failed:
        environment.go("base")  # Raises where base cannot be built either: then the change is not to blame.
        environment.place.go(environment.commits["head"])
        return str(failed)
    return ""

"""``doctor``: could a run start here, and what is missing if not.

``doctor_document(settings, repo=..., explicit=...)`` returns rows {check, ok, detail}. ``ok`` false: no run could
start, and the detail says why; null: something optional is absent or does less than it might. Probing leaves
nothing behind and makes none of the state directories.

*explicit* says that the user named the repository; without it, not standing in one is no failure.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from school import config as school_config
from school.agents import chores, registry
from school.contracts import ProjectConfig
from school.errors import SchoolError
from school.settings import Settings
from school.souls import PERSONAS, load_soul
from school.system import confine, files, locks, watch
from school.system import git as system_git
from school.tasks import load_tasks
from school.worktrees import Repository, check_space, inspect_repository

TASKS_FILE: Final = "school-tasks.yaml"
FREE_BYTES_MIN: Final = 64 * 1024 * 1024
_PYTHON_MIN: Final = (3, 11)

Row = dict[str, Any]
# ``agent:NAME`` and ``chore:NAME`` come after these, one a known agent or chore.
CHECKS: Final = (
    "python",
    "git",
    "writable-bookbag",
    "writable-signals",
    "writable-locks",
    "writable-school",
    "writable-worktrees",
    "hard-links",
    "kernel-locks",
    "inotify",
    "disk-space",
    "repository",
    "worktrees-outside-repository",
    "configuration",
    "task-file",
    "personas",
    "orca",
    "confinement",
)


def doctor_document(settings: Settings, *, repo: Path, explicit: bool = False) -> list[Row]:
    """Every row, in the order of ``CHECKS``, then agents and chores."""
    repository, why = _repository(repo)
    config, wrong = _configuration(settings, repository)
    rows = [_row("python", *_python()), _row("git", *_tried(_git))]
    rows += [_row(f"writable-{name}", *_writable(path)) for name, path in _directories(settings)]
    rows += _file_system_rows(settings)
    rows.append(_row("disk-space", *_tried(lambda: _space(settings, repository, config))))
    rows.append(_row("repository", *_repository_verdict(repository, why, explicit=explicit)))
    rows.append(_row("worktrees-outside-repository", *_outside(settings, repository)))
    rows.append(
        _row("configuration", *((False, wrong) if wrong else (True, _config_detail(settings, repository))))
    )
    rows.append(_row("task-file", *_tried(lambda: _task_file(repository, config))))
    rows.append(_row("personas", *_tried(lambda: _personas(settings))))
    rows.append(_row("orca", *_installed("orca", "optional; worktrees are made with git")))
    rows.append(_row("confinement", *_tried(lambda: _confinement(config))))
    return rows + registry.available(config)


def _row(check: str, ok: bool | None, detail: str) -> Row:
    return {"check": check, "ok": ok, "detail": detail}


def _tried(probe: Callable[[], tuple[bool | None, str]]) -> tuple[bool | None, str]:
    """What *probe* says; an error of the tree is its answer."""
    try:
        return probe()
    except SchoolError as error:
        return False, str(error)


# --- the machine --------------------------------------------------------------------------------------------


def _python() -> tuple[bool, str]:
    return sys.version_info >= _PYTHON_MIN, f"{sys.version.split()[0]} at {sys.executable}"


def _git() -> tuple[bool, str]:
    number = ".".join(map(str, system_git.version()))
    return True, f"{number} at {shutil.which('git')}"


def _directories(settings: Settings) -> Iterator[tuple[str, Path]]:
    yield "bookbag", settings.bookbag_dir
    yield "signals", settings.signal_dir
    yield "locks", settings.lock_dir
    yield "school", settings.school_dir
    yield "worktrees", settings.worktrees_dir


def _nearest(path: Path) -> Path:
    """*path*, or the closest folder above it that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def _writable(path: Path) -> tuple[bool, str]:
    place = _nearest(path)
    if not place.is_dir():
        return False, f"{path}: {place} is not a directory"
    try:
        with _scratch(place):
            pass
    except OSError as error:
        return False, f"{path}: cannot write in {place}: {error.strerror}"
    return True, str(path) if place == path else f"{path} (will be made)"


@contextmanager
def _scratch(place: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=place) as name:
        yield Path(name)


def _file_system_rows(settings: Settings) -> Iterator[Row]:
    """What the file system of the locks and signals must be able to do."""
    probes = (
        ("hard-links", settings.lock_dir, _hard_links),
        ("kernel-locks", settings.lock_dir, _kernel_locks),
        ("inotify", settings.signal_dir, _inotify),
    )
    for name, directory, probe in probes:
        place = _nearest(directory)
        try:
            with _scratch(place) as scratch:
                yield _row(name, *_tried(lambda probe=probe, scratch=scratch: probe(scratch)))  # type: ignore[misc]
        except OSError as error:
            yield _row(name, False, f"{place}: {error.strerror}")


def _hard_links(scratch: Path) -> tuple[bool, str]:
    if files.hard_links_work(scratch):
        return True, f"work in {scratch.parent}"
    return False, f"{scratch.parent}: this file system has no hard links, which bead locks need"


def _kernel_locks(scratch: Path) -> tuple[bool, str]:
    if not locks.exclude(scratch):
        return False, f"{scratch.parent}: this file system grants a kernel lock to two at once"
    return True, f"work in {scratch.parent}"


def _inotify(scratch: Path) -> tuple[bool | None, str]:
    with watch.Watcher(scratch, rescan_s=1.0) as watcher:
        if watcher.mode == "inotify":
            return True, "changes are seen as they happen"
        return None, f"changes are seen by looking every second: {watcher.reason}"


def _space(settings: Settings, repository: Repository | None, config: ProjectConfig) -> tuple[bool, str]:
    for _, path in _directories(settings):
        free = shutil.disk_usage(_nearest(path)).free
        if free < FREE_BYTES_MIN:
            return (
                False,
                f"{_nearest(path)}: {free // 2**20} MiB free, at least {FREE_BYTES_MIN // 2**20} needed",
            )
    if repository is not None:
        check_space(settings, repository, config.limits.leaves)
    free = shutil.disk_usage(_nearest(settings.worktrees_dir)).free
    return True, f"{free // 2**20} MiB free"


def _installed(program: str, without: str) -> tuple[bool | None, str]:
    found = shutil.which(program)
    return (True, found) if found else (None, f"not installed; {without}")


def _confinement(config: ProjectConfig) -> tuple[bool | None, str]:
    """What agents and checks would run within, and whether the configuration insists on it."""
    found = confine.probe()
    if config.sandbox.mode == "off":
        return None, f'[sandbox] mode is "off": agents and checks run unconfined ({found})'
    if found.kind:
        return True, f"agents and checks run within {found.kind}"
    if config.sandbox.mode == "require":
        return False, f'[sandbox] mode = "require", and {found.why}; "auto" and "off" run without'
    return None, f"agents and checks run unconfined: {found.why}"


# --- the repository and what it says ------------------------------------------------------------------------


def _repository(repo: Path) -> tuple[Repository | None, str]:
    try:
        return inspect_repository(repo), ""
    except SchoolError as error:
        return None, str(error)


def _repository_verdict(
    repository: Repository | None, why: str, *, explicit: bool
) -> tuple[bool | None, str]:
    if repository is None:
        return (False, why) if explicit else (None, f"{why}; give one with --repo")
    dirty = f", {repository.dirty} uncommitted changes are not included" if repository.dirty else ""
    return True, f"{repository.path} at {repository.head_commit[:12]}{dirty}"


def _outside(settings: Settings, repository: Repository | None) -> tuple[bool | None, str]:
    if repository is None:
        return None, "no repository to compare with"
    inner, outer = os.path.realpath(settings.worktrees_dir), os.path.realpath(repository.path)
    if os.path.commonpath([inner, outer]) == outer:
        return False, f"SCHOOL_WORKTREES_DIR={settings.worktrees_dir} lies inside {repository.path}"
    return True, str(settings.worktrees_dir)


def _configuration(settings: Settings, repository: Repository | None) -> tuple[ProjectConfig, str]:
    """The configuration of a run that starts now, or the defaults and what is wrong with it."""
    home = settings.hermes_home / school_config.FILE_NAME
    try:
        text = home.read_text("utf-8") if home.is_file() else None
        here = str(repository.path / school_config.FILE_NAME) if repository else school_config.FILE_NAME
        config = school_config.load_config(_base_text(repository), text, base_name=here, home_name=str(home))
        registry.refuse_models(config)
    except (SchoolError, OSError, UnicodeDecodeError) as error:
        return ProjectConfig(), str(error)
    return config, ""


def _base_text(repository: Repository | None) -> str | None:
    if repository is None:
        return None
    name = f"{repository.head_commit}:{school_config.FILE_NAME}"
    git = repository.git()
    if not git.ok("cat-file", "-e", name):
        return None
    return git.run("cat-file", "blob", name, limit_bytes=school_config.BYTES_MAX).stdout.decode("utf-8")


def _config_detail(settings: Settings, repository: Repository | None) -> str:
    layers = [str(settings.hermes_home / school_config.FILE_NAME)]
    found = [name for name in layers if Path(name).is_file()]
    if _base_text(repository) is not None:
        found.append(f"{school_config.FILE_NAME} of HEAD")
    detail = " under ".join(found) or "defaults"
    if repository is not None and school_config.is_left_out(repository.path, _base_text(repository)):
        detail += (
            f"; {repository.path / school_config.FILE_NAME} is not committed as it is, so it does not count"
        )
    return detail


def _task_file(repository: Repository | None, config: ProjectConfig) -> tuple[bool | None, str]:
    if repository is None:
        return None, "no repository to look in"
    path = repository.path / TASKS_FILE
    if not path.is_file():
        return None, f"{path}: none yet; `init` writes one, --task needs none"
    agents = [*config.agents, *registry.BUILT_IN]
    tasks = load_tasks(path, agents=agents, chores=chores.CHORES, prefix=config.delivery.prefix)
    return True, f"{path}: {len(tasks)} tasks"


def _personas(settings: Settings) -> tuple[bool, str]:
    souls = [load_soul(name, settings=settings) for name in PERSONAS]
    replaced = [f"{soul.name} from {soul.source}" for soul in souls if soul.overridden]
    return True, f"overridden: {', '.join(replaced)}" if replaced else f"the {len(souls)} shipped ones"

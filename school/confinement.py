"""What a leaf's agent and a teacher's checks may touch: the policy of the contract, in the words of ``system.confine``.

``for_leaf`` and ``for_checks`` give a ``Confinement``: the policy (None where nothing is confined) and, in words, which
confinement that is (``bubblewrap``, or ``none: why``). Written may be the working tree, the bead repository, TMPDIR, the
caches, what an agent's preset and ``[sandbox] write`` name. The user's repository, our own folders of the state directory,
keys and cloud credentials are closed; see ``docs/confinement.md``.

Caches: ``caches(folder)`` are the variables that send tools there. What set-up commands download at base stays, for
students and for each teacher apart; an agent, and checks at base and at head, have caches that end with their run.

Errors: MachineError where ``require`` asks for what is not to be had; ConfigError for a path in ``[sandbox]`` that is not absolute.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from school import settings as school_settings
from school.contracts import AgentSpec, SandboxTerms, Workspace
from school.errors import ConfigError, MachineError
from school.settings import Settings
from school.system import confine, files

REFUSALS_MAX: Final = 20
REFUSAL_CHARS: Final = 300
# Below the home: keys, and what opens an account somewhere.
CREDENTIALS: Final = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".oci", ".boto", ".s3cfg", ".netrc", ".pypirc", ".git-credentials",
    ".config/git/credentials", ".Xauthority", ".ICEauthority", ".password-store", ".config/gcloud", ".config/gh", ".config/hub", ".config/glab-cli", ".config/doctl",
    ".config/rclone", ".config/sops", ".config/op", ".docker/config.json", ".terraform.d/credentials.tfrc.json",
    ".local/share/keyrings", ".local/share/containers", ".mozilla", ".config/google-chrome", ".config/chromium",
    "Library/Keychains",
)  # fmt: skip
# What a system says when a confinement closes a door; the names are those of errno, which many tools print.
_REFUSED: Final = re.compile(
    r"read-only file system|permission denied|operation not permitted|device or resource busy"
    r"|no such process|file too large|network is unreachable|\bE(?:ROFS|ACCES|PERM|BUSY|SRCH|FBIG|NETUNREACH)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Confinement:
    """How something runs: *policy* is None where it is not confined, *said* says which confinement it is."""

    policy: confine.Policy | None
    said: str


UNCONFINED: Final = Confinement(None, "")


def available(sandbox: SandboxTerms) -> str:
    """Which confinement *sandbox* gives here, in words; MachineError where it must be there and is not."""
    if sandbox.mode == "off":
        return 'none: [sandbox] mode is "off"'
    found = confine.probe()
    if not found.kind and sandbox.mode == "require":
        raise MachineError(
            f"confinement is required ([sandbox] mode, --sandbox require), and there is none: {found.why}; "
            "--sandbox auto or off runs without"
        )
    return str(found)


def is_confined(said: str) -> bool:
    """Whether a record's ``confinement`` names one."""
    return bool(said) and not said.startswith("none")


def refuse_relative(sandbox: SandboxTerms) -> None:
    """ConfigError where ``[sandbox] write`` or ``read`` names a path that is nowhere in particular."""
    for key in ("write", "read"):
        for name in getattr(sandbox, key):
            if not _expanded(name).is_absolute():
                raise ConfigError(f"[sandbox] {key}: {name!r} must be absolute or begin with ~")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a leaf's agent works; *handed* are the folders that brief and result lie in."""

    workspace: Workspace
    tmpdir: Path
    handed: Sequence[Path] = ()


def for_leaf(sandbox: SandboxTerms, spec: AgentSpec, place: Place, settings: Settings) -> Confinement:
    """For an agent and for its set-up."""
    said = available(sandbox)
    if not is_confined(said):
        return Confinement(None, said)
    workspace, tmpdir = place.workspace, place.tmpdir
    outside = [folder for folder in place.handed if not folder.is_relative_to(workspace.path)]
    write = [workspace.path, workspace.git_dir, tmpdir, *outside]
    read = [workspace.clone / "objects", *repository(workspace.repo)]
    opened = _made(spec.write)
    return Confinement(_policy(sandbox, settings, write=write, read=read, tmp=tmpdir, opened=opened), said)


def for_checks(
    sandbox: SandboxTerms, *, worktree: Path, clone: Path, repo: Path, tmpdir: Path, settings: Settings
) -> Confinement:
    """For what a teacher runs in *worktree*; what stays between beads there is closed by ``closing``."""
    said = available(sandbox)
    if not is_confined(said):
        return Confinement(None, said)
    read = [clone, worktree / ".git", *repository(repo)]
    return Confinement(_policy(sandbox, settings, write=[worktree, tmpdir], read=read, tmp=tmpdir), said)


def for_reader(
    policy: confine.Policy | None, spec: AgentSpec, *, worktree: Path, folder: Path
) -> confine.Policy | None:
    """*policy* of a teacher's checks for an agent that only reads there: it may write to *folder* and its own state."""
    if policy is None:
        return None
    opened = _others(_made(spec.write), [*policy.hide, *policy.read])
    read = (*policy.read, worktree, *_deciding(school_settings.current(), opened))
    return replace(policy, write=(folder, *opened), read=read, tmp=files.ensure_dir(folder / "tmp"))


def opening(policy: confine.Policy | None, *places: Path) -> confine.Policy | None:
    """*policy* with *places* writable; none stays none."""
    return policy and replace(policy, write=(*policy.write, *places))


def closing(policy: confine.Policy | None, *places: Path) -> confine.Policy | None:
    """*policy* with *places* read-only, as far as they are real folders: a link would open what it leads to."""
    if policy is None:
        return None
    real = [
        place for place in places if place.is_dir() and Path(os.path.realpath(place)) == files.place_of(place)
    ]
    return replace(policy, read=(*policy.read, *real))


def _policy(
    sandbox: SandboxTerms,
    settings: Settings,
    *,
    write: Iterable[Path],
    read: Sequence[Path],
    tmp: Path,
    opened: Sequence[Path] = (),
) -> confine.Policy:
    ours = our_folders(settings)
    # What the user's configuration opens is the user's word, but never our records, nor the repository itself.
    wanted = _others(map(_expanded, sandbox.read), ours)
    own = _others([*opened, *map(_expanded, sandbox.write)], [*ours, *read])
    hidden = [place for place in _credentials() if not any(place == w or w in place.parents for w in wanted)]
    return confine.Policy(
        write=(*write, *own),
        read=(*read, *wanted, *_deciding(settings, own)),
        hide=(*hidden, *ours),
        network=sandbox.network,
        tmp=files.ensure_dir(tmp),
    )


def _others(places: Iterable[Path], closed: Iterable[Path]) -> list[Path]:
    """Those of *places* that are none of *closed*, however they are spelled."""
    real = {os.path.realpath(place) for place in closed}
    return [place for place in places if os.path.realpath(place) not in real]


def _deciding(settings: Settings, opened: Iterable[Path]) -> list[Path]:
    """The files that decide over later runs and lie where *opened* may be written, as an agent's own state does.

    A configuration that is not there yet is made, empty: what is not there could be made inside.
    """
    home = Path(os.path.realpath(settings.hermes_home))
    if not any(home.is_relative_to(os.path.realpath(place)) for place in opened):
        return []
    if not os.path.lexists(settings.config_file):
        with contextlib.suppress(FileExistsError):
            files.create_atomic(settings.config_file, b"")
    return [settings.config_file, settings.governor_file, *sorted(home.glob("profiles/*/SOUL.md"))]


def our_folders(settings: Settings) -> list[Path]:
    """The folders of the state directory that are ours, each where its variable puts it."""
    return list(settings.own_dirs)


def repository(path: Path) -> list[Path]:
    """The user's repository: its working tree, and where git keeps it if that is elsewhere."""
    if not path.is_absolute():
        return []  # a record that names none
    found = [path]
    try:
        named = (path / ".git").read_text("utf-8", "surrogateescape").removeprefix("gitdir:").strip()
    except OSError:
        return found  # bare, or an ordinary one with all of it below path
    admin = Path(os.path.realpath(path / named))
    return [*found, admin.parent.parent if admin.parent.name == "worktrees" else admin]


def _home() -> Path:
    return Path(os.environ.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - HOME may be unset


def _credentials() -> list[Path]:
    return [_home() / name for name in CREDENTIALS]


def _expanded(name: str) -> Path:
    return _home() / name[2:] if name.startswith("~/") else _home() if name == "~" else Path(name)


def _made(names: Iterable[str]) -> list[Path]:
    """State paths of an agent's CLI; a folder that is not there yet is made, for it could not be inside."""
    found = [_expanded(name) for name in names]
    for path in found:
        if path.is_absolute() and not path.suffix and not os.path.lexists(path):
            files.ensure_dir(path)
    return found


# --- caches ---------------------------------------------------------------------------------------------------


def caches(folder: Path) -> dict[str, str]:
    """The variables that make common tools keep their caches below *folder*, which is made."""
    files.ensure_dir(folder)
    names = {
        "PIP_CACHE_DIR": "pip",
        "UV_CACHE_DIR": "uv",
        "npm_config_cache": "npm",
        "YARN_CACHE_FOLDER": "yarn",
        "GOCACHE": "go-build",
        "GOMODCACHE": "go-mod",
        "CARGO_HOME": "cargo",
        "GRADLE_USER_HOME": "gradle",
        "RUFF_CACHE_DIR": "ruff",
        "MYPY_CACHE_DIR": "mypy",
    }
    found = {name: str(folder / sub) for name, sub in names.items()}
    return {"XDG_CACHE_HOME": str(folder), "GOFLAGS": "-modcacherw", **found, **_modules()}


def _modules() -> dict[str, str]:
    """The user's Go modules, which can only be read here, as the first place to fetch from."""
    known = _home() / "go" / "pkg" / "mod" / "cache" / "download"
    return {"GOPROXY": f"file://{known},https://proxy.golang.org,direct"} if known.is_dir() else {}


def agent_caches(tmpdir: Path) -> Path:
    """Where an agent's caches lie; they end with its bead."""
    return tmpdir / "cache"


def kept_caches(settings: Settings, who: str) -> Path:
    """What *who* (``students``, a teacher's role) has downloaded for set-up commands at base; it may be removed."""
    return files.ensure_dir(settings.caches_dir / who)


# --- what was tried -------------------------------------------------------------------------------------------


def refusals(said: str) -> list[str]:
    """The lines of an output that tell of a closed door, each once, as notes for a record.

    Only what a command says of it is known: one that keeps silent is refused all the same, and not named here. And a
    line may have another cause, which is why it is quoted and not judged.
    """
    lines = (line.strip()[:REFUSAL_CHARS] for line in said.splitlines() if _REFUSED.search(line))
    found = list(dict.fromkeys(line for line in lines if line))
    notes = [f"refused while confined: {line}" for line in found[:REFUSALS_MAX]]
    more = len(found) - REFUSALS_MAX
    return [*notes, f"refused while confined: {more} more such lines"] if more > 0 else notes


def left_running(left: Iterable[str]) -> list[str]:
    """What a command had left running when it ended, each "PID command", as notes for a record."""
    return [f"left running when it had ended, and ended then: process {one}" for one in left]


def environment(policy: confine.Policy | None, folder: Path) -> Mapping[str, str]:
    """What a confined command's environment has more than another's."""
    return caches(folder) if policy is not None else {}

"""Confine a foreign command: what it may write, what it sees, whether it has a network.

A ``Policy`` says it; ``wrap(policy, cwd, argv)`` gives the words that stand before the command. On Linux that is
bubblewrap: everything is seen read-only but for what is hidden and what may be written, ``/tmp`` is a folder of the
command's own, ``/dev`` and ``/proc`` are fresh, all capabilities are gone, and a PID namespace of its own ends with
the command, whatever that left behind. On macOS it is a ``sandbox-exec`` profile, which was written from its
documentation and has never been run; there is no PID namespace there.

``probe()`` tries once a process, with the flags of ``wrap`` itself, whether that works here, and says why not.

Deeper paths win over shallower ones, so a folder may be hidden and one below it writable; of the same path, writing
wins over reading over hiding. A path that does not exist cannot be made inside, unless its folder may be written.
What is closed below what may be written stays where it is: no folder on the way to it can be renamed, but in *cwd*.

Not promised: protection from the kernel's own faults, from sockets in the abstract namespace while the network is
shared, or that a secret is hidden which lies where nobody expects it.

Errors: MachineError from ``wrap`` where no confinement is to be had; ``probe`` raises nothing.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from school.errors import MachineError

PROBE_S: Final = 10.0
# An empty file, which stands in the place of hidden ones.
NOTHING: Final = str(Path(__file__).with_name("nothing"))
SHM_BYTES: Final = 512 * 1024 * 1024
_TMP: Final = Path("/tmp")  # noqa: S108 - the name itself is what is replaced
_ROOT: Final = Path("/")
_DEV: Final = Path("/dev")
_PROC: Final = Path("/proc")
_IN_TMP: Final = re.compile(rf"{_TMP}/[\w.+@-]+")
# Sockets through which a command could have others act for it; writable however a mount is made.
_WAYS_OUT: Final = (
    "/run/containerd",
    "/run/crio",
    "/run/dbus",
    "/run/docker.sock",
    "/run/libvirt",
    "/run/lxd.socket",
    "/run/podman",
    "/run/screen",
    "/run/snapd.socket",
    "/run/systemd/private",
    "/var/lib/lxd/unix.socket",
)
_BUBBLEWRAP: Final = (
    "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
)  # fmt: skip
_FRESH: Final = (
    "--dev", "/dev", "--size", str(SHM_BYTES), "--perms", "1777",
    "--tmpfs", "/dev/shm",  # noqa: S108 - the place itself
    "--remount-ro", "/dev", "--proc", "/proc",
    # What the kernel lets uid 0 write whatever its capabilities; bubblewrap covers them only where it takes them for
    # writable, and the folder of the settings does not look so.
    "--ro-bind", "/proc/sys", "/proc/sys", "--ro-bind-try", "/proc/sysrq-trigger", "/proc/sysrq-trigger",
)  # fmt: skip

_Way = Literal["hide", "read", "write"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What a command may do. ``tmp`` is what it finds at ``/tmp``; without one that is read-only like the rest."""

    write: tuple[Path, ...] = ()
    read: tuple[Path, ...] = ()
    hide: tuple[Path, ...] = ()
    network: bool = True
    tmp: Path | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """``kind`` is ``bubblewrap`` or ``sandbox-exec``; empty, and then ``why`` says why there is none."""

    kind: str
    why: str = ""

    def __str__(self) -> str:
        return self.kind or f"none: {self.why}"


@dataclass(frozen=True, slots=True)
class Wrapping:
    """The words before a command; ``monitored``: the first process is a monitor, and must not be asked to end."""

    words: tuple[str, ...]
    monitored: bool


def wrap(policy: Policy, cwd: Path, argv: Sequence[str]) -> Wrapping:
    """What stands before *argv* so that it runs in *cwd* within *policy*."""
    if sys.platform == "darwin":
        return Wrapping((_program("sandbox-exec"), "-p", profile(policy)), monitored=False)
    words = [_program("bwrap"), *_BUBBLEWRAP, *([] if policy.network else ["--unshare-net"])]
    words += mounts(policy, cwd, argv)
    return Wrapping((*words, "--chdir", os.path.realpath(cwd)), monitored=True)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise MachineError(f"{name} is not installed, so nothing can be confined")
    return found


# --- Linux ----------------------------------------------------------------------------------------------------


def mounts(policy: Policy, cwd: Path, argv: Sequence[str]) -> list[str]:
    """The mount operations of *policy*, each place after the one that it lies in."""
    ways = _ways(policy)
    for folder in _on_the_way(ways, Path(os.path.realpath(cwd))):
        ways[folder] = "write"
    for entry in _needed_in_tmp(policy, ways, cwd, argv):
        ways.setdefault(entry, "read")
    # Everything, read-only unless the policy says otherwise of the root itself; what is fresh lies above that.
    words = ["--bind" if ways.pop(_ROOT, "read") == "write" else "--ro-bind", "/", "/", *_FRESH]
    closed = []
    if policy.tmp is not None:
        words += ["--bind", os.path.realpath(policy.tmp), str(_TMP)]
    ways_through = {folder for place, way in ways.items() if way != "hide" for folder in place.parents}
    for place in sorted(ways, key=lambda place: len(place.parts)):
        name = str(place)
        if ways[place] == "hide" and place.is_dir():
            # Refused rather than empty, so that whoever looks knows; with a way through where something below is open.
            words += ["--perms", "0111" if place in ways_through else "0000", "--tmpfs", name]
            closed.append(name)
        elif ways[place] == "hide":
            words += ["--ro-bind", NOTHING, name]
        else:
            writing = "--dev-bind" if _DEV in place.parents else "--bind"
            words += [writing if ways[place] == "write" else "--ro-bind", name, name]
    # Last, when the places below them are there.
    return words + [word for name in closed for word in ("--remount-ro", name)]


def _ways(policy: Policy) -> dict[Path, _Way]:
    """What is to become of which place; places that are not there are left out."""
    runtime = [Path(f"/run/user/{os.getuid()}"), *map(Path, _WAYS_OUT)]
    ways: dict[Path, _Way] = {}
    plan: tuple[tuple[_Way, Iterable[Path]], ...] = (
        ("hide", (*runtime, *policy.hide)),
        ("read", policy.read),
        ("write", policy.write),
    )
    named: dict[Path, _Way] = {Path(os.path.normpath(place)): way for way, places in plan for place in places}
    for place, way in named.items():
        above = next((named[folder] for folder in place.parents if folder in named), None)
        # Below what may be written lies what was written: a link there would open whatever it leads to.
        if above == "write" and (way == "write" or (way == "read" and _is_through_link(place))):
            continue
        real = Path(os.path.realpath(place))
        if real.exists():
            ways[real] = way
    return ways


def _on_the_way(ways: Mapping[Path, _Way], cwd: Path) -> set[Path]:
    """The folders between what may be written and what is closed in it, but for those of the command's own *cwd*.

    Who may rename such a folder puts another in its place, with whatever it likes where the closed one was. A place
    that something is mounted on cannot be renamed; so each is mounted on itself.
    """
    found: set[Path] = set()
    for place, way in ways.items():
        above = next((folder for folder in place.parents if folder in ways), None)
        if way != "write" and above is not None and above != cwd and ways[above] == "write":
            found.update(folder for folder in place.parents if above in folder.parents)
    return found - {_TMP, _DEV, _PROC}


def _is_through_link(place: Path) -> bool:
    return Path(os.path.realpath(place)) != Path(os.path.realpath(place.parent)) / place.name


def _needed_in_tmp(policy: Policy, ways: Iterable[Path], cwd: Path, argv: Sequence[str]) -> Iterable[Path]:
    """The entries of the machine's ``/tmp`` that the command must still see: those of the policy, and what it names.

    Our own code and its interpreter too: the inner warden is run from there, and either may have been put below /tmp.
    """
    if policy.tmp is None:
        return set()
    ours = (str(cwd), sys.prefix, sys.base_prefix, __file__)
    named = [*ways, *(Path(os.path.realpath(place)) for place in ours)]
    named += [Path(found) for word in argv for found in _IN_TMP.findall(word)]
    top = len(_TMP.parts)
    entries = {Path(*place.parts[: top + 1]) for place in named if _TMP in place.parents}
    return {entry for entry in entries if entry.exists() and not entry.is_symlink()}


# --- macOS ----------------------------------------------------------------------------------------------------


def profile(policy: Policy) -> str:
    """*policy* in the language of ``sandbox-exec``, where the last rule that fits decides."""
    rules = ["(version 1)", "(allow default)", "(deny file-write*)", '(allow file-write* (subpath "/dev"))']
    if policy.tmp is not None:
        rules.append('(allow file-write* (subpath "/private/tmp"))')
    ways = _ways(policy)
    for place in sorted(ways, key=lambda place: len(place.parts)):
        where = f'(subpath "{_quoted(str(place))}")'
        if ways[place] == "hide":
            rules.append(f"(deny file-read* file-write* {where})")
        else:
            rules.append(f"(allow file-read* {where})")
            rules.append(f"({'allow' if ways[place] == 'write' else 'deny'} file-write* {where})")
    return "\n".join(rules if policy.network else [*rules, "(deny network*)"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


# --- does it work ---------------------------------------------------------------------------------------------

_TRIED: Final = """
test ! -e hidden/secret && echo x > own/made && ! { echo x > made; } 2>/dev/null && ! { echo x > hidden/made; } 2>/dev/null
"""


def probe() -> Probe:
    """Whether commands can be confined here: tried once a process, by confining one."""
    kind = {"linux": "bubblewrap", "darwin": "sandbox-exec"}.get(sys.platform, "")
    if not kind:
        return Probe("", f"there is none for {sys.platform}")
    program = shutil.which("bwrap" if kind == "bubblewrap" else kind)
    return Probe("", f"{kind} is not installed") if program is None else _probe(kind, program)


@functools.cache
def _probe(kind: str, _program: str) -> Probe:
    try:
        with tempfile.TemporaryDirectory(prefix="probe-") as name:
            why = _try_in(Path(name))
    except OSError as error:
        why = str(error)
    return Probe("", f"{kind} does not work here: {why}") if why else Probe(kind)


def _try_in(folder: Path) -> str:
    """Confine a command in *folder*; why that failed, or ''."""
    own, hidden = folder / "own", folder / "hidden"
    for made in (own, hidden):
        made.mkdir()
    (hidden / "secret").write_text("x")
    argv = ["/bin/sh", "-c", _TRIED]
    wrapping = wrap(Policy(write=(own,), hide=(hidden,), tmp=own), folder, argv)
    try:
        done = subprocess.run(
            [*wrapping.words, *argv],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PROBE_S,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {PROBE_S:g} s"
    if done.returncode == 0 and (own / "made").is_file():
        return ""
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else f"exit status {done.returncode}"

"""Who a process is, in a form that outlives it: PID, start, boot, host, PID namespace.

A PID alone names nobody: it is used again, sooner in a container, at once after a reboot. ``Owner`` carries what
makes it unique, ``is_dead`` says whether that very process can no longer run. It says so on proof only: same
host and PID namespace, and (no such process, or a zombie, or another start, or another boot). What it may not
see, and any other host, counts as alive. Wall-clock start times are not used on Linux: they move with NTP.

Text form: the PID on the first line, then ``key=value`` lines. A bare one-line file is a PID on this host.
Errors: ``Owner.parse`` returns None for what names nobody; nothing here raises for a foreign record.
"""

# The os functions, on plain strings: proof of death is taken while others wait.
# ruff: noqa: PTH116, PTH208
from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PID_MAX: Final = 2**31 - 1
PURPOSE_CHARS_MAX: Final = 200
# psutil's create time is the only start time macOS gives us; it follows wall-clock adjustments.
START_TOLERANCE_S: Final = 2.0
_LINUX: Final = sys.platform.startswith("linux")


@dataclass(frozen=True, slots=True)
class Owner:
    """One process for ever. Empty ``start`` marks a bare PID of this host."""

    pid: int
    start: str = ""
    boot: str = ""
    host: str = ""
    pidns: str = ""
    nonce: str = ""
    purpose: str = ""

    @property
    def text(self) -> str:
        """The record as it is written; ``purpose`` comes last so that a cut record is seen to be cut."""
        return (
            f"{self.pid}\nstart={self.start}\nboot={self.boot}\nhost={self.host}\n"
            f"pidns={self.pidns}\nnonce={self.nonce}\npurpose={self.purpose}\n"
        )

    @property
    def bare(self) -> bool:
        """Whether this is a PID and nothing else, as older programs write it."""
        return not self.start

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The owner that *text* names; None for an empty, cut or garbled record."""
        first, _, rest = text.partition("\n")
        pid = _pid_of(first)
        if pid is None:
            return None
        if not rest.strip():
            return cls(pid)
        pairs = dict(line.split("=", 1) for line in rest.splitlines() if "=" in line)
        whole = text.endswith("\n") and "purpose" in pairs
        if not (whole and pairs.get("start") and pairs.get("nonce")):
            return None
        return cls(
            pid, *(pairs.get(key, "") for key in ("start", "boot", "host", "pidns", "nonce", "purpose"))
        )


def _pid_of(line: str) -> int | None:
    word = line.strip()
    if not (word.isascii() and word.isdigit() and len(word) <= len(str(PID_MAX))):
        return None
    pid = int(word)
    return pid if 0 < pid <= PID_MAX else None


class _Cache:
    """What never changes while a process lives; a forked child starts with an empty one."""

    boot: str | None = None
    host: str | None = None
    pidns: str | None = None
    start: str | None = None

    @classmethod
    def clear(cls) -> None:
        cls.boot = cls.host = cls.pidns = cls.start = None


os.register_at_fork(after_in_child=_Cache.clear)


def boot_id() -> str:
    """What names this boot of the machine; empty where the system does not say."""
    if _Cache.boot is None:
        _Cache.boot = _read_boot()
    return _Cache.boot


def _read_boot() -> str:
    if _LINUX:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        except OSError:
            return ""
    import subprocess

    try:
        done = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("ascii", "replace").strip()


def host_name() -> str:
    """This host's name, in one word."""
    if _Cache.host is None:
        _Cache.host = "".join(os.uname().nodename.split()) or "localhost"
    return _Cache.host


def pid_namespace() -> str:
    """The number of this PID namespace; ``-`` where there is only one."""
    if _Cache.pidns is None:
        try:
            _Cache.pidns = str(os.stat("/proc/self/ns/pid").st_ino) if _LINUX else "-"
        except OSError:
            _Cache.pidns = "-"
    return _Cache.pidns


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a PID: is there such a process, when did it start, has it ended and waits to be reaped."""

    exists: bool
    start: str = ""
    zombie: bool = False
    parent: int = 0


ABSENT: Final = Look(exists=False)
# There may be one, but the system does not let us see: never proof of anything.
UNSEEN: Final = Look(exists=True)


def look(pid: int) -> Look:
    """What can be known of *pid* right now."""
    return _look_linux(pid) if _LINUX else _look_psutil(pid)


def _look_linux(pid: int) -> Look:
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return _exists_by_signal(pid)
    except OSError:
        return UNSEEN
    try:
        raw = os.read(fd, 4096)
    except ProcessLookupError:
        return ABSENT
    except OSError:
        return UNSEEN
    finally:
        os.close(fd)
    # The name in parentheses may hold anything, parentheses too; fields are counted from the last one.
    fields = raw[raw.rfind(b")") + 2 :].split()
    zombie = fields[0] in b"ZXx" and not _other_threads(pid)
    return Look(exists=True, start=fields[19].decode("ascii"), zombie=zombie, parent=int(fields[1]))


def _exists_by_signal(pid: int) -> Look:
    # With hidepid another user's processes are not in /proc; the kernel still says whether the number is taken.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ABSENT
    except (OSError, OverflowError):
        return UNSEEN
    # It answered after all: born in between, or the number names a thread, which is not a process.
    return UNSEEN


def _other_threads(pid: int) -> bool:
    # A leader that called pthread_exit shows as a zombie while its threads still run, and may still write.
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def _look_psutil(pid: int) -> Look:
    import psutil

    try:
        process = psutil.Process(pid)
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return Look(
            exists=True, start=f"{process.create_time():.2f}", zombie=zombie, parent=process.ppid() or 0
        )
    except psutil.ZombieProcess:
        return Look(exists=True, zombie=True)
    except psutil.NoSuchProcess:
        return ABSENT
    except psutil.Error:
        return UNSEEN


def _same_start(seen: str, recorded: str) -> bool:
    if seen == recorded or not seen or not recorded:
        return True
    if _LINUX:
        return False
    try:
        return abs(float(seen) - float(recorded)) <= START_TOLERANCE_S
    except ValueError:
        return True


def owner_of(record: Mapping[str, Any]) -> Owner | None:
    """The owner that a JSON record names; None for one that was written before there was a process."""
    pid = record.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return None
    return Owner(pid, *(str(record.get(key) or "") for key in ("start", "boot", "host", "pidns")))


def this_process(purpose: str = "", nonce: str | None = None) -> Owner:
    """The calling process as an owner, with a nonce of its own."""
    if _Cache.start is None:
        _Cache.start = look(os.getpid()).start
    return Owner(
        os.getpid(),
        _Cache.start,
        boot_id(),
        host_name(),
        pid_namespace(),
        nonce or os.urandom(8).hex(),
        _one_line(purpose),
    )


def _one_line(purpose: str) -> str:
    # Plain ASCII, so that what is read back is what was written, whatever a file's name was.
    return " ".join(purpose.split()).encode("ascii", "backslashreplace").decode("ascii")[:PURPOSE_CHARS_MAX]


def identity(pid: int | None = None) -> Owner:
    """Who *pid* is (None: the calling process); an empty ``start`` where that could not be seen."""
    if pid is None:
        return this_process()
    return Owner(pid, look(pid).start, boot_id(), host_name(), pid_namespace(), os.urandom(8).hex())


def is_dead(owner: Owner) -> bool:
    """True on proof that this very process can no longer run; False whenever there is a doubt."""
    if not owner.bare:
        if owner.host != host_name() or owner.pidns != pid_namespace():
            return False
        boot = boot_id()
        if boot and owner.boot and owner.boot != boot:
            return True
    seen = look(owner.pid)
    if not seen.exists or seen.zombie:
        return True
    return not owner.bare and not _same_start(seen.start, owner.start)


def alive(owner: Owner) -> bool:
    """Whether *owner* may still run: everything but proof of its death."""
    return not is_dead(owner)

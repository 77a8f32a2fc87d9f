"""The small process between us and a foreign command: it sees to it that nothing of the command is left.

Run as ``python -I -S warden.py LIFELINE REPORT GRACE [within=N] [monitored] [file=N] -- ARGV...``
With ``within=N`` the first N words of ARGV are a confinement: they start this file once more inside it (``enter FD``),
which becomes the rest, so that how it ends and why it cannot start are told as without one; ``monitored`` says that
the confinement's first process stays outside and ends with the rest. No file grows beyond ``file=N`` bytes.

The warden stands in a session of its own, adopts every process of its tree that loses its parent (Linux: child
subreaper), and starts ARGV in another session with the standard streams it was given. The tree is ended when ARGV
itself has ended, when a byte comes down LIFELINE (``T``: politely, within GRACE; ``K``: at once), and when LIFELINE
closes: whoever asked for the command is gone, even by ``kill -9``. Processes that made a session of their own are
found through the adoption. One JSON line on REPORT tells how ARGV ended, and by PID and command what it had left
running; then the warden ends. While ``monitored``, the first process of a confinement stands still: with its end goes
everything inside, and nobody could be named any more.

Not promised: on systems without subreapers (macOS) a process that left the session *and* lost its parent between
two looks (one a second) is not found.

Only the standard library, and little of it: this start is paid for every command.
"""

# ruff: noqa: PTH208 - a script of its own, as small and quick as can be
from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # what ``signal`` adds are enums, which would take half of this start

PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform.startswith("linux")
# What is left behind when ARGV has ended by itself gets this long after SIGTERM.
LEFTOVER_GRACE_S = 1.0
# Nobody waits for us any more: everything must be gone within two seconds of the parent's death.
ORPHANED_GRACE_S = 0.3
# Killed processes go at once unless the kernel holds them (a hung disk); then they are reported, not waited for.
KILL_PATIENCE_S = 5.0
MAC_LOOK_S = 1.0
# Who still runs so long after ARGV has ended was left behind; whoever just ends with it is not.
ENDING_S = 0.05
LEFT_MAX = 10
LEFT_CHARS = 200
# What comes up the pipe from inside a confinement before anything else.
INSIDE = b"+"


def become_subreaper() -> bool:
    """Adopt orphans of our tree; whether the system can do that."""
    if not LINUX:
        return False
    import ctypes

    answer: int = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return answer == 0


def _processes() -> dict[int, tuple[int, str, str]]:
    """Every process: PID to (parent, start, state)."""
    if not LINUX:
        return _processes_by_ps()
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fd = os.open(f"/proc/{name}/stat", os.O_RDONLY)
            except OSError:
                continue
            try:
                raw = os.read(fd, 4096)
            except OSError:
                continue
            finally:
                os.close(fd)
            fields = raw[raw.rfind(b")") + 2 :].split()
            found[int(name)] = (int(fields[1]), fields[19].decode(), fields[0].decode())
    return found


def _processes_by_ps() -> dict[int, tuple[int, str, str]]:
    found = {}
    with os.popen("ps -axo pid=,ppid=,state=,lstart=") as answer:  # noqa: S605 - a constant command
        for line in answer:
            pid, parent, state, start = line.split(None, 3)
            found[int(pid)] = (int(parent), start.strip(), state[0])
    return found


class Warden:
    """One command, from its start to the end of the last process of its tree."""

    def __init__(
        self,
        lifeline: int,
        report: int,
        grace_s: float,
        *,
        adopts: bool,
        within: int = 0,
        monitored: bool = False,
    ) -> None:
        self.adopts = adopts
        self.within = within
        self.monitored = monitored
        # Whether the confinement itself could not be had: then the command never began.
        self.refused = False
        self.lifeline = lifeline
        self.report = report
        self.grace_s = grace_s
        self.child = 0
        self.status: int | None = None
        # What a signal asked for, as if it had come down the lifeline.
        self.told = ""
        # What ARGV left running when it ended by itself, and the end of ARGV where its monitor is held back.
        self.left: list[tuple[int, str]] = []
        self.ending = -1
        self.cut_short: float | None = None
        # Where there is no adoption: what was once seen in the tree, by PID and start.
        self.known: dict[int, str] = {}

    # --- the tree ---

    def tree(self) -> dict[int, str]:
        """The living processes below us: PID to start."""
        everything = _processes()
        children: dict[int, list[int]] = {}
        for pid, (parent, _, _) in everything.items():
            children.setdefault(parent, []).append(pid)
        found: dict[int, str] = {}
        todo = [os.getpid()]
        todo += [
            pid for pid, start in self.known.items() if pid in everything and everything[pid][1] == start
        ]
        seen = set(todo[:1])
        while todo:
            at = todo.pop()
            for pid in children.get(at, ()):
                if pid not in seen:
                    seen.add(pid)
                    todo.append(pid)
            if at != os.getpid() and everything[at][2] not in "ZXx":
                found[at] = everything[at][1]
        if not LINUX:
            self.known.update(found)
        return found

    def signal(self, pid: int, start: str, number: int) -> None:
        """Signal that very process; a PID that was given away in between is left alone."""
        try:
            if hasattr(os, "pidfd_open"):
                fd = os.pidfd_open(pid)
                try:
                    now = _processes_one(pid)
                    if now is None or now == start:
                        signal.pidfd_send_signal(fd, number)
                finally:
                    os.close(fd)
            else:
                os.kill(pid, number)
        except OSError:
            return  # it is gone, or it is not ours to signal; who is left is counted at the end

    def reap(self) -> bool:
        """Collect whoever has ended; whether there may be more. The command's own status is kept."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                # No child left. Who adopts all orphans then has no descendant either.
                return not self.adopts
            if pid == 0:
                return True
            if pid == self.child:
                self.status = status

    def end_tree(self, grace_s: float) -> int:
        """End everything below us; how many could not be ended."""
        if not self.reap():
            return 0
        living = self.tree()
        if living and grace_s > 0:
            for pid, start in living.items():
                # A monitor that ends takes everything inside with it, at once.
                if not (self.monitored and pid == self.child):
                    self.signal(pid, start, signal.SIGTERM)
                self.signal(pid, start, signal.SIGCONT)
            self._until_gone(grace_s, signal_again=False)
        return self._until_gone(KILL_PATIENCE_S, signal_again=True)

    def _until_gone(self, limit_s: float, *, signal_again: bool) -> int:
        deadline = time.monotonic() + limit_s
        pause = 0.002
        while True:
            if not signal_again:
                deadline = min(deadline, self.patience())
            living = self.tree() if self.reap() else {}
            if not living or time.monotonic() >= deadline:
                self.reap()
                return len(living)
            if signal_again:
                # Stopped first, so that nobody forks a successor while the others are being killed.
                for number in (signal.SIGSTOP, signal.SIGKILL):
                    for pid, start in living.items():
                        self.signal(pid, start, number)
            elif self._hurried():
                deadline = min(deadline, time.monotonic() + ORPHANED_GRACE_S)
            time.sleep(pause)
            pause = min(0.05, pause * 2)

    def _hurried(self) -> bool:
        """Whether nobody waits for a polite end any more: the caller is gone, or wants it now."""
        ready, _, _ = select.select([self.lifeline], [], [], 0)
        return bool(ready) and os.read(self.lifeline, 1) != b"T"

    def patience(self) -> float:
        """Until when politeness may last at most, by what has come down the lifeline meanwhile."""
        if self.cut_short is None and select.select([self.lifeline], [], [], 0)[0]:
            word = os.read(self.lifeline, 1)
            if word != b"T":
                self.cut_short = time.monotonic() + (0.0 if word else ORPHANED_GRACE_S)
        return float("inf") if self.cut_short is None else self.cut_short

    # --- the run ---

    def start(self, argv: list[str]) -> OSError | None:
        """Start the command in a session of its own; the error if it cannot be."""
        reader, writer = os.pipe()
        if self.within:
            enter = [sys.executable, "-I", "-S", os.path.abspath(__file__), "enter", str(writer), "--"]  # noqa: PTH100
            argv = [*argv[: self.within], *enter, *argv[self.within :]]
        self.child = os.fork()
        if self.child == 0:
            os.set_inheritable(writer, bool(self.within))
            _become(argv, writer)
        os.close(writer)
        said = b""
        while word := os.read(reader, 16):
            said += word
            if self.monitored and said == INSIDE:
                self.hold_monitor()
        os.close(reader)
        self.refused = bool(self.within) and not said.startswith(INSIDE)
        number = said.removeprefix(INSIDE)
        if not number:
            return None
        self.reap()
        return OSError(int(number), os.strerror(int(number)))

    def hold_monitor(self) -> None:
        """Let the confinement's first process stand still until ARGV ends; where that cannot be, nobody is named."""
        try:
            (first,) = _children(self.child)
            inside = _children(first)[0]
            self.ending = os.pidfd_open(inside)
            os.kill(self.child, signal.SIGSTOP)
        except (OSError, ValueError, IndexError, AttributeError):
            return

    def ended_inside(self) -> None:
        """ARGV has ended: name what it left, and let the confinement end with all of that."""
        os.close(self.ending)
        self.ending = -1
        self.name_left(not_counted={self.child, *_children(self.child)})
        os.kill(self.child, signal.SIGCONT)

    def name_left(self, not_counted: set[int]) -> None:
        """Remember who runs on though ARGV has ended."""
        deadline = time.monotonic() + ENDING_S
        while found := [pid for pid in self.tree() if pid not in not_counted]:
            if time.monotonic() >= deadline:
                self.left = [(pid, _command(pid)) for pid in sorted(found)[:LEFT_MAX]]
                return
            time.sleep(0.005)
            self.reap()

    def watch(self, wake: int) -> str:
        """Wait for the command's end or for word from above; what it was: ``ended``, T, K or ``orphaned``."""
        while True:
            self.reap()
            if self.status is not None:
                return "ended"
            held = [self.ending] if self.ending >= 0 else []
            ready, _, _ = select.select([self.lifeline, wake, *held], [], [], None if LINUX else MAC_LOOK_S)
            if held and held[0] in ready:
                self.ended_inside()
            if wake in ready:
                os.read(wake, 4096)
            if self.told:
                return self.told
            if self.lifeline in ready:
                return os.read(self.lifeline, 1).decode("ascii", "replace") or "orphaned"
            if not LINUX:
                self.tree()

    def grace_for(self, why: str) -> float:
        return {
            "ended": min(self.grace_s, LEFTOVER_GRACE_S),
            "T": self.grace_s,
            "orphaned": ORPHANED_GRACE_S,
        }.get(why, 0.0)

    def tell(self, error: OSError | None, survivors: int) -> None:
        """One line of JSON; nobody may be there to read it."""
        import resource

        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        exit_code = "null" if self.status is None else str(_exit_code(self.status))
        number = 0 if error is None else error.errno or 0
        line = (
            f'{{"exit": {exit_code}, "errno": {number}, "survivors": {survivors}, '
            f'"refused": {int(self.refused)}, "cpu_s": {used.ru_utime + used.ru_stime:.3f}, '
            f'"left": [{", ".join(_quoted(f"{pid} {command}") for pid, command in self.left)}]}}\n'
        )
        try:
            os.write(self.report, line.encode())
        except OSError:
            return


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", "rb") as stream:  # noqa: PTH123
        return [int(word) for word in stream.read().split()]


def _command(pid: int) -> str:
    """Its command line, short; what it was started as where that is empty."""
    if not LINUX:
        with os.popen(f"ps -o command= -p {pid}") as answer:  # noqa: S605 - a number in a constant command
            return answer.read(LEFT_CHARS).strip()
    for name, end in (("cmdline", b"\0"), ("comm", b"\n")):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as stream:  # noqa: PTH123
                said = stream.read(LEFT_CHARS)
        except OSError:
            continue
        if said:
            return said.rstrip(end).replace(b"\0", b" ").decode("utf-8", "replace")
    return "?"


def _quoted(text: str) -> str:
    """*text* as JSON, in ASCII: the library for that would be loaded for every command."""
    return (
        '"'
        + "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\u{min(ord(c), 0xFFFD):04x}" for c in text)
        + '"'
    )


def _processes_one(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123
            raw = stream.read()
    except OSError:
        return None
    return raw[raw.rfind(b")") + 2 :].split()[19].decode()


def _exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _become(argv: list[str], writer: int) -> None:
    """In the forked child: a session of its own, signals as a fresh program expects them, then ARGV."""
    try:
        if os.getsid(0) != os.getpid():
            os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (
            signal.SIGPIPE,
            signal.SIGXFSZ,
            signal.SIGCHLD,
            signal.SIGTERM,
            signal.SIGINT,
            signal.SIGHUP,
            signal.SIGQUIT,
        ):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.execvp(argv[0], argv)  # noqa: S606 - there is no shell on purpose
    except OSError as error:
        os.write(writer, str(error.errno).encode())
    finally:
        os._exit(127)


def bound_files(size: int) -> None:
    """No file may grow beyond *size* from here on, ours included; we write none."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    size = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def enter(writer: int, argv: list[str]) -> None:
    """Inside a confinement: say that we got there, then become ARGV."""
    os.set_inheritable(writer, False)
    os.write(writer, INSIDE)
    _become(argv, writer)


def main(arguments: list[str]) -> int:
    cut = arguments.index("--")
    argv = arguments[cut + 1 :]
    if arguments[0] == "enter":
        enter(int(arguments[1]), argv)
    lifeline, report = int(arguments[0]), int(arguments[1])
    grace_s = float(arguments[2])
    options = dict(word.partition("=")[::2] for word in arguments[3:cut])
    for fd in (lifeline, report):
        os.set_inheritable(fd, False)
    wake, wake_writer = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Only word from above ends us early; a terminal's or a stranger's signal must not leave the tree alone.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    if "file" in options:
        bound_files(int(options["file"]))
    warden = Warden(
        lifeline,
        report,
        grace_s,
        adopts=become_subreaper(),
        within=int(options.get("within", 0)),
        monitored="monitored" in options,
    )
    signal.signal(signal.SIGTERM, lambda *_: setattr(warden, "told", "T"))
    error = warden.start(argv)
    for stream in (0, 1, 2):
        os.close(stream)
    why = "ended" if error is not None else warden.watch(wake)
    if why == "ended" and error is None and not warden.monitored:
        warden.name_left(not_counted=set())
    survivors = warden.end_tree(warden.grace_for(why))
    warden.tell(error, survivors)
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from school.errors import LockLost, LockTimeout, MachineError
from school.system import files, identity
from school.system.locks import KernelLock, OwnedLock, Owner, held_elsewhere, holder
from tests.system.support import python, python_result, until

HOLD = """
    import sys, time
    from school.system.locks import KernelLock, OwnedLock
    lock = OwnedLock(sys.argv[1] + "/bead.lock", sys.argv[1] + "/.guard")
    assert lock.acquire(5, "holding")
    print("held", flush=True)
    sys.stdin.readline()
    lock.release()
"""


def lock_in(directory: Path) -> OwnedLock:
    return OwnedLock(directory / "bead.lock", directory / ".guard")


def dead_owner() -> Owner:
    mine = identity.this_process("dead")
    return replace(mine, start=str(int(mine.start) - 1))


@pytest.fixture
def locks(tmp_path) -> Path:
    return files.ensure_dir(tmp_path / "locks")


# --- the owned lock -------------------------------------------------------------------------------------------


def test_a_lock_says_who_holds_it_and_goes_without_a_trace(locks):
    lock = lock_in(locks)
    assert lock.owner() is None
    assert lock.acquire(0, "reviewing")
    owner = lock_in(locks).owner()
    assert (owner.pid, owner.purpose) == (os.getpid(), "reviewing")
    assert not lock_in(locks).acquire(0)
    lock.release()
    assert not lock.held
    assert {path.name for path in locks.iterdir()} <= {".guard.turn"}


def test_timeout_zero_tries_once_and_a_wait_ends_on_time(locks):
    (locks / "bead.lock").write_text(identity.this_process().text)
    begun = time.monotonic()
    assert not lock_in(locks).acquire(0)
    assert not lock_in(locks).acquire(-1)
    assert time.monotonic() - begun < 0.2
    begun = time.monotonic()
    assert not lock_in(locks).acquire(0.2)
    assert 0.2 <= time.monotonic() - begun < 0.6
    assert [path for path in locks.iterdir() if path.suffix == ".tmp"] == []


def test_the_context_waits_and_names_the_holder_when_it_gives_up(locks, monkeypatch):
    monkeypatch.setattr("school.system.locks.TIMEOUT_S", 0.05)
    with lock_in(locks) as lock:
        assert lock.held
        with (
            pytest.raises(LockTimeout, match=rf"bead\.lock: not had within .* process {os.getpid()}"),
            lock_in(locks),
        ):
            pytest.fail("two owners")
    assert not (locks / "bead.lock").exists()


def test_a_waiter_gets_it_soon_after_the_release(locks):
    lock = lock_in(locks)
    assert lock.acquire(0)
    had: list[float] = []

    def wait() -> None:
        other = lock_in(locks)
        assert other.acquire(5)
        had.append(time.monotonic())
        other.release()

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert until((locks / ".guard.turn").exists)
    released = time.monotonic()
    lock.release()
    waiter.join()
    assert had[0] - released < 0.5


def test_release_leaves_what_is_not_its_own(locks):
    lock = lock_in(locks)
    with pytest.raises(LockLost, match="not held"):
        lock.release()
    lock.acquire(0)
    (locks / "bead.lock").unlink()
    with pytest.raises(LockLost, match="it is gone"):
        lock.release()
    lock.acquire(0)
    files.write_atomic(locks / "bead.lock", identity.this_process("successor").text.encode())
    with pytest.raises(LockLost, match=r"lost to process \d+ on .* \(successor\)"):
        lock.release()
    assert "successor" in (locks / "bead.lock").read_text()


def test_a_forked_child_neither_holds_nor_releases(locks):
    code = """
        import os, sys
        from school.errors import LockLost
        from school.system.locks import KernelLock, OwnedLock
        here = sys.argv[1]
        lock = OwnedLock(here + "/bead.lock", here + "/.guard")
        kernel = KernelLock(here + "/kernel")
        assert lock.acquire(0) and kernel.try_acquire()
        pid = os.fork()
        if pid == 0:
            lost = 0
            for one in (lock, kernel):
                try:
                    assert not one.held
                    one.release()
                except LockLost:
                    lost += 1
            again = OwnedLock(here + "/bead.lock", here + "/.guard").acquire(0)
            os._exit(lost + (again or KernelLock(here + "/kernel").try_acquire()) * 10)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), lock.held, kernel.held)
        assert not KernelLock(here + "/kernel").try_acquire()
        lock.release()
        kernel.release()
    """
    assert python_result(code, locks) == "2 True True"


def test_an_interrupted_acquire_leaves_no_lock(locks, monkeypatch):
    real = os.link

    def link(*args, **kwargs):
        real(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(KeyboardInterrupt):
        lock_in(locks).acquire(0)
    assert list(locks.iterdir()) == []


@pytest.mark.crash
def test_a_killed_holder_loses_it_within_milliseconds(locks):
    lock = lock_in(locks)
    lock.acquire(0)
    lock.release()
    times = []
    for _ in range(3):
        process = python(HOLD, locks)
        assert process.stdout.readline() == "held\n"
        assert not lock.acquire(0)
        process.kill()
        process.wait()
        begun = time.monotonic()
        assert lock.acquire(0)
        times.append(time.monotonic() - begun)
        lock.release()
        process.communicate()
    assert min(times[1:]) < 0.02


def test_the_record_of_a_zombie_is_taken(locks):
    process = python(HOLD, locks)
    assert process.stdout.readline() == "held\n"
    os.kill(process.pid, signal.SIGKILL)
    assert until(lambda: identity.look(process.pid).zombie)
    assert lock_in(locks).acquire(0)
    process.communicate()


@pytest.mark.parametrize("kind", ["earlier start", "earlier boot", "absent pid", "bare absent pid"])
def test_records_of_the_dead_are_taken_at_once(locks, kind):
    mine = identity.this_process()
    text = {
        "earlier start": dead_owner().text,
        "earlier boot": replace(mine, boot="another").text,
        "absent pid": replace(mine, pid=2**22 + 1).text,
        "bare absent pid": f"{2**22 + 1}\n",
    }[kind]
    (locks / "bead.lock").write_text(text)
    assert lock_in(locks).acquire(0)
    assert lock_in(locks).owner().pid == os.getpid()


@pytest.mark.parametrize("kind", ["own pid", "init", "bare own pid", "another host", "another namespace"])
def test_records_of_the_living_and_of_strangers_are_never_taken(locks, kind):
    mine = identity.this_process()
    text = {
        "own pid": mine.text,
        "init": "1\n",
        "bare own pid": f"{os.getpid()}\n",
        "another host": replace(mine, host="elsewhere", pid=2**22 + 1, boot="another").text,
        "another namespace": replace(mine, pidns="1", pid=2**22 + 1).text,
    }[kind]
    path = locks / "bead.lock"
    path.write_text(text)
    os.utime(path, (1, 1))  # its age is no proof of anything
    assert not lock_in(locks).acquire(0.05)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "content", ["", "garbage", "0\n", "-1\n", "\0" * 4096, "123\nstart=4\nbo", "9" * 5000]
)
def test_what_names_nobody_is_taken_by_age_alone(locks, content):
    path = locks / "bead.lock"
    path.write_text(content)
    assert not lock_in(locks).acquire(0.05)
    os.utime(path, (time.time() - 6, time.time() - 6))
    assert lock_in(locks).acquire(0)


def test_a_directory_in_its_place_is_put_aside_with_what_is_in_it(locks):
    for content in ("", "precious"):
        path = locks / "bead.lock"
        path.mkdir()
        if content:
            (path / "file").write_text(content)
        os.utime(path, (1, 1))
        lock = lock_in(locks)
        assert lock.acquire(0)
        lock.release()
    (kept,) = locks.glob("*.taken")
    assert (kept / "file").read_text() == "precious"


def test_a_link_in_its_place_names_nobody(locks, tmp_path):
    (tmp_path / "victim").write_text(f"{2**22 + 1}\n")
    (locks / "bead.lock").symlink_to(tmp_path / "victim")
    os.utime(locks / "bead.lock", (1, 1), follow_symlinks=False)
    assert lock_in(locks).acquire(0)
    assert (tmp_path / "victim").read_text() == f"{2**22 + 1}\n"


def test_a_time_stamp_in_the_future_does_not_wedge_it(locks, monkeypatch):
    monkeypatch.setattr("school.system.locks.GARBLED_AGE_S", 0.2)
    path = locks / "bead.lock"
    path.write_text("")
    future = time.time() + 1_000_000
    os.utime(path, (future, future))
    begun = time.monotonic()
    assert lock_in(locks).acquire(5)
    assert 0.2 <= time.monotonic() - begun < 2


def test_a_garbled_file_that_changes_is_waited_for(locks, monkeypatch):
    monkeypatch.setattr("school.system.locks.GARBLED_AGE_S", 0.3)
    path = locks / "bead.lock"
    path.write_text("")
    stop = threading.Event()

    def touch() -> None:
        while not stop.wait(0.05):
            os.utime(path)

    toucher = threading.Thread(target=touch)
    toucher.start()
    try:
        assert not lock_in(locks).acquire(0.6)
    finally:
        stop.set()
        toucher.join()


def test_nobody_takes_over_while_the_guard_is_held_and_one_does_afterwards(locks):
    (locks / "bead.lock").write_text(dead_owner().text)
    guard = KernelLock(locks / ".guard", show_owner=False)
    assert guard.acquire(1)
    begun = time.monotonic()
    assert not lock_in(locks).acquire(0.1)
    assert time.monotonic() - begun < 0.5
    won = []

    def race() -> None:
        if lock_in(locks).acquire(0.3):
            won.append(1)

    racers = [threading.Thread(target=race) for _ in range(4)]
    for racer in racers:
        racer.start()
    guard.release()
    for racer in racers:
        racer.join()
    assert len(won) == 1


def test_a_takeover_proves_again_under_the_guard(locks, monkeypatch):
    # The dead one's successor came between the first look and the guard.
    path = locks / "bead.lock"
    path.write_text(dead_owner().text)
    living = identity.this_process("successor").text
    real = KernelLock.acquire

    def acquire(self, *args, **kwargs):
        path.write_text(living)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(KernelLock, "acquire", acquire)
    assert not lock_in(locks).acquire(0)
    assert path.read_text() == living


@pytest.mark.crash
def test_a_storm_with_a_dead_owner_each_round_has_one_owner_and_loses_no_update(locks):
    rounds, racers = 80, 4
    code = """
        import sys
        from pathlib import Path
        from school.system import files
        from school.system.locks import OwnedLock
        here = Path(sys.argv[1])
        lock = OwnedLock(here / "bead.lock", here / ".guard")
        for line in sys.stdin:
            assert lock.acquire(30)
            inside = here / "inside"
            inside.touch(exist_ok=False)
            count = files.read_json(here / "count.json") + 1
            files.write_plain(here / "count.json", files.dumps(count))
            inside.unlink()
            lock.release()
            print("done", flush=True)
    """
    files.write_json(locks / "count.json", 0)
    processes = [python(code, locks) for _ in range(racers)]
    dead = dead_owner().text
    for _ in range(rounds):
        (locks / "planted").write_text(dead)
        (locks / "planted").rename(locks / "bead.lock")
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.stdout.readline() for process in processes] == ["done\n"] * racers
    for process in processes:
        process.communicate(timeout=30)
        assert process.returncode == 0
    assert files.read_json(locks / "count.json") == rounds * racers


def test_a_removed_lock_directory_is_made_again(locks):
    lock = lock_in(locks)
    files.remove_tree(locks)
    assert lock.acquire(0)
    lock.release()
    (locks / "bead.lock").write_text(identity.this_process().text)
    had = []
    waiter = threading.Thread(target=lambda: had.append(lock_in(locks).acquire(5)))
    waiter.start()
    assert until((locks / ".guard.turn").exists)
    locks.rename(locks.with_name("old"))
    waiter.join()
    assert had == [True]


def test_no_hard_links_and_unreadable_locks_are_said_clearly(locks, monkeypatch):
    def refused(*_args, **_kwargs):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refused)
        with pytest.raises(MachineError, match=r"bead\.lock: cannot lock \(hard links are needed\)"):
            lock_in(locks).acquire(0)
    assert list(locks.iterdir()) == []
    code = """
        import os, sys
        from school.errors import MachineError
        from school.system.locks import OwnedLock
        from school.system.identity import this_process
        this_process()
        os.chdir(sys.argv[1])
        if os.geteuid() == 0:
            os.chown(".", 65534, 65534)
            os.setegid(65534)
            os.seteuid(65534)
        try:
            OwnedLock("bead.lock", ".guard").acquire(5)
        except MachineError as error:
            print(error)
    """
    if os.geteuid() == 0:
        (locks / "bead.lock").write_text("1\n")
        (locks / "bead.lock").chmod(0o400)
        assert python_result(code, locks) == "bead.lock: cannot read a lock: Permission denied"


class OwnedLockMachine(RuleBasedStateMachine):
    """Three contenders and everything that happens to lock files, against a model of who owns it."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.directory = tempfile.TemporaryDirectory()
        self.locks = Path(self.directory.name)
        self.path = self.locks / "bead.lock"
        self.contenders = [lock_in(self.locks) for _ in range(3)]
        self.owner: int | str | None = None

    def teardown(self) -> None:
        self.directory.cleanup()

    def forget(self) -> None:
        self.contenders = [lock_in(self.locks) if lock.held else lock for lock in self.contenders]

    @rule(who=strategies.integers(0, 2))
    def acquire(self, who: int) -> None:
        if self.contenders[who].held:
            return
        free = self.owner in (None, "dead", "old garbage")
        assert self.contenders[who].acquire(0) == free
        if free:
            self.owner = who

    @rule(who=strategies.integers(0, 2))
    def release(self, who: int) -> None:
        if self.owner == who:
            self.contenders[who].release()
            self.owner = None
        elif self.contenders[who].held or self.path.exists():
            before = self.path.read_bytes() if self.path.exists() else None
            with pytest.raises(LockLost):
                self.contenders[who].release()
            assert (self.path.read_bytes() if self.path.exists() else None) == before

    @precondition(lambda self: isinstance(self.owner, int))
    @rule(change=strategies.sampled_from(["start", "boot"]))
    def owner_dies(self, change: str) -> None:
        written = Owner.parse(self.path.read_text())
        self.path.write_text(replace(written, **{change: "7"}).text)
        self.forget()
        self.owner = "dead"

    @precondition(lambda self: isinstance(self.owner, int))
    @rule(change=strategies.sampled_from(["host", "pidns"]))
    def owner_turns_out_to_be_foreign(self, change: str) -> None:
        written = Owner.parse(self.path.read_text())
        self.path.write_text(replace(written, **{change: "other", "start": "7"}).text)
        self.forget()
        self.owner = "foreign"

    @rule(content=strategies.sampled_from(["", "x", "0\n"]), old=strategies.booleans())
    def somebody_plants_garbage(self, content: str, old: bool) -> None:
        self.path.write_text(content)
        when = time.time() - (60 if old else 0)
        os.utime(self.path, (when, when))
        self.forget()
        self.owner = "old garbage" if old else "new garbage"

    @rule(dead=strategies.booleans())
    def an_older_program_locks(self, dead: bool) -> None:
        self.path.write_text(f"{2**22 + 1 if dead else 1}\n")
        self.forget()
        self.owner = "dead" if dead else "living"

    @rule()
    def somebody_removes_it(self) -> None:
        self.path.unlink(missing_ok=True)
        self.forget()
        self.owner = None

    @invariant()
    def at_most_one_holds(self) -> None:
        held = [number for number, lock in enumerate(self.contenders) if lock.held]
        assert held == ([self.owner] if isinstance(self.owner, int) else [])
        assert [path for path in self.locks.iterdir() if path.suffix == ".tmp"] == []


TestOwnedLockMachine = OwnedLockMachine.TestCase
TestOwnedLockMachine.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


# --- the kernel lock ------------------------------------------------------------------------------------------


def test_a_kernel_lock_is_exclusive_shows_its_holder_and_keeps_its_file(tmp_path):
    path = tmp_path / "new" / "role.lock"
    assert not held_elsewhere(path)
    lock = KernelLock(path)
    assert lock.try_acquire("cto")
    assert lock.held
    inode = path.stat().st_ino
    assert not KernelLock(path).try_acquire()
    assert not KernelLock(path).acquire(0.05)
    assert (holder(path).pid, holder(path).purpose) == (os.getpid(), "cto")
    assert not held_elsewhere(path)
    lock.release()
    assert holder(path) is None
    with pytest.raises(LockLost):
        lock.release()
    for _ in range(200):
        with KernelLock(path):
            pass
    assert path.stat().st_ino == inode


@pytest.mark.crash
def test_a_killed_holder_of_a_kernel_lock_frees_it(tmp_path):
    path = tmp_path / "role.lock"
    code = """
        import sys
        from school.system.locks import KernelLock
        lock = KernelLock(sys.argv[1])
        print(lock.try_acquire("teacher cto"), flush=True)
        sys.stdin.readline()
    """
    process = python(code, path)
    assert process.stdout.readline() == "True\n"
    assert held_elsewhere(path)
    assert holder(path).pid == process.pid
    assert not KernelLock(path).try_acquire()
    process.kill()
    process.wait()
    assert not held_elsewhere(path)
    assert holder(path) is None
    assert KernelLock(path).try_acquire()
    process.communicate()


def test_a_child_does_not_inherit_a_kernel_lock(tmp_path):
    import sys

    path = tmp_path / "role.lock"
    lock = KernelLock(path)
    lock.try_acquire()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    lock.release()
    assert KernelLock(path).try_acquire()
    process.communicate()


def test_a_look_does_not_make_a_taker_fail(tmp_path):
    path = tmp_path / "role.lock"
    path.touch()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            held_elsewhere(path)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for _ in range(50):
            with open(path, "rb"):  # noqa: PTH123 - another description of the same file, like another process's
                lock = KernelLock(path)
                assert lock.try_acquire()
                lock.release()
    finally:
        stop.set()
        looker.join()


def test_eight_processes_that_come_and_go_lock_one_and_the_same_file(tmp_path):
    """Who removed the file at release would leave a waiter with a lock on nothing."""
    code = """
        import os, sys
        from pathlib import Path
        from school.system.locks import KernelLock
        here = Path(sys.argv[1])
        for _ in range(100):
            lock = KernelLock(here / "role.lock")
            assert lock.acquire(60)
            count = int((here / "count").read_text())
            (here / "count").write_text(str(count + 1))
            with open(here / "inodes", "a") as seen:
                seen.write(f"{os.stat(here / 'role.lock').st_ino}\\n")
            lock.release()
    """
    (tmp_path / "count").write_text("0")
    racers = [python(code, tmp_path) for _ in range(8)]
    for racer in racers:
        racer.communicate(timeout=60)
    assert [racer.returncode for racer in racers] == [0] * 8
    assert (tmp_path / "count").read_text() == "800"
    assert len(set((tmp_path / "inodes").read_text().split())) == 1


@pytest.mark.parametrize("content", ["a living stranger", "another boot", "", "garbage", "\0" * 4096])
def test_whatever_the_file_of_a_kernel_lock_says_only_the_kernel_holds_it(tmp_path, content):
    path = tmp_path / "conductor.lock"
    stranger = subprocess.Popen(["sleep", "60"])
    owner = identity.identity(stranger.pid)
    said = {"a living stranger": owner.text, "another boot": replace(owner, boot="another").text}
    for name in (path, path.with_name(path.name + ".owner")):
        name.write_text(said.get(content, content))
    assert KernelLock(path).try_acquire("conductor")
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_file_system_without_flock_is_an_error_at_once(tmp_path, monkeypatch):
    def missing(*_args):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", missing)
    begun = time.monotonic()
    with pytest.raises(MachineError, match=r"role\.lock: cannot lock with flock"):
        KernelLock(tmp_path / "role.lock").acquire(5)
    assert time.monotonic() - begun < 1


def test_the_modules_everybody_imports_bring_no_library_with_them():
    code = """
        import sys
        from school.system import clock, files, git, identity, locks, processes, watch, log
        print([name for name in ("watchdog", "structlog", "pydantic", "filelock", "psutil") if name in sys.modules])
    """
    assert python_result(code) == "[]"

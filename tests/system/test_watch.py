from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import watchdog.observers

from school.errors import MachineError
from school.system import files
from school.system.watch import Watcher, file_system_type
from tests.support import ROOT
from tests.system.support import on_small_disk, python


def settle(watcher: Watcher) -> None:
    """Let what is still under way arrive."""
    while watcher.wait(0.05):
        continue


def test_the_first_look_needs_no_event_and_quiet_is_quiet(tmp_path):
    with Watcher(tmp_path / "signals", rescan_s=60) as watcher:
        assert (watcher.mode, watcher.reason) == ("inotify", "")
        assert watcher.wait(5)
        begun = time.monotonic()
        assert not watcher.wait(0.1)
        assert 0.1 <= time.monotonic() - begun < 1
        assert not watcher.wait(0)


@pytest.mark.parametrize("act", ["create", "replace", "append", "remove", "touch"])
def test_every_change_wakes_soon(tmp_path, act):
    path = tmp_path / "signals" / "bead.ready"
    files.write_atomic(path, b"old")
    acts = {
        "create": (path.parent / "other.ready").touch,
        "replace": lambda: files.write_atomic(path, b"new"),
        "append": lambda: path.open("ab").close() or path.write_bytes(b"x"),
        "remove": path.unlink,
        "touch": lambda: os.utime(path),
    }
    with Watcher(path.parent, rescan_s=60) as watcher:
        watcher.wait(0)
        settle(watcher)
        threading.Timer(0.02, acts[act]).start()
        begun = time.monotonic()
        assert watcher.wait(10)
        assert time.monotonic() - begun < 2


def test_our_own_looking_does_not_wake_us(tmp_path):
    (tmp_path / "bead.ready").write_text("x")
    with Watcher(tmp_path, rescan_s=60) as watcher:
        watcher.wait(0)
        settle(watcher)
        os.listdir(tmp_path)  # noqa: PTH208
        (tmp_path / "bead.ready").read_text()
        assert not watcher.wait(0.1)


def test_a_change_before_the_first_wait_is_not_missed(tmp_path):
    with Watcher(tmp_path, rescan_s=60) as watcher:
        assert watcher.wait(0)
        (tmp_path / "early").touch()
        assert watcher.wait(5)


def test_it_is_worth_looking_at_every_rescan_even_without_events(tmp_path):
    with Watcher(tmp_path, rescan_s=0.1) as watcher:
        watcher.wait(0)
        begun = time.monotonic()
        assert watcher.wait(10)
        assert time.monotonic() - begun < 1


def test_wake_from_a_thread_and_from_a_signal_handler(tmp_path):
    with Watcher(tmp_path, rescan_s=60) as watcher:
        watcher.wait(0)
        threading.Timer(0.02, watcher.wake).start()
        assert watcher.wait(10)
        before = signal.signal(signal.SIGUSR1, lambda *_: watcher.wake())
        try:
            threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            assert watcher.wait(10)
        finally:
            signal.signal(signal.SIGUSR1, before)
        for _ in range(100_000):  # more than a pipe holds
            watcher.wake()
        assert watcher.wait(0)
        assert not watcher.wait(0)
    watcher.wake()  # a handler may still call it afterwards


def test_a_directory_that_is_made_again_is_watched_again(tmp_path):
    directory = tmp_path / "signals"
    with Watcher(directory, rescan_s=60) as watcher:
        watcher.wait(0)
        for _ in range(2):
            shutil.rmtree(directory)
            assert watcher.wait(5)
            assert directory.is_dir()
            settle(watcher)
            (directory / "bead.ready").touch()
            assert watcher.wait(5)
            settle(watcher)
        directory.rename(tmp_path / "moved")
        assert watcher.wait(5)
        settle(watcher)
        (directory / "bead.ready").touch()
        assert watcher.wait(5)


@pytest.mark.parametrize(
    ("number", "name"),
    [(errno.EMFILE, "max_user_instances"), (errno.ENOSPC, "max_user_watches"), (errno.ENOSYS, "")],
)
def test_without_inotify_it_is_worth_looking_every_second(tmp_path, monkeypatch, number, name):
    class Refusing(watchdog.observers.Observer):
        def start(self) -> None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(watchdog.observers, "Observer", Refusing)
    monkeypatch.setattr("school.system.watch.POLL_S", 0.1)
    with Watcher(tmp_path, rescan_s=60) as watcher:
        assert watcher.mode == "poll"
        assert os.strerror(number) in watcher.reason
        assert name in watcher.reason
        assert watcher.wait(0)
        begun = time.monotonic()
        assert watcher.wait(10)
        assert 0.1 <= time.monotonic() - begun < 1


def test_real_limits_of_the_system_lead_to_poll_mode(tmp_path):
    code = """
        import resource, sys
        from pathlib import Path
        import watchdog.observers, watchdog.events
        from school.system.watch import Watcher
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        held = []
        try:
            while True:
                held.append(open("/dev/null"))
        except OSError:
            held[-2:] = []  # two are left: for the watcher's own pipe, and none for inotify
        with Watcher(Path(sys.argv[1]), rescan_s=5) as watcher:
            print(watcher.mode, watcher.reason)
    """
    process = python(code, tmp_path)
    assert process.communicate(timeout=30)[0].startswith("poll inotify cannot be had: ")


def test_no_instance_of_inotify_left_means_poll_mode_and_all_is_found_within_its_bound(tmp_path):
    code = """
        import sys, time
        from pathlib import Path
        from school.system.watch import Watcher
        here = Path(sys.argv[1])
        with Watcher(here, rescan_s=60) as watcher:
            print(watcher.mode, "max_user_instances" in watcher.reason)
            watcher.wait(0)
            (here / "bead").touch()
            begun = time.monotonic()
            print(watcher.wait(10), time.monotonic() - begun < 3)
    """
    # The limit of a user namespace of its own: nobody else here is left without.
    limit = "echo 0 > /proc/sys/user/max_inotify_instances"
    probe = subprocess.run(["unshare", "-Ur", "sh", "-c", limit], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no user namespace with a limit of its own can be had: {probe.stderr.decode().strip()}")
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", f'{limit}; exec "$@"', "sh", sys.executable, "-c", textwrap.dedent(code), tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["poll", "True", "True", "True"]


def test_after_a_real_overflow_what_came_unseen_is_found_within_its_bound(tmp_path):
    code = """
        import sys, time
        from pathlib import Path
        from school.system.watch import Watcher
        here, last = Path(sys.argv[1]), Path(sys.argv[1]) / "last"
        with Watcher(here, rescan_s=0.5) as watcher:
            print(watcher.mode, flush=True)
            end = time.monotonic() + 30
            while time.monotonic() < end and not (watcher.wait(1) and last.exists()):
                pass
            print(last.exists(), flush=True)
    """
    process = python(code, tmp_path)
    assert process.stdout.readline() == "inotify\n"
    # It stands still and reads nothing, while more happens than the kernel remembers for it.
    os.kill(process.pid, signal.SIGSTOP)
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    names = [os.fspath(tmp_path / name) for name in ("one", "two")]
    for number in range(
        most // 3 + 1000
    ):  # each makes, opens and closes; two in turn, for equal events are one
        os.close(os.open(names[number % 2], os.O_WRONLY | os.O_CREAT))
        os.unlink(names[number % 2])  # noqa: PTH108 - thousands
    (tmp_path / "last").touch()
    os.kill(process.pid, signal.SIGCONT)
    begun = time.monotonic()
    assert process.stdout.readline() == "True\n"
    assert time.monotonic() - begun < 10
    process.communicate()


def test_network_file_systems_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr("school.system.watch.file_system_type", lambda _: "nfs4")
    with Watcher(tmp_path, rescan_s=60) as watcher:
        assert (watcher.mode, watcher.reason) == ("poll", "nfs4: changes by others make no events here")


def test_the_type_of_a_file_system_is_known(tmp_path):
    said = on_small_disk("""
        from pathlib import Path
        from school.system.watch import file_system_type
        print(file_system_type(Path("/mnt")), file_system_type(Path("/proc")))
    """)
    assert said == "tmpfs proc"
    assert file_system_type(tmp_path)


def test_a_flood_of_events_with_a_slow_reader_loses_nothing(tmp_path):
    with Watcher(tmp_path / "signals", rescan_s=0.5) as watcher:
        watcher.wait(0)

        def flood() -> None:
            for number in range(1500):
                (tmp_path / "signals" / str(number)).touch()

        flooder = threading.Thread(target=flood)
        flooder.start()
        seen: set[str] = set()
        deadline = time.monotonic() + 30
        while len(seen) < 1500 and time.monotonic() < deadline:
            if watcher.wait(1):
                seen |= set(os.listdir(tmp_path / "signals"))  # noqa: PTH208
        flooder.join()
        assert len(seen) == 1500


def test_what_cannot_be_watched_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(MachineError, match="file"), Watcher(tmp_path / "file", rescan_s=1):
        pytest.fail("a file is no directory")


def test_a_watcher_leaves_no_thread_and_no_descriptor(tmp_path):
    with Watcher(tmp_path, rescan_s=1):
        pass
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(5):
        with Watcher(tmp_path, rescan_s=1) as watcher:
            watcher.wait(0)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from school.errors import MachineError
from school.system import confine, files, foreign, identity, processes
from school.system.processes import RunLimits
from tests.support import require_confinement
from tests.system.support import gone, on_small_disk, python, until

QUICK = RunLimits(timeout_s=20, grace_s=0.3)


@pytest.fixture(params=["plain", "confined"])
def confinement(request, tmp_path):
    """Everything here holds for a confined command as well."""
    if request.param == "plain":
        return None
    require_confinement()
    return confine.Policy(write=(tmp_path,))


@pytest.fixture
def run(tmp_path, confinement):
    """``processes.run`` with what does not matter filled in."""

    def run(*argv, limits=QUICK, marker=str(tmp_path), **kwargs):
        env = processes.child_environment(tmpdir=tmp_path)
        given = {"cwd": tmp_path, "env": env, "confinement": confinement, **kwargs}
        return processes.run(argv, limits=limits, marker=marker, **given)

    return run


@pytest.fixture
def token():
    """Digits by which the commands of one test are found, whatever they are called inside a namespace."""
    return str(int.from_bytes(os.urandom(7)))


def living(token: str) -> list[int]:
    """The processes with *token* in their command line, but for zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (folder / "cmdline").read_bytes() and not gone(int(folder.name)):
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def pids_in(path: Path, count: int) -> list[int]:
    """The *count* process numbers that processes under test have written into *path*."""
    assert until(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(word) for word in path.read_text().split()]


# --- how it ends ----------------------------------------------------------------------------------------------


def test_exit_codes_and_both_outputs(run, tmp_path):
    done = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.exit_code, done.reason, done.stdout, done.stderr) == (3, "", b"out\nerr\n", b"")
    done = run(
        "sh", "-c", "echo out; echo err >&2", output_path=tmp_path / "o" / "out", stderr_path=tmp_path / "err"
    )
    assert (done.exit_code, done.stdout, done.stderr, done.output_bytes) == (0, b"out\n", b"err\n", 8)
    assert (tmp_path / "o" / "out").read_bytes() == b"out\n"
    assert (tmp_path / "err").read_bytes() == b"err\n"
    assert done.output_sha256 == hashlib.sha256(b"out\n").hexdigest()
    assert done.survivors == 0
    assert 0 < done.duration_s < 10


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_death_by_a_signal_is_128_plus_its_number(run, number):
    assert run("sh", "-c", f"kill -{int(number)} $$").exit_code == 128 + number


def test_what_cannot_be_started_is_told_apart(run, tmp_path):
    (tmp_path / "script").write_text("echo no interpreter named")
    (tmp_path / "plain").write_text("x")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "lost").write_text("#!/no/such/interpreter\n")
    (tmp_path / "lost").chmod(0o755)
    outcomes = {name: run(name) for name in ("no-such-program", "./script", "./plain", "./lost", "/")}
    assert {name: done.reason for name, done in outcomes.items()} == {
        "no-such-program": "not_found",
        "./script": "not_executable",
        "./plain": "not_executable",
        "./lost": "not_found",
        "/": "not_executable",
    }
    assert all(done.exit_code is None and done.detail for done in outcomes.values())
    assert run("true", "x" * 3_000_000).reason == "not_executable"
    assert run("true", "a\0b").reason == "not_executable"
    with pytest.raises(MachineError, match="no such directory"):
        run("true", cwd=tmp_path / "absent")


def test_a_program_is_looked_for_on_the_path_that_it_is_given(run, tmp_path):
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    env = processes.child_environment(tmpdir=tmp_path, path_first=[tool.parent])
    done = run("tool", env=env)
    assert done.stdout == b"mine\n"


def test_standard_input_is_closed_or_holds_what_is_given(run):
    assert run("cat").stdout == b""
    assert run("sh", "-c", "test -t 0 || echo no terminal").stdout == b"no terminal\n"
    prompt = b"x" * 3_000_000
    assert run("wc", "-c", stdin=prompt).stdout.strip() == b"3000000"
    assert run("true", stdin=prompt).exit_code == 0  # it need not read it


def test_a_session_of_its_own_and_signals_as_a_fresh_program_expects(run):
    code = (
        "import os, signal; print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(),"
        " [s.name for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())])"
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        done = run(sys.executable, "-c", code)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    assert done.stdout == b"True True []\n"
    status = run("cat", "/proc/self/status").stdout.decode()
    # Signals 32 and 33 are the C library's own: no program can set them, so whatever was inherited stays.
    ours = ~(1 << 31 | 1 << 32)
    assert [
        int(line.split()[1], 16) & ours
        for line in status.splitlines()
        if line.startswith(("SigIgn", "SigCgt"))
    ] == [0, 0]


def test_no_descriptor_of_ours_reaches_the_command(run):
    mine = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(mine, True)
    try:
        listed = run("ls", "-l", "/proc/self/fd").stdout.decode()
    finally:
        os.close(mine)
    assert {line.split()[-3] for line in listed.splitlines() if "->" in line} == {
        "0",
        "1",
        "2",
        "3",
    }  # 3 is ls's own


# --- limits ---------------------------------------------------------------------------------------------------


def test_a_time_limit_ends_even_who_ignores_the_polite_word(run):
    begun = time.monotonic()
    done = run(
        "sh", "-c", 'trap "" TERM; echo begun; while :; do sleep 60; done', limits=RunLimits(0.4, grace_s=0.2)
    )
    assert (done.exit_code, done.reason, done.survivors) == (137, "timeout", 0)
    assert done.stdout == b"begun\n"
    assert 0.4 <= time.monotonic() - begun < 4


def test_the_polite_word_comes_first(run):
    script = 'trap "echo tidied; exit 5" TERM; echo begun; while :; do sleep 0.02; done'
    done = run("sh", "-c", script, limits=RunLimits(0.4, grace_s=5))
    assert (done.exit_code, done.reason) == (5, "timeout")
    assert done.stdout.endswith(b"tidied\n")


def test_cancelling_ends_it_and_ticks_come_while_it_runs(run):
    ticks = []
    begun = time.monotonic()
    done = run(
        "sleep",
        "60",
        cancelled=lambda: time.monotonic() - begun > 1.2,
        on_tick=lambda: ticks.append(time.monotonic()),
    )
    assert (done.reason, done.exit_code) == ("cancelled", 143)
    assert 1 <= len(ticks) <= 4


def test_an_error_of_the_caller_ends_the_tree_too(run, token):
    def tick() -> None:
        raise RuntimeError("from on_tick")

    with pytest.raises(RuntimeError, match="from on_tick"):
        run("sh", "-c", f"sleep 60.{token}", on_tick=tick)
    assert living(token) == []


def test_nothing_ever_is_a_failed_start_and_silence_later_a_stall(run, tmp_path):
    limits = RunLimits(20, startup_timeout_s=0.5, stall_timeout_s=1.0, grace_s=0.2)
    assert run("sleep", "60", limits=limits, watch_dir=tmp_path).reason == "startup"
    spoke = run(
        "sh", "-c", "echo 'Do you trust this folder? [y/N]'; sleep 60", limits=limits, watch_dir=tmp_path
    )
    assert spoke.reason == "stalled"
    assert spoke.last_line == "Do you trust this folder? [y/N]"
    assert "1 s" in spoke.detail


@pytest.mark.parametrize(
    "script",
    [
        "end=$(($(date +%s%N) + 2200000000)); while [ $(date +%s%N) -lt $end ]; do :; done",
        "for n in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; touch file$n; done",
        "for n in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; echo $n; done",
    ],
    ids=["processor", "files", "output"],
)
def test_any_of_the_three_is_progress(run, tmp_path, script):
    limits = RunLimits(20, startup_timeout_s=1.7, stall_timeout_s=1.7, grace_s=0.2)
    assert run("sh", "-c", script, limits=limits, watch_dir=tmp_path).reason == ""


# --- output ---------------------------------------------------------------------------------------------------


def test_any_amount_of_output_is_drained_into_bounded_space(run, tmp_path):
    path = tmp_path / "output"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = 300_000_000
    done = run(
        "sh",
        "-c",
        f"echo first; yes | head -c {size}; echo last",
        output_path=path,
        limits=RunLimits(60, output_bytes=60_000),
    )
    assert done.exit_code == 0
    assert done.output_bytes == size + len("first\nlast\n")
    assert done.stdout.startswith(b"first\ny\ny\n")
    assert done.stdout.endswith(b"y\ny\nlast\n")
    assert b"bytes left out" in done.stdout
    assert path.read_bytes() == done.stdout
    assert len(done.stdout) < 61_000
    assert done.last_line == "last"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # KiB


def test_bytes_that_are_no_text_pass_unharmed_and_the_last_line_is_clean(run):
    done = run("printf", r"\377\376\000\303 half\n\033[31mred \007alert\033[0m\r\n\n")
    assert done.stdout.startswith(b"\xff\xfe\x00\xc3 half\n")
    assert done.last_line == "red alert"


def test_a_grandchild_that_keeps_the_output_open_delays_nothing(run, tmp_path, token):
    begun = time.monotonic()
    done = run(
        "sh",
        "-c",
        f"setsid sh -c 'echo $$ >> {tmp_path}/pids; trap \"\" TERM; sleep 60.{token}; sleep 60' & echo done; sleep 0.2",
    )
    assert done.stdout == b"done\n"
    assert time.monotonic() - begun < 5
    pids_in(tmp_path / "pids", 1)
    assert living(token) == []


def test_a_disk_that_fills_up_ends_the_run_and_is_named():
    said = on_small_disk("""
        import os, time
        from pathlib import Path
        from school.errors import MachineError
        from school.system import processes
        disk = Path(os.environ["DISK"])
        begun = time.monotonic()
        try:
            processes.run(["sh", "-c", "yes | head -c 3000000; sleep 60"], cwd=Path("/"), env=dict(os.environ),
                          limits=processes.RunLimits(60, grace_s=0.2), marker="m", output_path=disk / "out")
        except MachineError as error:
            print(error.errno, error, time.monotonic() - begun < 10)
    """)
    assert said == f"{errno.ENOSPC} /mnt/out: cannot keep the output: No space left on device True"


# --- trees ----------------------------------------------------------------------------------------------------

TREE = """
echo $$ >> {pids}
sleep 61.{token} & echo $! >> {pids}
setsid sh -c 'echo $$ >> {pids}; sleep 61.{token}' &
setsid sh -c '(setsid sh -c "echo \\$\\$ >> {pids}; exec sleep 61.{token}" &) ; exit' &
env -i setsid sh -c 'trap "" TERM HUP INT; echo $$ >> {pids}; sleep 61.{token}; sleep 61.{token}' &
while [ $(wc -l < {pids}) -lt 5 ]; do sleep 0.02; done
echo up
"""


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 4", 4), ("kill -9 $$", 137)])
def test_the_whole_tree_ends_with_the_command_on_success_too(run, tmp_path, token, end, code):
    pids = tmp_path / "pids"
    done = run("sh", "-c", TREE.format(pids=pids, token=token) + end)
    assert (done.exit_code, done.survivors) == (code, 0)
    assert done.stdout == b"up\n"
    pids_in(pids, 5)
    assert living(token) == []


def test_the_whole_tree_ends_at_a_limit(run, tmp_path, token):
    pids = tmp_path / "pids"
    script = TREE.format(pids=pids, token=token) + "sleep 60"
    done = run("sh", "-c", script, limits=RunLimits(1.0, grace_s=0.2))
    assert done.reason == "timeout"
    pids_in(pids, 5)
    assert living(token) == []


def test_a_confined_command_does_not_see_its_warden_and_its_whole_namespace_ends(tmp_path, token):
    require_confinement()
    script = f"setsid sleep 62.{token} & kill -9 $PPID; kill -9 -1; ls -d /proc/[0-9]* 2>/dev/null | wc -l; echo $$"
    env = processes.child_environment(tmpdir=tmp_path)
    inside = confine.Policy(write=(tmp_path,))
    begun = time.monotonic()
    done = processes.run(
        ["sh", "-c", script], cwd=tmp_path, env=env, limits=QUICK, marker="m", confinement=inside
    )
    assert (done.exit_code, done.reason, done.survivors) == (0, "", 0)
    seen, own = (int(word) for word in done.stdout.split())
    # The first process, sh, ls and wc; what was just killed may still be being buried.
    assert 3 <= seen <= 5
    assert own == 2
    assert living(token) == []
    assert time.monotonic() - begun < 5


def test_a_command_that_kills_its_warden_gains_nothing(run, tmp_path, confinement):
    if confinement is not None:
        pytest.skip("a confined command cannot name its warden: see the test before")
    pids = tmp_path / "pids"
    script = f"echo $$ >> {pids}; setsid sleep 62 & echo $! >> {pids}; kill -9 $PPID; sleep 62"
    bystander = subprocess.Popen(["sleep", "60"], env={**os.environ, "SCHOOL_MARKER": str(tmp_path)})
    done = run("sh", "-c", script)
    assert bystander.poll() is None  # the same marker, but not the same run
    bystander.kill()
    bystander.wait()
    assert done.exit_code == 137
    assert "warden" in done.detail
    assert until(lambda: all(gone(pid) for pid in pids_in(pids, 2)))


def test_a_warden_that_its_command_cannot_have_killed_is_what_our_side_lacks(
    run, tmp_path, confinement, token
):
    if confinement is None:
        pytest.skip("a command that nothing confines may have killed it: see the test before")
    script = f"sleep 63.{token} & echo ready; wait"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, "sh", "-c", script)
        assert until(lambda: living(token))
        (warden,) = [child for child in psutil.Process().children() if foreign.WARDEN in child.cmdline()]
        warden.kill()
        with pytest.raises(MachineError, match="its warden was killed"):
            running.result(20)
    assert until(lambda: living(token) == [])


def test_a_flood_of_forks_ends(run, tmp_path):
    script = f"f() {{ echo $$ >> {tmp_path}/pids; sleep 0.01; f & sleep 60; }}; f & f & sleep 0.4"
    done = run("sh", "-c", script)
    assert (done.exit_code, done.survivors) == (0, 0)


PARENT = """
    import os, sys
    from pathlib import Path
    from school.system import confine, processes
    here = Path(sys.argv[1])
    script = (here / "script").read_text()
    within = confine.Policy(write=(here,)) if sys.argv[3:] else None
    processes.run(["sh", "-c", script], cwd=here, env=dict(os.environ), marker=sys.argv[2],
                  limits=processes.RunLimits(60, grace_s=30), confinement=within)
"""


@pytest.mark.crash
@pytest.mark.parametrize("stopping", [False, True], ids=["running", "while it was being ended politely"])
def test_killing_the_parent_ends_everything_below_within_two_seconds(tmp_path, stopping, confinement, token):
    pids = tmp_path / "pids"
    (tmp_path / "script").write_text(TREE.format(pids=pids, token=token) + "sleep 60")
    marker = f"parent-killed-{token}"
    parent = python(PARENT, tmp_path, marker, *(["confined"] if confinement else []))
    pids_in(pids, 5)
    assert len(living(token)) >= 4
    if stopping:
        (warden,) = [pid for pid in processes.marked(marker) if identity.look(pid).parent == parent.pid]
        os.kill(warden, signal.SIGTERM)
    parent.kill()
    begun = time.monotonic()
    assert until(lambda: not living(token), 2.0)
    assert time.monotonic() - begun < 2
    parent.communicate()
    assert until(lambda: not processes.marked(marker))


@pytest.mark.crash
def test_marked_processes_are_found_and_ended_when_nobody_knows_them_any_more(tmp_path, confinement, token):
    pids, marker = tmp_path / "pids", f"nobody-left-{token}"
    (tmp_path / "script").write_text(TREE.format(pids=pids, token=token) + "sleep 60")
    parent = python(PARENT, tmp_path, marker, *(["confined"] if confinement else []))
    pids_in(pids, 5)
    bystander = subprocess.Popen(["sleep", "60"], env={**os.environ, "SCHOOL_MARKER": f"{marker}-2"})
    # Warden and parent at once, so that neither can do its part.
    (warden,) = [pid for pid in processes.marked(marker) if identity.look(pid).parent == parent.pid]
    assert len(processes.marked(marker)) >= 5
    os.kill(warden, signal.SIGSTOP)
    parent.kill()
    parent.communicate()
    os.kill(warden, signal.SIGKILL)
    assert until(lambda: gone(warden))
    ended = processes.end_marked(marker)
    if confinement is None:  # a namespace may have gone with its monitor before anybody looked
        assert ended >= 4
    # The one without a mark too, for what stands above it has one.
    assert until(lambda: not living(token))
    assert processes.end_marked(marker) == 0
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_who_forks_without_a_mark_while_it_is_ended_leaves_nobody(tmp_path, token):
    forking = f"while :; do sleep 61.{token} & sleep 0.001; done"
    marker = f"forking-{token}"
    script = f"env -i PATH=$PATH sh -c '{forking}' & wait"
    top = subprocess.Popen(["sh", "-c", script], env={**os.environ, "SCHOOL_MARKER": marker})
    assert until(lambda: len(living(token)) >= 10)
    processes.end_marked(marker)
    top.wait()
    assert living(token) == []


def test_ending_by_mark_spares_us_and_strangers(tmp_path):
    code = """
        import os, sys
        from school.system import processes
        print(processes.end_marked("me"))
    """
    child = python(code, env={**os.environ, "SCHOOL_MARKER": "me"})
    assert child.communicate(timeout=30)[0].strip() == "0"
    assert child.returncode == 0


def test_a_signal_reaches_that_very_process_or_nobody():
    process = subprocess.Popen(["sleep", "60"])
    start = identity.look(process.pid).start
    assert not processes.signal_exactly(process.pid, str(int(start) - 1), signal.SIGKILL)
    assert process.poll() is None
    assert processes.signal_exactly(process.pid, start, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not processes.signal_exactly(process.pid, start, signal.SIGKILL)


# --- children of ours -----------------------------------------------------------------------------------------

CHILD = """
    import os, signal, sys, time
    from pathlib import Path
    from school.system import processes
    here = Path(sys.argv[1])
    held = processes.hold_lifeline()
    def ended(*_):
        (here / "ended").write_text("in order")
        sys.exit(0)
    signal.signal(signal.SIGTERM, ended if "orderly" in sys.argv else signal.SIG_IGN)
    (here / "pid").write_text(f"{os.getpid()} ")
    (here / "held").write_text(str((held, "SCHOOL_LIFELINE_FD" in os.environ, os.getsid(0) == os.getpid())))
    while True:
        time.sleep(60)
"""


def child_argv(directory: Path, *words: str) -> list[str]:
    import textwrap

    return [sys.executable, "-c", textwrap.dedent(CHILD), str(directory), *words]


def child_env() -> dict[str, str]:
    from tests.support import ROOT

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_a_child_is_on_record_before_and_after_it_starts(tmp_path):
    record = tmp_path / "processes" / "cto.json"
    child = processes.spawn(
        child_argv(tmp_path, "orderly"),
        record=record,
        record_fields={"role": "cto"},
        cwd=tmp_path,
        env=child_env(),
    )
    try:
        said = files.read_json(record)
        assert (said["role"], said["pid"], said["start"]) == ("cto", child.pid, child.start)
        owner = processes.owner_of(said)
        assert processes.alive(owner)
        assert until(lambda: (tmp_path / "held").exists() and (tmp_path / "held").read_text())
        assert (tmp_path / "held").read_text() == "(True, False, True)"
        child.terminate()
        assert child.wait(5) == 0
        assert (tmp_path / "ended").read_text() == "in order"
        assert processes.is_dead(owner)
    finally:
        child.kill_tree(0)
    assert processes.owner_of({"pid": 0}) is None
    assert processes.owner_of({}) is None


def test_the_record_is_there_before_the_process(tmp_path):
    record = tmp_path / "cto.json"
    argv = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", str(record)]
    with (tmp_path / "out").open("wb") as out:
        child = processes.spawn(
            argv, record=record, record_fields={"n": 1}, cwd=tmp_path, env=child_env(), stdout=out
        )
    assert child.wait(10) == 0
    child.close()
    seen = json.loads((tmp_path / "out").read_text())
    assert (seen["n"], seen["step"]) == (1, "starting")
    assert seen["pid"] in (0, child.pid)


def test_a_child_that_cannot_start_leaves_no_record(tmp_path):
    record = tmp_path / "cto.json"
    with pytest.raises(MachineError, match="no-such-program: cannot start a process"):
        processes.spawn(["no-such-program"], record=record, record_fields={}, cwd=tmp_path, env=child_env())
    assert not record.exists()


def test_letting_go_of_the_lifeline_ends_the_child_in_order(tmp_path):
    child = processes.spawn(
        child_argv(tmp_path, "orderly"),
        record=tmp_path / "r",
        record_fields={},
        cwd=tmp_path,
        env=child_env(),
    )
    pids_in(tmp_path / "pid", 1)
    child.close()
    assert child.wait(5) == 0
    assert (tmp_path / "ended").exists()
    child.close()


@pytest.mark.crash
@pytest.mark.parametrize("word", ["orderly", "stubborn"])
def test_killing_the_parent_ends_its_children_within_two_seconds(tmp_path, word):
    code = """
        import os, sys, threading
        from pathlib import Path
        from school.system import processes
        here = Path(sys.argv[1])
        def start():
            global child
            child = processes.spawn(sys.argv[2:], record=here / "r", record_fields={}, cwd=here, env=dict(os.environ))
        # From a thread that ends: a death signal bound to the thread would fire at once.
        thread = threading.Thread(target=start); thread.start(); thread.join()
        sys.stdin.readline()
    """
    parent = python(code, tmp_path, *child_argv(tmp_path, word), env=child_env())
    (pid,) = pids_in(tmp_path / "pid", 1)
    assert not gone(pid)
    parent.kill()
    assert until(lambda: gone(pid), 2.0)
    parent.communicate()


def test_kill_tree_ends_what_is_below_too(tmp_path):
    code = "import subprocess, sys, time; print(subprocess.Popen(['setsid', 'sleep', '60']).pid, file=open(sys.argv[1], 'w'), flush=True); time.sleep(60)"
    child = processes.spawn(
        [sys.executable, "-c", code, tmp_path / "pids"],
        record=tmp_path / "r",
        record_fields={},
        cwd=tmp_path,
        env=child_env(),
    )
    (below,) = pids_in(tmp_path / "pids", 1)
    child.kill_tree(0.1)
    assert child.poll() == 128 + signal.SIGTERM
    assert until(lambda: gone(below))


def test_without_a_lifeline_there_is_nothing_to_hold(monkeypatch):
    monkeypatch.delenv("SCHOOL_LIFELINE_FD", raising=False)
    assert not processes.hold_lifeline()
    monkeypatch.setenv("SCHOOL_LIFELINE_FD", "987")  # stale: nothing is open there
    assert not processes.hold_lifeline()
    reader, writer = os.pipe()
    told = threading.Event()
    monkeypatch.setenv("SCHOOL_LIFELINE_FD", str(reader))
    assert processes.hold_lifeline(told.set)
    assert not told.wait(0.05)
    os.close(writer)
    assert told.wait(5)
    os.close(reader)


def test_orphans_that_fall_to_us_are_reaped_and_the_known_are_not(tmp_path):
    code = """
        import os, subprocess, sys, time
        from school.system import processes
        processes._UNCLAIMED_S = 0.1
        assert processes.become_subreaper()
        known = subprocess.Popen(["true"])
        subprocess.run(["sh", "-c", "(sh -c 'sleep 0.05; exit 7' &)"], check=True)
        reaped, deadline = [], time.monotonic() + 10
        while not reaped and time.monotonic() < deadline:
            reaped += processes.reap_orphans({known.pid})
            time.sleep(0.02)
        print(len(reaped), reaped[0] != known.pid, known.wait())
    """
    process = python(code)
    assert process.communicate(timeout=30)[0].strip() == "1 True 0"


# --- environment ----------------------------------------------------------------------------------------------


def test_the_environment_is_reduced_to_what_programs_need_and_what_is_named(tmp_path):
    environ = {
        "PATH": "/usr/bin::/bin:/usr/bin",
        "HOME": "/home/x",
        "LANG": "C.UTF-8",
        "LC_TIME": "C",
        "GIT_DIR": "/victim/.git",
        "GIT_SSL_CAINFO": "/x",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "MY_TOKEN": "named",
        "SCHOOL_LIFELINE_FD": "5",
        "PYTHONPATH": "/x",
        "SSL_CERT_FILE": "/certs",
        "TMPDIR": "/tmp",
    }
    env = processes.child_environment(
        environ=environ,
        pass_names=["MY_TOKEN", "GIT_DIR", "ABSENT"],
        set_values={"SCHOOL_BEAD": "b"},
        tmpdir=tmp_path,
        path_first=[tmp_path / "bin"],
        path_last=["/tools"],
    )
    assert env == {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin:/tools",
        "HOME": "/home/x",
        "LANG": "C.UTF-8",
        "LC_TIME": "C",
        "MY_TOKEN": "named",
        "SSL_CERT_FILE": "/certs",
        "SCHOOL_BEAD": "b",
        "TMPDIR": str(tmp_path),
        "GIT_TERMINAL_PROMPT": "0",
    }


def test_what_was_left_running_is_named_and_ended(run, tmp_path, token):
    # Its output goes elsewhere, its session is its own, its parent ended long ago, and it hears no polite word.
    daemon = f"trap '' TERM HUP; sleep 63.{token}; sleep 63.{token}"
    script = f'(setsid sh -c "{daemon}" > /dev/null 2>&1 &) ; sleep 0.1; exit 5'
    done = run("sh", "-c", script)
    assert (done.exit_code, done.survivors) == (5, 0)
    named = dict(one.split(" ", 1) for one in done.left)
    assert sorted(named.values()) == sorted([f"sh -c {daemon}", f"sleep 63.{token}"])
    assert all(word.isdigit() for word in named)
    assert living(token) == []


def test_nobody_is_named_where_nobody_was_left(run):
    for script in ("sleep 0.05", "sleep 0.01 & wait", "true | cat | cat", "kill -9 $$"):
        assert run("sh", "-c", script).left == [], script


def test_a_command_line_that_is_no_text_is_named_all_the_same(run, tmp_path):
    script = 'exec -a "$(printf \'q"\\\\\\\\\\377\\n\\360\\237\\230\\200\')" sleep 60'
    done = run("bash", "-c", f"({script} > /dev/null 2>&1 &) ; sleep 0.1")
    (one,) = done.left
    assert one.split(" ", 1)[1].startswith('q"\\')


def test_a_child_outlives_the_thread_that_started_it(tmp_path):
    started = []

    def start() -> None:
        record = tmp_path / "record.json"
        env = {"PATH": os.environ["PATH"]}
        started.append(
            processes.spawn(["sleep", "60"], record=record, record_fields={}, cwd=tmp_path, env=env)
        )

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    (child,) = started
    assert child.wait(0.3) is None
    child.kill_tree(0)

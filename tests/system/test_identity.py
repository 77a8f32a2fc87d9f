from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from school.system import identity
from school.system.identity import Owner
from tests.system.support import python, python_result, until


def test_a_record_reads_back_as_itself_and_begins_with_the_pid():
    mine = identity.this_process("writing coder-x\nstart=0 \udcff é")
    assert mine.text.splitlines()[0] == str(os.getpid())
    assert Owner.parse(mine.text) == mine
    assert mine.purpose == "writing coder-x start=0 \\udcff \\xe9"
    assert mine.nonce != identity.this_process().nonce


@pytest.mark.parametrize("text", ["4711\n", "4711", " 4711 \n\n"])
def test_a_bare_line_is_a_pid_of_this_host(text):
    assert Owner.parse(text) == Owner(4711)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "0\n",
        "-1\n",
        "99999999999999999999\n",
        "x\n",
        "1 2\n",
        "\0" * 4096,
        "٣\n",
        "0x10\n",
        "1.5\n",
        "+7\n",
    ],
)
def test_what_names_no_process_is_nobody(text):
    assert Owner.parse(text) is None


def test_a_record_cut_anywhere_is_nobody_or_a_bare_pid():
    text = identity.this_process("x").text
    first = text.index("\n") + 1
    for length in range(first + 1, len(text)):
        assert Owner.parse(text[:length]) is None, text[:length]


def test_this_process_is_alive():
    mine = identity.this_process()
    assert not identity.is_dead(mine)
    assert identity.alive(mine)
    assert identity.identity(os.getpid()).start == mine.start


def test_an_ended_process_is_dead_and_so_is_one_that_was_not_waited_for():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = identity.identity(process.pid)
    assert identity.alive(owner)
    process.stdin.close()
    # Until it is waited for it is a zombie: it runs no more, and its PID is still taken.
    assert until(lambda: identity.look(process.pid).zombie)
    assert identity.is_dead(owner)
    assert identity.is_dead(Owner(process.pid))
    process.wait()
    assert identity.is_dead(owner)
    assert not identity.look(process.pid).exists


def test_a_leader_that_ended_before_its_threads_still_lives():
    code = """
        import ctypes, threading, time
        threading.Thread(target=time.sleep, args=(30,)).start()
        print("ready", flush=True)
        ctypes.CDLL(None).pthread_exit(None)
    """
    process = python(code)
    try:
        assert process.stdout.readline() == "ready\n"
        owner = identity.identity(process.pid)
        state = Path(f"/proc/{process.pid}/stat")
        assert until(lambda: b") Z" in state.read_bytes())
        assert identity.alive(owner)
    finally:
        process.kill()
        process.communicate()


def test_a_pid_that_was_given_away_is_another_process():
    mine = identity.this_process()
    earlier = Owner(mine.pid, str(int(mine.start) - 1), mine.boot, mine.host, mine.pidns, "n")
    assert identity.is_dead(earlier)


@pytest.mark.parametrize("pid", [os.getpid(), 2**22 + 1], ids=["living", "absent"])
def test_another_boot_is_proof_and_another_host_or_namespace_never(pid):
    mine = identity.this_process()
    assert identity.is_dead(Owner(pid, mine.start, "another-boot", mine.host, mine.pidns, "n"))
    for host, pidns in (("elsewhere", mine.pidns), (mine.host, "1"), ("elsewhere", "1")):
        for start in (mine.start, "1"):
            assert identity.alive(Owner(pid, start, "another-boot", host, pidns, "n"))


def test_what_may_not_be_seen_is_not_dead():
    code = """
        import os
        from school.system import identity
        if os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        print(identity.is_dead(identity.Owner(1)), identity.is_dead(identity.Owner(2**22 + 1)))
    """
    assert python_result(code) == "False True"


def test_a_forked_child_is_another_process():
    code = """
        import os
        from school.system import identity
        mine = identity.this_process()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, identity.this_process().text.encode())
            os._exit(0)
        os.waitpid(pid, 0)
        child = identity.Owner.parse(os.read(reader, 4096).decode())
        print(child.pid == pid, child.start != "", (child.boot, child.pidns) == (mine.boot, mine.pidns))
    """
    assert python_result(code) == "True True True"


def test_no_wall_clock_is_in_the_proof(monkeypatch):
    import psutil

    mine = identity.this_process()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: real() - 3600)
    assert identity.alive(mine)


def test_a_name_with_parentheses_and_blanks_does_not_mislead(tmp_path):
    odd = tmp_path / "x) Z 1 (y"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([odd, "30"])
    try:
        seen = identity.look(process.pid)
        assert (seen.zombie, seen.parent) == (False, os.getpid())
        assert int(seen.start) > 0
    finally:
        process.kill()
        process.wait()

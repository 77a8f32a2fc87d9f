from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from school.errors import MachineError
from school.system import confine, processes
from school.system.processes import RunLimits
from tests.support import ROOT, require_confinement

QUICK = RunLimits(timeout_s=20, grace_s=0.3)


@pytest.fixture
def place(tmp_path):
    """A folder ``own`` that may be written, ``hidden`` with a secret and a folder ``hidden/shown``, and ``other``."""
    require_confinement()
    for name in ("own", "own/tmp", "closed", "hidden", "hidden/shown", "hidden/mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "token").write_text("secret")
    return tmp_path


@pytest.fixture
def inside(place):
    """Run a shell line in ``own``, confined."""

    def inside(line, **policy):
        usual = {"write": (place / "own", place / "hidden" / "mine"), "tmp": place / "own" / "tmp"}
        usual |= {
            "read": (place / "hidden" / "shown",),
            "hide": (place / "hidden", place / "closed", place / "token", place / "absent"),
        }
        policy = confine.Policy(**{**usual, **policy})
        env = processes.child_environment(tmpdir=place / "own" / "tmp")
        return processes.run(
            ["sh", "-c", line], cwd=place / "own", env=env, limits=QUICK, marker="m", confinement=policy
        )

    return inside


def said(done) -> str:
    return done.stdout.decode().strip()


def test_what_may_be_written_read_and_not_even_seen(inside, place):
    assert said(inside("echo new > file; cat file")) == "new"
    assert (place / "own" / "file").read_text() == "new\n"
    assert said(inside("cat ../other/file; echo new > ../other/file")).endswith("Read-only file system")
    assert (place / "other" / "file").read_text() == "other"
    assert said(
        inside("ls ../hidden; cat ../hidden/file; ls ../closed; cat ../closed/file")
    ).splitlines() == [
        "ls: cannot open directory '../hidden': Permission denied",
        "cat: ../hidden/file: No such file or directory",
        "ls: cannot open directory '../closed': Permission denied",
        "cat: ../closed/file: Permission denied",
    ]
    assert "Read-only file system" in said(inside("echo new > ../hidden/new"))
    assert said(inside("cat ../hidden/shown/file")) == "hidden/shown"
    assert "Read-only file system" in said(inside("echo new > ../hidden/shown/file"))
    assert inside("echo new > ../hidden/mine/file").exit_code == 0
    assert (place / "hidden" / "mine" / "file").read_text() == "new\n"
    assert said(inside("cat ../token && echo nothing")) == "nothing"
    assert {path.name for path in (place / "hidden").iterdir()} == {"file", "mine", "shown"}


def test_a_place_that_may_be_written_cannot_be_moved_or_replaced(inside, place):
    done = inside("rm -rf ../own; mv ../own ../gone; ln -sfn / ../own; echo still > file")
    assert "Device or resource busy" in said(done)
    assert (place / "own").is_dir()
    assert not (place / "own").is_symlink()


def test_what_is_closed_below_a_place_that_may_be_written_stays_where_it_is(inside, place):
    deep = place / "other" / "a" / "b"
    for name in ("hidden", "shown"):
        (deep / name).mkdir(parents=True)
    line = f"cd {place}/other; mv a c; mv a/b a/c; mkdir -p a/b/hidden; echo x > a/b/hidden/forged; echo y > a/b/new"
    done = inside(
        line, write=(place / "own", place / "other"), hide=(deep / "hidden",), read=(deep / "shown",)
    )
    assert said(done).count("Device or resource busy") == 2, said(done)
    assert (deep / "new").read_text() == "y\n"
    assert list((deep / "hidden").iterdir()) == []
    assert sorted(path.name for path in (place / "other").iterdir()) == ["a", "file"]


def test_tmp_is_its_own_and_dev_is_fresh(inside, place):
    name = f"confined-{os.getpid()}"
    assert (
        inside(
            f"echo x > /tmp/{name} && test -c /dev/null && echo x > /dev/shm/y && echo > /dev/null"
        ).exit_code
        == 0
    )
    assert not Path("/tmp", name).exists()
    assert (place / "own" / "tmp" / name).read_text() == "x\n"
    assert inside("echo x > /dev/made").exit_code != 0
    assert inside("echo x > /tmp/no", tmp=None).exit_code != 0


def test_no_capability_and_no_way_to_undo_the_mounts(inside):
    line = "grep CapEff /proc/self/status; umount ../hidden; mount -o remount,rw /; echo core > /proc/sys/kernel/core_pattern"
    lines = said(inside(line)).splitlines()
    assert lines[0].split() == ["CapEff:", "0000000000000000"]
    assert [line.split(":")[0] for line in lines if line.startswith(("umount", "mount"))] == [
        "umount",
        "mount",
    ]
    assert "core_pattern" in lines[-1]


def test_a_root_that_may_be_written_is_no_way_around_the_rest(inside, place):
    everything = (Path("/"), Path("/dev/zero"))
    line = "echo new > ../other/file; cat ../closed/file; echo x > ../closed/new; ls /proc | grep -c '^[0-9]'; test -c /dev/null && head -c 1 /dev/zero | wc -c"
    done = inside(line, write=everything, tmp=None)
    assert (place / "other" / "file").read_text() == "new\n"
    assert not (place / "closed" / "new").exists()
    assert "Permission denied" in said(done)
    processes_seen, zero = map(int, said(done).split()[-2:])
    assert processes_seen <= 5
    assert zero == 1


def test_a_nested_user_namespace_does_not_open_what_is_closed(inside, place):
    line = f"unshare -Urm sh -c 'umount {place}/hidden; mount -o remount,rw,bind /; echo x > {place}/other/new; cat {place}/hidden/file'"
    inside(line)
    assert not (place / "other" / "new").exists()
    assert "secret" not in said(inside(line))


def test_the_network_is_there_or_not(inside):
    # Only the loopback device is left without one.
    assert said(inside("wc -l < /proc/net/dev", network=False)) == "3"
    assert int(said(inside("wc -l < /proc/net/dev"))) >= 3
    assert said(inside("readlink /proc/self/ns/net")) == str(Path("/proc/self/ns/net").readlink())


def test_a_confinement_that_cannot_be_built_is_our_lack_and_not_the_commands_end(place):
    env = processes.child_environment(tmpdir=place)
    hidden = confine.Policy(hide=(place / "hidden",))
    with pytest.raises(MachineError, match=r"it cannot be confined: .*hidden"):
        processes.run(
            ["true"], cwd=place / "hidden" / "shown", env=env, limits=QUICK, marker="m", confinement=hidden
        )


def test_the_probe_says_why_not(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(confine.probe()) == "none: bubblewrap is not installed"
    with pytest.raises(MachineError, match="bwrap is not installed"):
        confine.wrap(confine.Policy(), tmp_path, ["true"])
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    assert str(confine.probe()) == (
        "none: bubblewrap does not work here: setting up uid map: Permission denied"
    )


def test_deeper_places_come_after_those_that_they_lie_in(tmp_path):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    policy = confine.Policy(
        write=(tmp_path / "a" / "b",), read=(tmp_path / "a" / "b" / "c",), hide=(tmp_path / "a",)
    )
    words = confine.mounts(policy, tmp_path, ["true"])
    a = str(tmp_path / "a")
    order = [words.index(f"{a}{rest}") for rest in ("", "/b", "/b/c")]
    assert order == sorted(order)
    assert words[-2:] == ["--remount-ro", a]


def test_the_profile_for_macos_lets_the_last_rule_decide(tmp_path):
    (tmp_path / "a" / "own").mkdir(parents=True)
    rules = confine.profile(
        confine.Policy(write=(tmp_path / "a" / "own",), hide=(tmp_path / "a",), network=False)
    ).splitlines()
    assert rules[:2] == ["(version 1)", "(allow default)"]
    assert rules[-1] == "(deny network*)"
    hidden = rules.index(f'(deny file-read* file-write* (subpath "{tmp_path}/a"))')
    assert rules.index(f'(allow file-write* (subpath "{tmp_path}/a/own"))') > hidden


def test_our_own_code_may_lie_below_tmp(place):
    """In an entry of its own there, as a clone that somebody tries out does; the inner warden is run from it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as elsewhere:
        shutil.copytree(
            ROOT / "school", Path(elsewhere) / "school", ignore=shutil.ignore_patterns("__pycache__")
        )
        script = (
            "import pathlib, sys\n"
            "from school.system import confine, processes\n"
            "own = pathlib.Path(sys.argv[1])\n"
            "policy = confine.Policy(write=(own,), tmp=own / 'tmp')\n"
            "done = processes.run(['echo', 'hello'], cwd=own, env={'PATH': '/usr/bin:/bin'}, marker='m',\n"
            "    limits=processes.RunLimits(timeout_s=20), confinement=policy)\n"
            "print(done.exit_code, done.stdout.decode().strip())\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", script, str(place / "own")],
            cwd=elsewhere,
            env={**os.environ, "PYTHONPATH": elsewhere},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (ran.stdout, ran.returncode) == ("0 hello\n", 0), ran.stderr

from __future__ import annotations

import sys
import time

import pytest

from school.system import confine, processes
from school.system.gauge import Bounds
from school.system.processes import RunLimits
from tests.support import require_confinement
from tests.system.support import on_small_disk

MIB = 1024 * 1024


@pytest.fixture(params=["plain", "confined"])
def run(request, tmp_path):
    """Run a command with bounds, in both forms."""
    inside = None
    if request.param == "confined":
        require_confinement()
        inside = confine.Policy(write=(tmp_path,))

    def run(*argv, **bounds):
        limits = RunLimits(20, grace_s=5, bounds=Bounds(folders=(tmp_path,), **bounds))
        env = processes.child_environment(tmpdir=tmp_path)
        return processes.run(argv, cwd=tmp_path, env=env, limits=limits, marker="m", confinement=inside)

    return run


def test_memory_that_a_tree_takes_together_ends_it_at_once(run):
    code = "import subprocess, sys, time; x = b'x' * 40_000_000; len(sys.argv) > 1 or subprocess.run([sys.executable, '-c', sys.argv[0], 'x']); time.sleep(60)"
    code = f"import sys; sys.argv[0] = {code!r}; exec(sys.argv[0])"
    begun = time.monotonic()
    done = run(sys.executable, "-c", code, memory_bytes=64 * MIB)
    assert (done.reason, done.survivors) == ("memory", 0)
    assert done.detail.endswith(f"bytes of memory, {64 * MIB} are allowed")
    assert time.monotonic() - begun < 10


def test_memory_that_is_shared_counts_once(run):
    code = "import os, time; x = b'x' * 40_000_000; [os.fork() for _ in range(2)]; time.sleep(0.6)"
    assert run(sys.executable, "-c", code, memory_bytes=100 * MIB).reason == ""


def test_the_number_of_processes(run):
    few = "for n in 1 2 3; do sleep 0.5 & done; wait"
    assert run("sh", "-c", few, processes=4).reason == ""
    done = run("sh", "-c", "while :; do sleep 60 & sleep 0.01; done", processes=12)
    assert (done.reason, done.survivors) == ("processes", 0)
    assert done.detail.endswith("processes, 12 are allowed")


def test_what_is_added_on_disk_by_many_files_and_what_lay_there_before(run, tmp_path):
    (tmp_path / "before").write_bytes(b"x" * 8 * MIB)
    assert run("sh", "-c", "head -c 2000000 /dev/zero > new", disk_bytes=4 * MIB).reason == ""
    done = run(
        "sh",
        "-c",
        "n=0; while :; do n=$((n+1)); head -c 1000000 /dev/zero > f$n; sleep 0.02; done",
        disk_bytes=4 * MIB,
    )
    assert done.reason == "disk"
    assert done.detail.endswith(f"bytes were added on disk, {4 * MIB} are allowed")


def test_one_file_cannot_outgrow_the_bound_for_a_moment_and_a_quick_end_does_not_hide_it(run, tmp_path):
    done = run("sh", "-c", "head -c 90000000 /dev/zero > big; echo $?", disk_bytes=4 * MIB)
    assert (tmp_path / "big").stat().st_size == 4 * MIB
    assert done.exit_code == 0
    (tmp_path / "big").unlink()
    done = run(
        "sh", "-c", "for n in 1 2 3 4 5 6; do head -c 1000000 /dev/zero > g$n; done", disk_bytes=4 * MIB
    )
    assert (done.reason, done.exit_code) == ("disk", 0)


def test_room_is_left_on_the_disk_for_others():
    said = on_small_disk(
        """
        import os
        from pathlib import Path
        from school.system import processes
        from school.system.gauge import Bounds
        disk = Path(os.environ["DISK"])
        for reserve in (12_000_000, 60_000_000):
            bounds = Bounds(reserve_bytes=reserve, folders=(disk,))
            done = processes.run(
                ["sh", "-c", "for n in $(seq 20); do head -c 3000000 /dev/zero > f$n; sleep 0.2; done"],
                cwd=disk, env=dict(os.environ), limits=processes.RunLimits(20, bounds=bounds), marker="m")
            room = os.statvfs(disk)
            print(done.reason, room.f_bavail * room.f_frsize > 0, done.detail.partition(":")[0])
            for path in disk.iterdir():
                path.unlink()
        """,
        options="size=48m",
    )
    # The second had less than it would have had to leave from the start: somebody else took that.
    assert said.splitlines() == ["disk_full True /mnt", " False"]

"""A child ends with its parent from its first moment on: before it is loaded at once, afterwards as it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import ROOT

EARLY = "from school.system import lifeline; print(lifeline.hold(), flush=True); import time; time.sleep(60)"
LATER = """
from school.system import lifeline
import os, time
lifeline.hold()
lifeline.then(lambda: os._exit(7))
print(lifeline.hold(), "SCHOOL_LIFELINE_FD" in os.environ, flush=True)
time.sleep(60)
"""


def child(code: str, fd: int) -> subprocess.Popen[str]:
    env = {**os.environ, "SCHOOL_LIFELINE_FD": str(fd)}
    argv = [sys.executable, "-c", code]
    return subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, pass_fds=[fd])


@pytest.mark.parametrize(
    ("code", "said", "end"), [(EARLY, "True", -signal.SIGKILL), (LATER, "True False", 7)]
)
def test_what_becomes_of_a_child_whose_parent_is_gone(code: str, said: str, end: int) -> None:
    reader, writer = os.pipe()
    with child(code, reader) as process:
        os.close(reader)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == said
        assert process.poll() is None
        os.close(writer)
        assert process.wait(10) == end


def test_a_parent_that_was_gone_before_is_noticed_too() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with child(EARLY, reader) as process:
        os.close(reader)
        assert process.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize("program", ["leaf.py", "teacher.py"])
def test_our_children_hold_on_before_they_load_anything(program: str) -> None:
    text = (ROOT / program).read_text()
    first = next(line for line in text.splitlines() if line.startswith("from school"))
    assert first == "from school.system import lifeline"
    assert text.index("lifeline.hold()") < text.index("import bookbag")


GIT = """
import sys
from pathlib import Path
from school.system.git import Git
Git(cwd=Path(sys.argv[1])).run("hash-object", "fifo", timeout_s=300)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a command to whoever waits for it")
def test_a_long_git_command_ends_with_whoever_waits_for_it(repo: Path) -> None:
    """It reads from a pipe that nobody ever writes to."""
    os.mkfifo(repo / "fifo")
    with subprocess.Popen([sys.executable, "-c", GIT, str(repo)], cwd=ROOT) as process:
        end = time.monotonic() + 20
        while not (found := running(repo)):
            assert time.monotonic() < end, "git never began"
            time.sleep(0.01)
        process.kill()
    killed = time.monotonic()
    while running(repo):
        assert time.monotonic() - killed < 2, found
        time.sleep(0.01)


def running(repo: Path) -> list[int]:
    """The git processes that stand in *repo*."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == repo:
                found += [int(entry.name)] if b"hash-object" in (entry / "cmdline").read_bytes() else []
        except OSError:
            continue
    return found

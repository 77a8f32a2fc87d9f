"""Real processes and real small disks for the tests of the system room."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import ROOT


def python(code: str, *args: object, **popen) -> subprocess.Popen[str]:
    """Start *code* in a Python of its own that can import the project; the caller waits for it."""
    argv = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, **popen)


def python_result(code: str, *args: object) -> str:
    """What *code* printed; it must end well."""
    process = python(code, *args, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip()


def on_small_disk(code: str, *, options: str = "size=1m") -> str:
    """What *code* printed in a mount namespace of its own, where ``DISK`` is a tmpfs made with *options*."""
    script = f'mount -t tmpfs -o {options} tmpfs /mnt && exec "$@"'
    argv = ["unshare", "-rm", "sh", "-c", script, "sh", sys.executable, "-c", textwrap.dedent(code)]
    try:
        probe = subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("unshare is not installed: no small disk can be made")
    if probe.returncode != 0:
        pytest.skip(f"no mount namespace can be had here: {probe.stderr.decode().strip()}")
    done = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, "DISK": "/mnt"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def until(condition: Callable[[], object], limit_s: float = 5.0) -> bool:
    """Whether *condition* came true within *limit_s*."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def gone(pid: int) -> bool:
    """Whether no process *pid* runs; one that has ended and waits to be reaped does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] in b"ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True

"""Real projects for the end-to-end tests: sdists from the package index, as git repositories of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import filelock
import pytest

from tests.support import ROOT, git

VENV_BIN = Path(sys.executable).parent


def environment(home: Path, **extra: str) -> dict[str, str]:
    """What a user's shell would have: this test's HOME, an activated environment with pytest in it."""
    return {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GIT_", "PYTEST_", "COV_"))
        },
        "HOME": str(home),
        "HERMES_HOME": str(home / ".hermes"),
        "PATH": f"{VENV_BIN}{os.pathsep}{os.environ['PATH']}",
        **extra,
    }


def sdist(name: str, version: str, cache: Path) -> Path:
    """The unpacked source distribution, fetched once a test session; skips, with the reason, where none is to be had."""
    cache.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(cache / f"{name}.lock"):
        if not list(cache.glob(f"{name}-{version}.tar.gz")):
            command = ["pip", "download", "-q", "--no-binary", ":all:", "--no-deps", "-d", str(cache)]
            done = subprocess.run(
                [sys.executable, "-m", *command, f"{name}=={version}"],
                capture_output=True,
                text=True,
                check=False,
                timeout=100,
            )
            if done.returncode:
                pytest.skip(f"{name} {version} cannot be fetched from a package index: {done.stderr[-300:]}")
    return cache / f"{name}-{version}.tar.gz"


def project(name: str, version: str, place: Path, cache: Path, *, verify: list[str]) -> Path:
    """A repository of that project with one commit; ``school.toml`` declares *verify*."""
    with tarfile.open(sdist(name, version, cache)) as archive:
        archive.extractall(place, filter="data")
    root = place / f"{name}-{version}"
    (root / "school.toml").write_text(f"[verify]\ncommands = [{json.dumps(verify)}]\n")
    # Not *.egg-info: humanize reads its version from the metadata that its source distribution brings along.
    (root / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", f"{name} {version}")
    return root


def conduct(*args: str, env: dict[str, str], timeout_s: float = 400) -> tuple[int, dict[str, Any], str]:
    """``python conductor.py … --json`` as a process: exit status, its one JSON document, its stderr."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "conductor.py"), *args, "--json"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.strip(), done.stderr[-4000:]
    return done.returncode, json.loads(done.stdout), done.stderr


def bag_of(bead: str, env: dict[str, str]) -> dict[str, Any]:
    return json.loads((Path(env["HERMES_HOME"]) / "bookbag" / "archive" / bead / "bookbag.json").read_text())


def receipts(bag: dict[str, Any], role: str, check: str = "") -> list[dict[str, Any]]:
    return [
        receipt
        for lens in bag[f"{role}_review"]["lenses"]
        for receipt in lens["receipts"]
        if receipt["check"].startswith(check)
    ]


def classes(bag: dict[str, Any]) -> set[str]:
    """The issue classes of the findings that failed this bead."""
    return {
        finding["issue_class"] for finding in bag["findings"] if finding["severity"] in ("CRITICAL", "HIGH")
    }

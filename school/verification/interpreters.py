"""Which interpreters and tools an environment's PATH leads to, so that a result made with others is not reused.

``describe(env, worktree) -> dict``: per name its real path, version and the state of its packages' folder. Entries of
PATH inside the worktree are left out: what set-up commands build there is known by what it is built from.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from school.system import processes

_PYTHONS: Final = ("python3", "python")
_TOOLS: Final = ("pytest", "uv", "node", "go", "cargo", "java", "ruby", "make")
_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 64 * 1024
_ANSWERED: Final = ("executable", "version", "packages")
# No site, no environment: nothing but the interpreter itself answers.
_QUESTION: Final = (
    "import sys, sysconfig; print(sys.executable, sys.version, sysconfig.get_path('purelib'), sep='\\n')"
)


@lru_cache(maxsize=64)
def _ask(python: str, cwd: str, path: str, _stamp: int) -> tuple[str, str, str]:
    """Executable, version, packages' folder; empty where it does not answer (a shim without a version, say)."""
    finished = processes.run(
        [python, "-I", "-S", "-c", _QUESTION],
        cwd=Path(cwd),
        env={"PATH": path, "HOME": os.environ.get("HOME", "/")},
        limits=processes.RunLimits(timeout_s=_TIMEOUT_S, output_bytes=_ANSWER_BYTES_MAX, grace_s=0),
        marker="interpreters",
    )
    answer = finished.stdout.decode("utf-8", "replace").splitlines()
    if finished.reason or finished.exit_code != 0 or len(answer) < len(_ANSWERED):
        return ("", "", "")
    return answer[0], answer[1], answer[-1]


def _stamp(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def _outside(path: str, worktree: Path) -> str:
    entries = [
        entry for entry in path.split(os.pathsep) if entry and not Path(entry).is_relative_to(worktree)
    ]
    return os.pathsep.join(entries)


def describe(env: Mapping[str, str], worktree: Path) -> dict[str, list[str | int]]:
    """What each name on PATH is; names that lead nowhere are left out."""
    path = _outside(env.get("PATH", os.defpath), worktree)
    found: dict[str, list[str | int]] = {}
    for name in _PYTHONS:
        where = shutil.which(name, path=path)
        if where:
            executable, version, packages = _ask(where, str(worktree), path, _stamp(where))
            found[name] = [where, os.path.realpath(executable or where), version, packages, _stamp(packages)]
    for name in _TOOLS:
        where = shutil.which(name, path=path)
        if where:
            found[name] = [os.path.realpath(where), _stamp(where)]
    return found

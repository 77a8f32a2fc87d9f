"""Ruff over texts that are not in any working tree, isolated from every configuration.

``run_ruff(scratch, texts, *options)`` writes the texts into a folder of its own below *scratch*, under their own
paths, and gives ruff's rows as ``{path, line, end_line, code, message}``. No cache, no project configuration, no
``noqa``. Errors: MachineError where ruff is not there; TeacherError where it did not do its work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypedDict

from school.errors import MachineError, TeacherError
from school.system import files

TIMEOUT_S: Final = 120.0
_FINDINGS_LEFT: Final = 1


class Row(TypedDict):
    """One finding of ruff's; a syntax error has the code ``invalid-syntax``."""

    path: str
    line: int
    end_line: int
    code: str | None
    message: str


def run_ruff(scratch: Path, texts: Mapping[str, str], *options: str) -> list[Row]:
    """Check *texts* (path to text) and give what ruff found."""
    if not texts:
        return []
    files.ensure_dir(scratch)
    folder = Path(tempfile.mkdtemp(prefix="ruff-", dir=scratch)).resolve()
    try:
        names: dict[str, str] = {}
        for number, (path, text) in enumerate(texts.items()):
            # Not the path itself: it came from whoever is judged, and could be anything.
            target = folder / f"f{number}{Path(path).suffix.lower() or '.py'}"
            target.write_bytes(text.encode("utf-8", "surrogateescape"))
            names[str(target)] = path
        return _rows(_run(folder, options), names)
    finally:
        files.remove_tree(folder)


def _run(folder: Path, options: tuple[str, ...]) -> bytes:
    argv = [
        str(_program()),
        "check",
        "--isolated",
        "--no-cache",
        "--ignore-noqa",
        "--target-version=py314",
        "--output-format=json",
        *options,
        str(folder),
    ]
    try:
        done = subprocess.run(
            argv, capture_output=True, check=False, timeout=TIMEOUT_S, cwd=folder, stdin=subprocess.DEVNULL
        )
    except OSError as cause:
        raise MachineError(f"ruff cannot be run: {cause}") from cause
    except subprocess.TimeoutExpired:
        raise TeacherError(f"ruff did not end within {TIMEOUT_S:g} s") from None
    if done.returncode > _FINDINGS_LEFT:
        raise TeacherError(
            f"ruff failed with exit {done.returncode}: {done.stderr[-400:].decode(errors='replace')}"
        )
    return done.stdout


def _program() -> Path:
    from ruff import find_ruff_bin  # type: ignore[import-untyped]

    try:
        return Path(find_ruff_bin())
    except FileNotFoundError as cause:
        raise MachineError(f"ruff is not installed beside {sys.executable}") from cause


def _rows(out: bytes, names: Mapping[str, str]) -> list[Row]:
    return [
        {
            "path": names[row["filename"]],
            "line": row["location"]["row"],
            "end_line": row["end_location"]["row"],
            "code": row["code"],
            "message": row["message"],
        }
        for row in json.loads(out or b"[]")
        if row["filename"] in names
    ]

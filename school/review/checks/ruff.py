"""Ruff over texts that are not in any working tree, isolated from every configuration.

``run_ruff(scratch, texts, *options)`` writes the texts into a folder of its own below *scratch*, under their own
paths, and gives ruff's rows as ``{path, line, end_line, code, message}``. No cache, no project configuration, no
``noqa``. Errors: MachineError where ruff is not there; TeacherError where it did not do its work.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

from school.errors import MachineError, TeacherError
from school.system import files, processes

TIMEOUT_S: Final = 120.0
ROWS_BYTES_MAX: Final = 256 * 1024 * 1024
_FINDINGS_LEFT: Final = 1
_CANARY: Final = "canary.py"


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
            target = folder / f"f{number}{'.pyi' if path.endswith('.pyi') else '.py'}"
            target.write_bytes(text.encode("utf-8", "surrogateescape"))
            names[str(target)] = path
        (folder / _CANARY).write_text("def (\n")
        return _rows(_run(folder, options), names)
    finally:
        files.remove_tree(folder)


def _run(folder: Path, options: tuple[str, ...]) -> list[Any]:
    rows = folder / "rows.json"
    argv = [
        str(_program()),
        "check",
        "--isolated",
        "--no-cache",
        "--ignore-noqa",
        "--no-respect-gitignore",
        "--target-version=py314",
        "--output-format=json",
        f"--output-file={rows}",
        *options,
        str(folder),
    ]
    finished = processes.run(
        argv,
        cwd=folder,
        env=processes.child_environment(tmpdir=folder),
        limits=processes.RunLimits(timeout_s=TIMEOUT_S),
        marker=folder.name,
    )
    if finished.reason in ("not_found", "not_executable"):
        raise MachineError(f"ruff cannot be run: {finished.detail}")
    if finished.reason or finished.exit_code not in (0, _FINDINGS_LEFT):
        why = finished.detail or f"exit {finished.exit_code}: {finished.last_line}"
        raise TeacherError(f"ruff did not do its work: {why}")
    found: list[Any] = files.read_json(rows, limit_bytes=ROWS_BYTES_MAX) or []
    # Whatever made ruff skip these files (an exclude, an ignore rule above) would look like a clean bill.
    if not any(row["filename"] == str(folder / _CANARY) for row in found):
        raise TeacherError("ruff did not look at the files that it was given")
    return found


def _program() -> Path:
    from ruff import find_ruff_bin  # type: ignore[import-untyped]

    try:
        return Path(find_ruff_bin())
    except FileNotFoundError as cause:
        raise MachineError(f"ruff is not installed beside {sys.executable}") from cause


def _rows(found: list[Any], names: Mapping[str, str]) -> list[Row]:
    return [
        {
            "path": names[row["filename"]],
            "line": row["location"]["row"],
            "end_line": row["end_location"]["row"],
            "code": row["code"],
            "message": row["message"],
        }
        for row in found
        if row["filename"] in names
    ]

"""Every benchmark, one after the other; writes ``benchmarks/RESULTS.md`` with machine, versions, date and every row.

A goal that is missed is marked there; what stands below the table in that file is kept, for the reasons. Exit status 1
when a benchmark missed a goal, 2 when one could not run.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from _common import ROOT, SHORT

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
REASONS = "## Goals that are missed"
LEFT_OUT = {"_common.py", "all.py"}
TIME_LIMIT_S = 1800
# What else ran on the machine: beside several others, no figure but a processor time says much.
LOAD = os.getloadavg()[0]


def names() -> list[str]:
    return sorted(path.name for path in HERE.glob("*.py") if path.name not in LEFT_OUT)


def run(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(HERE / name), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    sys.stdout.write(done.stdout)
    if done.returncode not in (0, 1):
        sys.exit(f"{name} could not run:\n{done.stderr}")
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def row(title: str, one: dict[str, Any]) -> str:
    raw = "" if one["raw"] is None else f"{one['raw']:.4g}"
    met = "met" if one["met"] else "**missed**"
    return f"| {title} | {one['what']} | {one['value']:.3g} {one['unit']} | {one['goal']:g} | {raw} | {met} |"


def noted(document: dict[str, Any]) -> list[str]:
    return [f"- {document['benchmark']}: {note}" for note in document["notes"]]


def heading() -> list[str]:
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    form = "short form" if SHORT else "long form"
    machine = (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {LOAD:.1f} at the beginning"
    )
    versions = f"Python {platform.python_version()}, git {git}"
    made = f"{datetime.now(UTC):%Y-%m-%d}, {form}, commit {commit}: {machine}, {versions}."
    how = "Made by `python benchmarks/all.py`; a ratio is to a raw baseline of the same run."
    table = ["| benchmark | what | measured | goal | raw | |", "|---|---|---|---|---|---|"]
    return ["# Results", "", f"{made} {how}", "", *table]


def main() -> None:
    documents = [run(name) for name in names()]
    rows = [(document["benchmark"], one) for document in documents for one in document["rows"]]
    notes = [note for document in documents for note in noted(document)]
    kept = RESULTS.read_text().partition(REASONS)[2] if RESULTS.exists() else "\n"
    text = "\n".join([*heading(), *(row(title, one) for title, one in rows), "", *notes, "", REASONS + kept])
    RESULTS.write_text(text.rstrip() + "\n")
    sys.exit(0 if all(one["met"] for _, one in rows) else 1)


if __name__ == "__main__":
    main()

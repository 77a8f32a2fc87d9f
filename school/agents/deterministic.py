r"""The deterministic agents: students without a model, for the demo and for tests, each with one way of its own.

A program of the standard library only (``python -I deterministic.py BEHAVIOUR``), started like any agent: in its
worktree, the prompt on stdin, SCHOOL_BRIEF and SCHOOL_RESULT set. It takes its edits from the task's text, from
lines of the form ::

    APPLY: path :: old -> new

where ``old`` occurs in the file, ``\\n`` stands for a new line, and an empty ``old`` means a file that is made or
replaced. Behaviours: ``good`` applies them; ``learner`` first misreads the task and applies them once its brief holds
findings; ``test-deleter`` applies them and removes the test modules; ``idler`` claims and does nothing; ``hanger``
applies them and never ends; ``flooder`` applies them and prints ``SCHOOL_FLOOD_BYTES`` (64 MiB); ``dier`` applies half
and kills itself. Errors: exit status 2 for a brief or an edit that cannot be used.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FLOOD_BYTES = 64 * 1024 * 1024
Edit = tuple[str, str, str]


def edits_of(task: str) -> list[Edit]:
    """The ``APPLY`` lines of a task as (path, old, new)."""
    lines = (line.strip() for line in task.splitlines())
    return [_edit(line) for line in lines if line.startswith("APPLY: ")]


def _edit(line: str) -> Edit:
    path, _, change = line.removeprefix("APPLY: ").partition(" ::")
    pieces = f"{change} ".split(" -> ")
    if not path or len(pieces) == 1:
        sys.exit(f"this line cannot be applied: {line}")
    # Code may hold arrows itself, most often as many before the change as after it: the middle one divides.
    middle = len(pieces) // 2
    old, new = (" -> ".join(half).strip().replace("\\n", "\n") for half in (pieces[:middle], pieces[middle:]))
    return path.strip(), old, new


def apply(edit: Edit) -> None:
    """Make one edit in the current folder."""
    name, old, new = edit
    path = Path(name)
    if not old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new if new.endswith("\n") else new + "\n", encoding="utf-8")
        return
    text = path.read_text(encoding="utf-8")
    if old not in text:
        sys.exit(f"{name} does not hold {old!r}")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def claim(status: str, summary: str, met: list[str]) -> None:
    """Write the result file."""
    record = {"status": status, "summary": summary, "ac_met": met, "blockers": []}
    Path(os.environ["SCHOOL_RESULT"]).write_text(json.dumps(record), encoding="utf-8")
    print(summary)


def ids(brief: dict[str, Any]) -> list[str]:
    return [criterion["id"] for criterion in brief.get("acceptance", [])]


def good(brief: dict[str, Any]) -> None:
    """Do what the task says."""
    edits = edits_of(brief["task"])
    for edit in edits:
        apply(edit)
    claim("done", f"applied {len(edits)} edits", ids(brief))


def learner(brief: dict[str, Any]) -> None:
    """Misread the task until somebody says what was wrong."""
    if brief.get("findings"):
        good(brief)
        return
    for name, _, _ in edits_of(brief["task"]):
        path = Path(name)
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        path.write_text(text + "\n# A remark, and nothing else.\n", encoding="utf-8")
    claim("done", "left a remark in the file", ids(brief))


def test_deleter(brief: dict[str, Any]) -> None:
    """Get past the tests by removing them."""
    for edit in edits_of(brief["task"]):
        apply(edit)
    modules = [path for path in sorted(Path().rglob("test_*.py")) if ".git" not in path.parts]
    for path in modules:
        path.unlink()
    claim("done", f"applied the edits; {len(modules)} test modules were in the way", ids(brief))


def idler(brief: dict[str, Any]) -> None:
    """Say it is done."""
    claim("done", "everything is done as asked", ids(brief))


def hanger(brief: dict[str, Any]) -> None:
    """Work, then neither speak nor end; a polite request to end is not heard."""
    for edit in edits_of(brief["task"]):
        apply(edit)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def flooder(brief: dict[str, Any]) -> None:
    """Print far more than anybody reads, then do the work."""
    left = int(os.environ.get("SCHOOL_FLOOD_BYTES", FLOOD_BYTES))
    line = b"all work and no play makes a dull transcript\n" * 1024
    while left > 0:
        left -= os.write(1, line[:left])
    good(brief)


def dier(brief: dict[str, Any]) -> None:
    """Die in the middle of the work."""
    edits = edits_of(brief["task"])
    for edit in edits[: max(1, len(edits) // 2)]:
        apply(edit)
    print("about to die", flush=True)
    signal.raise_signal(signal.SIGKILL)


BEHAVIOURS = {
    "good": good,
    "learner": learner,
    "test-deleter": test_deleter,
    "idler": idler,
    "hanger": hanger,
    "flooder": flooder,
    "dier": dier,
}


def main() -> None:
    """Read the brief, behave."""
    if len(sys.argv) != 2 or sys.argv[1] not in BEHAVIOURS:  # noqa: PLR2004 - the program and its one argument
        sys.exit(f"usage: deterministic.py {'|'.join(BEHAVIOURS)}")
    brief = json.loads(Path(os.environ["SCHOOL_BRIEF"]).read_text(encoding="utf-8"))
    BEHAVIOURS[sys.argv[1]](brief)


if __name__ == "__main__":
    main()

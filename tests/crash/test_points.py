"""``kill -9`` before and after each named durable step, in every process that passes it; and a disk that fails there.

A run that only notes tells which steps which program passes; the names in the source are all of them, so a step that no
run passes is told too. Then, step by step, a run is struck there once, and the next ones must end as the control did.
``SCHOOL_POINTS`` says how many are struck, drawn by the printed seed (``all``: each of them).
"""

from __future__ import annotations

import ast
import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.driver import Stage
from tests.support import ROOT

pytestmark = [pytest.mark.crash, pytest.mark.timeout(7200)]

POINTS = os.environ.get("SCHOOL_POINTS", "3")
SEED = int(os.environ.get("SCHOOL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
BEHAVIOURS = {"task-1": "works", "task-2": "breaks"}
CONTROL = {"task-1": "accepted", "task-2": "rejected"}
WRITERS = ("leaf", "cto", "coo", "conductor")
# These are passed only where something had gone wrong before, and are struck by tests of their own kind.
SELDOM = frozenset({"record.salvage"})
DISK = ("enospc", "eio", "erofs")


def named_steps() -> set[str]:
    """Every step that the source stands a point around; a name with a writer in it is one for each."""
    found = set()
    files = [*ROOT.glob("*.py"), *(ROOT / "school").rglob("*.py")]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "faults.around":
                name = ast.unparse(node.args[0]).removeprefix("f").strip("'\"")
                found |= (
                    {re.sub(r"\{.*\}", who, name) for who in (*WRITERS, "salvage")} if "{" in name else {name}
                )
    return found


def stage(place: Path, home: Path, armed: str) -> Stage:
    made = Stage(place, home, BEHAVIOURS)
    folder = place / "faults"
    folder.mkdir()
    made.extra = {"SCHOOL_FAULTS": armed, "SCHOOL_FAULTS_DIR": str(folder)}
    return made


def finish(struck: Stage) -> None:
    """The runs after a strike; the fault strikes once, so they are undisturbed."""
    for _ in range(4):
        struck.run()
        if struck.outcomes() == CONTROL:
            return


def passed(place: Path, home: Path) -> Counter[tuple[str, str]]:
    noting = stage(place, home, "note")
    code, run = noting.run()
    assert (code, noting.outcomes()) == (1, CONTROL), run
    assert noting.faults() == []
    lines = (place / "faults" / "passed").read_text().splitlines()
    return Counter((point, program) for point, program in (line.rsplit(" ", 1) for line in lines))


def test_struck_at_named_steps(tmp_path: Path, own_home: Path) -> None:
    reached = passed(tmp_path / "noted", own_home)
    steps = {point.split(":")[0] for point, _ in reached}
    assert named_steps() - steps <= SELDOM
    points = sorted({point for point, _ in reached})
    rng = random.Random(SEED)
    chosen = points if POINTS == "all" else sorted(rng.sample(points, min(int(POINTS), len(points))))
    print(f"\nseed {SEED}: {len(points)} points are passed; struck at {len(chosen)}")
    for number, point in enumerate(chosen):
        kind = "kill" if number % 4 else rng.choice(DISK)
        strike(tmp_path / str(number), own_home, f"{kind}@{point}")
        print(f"  {kind}@{point}: {', '.join(sorted(program for at, program in reached if at == point))}")


def strike(place: Path, home: Path, fault: str) -> None:
    home = home / place.name
    home.mkdir()
    struck = stage(place, home, fault)
    struck.run()
    assert (place / "faults" / fault).exists(), f"{fault} struck nowhere"
    finish(struck)
    assert struck.outcomes() == CONTROL, fault
    assert struck.faults() == [], fault


def test_what_is_armed_wrongly_is_refused(tmp_path: Path, own_home: Path) -> None:
    wrong = stage(tmp_path, own_home, "kill@flag.raised")
    process = wrong.start()
    assert process.wait(60) != 0
    assert "expected kind@step:before or :after" in wrong.logs[-1].with_suffix(".err").read_text()

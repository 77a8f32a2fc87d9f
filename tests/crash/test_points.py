"""``kill -9`` before and after each named durable step, in every program that passes it; and a disk that fails there.

A run that only notes is the control, and tells which steps which program passes; the names in the source are all of them, so
a step that no run passes is told too. Then runs are struck, each at several of these places one after another, and begun
again until all is done: they must end as the control did, with nothing lost, doubled or left over. What is passed only where
something had gone wrong before (a salvage) is learned on the way, and struck like the rest as often as it can be met again.

``SCHOOL_POINTS`` says how many places are struck, drawn by the printed seed ``SCHOOL_SEED`` (``all``: each of them, and each
with a disk that is full, broken and read-only, too); ``SCHOOL_POINT_TIMES``, how often each is killed.
"""

from __future__ import annotations

import ast
import itertools
import os
import random
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.driver import Stage
from tests.crash.strikes import PROGRAMS, WORDS, Hits, campaign, judged, made, program_of
from tests.support import ROOT

pytestmark = [pytest.mark.crash, pytest.mark.timeout(4 * 3600)]

POINTS = os.environ.get("SCHOOL_POINTS", "6")
TIMES = int(os.environ.get("SCHOOL_POINT_TIMES", "1"))
SEED = int(os.environ.get("SCHOOL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
TASKS = 8
WRITERS = ("leaf", "cto", "coo", "conductor")
# These are passed only where something had gone wrong before.
SELDOM = frozenset({"record.salvage"})
DISK = ("enospc", "eio", "erofs")
# How many are struck in one run, by program: teachers are started again ever later, and after five deaths not at all.
AT_ONCE = {"conductor": 12, "cto": 4, "coo": 4, "leaf": 8}
# A leaf that dies before its record or its flag, a teacher that comes second, an end that is begun again.
BAITS = {
    "leaf": ("snapshot.taken:after", "record.leaf:before", "record.leaf:after", "flag.raised:before"),
    "cto": ("review.filed:before", "record.cto:before", "baseline.kept:before"),
    "coo": ("review.filed:before", "record.coo:before", "baseline.kept:before"),
    "conductor": ("record.archived:after", "record.unshelved:before", "record.conductor:after"),
}
# What runs were armed with so often, and not struck by, is struck no more; that is a fault of what every run passes.
TRIES_MAX = 12


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


class Faults:
    """What is still to be struck, each as (kind, point, program), with how often."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.known: set[tuple[str, str]] = set()
        self.usual: set[tuple[str, str]] = set()  # what a run passes that nobody strikes
        self.seldom: list[tuple[str, str, str]] = []
        self.due: Counter[tuple[str, str, str]] = Counter()
        self.tries: Counter[tuple[str, str, str]] = Counter()
        self.struck: Counter[tuple[str, str, str]] = Counter()

    def learn(self, folder: Path) -> None:
        """Whatever is passed in *folder* is due, where all are struck."""
        lines = set((folder / "passed").read_text().splitlines())
        found = {(line.split(" ", 1)[0], program_of(line)) for line in lines} - self.known
        self.known |= found
        self.usual = self.usual or found
        if POINTS == "all":
            for place in sorted(found):
                self.due += Counter({("kill", *place): TIMES} | {(kind, *place): 1 for kind in DISK})

    def choose(self) -> None:
        for number, place in enumerate(self.chance.sample(sorted(self.known), int(POINTS))):
            self.due["kill" if number % 3 else self.chance.choice(DISK), *place] += TIMES

    def draw(self) -> dict[str, tuple[str, str, str]]:
        """What the next run is armed with: some of each program's, and deaths of leaves, so that something is salvaged."""
        armed = {}
        for program in PROGRAMS:
            mine = sorted(fault for fault in self.due if fault[2] == program)
            for kind, point, _ in self.chance.sample(mine, min(len(mine), AT_ONCE[program])):
                tries = self.tries[kind, point, program]
                nth = self.chance.choice(("", "", "#2")) if not tries else ""
                armed[f"{kind}@{point}@{WORDS[program]}{nth}"] = (kind, point, program)
        for kind, point, program in self.baits() if POINTS == "all" else ():
            armed.setdefault(f"{kind}@{point}@{WORDS[program]}", (kind, point, program))
        return armed

    def baits(self) -> list[tuple[str, str, str]]:
        """Deaths after which others pass what they seldom do, of each program that has few of its own left to die."""
        few = [
            program for program in BAITS if sum(fault[2] == program for fault in self.due) < AT_ONCE[program]
        ]
        return [
            ("kill", point, program) for program in few for point in self.chance.sample(BAITS[program], 2)
        ]

    def settle(self, folder: Path, armed: dict[str, tuple[str, str, str]]) -> list[str]:
        """Take what was struck off the list; what never is, is told."""
        for name, fault in armed.items():
            if (folder / name).exists():
                self.struck[fault] += 1
                self.due -= Counter({fault: 1})
                self.tries[fault] = 0
            else:
                self.tries[fault] += 1
        never = [fault for fault in self.due if self.tries[fault] > TRIES_MAX]
        for fault in never:
            del self.due[fault]
            self.seldom.append(fault)
        return [f"{fault} struck nowhere in {TRIES_MAX} runs" for fault in never if fault[1:] in self.usual]

    def shown(self) -> str:
        lines = [f"{'point':<34}{''.join(f'{name:>18}' for name in PROGRAMS)}   (kill enospc eio erofs)"]
        for point in sorted({point for point, _ in self.known}):
            cells = [self._cell(point, program) for program in PROGRAMS]
            lines.append(f"  {point:<32}{''.join(f'{cell:>18}' for cell in cells)}")
        lines += [f"  not met again in {TRIES_MAX} runs: {' '.join(fault)}" for fault in sorted(self.seldom)]
        return "\n".join(lines)

    def _cell(self, point: str, program: str) -> str:
        if (point, program) not in self.known:
            return "."
        return " ".join(str(self.struck[kind, point, program]) for kind in ("kill", *DISK))


def arm(stage: Stage, faults: list[str]) -> Path:
    folder = stage.place / "faults"
    folder.mkdir()
    stage.extra = {"SCHOOL_FAULTS": ",".join(["note", *faults]), "SCHOOL_FAULTS_DIR": str(folder)}
    return folder


class Watch:
    """Counts what the strikes hit, as soon as each is seen in the folder."""

    def __init__(self, stage: Stage, folder: Path, hits: Hits) -> None:
        self.stage, self.folder, self.hits = stage, folder, hits
        self.seen: set[str] = {"passed"}

    def look(self, _runner: subprocess.Popen[bytes]) -> None:
        for path in self.folder.iterdir():
            if path.name not in self.seen and (words := path.read_text()):
                self.seen.add(path.name)
                self.hits.count(self.stage.unfinished(), program_of(words), words)

    def struck(self) -> int:
        return len(self.seen)


def test_struck_at_named_steps(tmp_path: Path, own_home: Path) -> None:
    chance, hits = random.Random(SEED), Hits()
    faults = Faults(chance)
    control = made(tmp_path / "control", own_home, TASKS)
    folder = arm(control, [])
    assert control.run()[0] == 1
    assert (control.outcomes(), control.faults()) == (control.control, [])
    faults.learn(folder)
    assert named_steps() - {point.split(":")[0] for point, _ in faults.known} <= SELDOM
    if POINTS != "all":
        faults.choose()
    print(
        f"\nSCHOOL_SEED={SEED}: {len(faults.known)} places are passed; {faults.due.total()} strikes are due"
    )
    wrong: list[str] = []
    try:
        for number in itertools.count(1):
            if not faults.due:
                break
            wrong += struck_run(tmp_path / f"run-{number}", own_home, faults, hits)
    finally:  # also of one that somebody breaks off
        print(f"{faults.shown()}\n{hits.shown()}")
    assert wrong == []
    if POINTS == "all":
        assert named_steps() == {point.split(":")[0] for point, _ in faults.known}
        reached = {state for _, state in hits.bars}
        assert [state for _, state in hits.empty() if state not in reached] == []


def struck_run(place: Path, home: Path, faults: Faults, hits: Hits) -> list[str]:
    """One repository, struck at some of what is due until all of its tasks are done; what is wrong with it then."""
    # Conductors are struck most of all, and meet all of their steps at half of the tasks.
    rest = any(program != "conductor" for *_, program in faults.due)
    stage = made(place, home, TASKS if rest else TASKS // 2)
    armed = faults.draw()
    folder = arm(stage, list(armed))
    watch = Watch(stage, folder, hits)
    found = campaign(stage, watch.look, watch.struck)
    faults.learn(folder)
    found += faults.settle(folder, armed)
    print(
        f"{place.name}: {watch.struck() - 1} strikes, {faults.due.total()} are due; {found or 'holds'}",
        flush=True,
    )
    return judged(stage, found, f"SCHOOL_SEED={SEED}, struck in this order: {order(folder, armed)}")


def order(folder: Path, armed: dict[str, tuple[str, str, str]]) -> str:
    struck = [path for path in folder.iterdir() if path.name in armed]
    return ", ".join(path.name for path in sorted(struck, key=lambda path: path.stat().st_mtime_ns))


def test_what_is_armed_wrongly_is_refused(tmp_path: Path, own_home: Path) -> None:
    wrong = Stage(tmp_path, own_home)
    arm(wrong, ["kill@flag.raised"])
    process = wrong.start()
    assert process.wait(60) != 0
    assert "expected kind@step:before or :after" in wrong.logs[-1].with_suffix(".err").read_text()

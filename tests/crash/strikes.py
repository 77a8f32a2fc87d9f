"""What the long crash tests share: where the strikes hit, runs that are begun again until all is done, and the verdict.

``Hits`` counts, for each program that was struck, the states of the beads that it had to do with at that moment, and prints
them as a histogram. ``campaign`` is one repository with its state directory, struck by what the caller does while a run lives.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from school.records.moves import STATES
from tests.crash.driver import Stage

PROGRAMS = ("conductor", "cto", "coo", "leaf")
# By which word of its command line a program is known.
WORDS = {"conductor": "conductor.py", "cto": "cto", "coo": "coo", "leaf": "leaf.py"}
# In which states a program that dies can leave a bead that it has to do with. A leaf whose student failed has written so.
CAN_BE_HIT = {
    "conductor": STATES,
    "cto": ("WRITTEN", "COO_REVIEWED"),
    "coo": ("WRITTEN", "CTO_REVIEWED"),
    "leaf": ("RUNNING", "WRITTEN", "FAILED", "BLOCKED"),
}
BARS = [(program, state) for program in PROGRAMS for state in CAN_BE_HIT[program]]
# Of forty tasks, on a machine that has much else to do.
RUN_S_MAX = 900.0
# As many as a run needs for the tasks themselves, whatever was struck before: the next run, and one after it.
UNDISTURBED = 3
KINDS = ("works", "breaks", "works", "blocks", "works", "fails", "idles", "works")


def behaviours(number: int) -> dict[str, str]:
    return {f"task-{at + 1}": KINDS[at % len(KINDS)] for at in range(number)}


def program_of(words: str) -> str:
    """The program with that command line."""
    return next(name for name, word in WORDS.items() if word in words.split())


class Hits:
    """Program and state, each with how many beads stood there when a strike came."""

    def __init__(self) -> None:
        self.bars: Counter[tuple[str, str]] = Counter()
        self.strikes: Counter[str] = Counter()

    def count(self, beads: dict[str, str], program: str, words: str) -> None:
        """A strike of the *program* with that command line; *beads* is what stood where."""
        self.strikes[program] += 1
        for bead, state in beads.items():
            if state in CAN_BE_HIT.get(program, ()) and (program != "leaf" or bead in words.split()):
                self.bars[program, state] += 1

    def empty(self) -> list[tuple[str, str]]:
        return [bar for bar in BARS if not self.bars[bar]]

    def shown(self) -> str:
        most = max(self.bars.values(), default=1)
        lines = [f"strikes: {', '.join(f'{name} {number}' for name, number in sorted(self.strikes.items()))}"]
        for program, state in BARS:
            number = self.bars[program, state]
            lines.append(f"  {program:<10}{state:<14}{number:>6} {'#' * -(-40 * number // most)}")
        return "\n".join(lines)


def ended(stage: Stage, runner: subprocess.Popen[bytes], began: float) -> bool:
    """Whether that run is over; one that does not come to an end is a fault of its own."""
    if runner.poll() is not None:
        return True
    if time.monotonic() - began > RUN_S_MAX:
        runner.send_signal(signal.SIGABRT)
        raise AssertionError(f"a run does not end; its log is {stage.logs[-1].with_suffix('.err')}")
    return False


def campaign(
    stage: Stage, strike: Callable[[subprocess.Popen[bytes]], None], struck: Callable[[], int]
) -> list[str]:
    """Run again and again, *strike* during each, until all is done; what is wrong then. *struck* counts the strikes."""
    undisturbed = 0
    while undisturbed < UNDISTURBED:
        before, began = struck(), time.monotonic()
        runner = stage.start()
        while not ended(stage, runner, began):
            strike(runner)
            time.sleep(0.005)
        undisturbed = 0 if struck() > before else undisturbed + 1
        # What the last strike left over is cleared away by the run after it.
        if undisturbed and runner.returncode in (0, 1) and stage.outcomes() == stage.control:
            break
    stage.gone_by(time.monotonic() + 2.0)
    told = {task: (end, stage.outcomes().get(task)) for task, end in stage.control.items()}
    wrong = [f"{task} ended {ends[1]}, not {ends[0]}" for task, ends in told.items() if ends[0] != ends[1]]
    return [*wrong, *stage.faults()]


def judged(stage: Stage, wrong: list[str], what: str) -> list[str]:
    """*wrong*, each with where to look; a place that nothing is wrong with is not kept."""
    if not wrong:
        shutil.rmtree(stage.place)
        shutil.rmtree(stage.state)
    return [f"{what} ({stage.place}): {why}" for why in wrong]


def made(place: Path, home: Path, tasks: int) -> Stage:
    """A stage with a state directory of its own, and tasks that are done in no time."""
    own = home / place.name
    own.mkdir()
    (own / ".gitconfig").write_text((home / ".gitconfig").read_text())
    return Stage(place, own, behaviours(tasks), grains=100, pause_s=0.1)

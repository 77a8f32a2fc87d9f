"""What every benchmark shares: medians, and one line a goal that says measured, raw, ratio and goal.

A benchmark measures a raw baseline in the same run and prints ratios to it, because absolute times say more about
the machine than about the program. Exit status 1 when a goal is missed, so that a job can gate on it. What is measured is
the program as it is installed, with its byte code beside it: an environment that forbids that is not taken over.
"""

from __future__ import annotations

import compileall
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
compileall.compile_dir(ROOT / "school", quiet=2)
compileall.compile_dir(ROOT, maxlevels=0, quiet=2)

SHORT = bool(os.environ.get("BENCHMARK_SHORT"))


def percentile(values: list[float], share: float) -> float:
    """The value below which *share* of *values* lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def timed(work: Callable[[], object], rounds: int) -> list[float]:
    """Seconds that each of *rounds* calls took."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return times


def alternated(*works: Callable[[], object], rounds: int, block: int = 20) -> list[list[float]]:
    """Times of each work, taken in turns of *block* calls, so that a slow moment of the machine hits all alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(max(1, rounds // block)):
        for work, gathered in zip(works, times, strict=True):
            gathered.extend(timed(work, block))
    return times


class Goals:
    """Gathers results and prints them; ``close`` exits with 1 when one was missed."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.rows: list[dict[str, object]] = []
        self.notes: list[str] = []
        self.missed = 0

    def note(self, text: str) -> None:
        """What a row does not say: where the time went, say."""
        print(f"{self.title}: {text}", flush=True)
        self.notes.append(text)

    def add(self, what: str, measured: float, goal: float, *, unit: str, raw: float | None = None) -> None:
        """One goal: *measured* (a ratio to *raw*, if given) must be at most *goal*."""
        value = measured if raw is None else measured / raw
        self._row(what, value, goal, met=value <= goal, sign="<=", unit=unit, measured=measured, raw=raw)

    def add_least(
        self, what: str, measured: float, goal: float, *, unit: str, raw: float | None = None
    ) -> None:
        """One goal: *measured* (a ratio to *raw*, if given) must be at least *goal*."""
        value = measured if raw is None else measured / raw
        self._row(what, value, goal, met=value >= goal, sign=">=", unit=unit, measured=measured, raw=raw)

    def _row(
        self,
        what: str,
        value: float,
        goal: float,
        *,
        met: bool,
        sign: str,
        unit: str,
        measured: float,
        raw: float | None,
    ) -> None:
        self.missed += not met
        kind = "x raw" if raw is not None else unit
        shown = f"{self.title}: {what}: {value:.3g} {kind}, goal {sign} {goal:g} {kind}"
        if raw is not None:
            shown += f" ({measured:.4g} {unit}, raw {raw:.4g} {unit})"
        print(shown + ("" if met else "  MISSED"), flush=True)
        self.rows.append(
            {
                "what": what,
                "value": value,
                "goal": goal,
                "unit": kind,
                "met": met,
                "measured": measured,
                "raw": raw,
            }
        )

    def close(self) -> None:
        if "--json" in sys.argv:
            print(json.dumps({"benchmark": self.title, "rows": self.rows, "notes": self.notes}))
        sys.exit(1 if self.missed else 0)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A directory for the run, on the disk that a state directory would be on."""
    return tempfile.TemporaryDirectory(prefix="schoolhouse-benchmark-")

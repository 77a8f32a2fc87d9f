"""A run of some tasks, a killer, and what must hold afterwards.

``Stage`` is one repository with one state directory. ``Stage.run`` starts ``conductor.py`` as a user would;
``Stage.victims`` finds the processes by what ``ps`` shows of them; ``Stage.faults`` names everything that is left
over, counted twice, or lost once the dust has settled.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from bookbag import bookbag_state
from school.contracts import UNCHARGED_REASONS
from school.system import foreign
from tests.support import CALC_FILES, ROOT, git, write_tree

# Not text, so that nobody takes it for lines.
GRAIN = b"large\0\n"
LARGE, HUGE = 40_000, 100 * 1000 * 1000 // len(GRAIN) + 1
# Who writes a hundred megabytes, where anybody does.
HUGE_TASK = "task-2"

TASKS = {f"task-{number}": "breaks" if number in (3, 6) else "works" for number in range(1, 9)}

# How a task ends by what its student does; asserted on real runs without any killing.
ENDS = {
    "works": "accepted",
    "breaks": "rejected",
    "fails": "failed",
    "blocks": "blocked",
    "idles": "no_change",
}


def control_of(behaviours: dict[str, str]) -> dict[str, str]:
    return {task: ENDS[behaviour] for task, behaviour in behaviours.items()}


CONTROL = control_of(TASKS)
# A conductor is killed as often as the test likes, and each death interrupts the same tasks.
LIMITS = "\n[limits]\nmax_interruptions = 10000\n"


@functools.cache
def large_blob(grains: int) -> str:
    """The git blob id of the large file with so many grains."""
    digest = hashlib.sha1(b"blob %d\0" % (grains * len(GRAIN)), usedforsecurity=False)
    for _ in range(grains // 1000):
        digest.update(GRAIN * 1000)
    digest.update(GRAIN * (grains % 1000))
    return digest.hexdigest()


# How much of its way a bead in that state has gone.
WEIGHTS = {
    "RUNNING": 0.15,
    "WRITTEN": 0.4,
    "CTO_REVIEWED": 0.6,
    "COO_REVIEWED": 0.6,
    "REVIEWED": 0.8,
    "SCORED": 0.9,
    "FAILED": 0.9,
    "DISPOSED": 1.0,
}


def written_by(task: str, grains: int = LARGE) -> dict[bytes, str]:
    """Path to git blob id of the files that the student of *task* writes, symlink and nested file included."""
    name = task.replace("-", "_")

    def blob(data: bytes) -> str:
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()

    stem = f"calc/{name}".encode()
    return {
        stem + b".py": blob(f"NAME = {name!r}\n".encode()),
        stem + b"-tool": blob(b"#!/bin/sh\nexit 0\n"),
        stem + b"-link": blob(f"{name}.py".encode()),
        stem + b"-large.bin": large_blob(grains),
        stem + b"-caf\xe9.txt": blob(b"odd\n"),
        stem + b"-nested/inside.txt": blob(f"nested {name}\n".encode()),
    }


class Stage:
    """One repository, one state directory, and the runs on them."""

    def __init__(
        self,
        place: Path,
        home: Path,
        behaviours: dict[str, str] | None = None,
        *,
        grains: int = LARGE,
        huge: bool = False,
        pause_s: float = 0.7,
    ) -> None:
        self.place, self.huge, self.size, self.pause_s = place, huge, grains, pause_s
        self.behaviours = TASKS if behaviours is None else behaviours
        self.control = control_of(self.behaviours)
        self.extra: dict[str, str] = {}
        self.home = home
        self.repo = place / "calc"
        self.state = home / ".hermes"
        self.ledger = place / "written"
        self.logs: list[Path] = []
        self.ledger.mkdir(parents=True)
        write_tree(self.repo, CALC_FILES)
        with (self.repo / "school.toml").open("a") as file:
            file.write(f'{LIMITS}[sandbox]\nwrite = ["{self.ledger}"]\n')
        git(self.repo, "init", "-q")
        git(self.repo, "add", ".")
        git(self.repo, "commit", "-q", "-m", "Begin")
        self.tasks = place / "tasks.yaml"
        self.tasks.write_text(
            json.dumps({"version": 1, "tasks": [self.task(name) for name in self.behaviours]})
        )

    def task(self, name: str) -> dict[str, Any]:
        behaviour, module = self.behaviours[name], name.replace("-", "_")
        student = [sys.executable, str(ROOT / "tests" / "crash" / "student.py"), module, behaviour]
        wanted = "calc" if behaviour == "idles" else f"calc.{module}"
        return {
            "id": name,
            "role": "executor",
            "task": f"Write the files of {name}.",
            "run": [*student, str(self.grains(name)), str(self.pause_s), str(self.ledger)],
            "max_attempts": 1,
            "accept": [{"text": "the module is there", "check": ["python3", "-c", f"import {wanted}"]}],
        }

    def grains(self, task: str) -> int:
        return HUGE if self.huge and task == HUGE_TASK else self.size

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "COV_"))}
        own = {"HOME": str(self.home), "HERMES_HOME": str(self.state), "HANDOFF_POLL_INTERVAL": "1"}
        # Not through the shims of a version manager, which take longer than what they start.
        own["PATH"] = os.pathsep.join([str(Path(sys.executable).resolve().parent), kept.get("PATH", "")])
        return {**kept, **own, **self.extra}

    def start(self, *extra: str) -> subprocess.Popen[bytes]:
        log = self.place / f"run-{len(self.logs)}.json"
        self.logs.append(log)
        command = [sys.executable, str(ROOT / "conductor.py"), "--repo", str(self.repo), "--json", "--loop"]
        command += ["--rounds", "6", "--leaves", "3", *(extra or ("--tasks", str(self.tasks)))]
        with log.open("wb") as out, log.with_suffix(".err").open("wb") as err:
            return subprocess.Popen(
                command,
                env=self.env,
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def run(self, *extra: str, timeout_s: float = 240) -> tuple[int, dict[str, Any]]:
        process = self.start(*extra)
        try:
            code = process.wait(timeout_s)
        finally:
            if process.poll() is None:
                process.kill()
        return code, json.loads(self.logs[-1].read_text() or "{}")

    # --- what is there ----------------------------------------------------------------------------------

    def ours(self) -> list[psutil.Process]:
        """Every living process that carries this stage's state directory in its environment."""
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("HERMES_HOME") == str(self.state)
                if (mine or str(self.place) in " ".join(process.cmdline())) and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if process.pid != os.getpid()]

    def gone_by(self, end: float) -> list[str]:
        """Wait until all of ours are gone, at most until *end*; who is not."""
        while (left := self.ours()) and time.monotonic() < end:
            time.sleep(0.05)
        names = []
        for process in left:
            with contextlib.suppress(psutil.Error):
                names.append(f"{process.pid} {process.cmdline()}")
        return names

    def victims(self, kind: str) -> list[psutil.Process]:
        words = {
            "conductor": ("conductor.py", "--repo"),
            "cto": ("teacher.py", "cto"),
            "coo": ("teacher.py", "coo"),
            "leaf": ("leaf.py", "--bead"),
        }[kind]
        found = []
        for process in self.ours():
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if all(word in line for word in words) and "warden" not in line:
                found.append(process)
        # A child between fork and exec still has its parent's command line; it is not another of the kind.
        pids = {process.pid for process in found}
        return [process for process in found if _parent_of(process) not in pids]

    def wardens(self) -> list[psutil.Process]:
        """The processes that a leaf or a teacher runs a foreign command below."""
        programs = {process.pid for kind in ("cto", "coo", "leaf") for process in self.victims(kind)}
        found = []
        for process in self.ours():
            with contextlib.suppress(psutil.Error):
                if foreign.WARDEN in process.cmdline() and process.ppid() in programs:
                    found.append(process)
        return found

    def states(self) -> Counter[str]:
        """How many beads stand in which state at this moment, archived ones as DISPOSED."""
        states: Counter[str] = Counter()
        for bag in self.live():
            states[bookbag_state(bag)] += 1
        archive = self.state / "bookbag" / "archive"
        states["DISPOSED"] = len(list(archive.iterdir())) if archive.is_dir() else 0
        return states

    def progress(self) -> float:
        """How far the run has come, 0 to 1: each task by the state of its bead."""
        states = self.states()
        return sum(WEIGHTS.get(state, 0.0) * number for state, number in states.items()) / len(
            self.behaviours
        )

    def begun(self) -> float:
        """How many of the tasks have had a student, 0 to 1."""
        return sum(self.states().values()) / len(self.behaviours)

    def archived(self) -> list[dict[str, Any]]:
        return [_read(path) for path in (self.state / "bookbag" / "archive").glob("*/bookbag.json")]

    def live(self) -> Iterator[dict[str, Any]]:
        for path in sorted((self.state / "bookbag").glob("*.json")):
            with contextlib.suppress(FileNotFoundError):  # archived since
                yield json.loads(path.read_text())

    def outcomes(self) -> dict[str, str]:
        """Each task's last charged outcome, as ``list --all`` would tell it; of what waits for a human, too."""
        last = {}
        waiting = [bag for bag in self.live() if bag.get("outcome") == "blocked"]
        for bag in sorted([*self.archived(), *waiting], key=lambda bag: bag["timestamp"]):
            if bag["outcome"] and bag.get("reason") not in UNCHARGED_REASONS:
                last[bag["task_id"]] = bag["outcome"]
        return last

    def unfinished(self) -> dict[str, str]:
        """Bead to state of those whose end has not come; DISPOSED is one that the archive has, and more than it."""
        archive = self.state / "bookbag" / "archive"
        found = {}
        for bag in self.live():
            if not (bag.get("status") == "blocked" and bag.get("outcome")):
                gone = (archive / bag["bead"] / "bookbag.json").exists()
                found[bag["bead"]] = "DISPOSED" if gone else bookbag_state(bag)
        for path in (self.state / "school" / "worktrees").glob("study-*.json"):
            with contextlib.suppress(FileNotFoundError):
                bead = str(json.loads(path.read_text())["bead"])
                if (archive / bead / "bookbag.json").exists():
                    found[bead] = "DISPOSED"
        return found

    # --- what must hold ---------------------------------------------------------------------------------

    def wanted_files(self) -> Iterator[tuple[bytes, str]]:
        """Path and git blob id of all that a student has written, in whichever attempt."""
        for task, behaviour in self.behaviours.items():
            if behaviour != "idles":
                yield from written_by(task, self.grains(task)).items()
        for path in self.ledger.glob("[!.]*"):
            name, blob = path.read_text().rsplit(" ", 1)
            yield name.encode(), blob

    def lost_files(self) -> list[str]:
        """Files that a student wrote and that are in no commit of the user's repository, by path and content."""
        commits = git(
            self.repo, "for-each-ref", "--format=%(objectname)", "refs/school", "refs/heads"
        ).split()
        held: set[tuple[bytes, str]] = set()
        for commit in dict.fromkeys(commits):
            raw = subprocess.run(
                ["git", "ls-tree", "-r", "-z", commit], cwd=self.repo, capture_output=True, check=True
            ).stdout
            for entry in raw.split(b"\0"):
                if entry:
                    meta, path = entry.split(b"\t", 1)
                    held.add((path, meta.split()[2].decode()))
        return [f"{path!r}" for path, blob in self.wanted_files() if (path, blob) not in held]

    def faults(self) -> list[str]:
        """Everything wrong with this stage after its last run ended; empty is the promise."""
        faults = [f"lost {name}" for name in self.lost_files()]
        faults += [f"process {process.pid} {process.cmdline()}" for process in self.ours()]
        faults += [f"flag {path.name}" for path in (self.state / "signals").glob("*")]
        faults += [f"lock {path.name}" for path in (self.state / "locks").glob("*.lock")]
        faults += [f"worktree {path}" for path in (self.state / "worktrees").glob("*/study-*")]
        faults += [
            f"worktree record {path.name}" for path in (self.state / "school/worktrees").glob("study-*.json")
        ]
        faults += [f"bead repository {path.name}" for path in (self.state / "school" / "beads").glob("*")]
        faults += [f"live bag {bag['bead']}" for bag in self.live() if bag.get("outcome") != "blocked"]
        faults += [f"temporary {path}" for path in self.state.rglob(".*.tmp")]
        faults += self._doubles()
        check = subprocess.run(
            [sys.executable, str(ROOT / "conductor.py"), "check", "--repo", str(self.repo), "--json"],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if check.returncode:
            faults += [f"check {row}" for row in json.loads(check.stdout or "[]") if not row["ok"]]
        return faults

    def _doubles(self) -> list[str]:
        faults = []
        for journal in ("score-journal.jsonl", "deliveries.jsonl"):
            path = self.state / "school" / journal
            lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            # A delivery is journalled twice: the intent, and that it is done.
            beads = Counter(line["bead"] for line in lines if line.get("step") != "intent")
            faults += [f"{journal} has {bead} {number} times" for bead, number in beads.items() if number > 1]
        branches = git(self.repo, "for-each-ref", "--format=%(refname:short)", "refs/heads/school").split()
        accepted = [task for task, end in self.control.items() if end == "accepted"]
        if sorted(branches) != sorted(f"school/{task}" for task in accepted):
            faults.append(f"branches {branches}")
        return [*faults, *self._judged_twice()]

    def _judged_twice(self) -> Iterator[str]:
        """A verdict is one review file and one entry in the record's history; what was ended for good, one bead."""
        school = self.state / "school"
        reviews = Counter(
            (file["bead"], file["role"]) for file in map(_read, (school / "reviews").glob("*.json"))
        )
        yield from (f"{who} has {number} reviews" for who, number in reviews.items() if number > 1)
        logs = [
            line
            for path in (school / "logs").glob("teacher-*.jsonl")
            for line in path.read_text().splitlines()
        ]
        said = [json.loads(line) for line in logs if "verdict.entered" in line]
        entered = Counter((line["bead"], line["role"]) for line in said)
        yield from (f"{who} entered {number} verdicts" for who, number in entered.items() if number > 1)
        bags = [*self.archived(), *self.live()]
        for bag in bags:
            states = Counter(step["state"] for step in bag["history"])
            yield from (
                f"{bag['bead']} was {state} {number} times" for state, number in states.items() if number > 1
            )
        ended = Counter(
            (bag["repo_key"], bag["task_id"]) for bag in bags if bag.get("reason") not in UNCHARGED_REASONS
        )
        yield from (f"{task} was done {number} times" for task, number in ended.items() if number > 1)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _parent_of(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0


def strike(process: psutil.Process, number: int) -> bool:
    """Send signal *number*; False when the process had already gone."""
    try:
        process.send_signal(signal.Signals(number))
    except psutil.NoSuchProcess:
        return False
    return True

"""Eight processes on one bead, a dead owner's lock before each round: never two inside, no update lost.

``STORM_ROUNDS`` says how many rounds; 10000 is the promise, the default is what a quick test run can afford.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bookbag
from school.settings import Settings
from school.system import identity
from tests.crash.bookbag_worker import BEAD
from tests.records_support import running
from tests.support import ROOT

ROUNDS = int(os.environ.get("STORM_ROUNDS", "150"))
PROCESSES = 8


def start(school: Settings, *args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "crash" / "bookbag_worker.py"), *args],
        env={**os.environ, **school.environment(), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )


def dead_owners() -> list[str]:
    """The texts of owners who are provably dead, each in another way."""
    gone = subprocess.run([sys.executable, "-c", ""], check=True) and "4194303"
    pid, *lines = identity.this_process("storm").text.splitlines()
    facts = {line.partition("=")[0]: line.partition("=")[2] for line in lines}

    def text(pid: str, **changed: str) -> str:
        return "\n".join([pid, *(f"{name}={value}" for name, value in (facts | changed).items())]) + "\n"

    return [
        text(str(gone), start="7"),
        text(pid, start="7"),
        text(pid, boot="00000000-0000-0000-0000-000000000000"),
        f"{gone}\n",
        "",
    ]


@pytest.mark.crash
@pytest.mark.timeout(60 + ROUNDS // 2)
def test_lock_storm(school: Settings, tmp_path: Path) -> None:
    running(BEAD, count=0)
    lock = school.lock_dir / f"{BEAD}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    workers = [start(school, "storm", str(tmp_path / "inside")) for _ in range(PROCESSES)]
    owners = dead_owners()
    answers: dict[bytes, int] = {}
    for number in range(ROUNDS):
        owner = owners[number % len(owners)]
        lock.write_text(owner)
        old = time.time() - 60
        os.utime(lock, (old, old))  # an empty file is nobody's only once it is old
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(b"g")
        for worker in workers:
            assert worker.stdout is not None
            answer = worker.stdout.read(1) or b""
            answers[answer] = answers.get(answer, 0) + 1
    for worker in workers:
        worker.communicate(timeout=30)
        assert worker.returncode == 0
    bag = bookbag.read_bookbag(BEAD)
    assert bag is not None
    assert answers == {b".": ROUNDS * PROCESSES}
    assert (bag["count"], bag["rev"]) == (ROUNDS * PROCESSES, ROUNDS * PROCESSES + 1)
    assert not [path.name for path in school.lock_dir.iterdir() if path.suffix in (".lock", ".tmp")]

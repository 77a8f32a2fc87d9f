"""A process that the crash tests of the bookbag start: it writes, and is killed while it does.

``storm``: one update a byte on stdin, answered with a byte: ``.`` done, ``O`` somebody else was inside too.
``kills N``: forks N writers one after another, kills each in the middle, and reads the record after each.
``archives N``: forks N times, kills each in the middle of archiving a bead of its own, and archives it again.
``read``: reads without end, until stdin closes; exits 1 at the first record that is not whole.
"""

from __future__ import annotations

import hashlib
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock  # noqa: F401 - a takeover loads it; a fork that lives for milliseconds must find it loaded

import bookbag

BEAD = "coder-python-0a1b2c3d"
KILL_WITHIN_S = 0.02


def storm(marker: Path) -> None:
    inside = False

    def change(bag: dict[str, Any]) -> dict[str, Any]:
        nonlocal inside
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            inside = True
        bag["count"] += 1
        marker.unlink(missing_ok=True)
        return bag

    while os.read(0, 1):
        inside = False
        done = bookbag.update_bookbag(BEAD, change, by="conductor", lock_timeout=60.0)
        os.write(1, b"O" if inside else b"." if done else b"T")


def payload() -> dict[str, str]:
    text = random.randbytes(random.randrange(100, 20_000)).hex()
    return {"payload": text, "sha": hashlib.sha256(text.encode()).hexdigest()}


def whole(bag: dict[str, Any] | None) -> bool:
    return bag is not None and hashlib.sha256(bag["payload"].encode()).hexdigest() == bag["sha"]


def write_for_ever() -> None:
    while True:
        bookbag.update_bookbag(BEAD, lambda bag: bag | payload(), by="conductor", lock_timeout=60.0)


def how_long(work: Callable[[], object]) -> float:
    """A window in which a fork of this process does *work* about once, on this machine, now."""
    work()  # what the forks need is loaded here, once
    begun = time.monotonic()
    for _ in range(5):
        work()
    return 0.005 + 2 * (time.monotonic() - begun) / 5


def kills(rounds: int) -> int:
    last = 0
    window_s = how_long(lambda: bookbag.update_bookbag(BEAD, lambda bag: bag | payload(), by="conductor"))
    for _ in range(rounds):
        child = os.fork()
        if child == 0:
            write_for_ever()
        time.sleep(random.uniform(0.0, window_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        bag = bookbag.read_bookbag(BEAD)
        if not whole(bag) or bag is None or bag["rev"] < last:
            return 1
        # About every second one gets through a write, however busy the machine becomes meanwhile.
        window_s *= 0.9 if bag["rev"] > last else 1.1
        last = bag["rev"]
    # Whatever the last of the dead held, the next writer has it.
    done = bookbag.update_bookbag(BEAD, lambda bag: bag | {"summary": "after"}, by="conductor")
    print(last)
    return 0 if done else 2


def archives(rounds: int) -> int:
    """Archive bead after bead, killed in the middle; done again it is whole, with everything that belongs to it."""
    extra: dict[str, bytes | Path] = {
        name: name.encode() * 2000 for name in ("brief.json", "stdout", "diff.patch")
    }
    halfway = 0
    for number in range(rounds):
        bead = f"coder-archive-{number:08x}"
        bookbag.write_bookbag(bead, task="t", student="coder", domain="d", difficulty="easy", status="failed")
        child = os.fork()
        if child == 0:
            bookbag.archive_bookbag(bead, extra)
            os._exit(0)
        time.sleep(random.uniform(0.0, KILL_WITHIN_S))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        archived, live = bookbag.read_archived(bead), bookbag.read_bookbag(bead)
        if archived is None and live is None:
            return 1
        halfway += archived is None or live is not None
        place = bookbag.archive_bookbag(bead, extra)
        kept = {path.name: path.read_bytes() for path in place.iterdir()}
        if kept.pop("bookbag.json", b"") == b"" or kept != extra or bookbag.read_bookbag(bead) is not None:
            return 2
    print(halfway)
    return 0


def read() -> int:
    reads = 0
    while not select.select([0], [], [], 0)[0]:
        if not whole(bookbag.read_bookbag(BEAD)):
            return 1
        reads += 1
    print(reads)
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["storm", marker]:
            storm(Path(marker))
        case ["kills", rounds]:
            sys.exit(kills(int(rounds)))
        case ["archives", rounds]:
            sys.exit(archives(int(rounds)))
        case ["read"]:
            sys.exit(read())
        case _:
            sys.exit(f"unknown: {sys.argv[1:]}")

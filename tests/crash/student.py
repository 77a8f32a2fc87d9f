"""The student of the crash tests: ``student.py NAME BEHAVIOUR GRAINS PAUSE_S LEDGER``, run in its working tree.

Writes one file of each kind that has been lost by somebody's tool, edits the package, and takes its time. Every attempt
also writes a file of its own, and then notes its path and git blob id in the folder LEDGER, outside the tree: what is noted
there had been written, and must be in some commit, whoever was killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path


def main(name: str, behaviour: str, grains: str, pause_s: str, ledger: str) -> int:
    if behaviour == "idles":
        return claim("no_change")
    here = Path("calc")
    write_files(here, name, int(grains))
    note_own_file(here, name, Path(ledger))
    time.sleep(float(pause_s) / 2)
    if behaviour == "breaks":
        core = here / "core.py"
        core.write_text(core.read_text().replace("left + right", "left - right"))
    time.sleep(float(pause_s) / 2)
    return claim({"blocks": "blocked", "fails": "failed"}.get(behaviour, "done"))


def claim(status: str) -> int:
    said = {"status": status, "summary": "", "blockers": ["it takes a human"] if status == "blocked" else []}
    Path(os.environ["SCHOOL_RESULT"]).write_text(json.dumps(said))
    return 0


def write_files(here: Path, name: str, grains: int) -> None:
    (here / f"{name}.py").write_text(f"NAME = {name!r}\n")
    tool = here / f"{name}-tool"
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    (here / f"{name}-link").symlink_to(f"{name}.py")
    (here / f"{name}-large.bin").write_bytes(b"large\0\n" * grains)
    with open(os.fsencode(here / name) + b"-caf\xe9.txt", "wb") as odd:  # noqa: PTH123 - no text names it
        odd.write(b"odd\n")
    nested = here / f"{name}-nested"
    nested.mkdir()
    (nested / "inside.txt").write_text(f"nested {name}\n")
    subprocess.run(["git", "init", "-q"], cwd=nested, check=True)


def note_own_file(here: Path, name: str, ledger: Path) -> None:
    nonce = uuid.uuid4().hex
    data = f"attempt {nonce}\n".encode()
    path = here / f"{name}-{nonce}.txt"
    path.write_bytes(data)
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    half = ledger / f".{nonce}"
    half.write_text(f"{path} {blob}")
    half.rename(ledger / nonce)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

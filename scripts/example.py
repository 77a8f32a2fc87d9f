"""``make run``: the main job on a small example repository, to its accepted branches.

Makes the example and a state directory of its own in a new temporary directory, so that the caller's ``~/.hermes`` is
never touched, runs ``python conductor.py --loop --rounds 2`` there as anybody would, and keeps both to look at. Exits
with the conductor's status.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from school.demo import make_example  # noqa: E402 - the path above makes it importable


def main() -> int:
    place = Path(tempfile.mkdtemp(prefix="schoolhouse-example-"))
    repository = make_example(place / "repository")
    state = place / "hermes"
    command = ["conductor.py", "--repo", str(repository), "--loop", "--rounds", "2"]
    print(f"$ HERMES_HOME={state} python {shlex.join(command)}", flush=True)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "HERMES_HOME": str(state)},
        check=False,
        timeout=600,
    )
    print(f"\nThe repository is {repository}, everything that the school wrote down is below {state}.")
    print(f"$ HERMES_HOME={state} python conductor.py --repo {repository} list --all")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

"""A key in the environment that an agent prints, whole and in pieces, is nowhere on disk and nowhere on the screen."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, git, write_tree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

KEY = "sk-live-9fJ2kQ7xW4nB8vT1"
OTHER = "Zz9Yy8Xx7Ww6Vv5Uu4Tt3"
AGENT = """
import json, os, sys, time
key, other = os.environ["SOME_API_KEY"], os.environ["PLAIN"]
print("whole", key, other, flush=True)
for part in (key[:7], key[7:15], key[15:] + "\\n"):
    sys.stdout.write(part); sys.stdout.flush()
sys.stderr.write("to stderr " + key[:10]); sys.stderr.flush()
sys.stderr.write(key[10:] + "\\n" + json.dumps({"k": key})); sys.stderr.flush()
import base64
print("encoded", base64.b64encode(b"me:" + key.encode()).decode(), key.encode().hex(), key[::-1], flush=True)
open("calc/extra.py", "w").write(f"WORD = {key!r}\\n")
json.dump({"status": "done", "summary": f"used {key}", "blockers": [other]}, open(os.environ["SCHOOL_RESULT"], "w"))
"""
CONFIG = f"""
[setup]
commands = [["{sys.executable}", "-c", "import os; print(os.environ.get('SOME_API_KEY')); raise SystemExit(CODE)"]]
[agents.teller]
kind = "command"
argv = ["{sys.executable}", "TELLER"]
env = ["SOME_API_KEY", "PLAIN"]
"""


@pytest.mark.parametrize("setup_exit", ["0", "1"])
def test_a_key_that_an_agent_prints_appears_nowhere(
    repo: Path, own_home: Path, tmp_path: Path, setup_exit: str
) -> None:
    teller = tmp_path / "teller.py"
    teller.write_text(AGENT)
    config = (repo / "school.toml").read_text() if (repo / "school.toml").exists() else ""
    config += CONFIG.replace("TELLER", str(teller)).replace("CODE", setup_exit)
    write_tree(repo, {"school.toml": config})
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "configure")
    before = git(repo, "rev-parse", "HEAD")

    done = subprocess.run(
        [
            sys.executable, str(ROOT / "conductor.py"), "--repo", str(repo), "--sync", "--agent", "teller",
            "--task", f"Write a word; the key is {KEY}", "--check", "python3 -c 'import calc.extra'",
        ],
        env={**os.environ, "SOME_API_KEY": KEY, "PLAIN": OTHER},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )  # fmt: skip

    said = done.stdout + done.stderr
    assert "rejected 1" in said if setup_exit == "0" else "failed 1" in said or "blocked 1" in said, said
    assert KEY[:9].lower() not in said  # nor in the id that is made of the task's text
    encoded = (base64.b64encode(b"me:" + KEY.encode()).decode()[6:-4], KEY.encode().hex(), KEY[::-1])
    for secret in (KEY, OTHER, *encoded):
        assert secret not in said
        found = subprocess.run(
            # What the agent wrote into its tree is the work, and lies in the teachers' trees as it is.
            ["grep", "-rlaF", "--exclude-dir=worktrees", "--", secret, str(own_home)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.stdout == ""
    kept = subprocess.run(
        ["grep", "-rlF", "[masked SOME_API_KEY]", str(own_home)], capture_output=True, text=True, check=False
    ).stdout
    assert "/bookbag/" in kept
    if setup_exit == "0":
        assert {"stdout", "stderr", "diff.patch", "brief.json", "prompt.md"} <= {
            Path(name).name for name in kept.splitlines()
        }
        # The work itself is whole, and in the repository only once it is asked for.
        assert git(repo, "for-each-ref", "refs/school") == ""
        assert "its work holds a secret, so it stays in our own clone" in said
        bead = said.partition("conductor.py recover ")[2].split()[0]
        recover = [sys.executable, str(ROOT / "conductor.py"), "--repo", str(repo), "recover", bead]
        subprocess.run(recover, check=True, capture_output=True, timeout=60)
        assert KEY in git(repo, "show", f"recovered/{bead}:calc/extra.py")
    assert git(repo, "rev-parse", "HEAD") == before

"""``kill -9`` at any effect of a bead's end (score, delivery, archive, removal): the next run ends it, once.

``CLOSING_KILLS`` times six effects are tried, at random with the seed printed; ``CLOSING_KILLS=all`` tries each.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import bookbag
from school.settings import Settings
from school.status.check import check_document
from school.system import files
from tests import leaves
from tests.building import State
from tests.support import ROOT, git

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

KILLS = os.environ.get("CLOSING_KILLS", "1")
SEED = int(os.environ.get("SCHOOL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
WRITES = "import pathlib; pathlib.Path('calc/new.py').write_text('NEW = 1\\n')"
BLOCKS = """
import json, os
said = {'status': 'blocked', 'summary': '', 'blockers': ['it takes a human']}
pathlib.Path(os.environ['SCHOOL_RESULT']).write_text(json.dumps(said))
"""


class Scene:
    """A reviewed bead with everything that its leaf left; ``again`` puts it all back."""

    def __init__(self, state: State, home: Path, verdict: str) -> None:
        self.state, self.verdict = state, verdict
        blocks = verdict == "BLOCKED"
        does = WRITES + BLOCKS if blocks else WRITES
        self.bead = leaves.new_bead(state.repo, leaves.script(does), task_digest="0123456789ab")
        leaves.run(self.bead, state.settings, status=int(blocks))
        if not blocks:
            state.judge(self.bead, "cto", verdict)
            state.judge(self.bead, "coo")
        self.here, self.kept = home / ".hermes", home / "kept"
        shutil.copytree(self.here, self.kept, symlinks=True)

    def again(self) -> None:
        shutil.rmtree(self.here)
        shutil.copytree(self.kept, self.here, symlinks=True)
        for ref in git(self.state.repo, "for-each-ref", "--format=%(refname)").split():
            if ref != "refs/heads/main":
                git(self.state.repo, "update-ref", "-d", ref)

    def end(self, at: int = 0) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "tests.crash.closing_worker",
            str(self.state.repo),
            self.bead,
            str(at),
        ]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)

    def faults(self) -> list[str]:
        here, accepted, parked = self.state.settings, self.verdict == "PASS", self.verdict == "BLOCKED"
        bag = bookbag.read_bookbag(self.bead) if parked else bookbag.read_archived(self.bead)
        assert bag is not None
        faults = [f"check {row}" for row in check_document(here) if not row["ok"]]
        wanted = {"main": self.state.base} | ({"school/do-it": bag["head_commit"]} if accepted else {})
        if self.state.branches() != wanted:
            faults.append(f"branches {self.state.branches()}")
        if git(self.state.repo, "rev-parse", f"refs/school/{self.bead}") != bag["head_commit"]:
            faults.append("its ref")
        if bag["outcome"] != {"PASS": "accepted", "FAIL": "rejected", "BLOCKED": "blocked"}[self.verdict]:
            faults.append(f"outcome {bag['outcome']}")
        told = [line["step"] for line in files.read_json_lines(here.deliveries_journal)]
        if Counter(told)["delivered"] != accepted or (told and told[-1] != "delivered"):
            faults.append(f"deliveries {told}")
        if len(list(files.read_json_lines(here.score_journal))) != (not parked):
            faults.append("scored more than once")
        left = [
            *here.worktrees_dir.rglob("study-*"),
            *here.bead_repos_dir.glob("*"),
            *here.outputs_dir.glob("*"),
            *here.processes_dir.glob(f"{self.bead}*"),
            *here.logs_dir.glob(f"leaf-{self.bead}*"),
            *here.lock_dir.glob("*.lock"),
            *here.signal_dir.glob("*"),
            *here.archive_dir.glob(".*"),
            *(() if parked else here.bookbag_dir.glob("*.json")),
            *here.bookbag_dir.glob(".*"),
        ]
        return [*faults, *map(str, left)]


@pytest.mark.parametrize("verdict", ["PASS", "FAIL", "BLOCKED"])
def test_killed_at_any_effect(verdict: str, school: Settings, repo: Path, own_home: Path) -> None:
    scene = Scene(State(school, repo), own_home, verdict)
    whole = scene.end()
    assert whole.returncode == 0, whole.stderr
    assert scene.faults() == []
    count = int(whole.stdout.split()[-1])
    effects = range(1, count + 1)
    rng = random.Random(f"{SEED}-{verdict}")
    chosen = effects if KILLS == "all" else sorted(rng.sample(effects, min(count, 6 * int(KILLS))))
    print(f"\nseed {SEED}: {verdict}, {count} effects, killed at {list(chosen)}")
    for at in chosen:
        scene.again()
        assert scene.end(at).returncode == -signal.SIGKILL, at
        if at % 3 == 0:  # and the next one as well
            scene.end(rng.randrange(1, count))
        done = scene.end()
        assert done.returncode == 0, f"killed at effect {at}: {done.stderr}"
        assert scene.faults() == [], f"killed at effect {at}"

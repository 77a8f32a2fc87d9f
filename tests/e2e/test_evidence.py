"""A whole run on a repository that has saved its recipe: receipts of both sides, the ledger, and what `show` prints."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from school.verification.evidence import Ledger
from tests.e2e.projects import bag_of, conduct, environment, receipts
from tests.support import ROOT, git, write_tree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TEST = "python3 -m unittest discover"
RECIPE = {
    "name": "calc",
    "build": ["python3 -m compileall -q calc"],
    "test": [TEST, "test -d calc && test -d tests"],
}
STUDENT = "from pathlib import Path; Path('calc/core.py').open('a').write('\\n\\nLIMIT = 10\\n')"


def test_from_a_saved_recipe_to_receipts_that_can_be_read(repo: Path, own_home: Path) -> None:
    (repo / "school.toml").unlink()
    write_tree(repo, {".hermes/environment.json": json.dumps(RECIPE)})
    git(repo, "add", "-Af", ".")
    git(repo, "commit", "-qm", "Save a recipe")
    env = environment(own_home)
    student = json.dumps([sys.executable, "-c", STUDENT])
    tasks = repo.parent / "tasks.yaml"
    accept = json.dumps([{"text": "LIMIT is 10", "check": ["python3", "-c", "from calc.core import LIMIT"]}])
    tasks.write_text(
        f"version: 1\ntasks:\n  - id: limit\n    task: Add LIMIT.\n    run: {student}\n    accept: {accept}\n"
    )
    code, run, said = conduct("--repo", str(repo), "--tasks", str(tasks), env=env)
    assert (code, run["counts"]["accepted"]) == (0, 1), (run, said)
    bag = bag_of(run["tasks"][0]["bead"], env)

    lines = [["python3", "-m", "compileall", "-q", "calc"], TEST.split(), ["sh", "-c", RECIPE["test"][1]]]
    assert bag["terms"]["verify"] == lines
    base_tree = git(repo, "rev-parse", f"{bag['base_commit']}^{{tree}}")
    ran = receipts(bag, "cto", "verification")
    assert [(r["at"], r["argv"]) for r in ran if r["at"] == "head"] == [("head", argv) for argv in lines]
    assert {(r["at"], r["commit"], r["tree"]) for r in ran} == {
        ("base", bag["base_commit"], base_tree),
        ("head", bag["head_commit"], bag["tree"]),
    }
    assert all(re.fullmatch(r"[0-9a-f]{64}", r["output_sha256"]) for r in ran)
    assert all(r["environment"] and r["duration_s"] > 0 and r["scope"] == "full" for r in ran)
    written = bag["verification"].splitlines()
    assert any(
        re.fullmatch(
            rf"full passed at head: `{TEST}` \(verification; exit 0; 2 passed; [\d.]+ s; commit {bag['head_commit'][:12]}; "
            rf"tree {bag['tree'][:12]}; environment [0-9a-f]{{12}}; output [0-9a-f]{{12}}\)",
            line,
        )
        for line in written
    ), written
    assert bag["evidence"]["words"].startswith("unverified: ")  # the student ran nothing itself

    with (
        Ledger(Path(env["HERMES_HOME"]) / "school" / "evidence.db") as ledger,
        ledger._reading() as connection,
    ):
        rows = connection.execute(
            "SELECT root, canonical_command, status, commit_id, tree FROM verification_events WHERE session_id = ?",
            (bag["bead"],),
        ).fetchall()
    heads = {
        command
        for root, command, status, commit, tree in rows
        if (commit, tree) == (bag["head_commit"], bag["tree"])
    }
    assert {TEST, "python3 -m compileall -q calc"} <= heads
    assert {(commit, tree) for *_, commit, tree in rows} == {
        (bag["base_commit"], base_tree), (bag["head_commit"], bag["tree"]),
    }  # fmt: skip
    assert {Path(root).name.partition("-")[0] for root, *_ in rows} == {"teacher"}

    shown = subprocess.run(
        [sys.executable, str(ROOT / "conductor.py"), "show", bag["bead"]],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    block = shown[shown.index("receipts (on: commit/tree/environment)") :].splitlines()
    assert block[1].split() == [
        "scope",
        "outcome",
        "by",
        "at",
        "exit",
        "tests",
        "took",
        "on",
        "output",
        "check",
    ]
    assert any(
        re.match(rf"full +passed +CTO +head +0 +2 passed +[\d.]+ s +{bag['head_commit'][:8]}/", line)
        for line in block
    )

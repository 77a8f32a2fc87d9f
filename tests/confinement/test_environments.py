"""What set-up commands build and download: read-only for checks, and shared by nobody who should not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.projects import bag_of, conduct, environment, receipts
from tests.support import CALC_FILES, git, require_confinement, write_tree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SETUP = "mkdir -p .venv && echo built > .venv/marker && echo x >> $XDG_CACHE_HOME/downloads"
TEST = """
import os, pathlib, sys, unittest


class Kept(unittest.TestCase):
    def test_kept(self):
        for change in (lambda: pathlib.Path(".venv/marker").write_text("x"), lambda: os.rename(".venv", "gone")):
            with self.assertRaises(OSError) as caught:
                change()
            print(caught.exception, file=sys.stderr)
        self.assertEqual(pathlib.Path(".venv/marker").read_text(), "built\\n")
        cache = pathlib.Path(os.environ["XDG_CACHE_HOME"])
        self.assertFalse((cache / "downloads").exists())
        (cache / "poison").write_text("x")
        pathlib.Path(os.environ["TMPDIR"], "t").write_text("x")
        pathlib.Path("/tmp/t2").write_text("x")
"""


def test_kept_folders_are_read_only_and_caches_are_apart(tmp_path: Path, own_home: Path) -> None:
    require_confinement()
    repo, env = tmp_path / "project", environment(own_home)
    verify = [sys.executable, "-m", "unittest", "discover", "-v"]
    toml = f"[verify]\ncommands = {json.dumps([verify])}\n[setup]\ncommands = {json.dumps([['sh', '-c', SETUP]])}\n"
    files = {"school.toml": toml, ".gitignore": ".venv/\n__pycache__/\n", "tests/test_kept.py": TEST}
    write_tree(repo, {**CALC_FILES, **files})
    git(repo, "init", "-q")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "Begin")
    argv = ("--repo", str(repo), "--task", "Tidy", "--role", "executor", "--chore", "unused-imports")
    code, run, told = conduct(*argv, env=env, timeout_s=280)
    assert (code, run["counts"]["accepted"]) == (0, 1), told
    bag = bag_of(run["tasks"][0]["bead"], env)
    heads = [r for r in receipts(bag, "cto", "verification") if r["at"] == "head"]
    assert any("Read-only file system" in line for r in heads for line in r["refused"])
    caches = own_home / ".hermes" / "school" / "caches"
    found = {path.relative_to(caches).as_posix() for path in caches.rglob("*") if path.is_file()}
    assert found == {"students/downloads", "cto/downloads", "coo/downloads"}
    # What stays was built once a teacher, not once a look.
    assert (caches / "coo" / "downloads").read_text() == "x\n"

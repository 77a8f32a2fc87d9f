"""Whole runs in which a student, or a test that a teacher runs, tries to get out. Nothing comes of it, and it is said."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from school.contracts import AgentSpec
from tests.confinement.attempts import REFUSED, source
from tests.e2e.projects import bag_of, conduct, environment, receipts
from tests.support import CALC_FILES, git, require_confinement, write_tree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CLEAN = "from pathlib import Path; p = Path('calc/core.py'); p.write_text(p.read_text().replace('import os\\n', ''))\n"
VERIFY = [sys.executable, "-m", "unittest", "discover", "-v"]


class Case:
    """A repository, a home with a key in it, and a run of one task whose student is a script."""

    def __init__(self, place: Path, home: Path) -> None:
        self.place, self.home, self.repo = place, home, place / "project"
        self.env = environment(home)
        self.sleep = f"300.{int.from_bytes(secrets.token_bytes(6))}"
        (home / ".ssh").mkdir()
        (home / ".ssh" / "id").write_text("a secret key")
        toml = f"[verify]\ncommands = {json.dumps([VERIFY])}\n[limits]\ndisk_bytes = 30_000_000\n"
        write_tree(self.repo, {**CALC_FILES, "school.toml": toml})
        git(self.repo, "init", "-q")
        git(self.repo, "add", ".")
        git(self.repo, "commit", "-q", "-m", "Begin")
        self.before = self.guarded()

    def facts(self) -> dict[str, str]:
        # Of the conductor's number only its parent can be sure beforehand: the test itself, which must live on as well.
        state = self.home / ".hermes"
        paths = {"state": str(state), "repo": str(self.repo), "home": str(self.home)}
        return {**paths, "pid": str(os.getpid()), "sleep": self.sleep}

    def guarded(self) -> dict[str, bytes]:
        """The user's configuration, hooks and objects."""
        folder = self.repo / ".git"
        paths = [folder / "config", *(folder / "hooks").rglob("*"), *(folder / "objects").rglob("*")]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}

    def run(self, code: str, *flags: str, **task: Any) -> tuple[dict[str, Any], str]:
        """The bag of the one bead, and what the run said."""
        script = self.place / "student.py"
        script.write_text(source(self.facts()) + CLEAN + code)
        work = {"id": "tidy", "role": "executor", "task": "Remove what is unused.", **task}
        tasks = {
            "version": 1,
            "defaults": {"max_attempts": 1},
            "tasks": [work | {"run": [sys.executable, str(script)]}],
        }
        (self.place / "tasks.yaml").write_text(json.dumps(tasks))
        argv = ("--repo", str(self.repo), "--tasks", str(self.place / "tasks.yaml"))
        _, document, told = conduct(*argv, *flags, env=self.env, timeout_s=280)
        return bag_of(document["tasks"][0]["bead"], self.env), told

    def named_daemon(self, notes: list[str]) -> bool:
        return any("left running when it had ended" in note and self.sleep in note for note in notes)

    def unharmed(self) -> None:
        """Nothing of the user's is changed, nothing of ours is forged, nobody is left."""
        after = self.guarded()
        assert {name: after.get(name) for name in self.before} == self.before
        assert not [name for name in after if name.startswith("hooks/") and name not in self.before]
        state = self.home / ".hermes"
        assert [path for path in state.rglob("*forged*") if "clones" not in path.parts] == []
        assert (
            subprocess.run(["pgrep", "-f", re.escape(self.sleep)], check=False, capture_output=True).stdout
            == b""
        )
        code, rows, _ = conduct("check", env=self.env)
        assert code == 0, [row for row in rows if not row["ok"]]


@pytest.fixture
def case(tmp_path: Path, own_home: Path) -> Case:
    require_confinement()
    return Case(tmp_path, own_home)


def said_of(attempt: str, lines: list[str]) -> str:
    return next((line for line in lines if f"attempt {attempt}:" in line), "")


def test_what_a_student_tries_fails_and_its_result_names_it(case: Case) -> None:
    code = f"""
done = attempt_all({", ".join(map(repr, (*REFUSED, "filled")))})
daemon()
assert not done, done
"""
    bag, told = case.run(code)
    assert (bag["status"], bag["outcome"], bag["confinement"]) == ("open", "accepted", "bubblewrap"), (
        told + bag["output"]
    )
    assert [name for name in (*REFUSED, "filled") if not said_of(name, bag["output"].splitlines())] == []
    notes = bag["notes"]
    assert said_of("hook", notes).startswith(
        "refused while confined: attempt hook: OSError [Errno 30] Read-only file system"
    )
    assert "Permission denied" in said_of("keys", notes)
    assert "Device or resource busy" in said_of("replaced", notes) or "Read-only" in said_of(
        "replaced", notes
    )
    assert bag["usage"]["exit_code"] == 0
    assert case.named_daemon(notes), notes
    case.unharmed()
    assert git(case.repo, "diff", "--stat", "main", "school/tidy").startswith(" calc/core.py")


def test_what_a_test_tries_that_a_teacher_runs_fails_and_the_receipt_names_it(case: Case) -> None:
    names = ", ".join(map(repr, REFUSED))
    attack = source(case.facts()) + (
        "import unittest\n\n\nclass Attack(unittest.TestCase):\n    def test_attempts(self):\n"
        f"        daemon()\n        self.assertEqual(attempt_all({names}), [])\n"
    )
    accept = [{"text": "the tests pass", "check": VERIFY}]
    bag, told = case.run(f"Path('tests/test_attack.py').write_text({attack!r})\n", accept=accept)
    assert bag["outcome"] == "accepted", told + json.dumps(bag["findings"])
    for role, check in (("cto", "verification"), ("coo", "")):
        assert bag[f"{role}_review"]["confinement"] == "bubblewrap"
        refused = [line for r in receipts(bag, role, check) if r["at"] == "head" for line in r["refused"]]
        assert "Read-only file system" in said_of("hook", refused), (role, refused)
        assert "Permission denied" in said_of("keys", refused)
        assert case.named_daemon(refused), refused
    case.unharmed()


def test_unconfined_the_same_is_told_by_what_it_changed(case: Case) -> None:
    bag, told = case.run("hook()\n", "--sandbox", "off")
    assert bag["confinement"] == 'none: [sandbox] mode is "off"'
    assert bag["outcome"] != "accepted"
    assert "changed while students were at work" in told or "repository_changed" in json.dumps(bag)


def test_a_student_that_fills_the_disk_is_ended_with_that_reason(case: Case) -> None:
    code = "n = 0\nwhile True:\n    n += 1\n    Path(f'big{n}').write_bytes(bytes(5_000_000))\n"
    bag, _ = case.run(code)
    assert (bag["status"], bag["reason"]) == ("failed", "disk_limit")
    assert "30000000 are allowed" in bag["summary"]
    case.unharmed()


def test_without_a_network_there_is_none(case: Case) -> None:
    toml = (case.repo / "school.toml").read_text() + "[sandbox]\nnetwork = false\n"
    (case.repo / "school.toml").write_text(toml)
    git(case.repo, "commit", "-qam", "No network")
    case.before = case.guarded()
    code = "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 80), 5)\nexcept OSError as error:\n    print(error)\n"
    bag, told = case.run(code)
    assert bag["outcome"] == "accepted", told
    assert bag["notes"][-1:] == ["refused while confined: [Errno 101] Network is unreachable"]


def test_what_the_configuration_opens_is_open(case: Case) -> None:
    shared = case.place / "shared"
    shared.mkdir()
    toml = (case.repo / "school.toml").read_text()
    toml += f'[sandbox]\nwrite = ["{shared}", "{case.repo}", "~/.hermes/bookbag"]\nread = ["~/.ssh"]\n'
    (case.repo / "school.toml").write_text(toml)
    git(case.repo, "commit", "-qam", "Open")
    case.before = case.guarded()
    # The key may be read then; our records and the repository stay closed whatever is opened.
    code = f"""
Path({str(shared)!r}, 'made').write_text('x')
print((home / '.ssh' / 'id').read_text())
done = attempt_all('verdict', 'records', 'hook', 'configuration', 'objects')
assert not done, done
"""
    bag, told = case.run(code)
    assert bag["outcome"] == "accepted", told + bag["output"]
    assert (shared / "made").read_text() == "x"
    assert "a secret key" in bag["output"]
    case.unharmed()


def test_require_runs_confined_or_not_at_all(case: Case) -> None:
    bag, told = case.run("", "--sandbox", "require")
    assert (bag["outcome"], bag["confinement"]) == ("accepted", "bubblewrap"), told
    assert AgentSpec.model_validate(bag["agent"]).kind == "run"

"""``conductor.py verify`` on real projects of many kinds: what it runs is what a maintainer would, and it is so."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from school.verification.evidence import Ledger
from tests.e2e.projects import conduct, environment, sdist
from tests.support import ROOT, git, write_tree
from tests.support_git import repository_state
from tests.verification.test_service import free_port, listener

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

TEST = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
UNITTEST = (
    "import unittest\n\nfrom calc import add\n\n\nclass T(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
)
CALC = "def add(a, b):\n    return a + b\n"
IGNORE = "node_modules/\n.venv/\ntarget/\nCargo.lock\npackage-lock.json\n*.pyc\n"
SERVER_JS = (
    "const http = require('http');\nconst { three } = require('three');\n"
    "http.createServer((q, r) => r.end(String(three))).listen(Number(process.env.PORT), '127.0.0.1');\n"
)
NODE = {
    # A dependency from a folder: installing it asks no registry.
    "three/package.json": json.dumps({"name": "three", "version": "1.0.0", "main": "index.js"}),
    "three/index.js": "exports.three = 3;\n",
    "server.js": SERVER_JS,
    "test/three.test.js": (
        "const test = require('node:test');\nconst assert = require('assert');\n"
        "test('three', () => assert.strictEqual(require('three').three, 3));\n"
    ),
}


def node(port: int) -> dict[str, str]:
    scripts = {
        "build": "node --check server.js",
        "test": "node --test test",
        "start": f"PORT={port} node server.js",
    }
    package = {
        "name": "app",
        "version": "1.0.0",
        "scripts": scripts,
        "dependencies": {"three": "file:./three"},
    }
    return {**NODE, "package.json": json.dumps(package)}


def project(root: Path, files: dict[str, str]) -> Path:
    write_tree(root, {".gitignore": IGNORE, **files})
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Begin")
    return root


def verify(root: Path, env: dict[str, str], *args: str) -> tuple[int, dict[str, Any], str]:
    return conduct("verify", str(root), *args, env=env)


def git_state(root: Path) -> dict[str, str]:
    """Index, refs, configuration, hooks, logs: none of it is verify's."""
    return {name: what for name, what in repository_state(root).items() if name.startswith("git/")}


def ran(document: dict[str, Any]) -> list[tuple[str, str]]:
    started = document["readiness"]
    return [(run["phase"], run["command"]) for run in document["phases"]] + (
        [("start", started["command"])] if started else []
    )


@pytest.fixture
def env(own_home: Path) -> dict[str, str]:
    return environment(own_home)


# --- six kinds ------------------------------------------------------------------------------------------------

PORT = 0
KINDS: dict[str, tuple[str, dict[str, str], list[tuple[str, str]]]] = {
    "pytest": ("", {"calc.py": CALC, "pytest.ini": "[pytest]\n", "test_calc.py": TEST}, [("test", "python3 -m pytest")]),
    "unittest": (
        "",
        {"calc.py": CALC, "test_calc.py": UNITTEST},
        [("test", "python3 -m unittest discover")],
    ),
    "node": (
        "npm",
        {},
        [("bootstrap", "npm install"), ("build", "npm run build"), ("test", "npm run test"), ("start", "npm run start")],
    ),
    "make": (
        "make",
        {"Makefile": "all: x\nx:\n\techo made > x\ntest: x\n\tgrep -q made x\ninstall:\n\tfalse\n", ".gitignore": "x\n"},
        [("build", "make all"), ("test", "make test")],
    ),
    "rust": (
        "cargo",
        {
            "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 { a + b }\n\n#[test]\nfn adds() { assert_eq!(add(2, 3), 5); }\n",
        },
        [("build", "cargo build"), ("test", "cargo test")],
    ),
    "go": (
        "go",
        {
            "go.mod": "module calc\n\ngo 1.20\n",
            "calc.go": "package calc\n\nfunc Add(a, b int) int { return a + b }\n",
            "calc_test.go": 'package calc\n\nimport "testing"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(2, 3) != 5 {\n\t\tt.Fail()\n\t}\n}\n',
        },
        [("build", "go build ./..."), ("test", "go test ./...")],
    ),
    "declared": (
        "",
        {"school.toml": '[verify]\ncommands = [["sh", "check.sh"]]\n', "check.sh": "test -f check.sh\n", "pytest.ini": ""},
        [("test", "sh check.sh")],
    ),
}  # fmt: skip


def toolchain(env: dict[str, str]) -> dict[str, str]:
    """Where rustup finds its toolchain, which it looks for by a HOME that is not this test's; skips where it has none."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    found = {
        name: os.environ.get(name) or str(home / place)
        for name, place in (("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup"))
    }
    asked = subprocess.run(
        ["cargo", "--version"], env=env | found, capture_output=True, text=True, check=False
    )
    if asked.returncode:
        pytest.skip(
            f"CARGO HAS NO TOOLCHAIN HERE, a rust project is not verified: {asked.stderr.strip()[:200]}"
        )
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_is_verified_as_its_maintainer_would(
    kind: str, tmp_path: Path, env: dict[str, str]
) -> None:
    tool, files, expected = KINDS[kind]
    if tool and shutil.which(tool, path=env["PATH"]) is None:
        pytest.skip(
            f"{tool.upper()} IS NOT INSTALLED HERE: a {kind} project is not verified by this test run"
        )
    port = free_port()
    root = project(tmp_path / kind, files or node(port))
    if tool == "cargo":
        env |= toolchain(env)
    before = git_state(root)
    code, document, said = verify(root, env)
    assert ran(document) == expected, said
    assert (code, document["ok"], document["scope"], document["source"]) == (0, True, "full", "detected"), (
        said
    )
    assert document["commit"] == git(root, "rev-parse", "HEAD")
    assert document["tree"] == git(root, "rev-parse", "HEAD^{tree}")
    assert (document["uncommitted"], document["changedPaths"]) == (False, [])
    assert git_state(root) == before
    if kind == "node":
        assert document["readiness"]["url"] == f"http://127.0.0.1:{port}/"
        assert document["readiness"]["statusCode"] == 200


# --- real projects --------------------------------------------------------------------------------------------

# What brings the project and its tests, and how many tests there are then, skipped ones included, counted by hand.
SDISTS = {
    ("inflection", "0.5.1"): ("-e . pytest", 455),
    ("tabulate", "0.9.0"): ("-e . pytest", 284),
    ("humanize", "4.4.0"): ("-e '.[tests]' pytest", 472),
}


@pytest.mark.network
@pytest.mark.parametrize(("name", "version"), SDISTS)
def test_a_real_project_is_installed_and_tested_in_an_environment_of_its_own(
    name: str, version: str, tmp_path: Path, env: dict[str, str], pytestconfig: pytest.Config
) -> None:
    install, count = SDISTS[name, version]
    env.pop("VIRTUAL_ENV", None)
    with tarfile.open(sdist(name, version, Path(pytestconfig.cache.mkdir("sdists")))) as archive:
        archive.extractall(tmp_path, filter="data")
    root = tmp_path / f"{name}-{version}"
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Begin")
    code, document, said = verify(root, env)
    expected = [
        ("bootstrap", "python3 -m venv .venv"),
        ("bootstrap", f".venv/bin/python -m pip install {install}"),
        ("test", ".venv/bin/python -m pytest"),
    ]
    installing = document["phases"][1:2]
    if installing and not installing[0]["ok"]:
        pytest.skip(f"pip cannot install {name} here: {installing[0]['outputTail'][-300:]}")
    assert ran(document) == expected, said
    assert (code, document["scope"]) == (0, "full"), said
    counts = re.findall(r"(\d+) (?:passed|skipped)", document["phases"][-1]["outputTail"])
    assert sum(map(int, counts)) == count


# --- how it ends ----------------------------------------------------------------------------------------------


def test_a_failing_test_fails_it_and_is_shown(tmp_path: Path, env: dict[str, str]) -> None:
    root = project(
        tmp_path / "p", {"calc.py": CALC.replace("+", "-"), "pytest.ini": "", "test_calc.py": TEST}
    )
    code, document, _ = verify(root, env)
    assert (code, document["ok"], document["phases"][0]["exitCode"]) == (1, False, 1)
    assert "assert -1 == 5" in document["phases"][0]["outputTail"]


def people(root: Path, env: dict[str, str], *args: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "conductor.py"), "verify", *args],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_what_a_person_reads(tmp_path: Path, env: dict[str, str]) -> None:
    root = project(tmp_path / "p", {"Makefile": 'build:\n\ttrue\ntest:\n\techo "it\'s \033[31mred"; false\n'})
    code, said = people(root, env)
    lines = said.splitlines()
    assert code == 1
    assert lines[0] == f"p (make) in {root}, as its files say"
    assert lines[2].startswith("  ok   build      make build  ")
    assert lines[4].startswith("  FAIL test       make test  ")
    assert any(line.startswith("       | it's \\x1b[31mred") for line in lines)
    assert lines[-1] == f"failed in test: make test, on commit {git(root, 'rev-parse', 'HEAD')[:12]}"
    code, said = people(root, env, "--phase", "build")
    assert code == 0
    assert "passed: build (targeted, which says nothing of the rest), on commit " in said
    code, said = people(root, env, "--detect-only")
    assert (code, said.splitlines()[1:]) == (
        0,
        ["manifests: Makefile", "checked by: make test", "  build      make build", "  test       make test"],
    )


def test_uncommitted_work_is_said_and_has_a_tree_of_its_own(tmp_path: Path, env: dict[str, str]) -> None:
    root = project(tmp_path / "p", {"Makefile": "test:\n\techo more >> Makefile.log\n", "Makefile.log": ""})
    write_tree(root, {"new.txt": "new\n"})
    before = git_state(root)
    code, document, _ = verify(root, env)
    assert git_state(root) == before
    assert (code, document["uncommitted"], document["changedDuringRun"]) == (0, True, True)
    assert document["changedPaths"] == ["Makefile.log"]
    assert document["commit"] == git(root, "rev-parse", "HEAD")
    git(root, "checkout", "-q", "Makefile.log")
    git(root, "add", "new.txt")
    assert document["tree"] == git(root, "write-tree")


def test_what_ran_is_in_the_ledger(tmp_path: Path, env: dict[str, str]) -> None:
    root = project(tmp_path / "p", {"Makefile": "build:\n\ttrue\ntest:\n\ttest ! -e broken\n"})
    whole = {"session": "default", "kind": "verify", "scope": "full", "status": "passed"}
    assert verify(root, env)[1]["evidence"] == whole
    part = verify(root, {**env, "SCHOOL_BEAD": "coder-python-00000001"}, "--phase", "build")[1]["evidence"]
    assert part == {**whole, "session": "coder-python-00000001", "scope": "targeted"}
    assert verify(root, env, "--detect-only")[1]["evidence"] is None
    assert verify(root, env, "--phase", "start")[1]["evidence"] is None  # there is nothing to start
    write_tree(root, {"broken": ""})
    assert verify(root, env)[1]["evidence"] == {**whole, "status": "failed"}
    write_tree(root, {"Makefile": "test:\n\techo x >> log\n"})
    assert verify(root, env)[1]["evidence"] == {**whole, "status": ""}  # of neither state
    with Ledger(Path(env["HERMES_HOME"]) / "school" / "evidence.db") as ledger:
        events = ledger.events("default", root)
        assert [(event.status, event.exit_code, bool(event.tree)) for event in events] == [
            ("passed", 0, False),
            ("failed", 1, True),
            ("passed", 0, True),
        ]
        assert events[1].output_summary.startswith("ok: build: make build\nfailed: test: make test")
        assert events[2].tree == git(root, "rev-parse", "HEAD^{tree}")
        assert ledger.status("default", root, canonical=[]).status == "unverified"
        assert ledger.events("coder-python-00000001", root)[0].command == "hermes verify --phase build"


def test_a_ledger_that_cannot_be_written_spoils_no_run(tmp_path: Path, env: dict[str, str]) -> None:
    root = project(tmp_path / "p", {"Makefile": "test:\n\ttrue\n"})
    (Path(env["HERMES_HOME"]) / "school" / "evidence.db").mkdir(parents=True)
    code, document, _ = verify(root, env)
    assert (code, document["ok"], document["evidence"]) == (0, True, None)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere"], "nowhere: no such directory"),
        (["--phase", "deploy"], "'deploy' is not one of"),
        (["--port", "0"], "0 is not in the range"),
        (["--timeout", "0"], "0"),
        (["--phase", "start", "--skip-start"], "leave nothing to run"),
        (["--rounds", "3"], "No such option"),
    ],
)
def test_what_cannot_be_meant_is_exit_2(
    args: list[str], said: str, own_home: Path, env: dict[str, str]
) -> None:
    code, document, _ = conduct("verify", *args, env=env)
    assert (code, document["exit"]) == (2, 2)
    assert said in document["error"]


def test_no_recipe_is_exit_1(tmp_path: Path, own_home: Path, env: dict[str, str]) -> None:
    code, document, _ = verify(project(tmp_path / "p", {"README.md": ""}), env)
    assert (code, document["ok"], document["recipe"]) == (1, False, None)
    assert document["note"] == "no recipe: its files do not say how it is built, tested or started"
    write_tree(own_home, {"Makefile": "test:\n\ttrue\n"})
    code, document, _ = verify(own_home, env)
    assert (code, document["recipe"], document["phases"]) == (1, None, [])


def test_a_recipe_is_saved_and_read_and_a_broken_one_reported(tmp_path: Path, env: dict[str, str]) -> None:
    root = project(tmp_path / "p", {"Makefile": "test:\n\ttrue\n"})
    code, found, _ = verify(root, env, "--detect-only", "--save")
    assert (code, found["source"], found["phases"]) == (0, "detected", [])
    path = root / ".hermes" / "environment.json"
    assert found["saved"] == str(path)
    saved = json.loads(path.read_text())
    assert (saved["version"], saved["recipe"]) == (1, found["recipe"])
    saved["recipe"]["test"] = ["echo mine"]
    path.write_text(json.dumps(saved))
    code, again, _ = verify(root, env)
    assert (code, again["source"], ran(again)) == (0, "manifest", [("test", "echo mine")])
    path.write_text('{"recipe": ')
    code, broken, said = verify(root, env)
    assert (code, broken["source"], ran(broken)) == (0, "detected", [("test", "make test")])
    assert "environment.json: cannot be used" in broken["problems"][0]
    assert "note: .hermes/environment.json: cannot be used" in said


def test_a_phase_that_never_ends_is_ended_at_its_limit(tmp_path: Path, env: dict[str, str]) -> None:
    recipe = {"name": "p", "test": ["setsid sleep 9996 & echo $! > pid; sleep 9999"]}
    root = project(tmp_path / "p", {".hermes/environment.json": json.dumps(recipe), ".gitignore": "pid\n"})
    code, document, said = verify(root, env, "--timeout", "3")
    (one,) = document["phases"]
    assert (code, one["timedOut"], one["exitCode"]) == (1, True, None)
    assert "ended at its limit: phase test has 3 s" in said
    assert not psutil.pid_exists(int((root / "pid").read_text()))


def test_a_service_that_dies_and_a_port_that_is_taken(tmp_path: Path, env: dict[str, str]) -> None:
    with listener() as port:
        root = project(tmp_path / "p", node(port))
        code, document, _ = verify(root, env, "--phase", "start")
        assert (code, document["ok"], document["readiness"]["ready"]) == (1, False, False)
        assert f"port {port} is taken already" in document["readiness"]["error"]
        # Nothing was installed, so the server cannot load what it needs.
        other = free_port()
        code, document, said = verify(root, env, "--phase", "start", "--port", str(other))
    assert code == 1
    assert "it ended by itself (exit 1)" in document["readiness"]["error"]
    assert "Cannot find module 'three'" in document["readiness"]["outputTail"]
    assert "Cannot find module 'three'" not in said  # with --json it is in the document


def test_an_interrupt_ends_what_runs(tmp_path: Path, env: dict[str, str]) -> None:
    recipe = {"name": "p", "test": ["setsid sleep 9995 & echo $! > pid; sleep 9999"]}
    root = project(tmp_path / "p", {".hermes/environment.json": json.dumps(recipe), ".gitignore": "pid\n"})
    command = [sys.executable, str(ROOT / "conductor.py"), "verify", str(root)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (root / "pid").exists() or not (root / "pid").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not psutil.pid_exists(int((root / "pid").read_text()))

"""What a teacher runs: the configuration's, else the saved recipe's, else what the files declare; always base's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from school.config import load_config
from school.contracts import ProjectConfig
from school.system.git import Git
from school.verification.due import argv_of, due
from school.verification.trees import DirectoryTree, GitTree
from tests.support import git, write_tree

RECIPE = {
    "name": "app",
    "bootstrap": ["python3 -m venv .venv", ".venv/bin/pip install -e . && touch .venv/ready"],
    "build": ["make build"],
    "test": ["python3 -m pytest -q", "CI=1 npm test"],
    "start": "python3 -m app",
}


@pytest.fixture
def saved(repo: Path) -> Path:
    (repo / "school.toml").unlink()
    write_tree(repo, {".hermes/environment.json": json.dumps({"version": 1, "recipe": RECIPE})})
    git(repo, "add", "-Af")
    git(repo, "commit", "-qm", "Save a recipe")
    return repo


def test_the_saved_recipe_comes_before_what_the_files_declare(saved: Path) -> None:
    found = due(GitTree(Git(cwd=saved), git(saved, "rev-parse", "HEAD")), ProjectConfig())
    assert found.verify == [
        ["make", "build"],
        ["python3", "-m", "pytest", "-q"],
        ["env", "CI=1", "npm", "test"],
    ]
    assert found.setup == [
        ["python3", "-m", "venv", ".venv"],
        ["sh", "-c", ".venv/bin/pip install -e . && touch .venv/ready"],
    ]
    assert (found.source, found.problems) == ("manifest", [])


def test_the_configuration_comes_before_both(saved: Path) -> None:
    config = load_config('[verify]\ncommands = [["make", "check"]]\n[setup]\ncommands = [["true"]]\n')
    found = due(DirectoryTree(saved), config)
    assert (found.verify, found.setup, found.source) == ([["make", "check"]], [["true"]], "school.toml")


def test_a_recipe_in_the_tree_of_a_change_is_not_looked_at(saved: Path) -> None:
    commit = git(saved, "rev-parse", "HEAD")
    write_tree(saved, {".hermes/environment.json": json.dumps({"name": "x", "test": ["true"]})})
    git(saved, "add", "-Af")
    git(saved, "commit", "-qm", "Weaken it")
    found = due(GitTree(Git(cwd=saved), commit), ProjectConfig())
    assert found.verify[1] == ["python3", "-m", "pytest", "-q"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "cannot be used: "),
        ('{"name": "x", "test": [3]}', "test: expected commands that are strings"),
        ("[" * 100_000, "cannot be used: "),
    ],
)
def test_a_recipe_that_cannot_be_used_is_named_and_passed_over(repo: Path, text: str, problem: str) -> None:
    (repo / "school.toml").unlink()
    write_tree(repo, {".hermes/environment.json": text})
    found = due(DirectoryTree(repo), ProjectConfig())
    assert (found.source, found.verify) == ("detected", [["python3", "-m", "unittest", "discover"]])
    assert found.problems[0].startswith(f".hermes/environment.json: {problem}")


def test_a_recipe_that_only_starts_leaves_the_checks_to_the_files(repo: Path) -> None:
    (repo / "school.toml").unlink()
    write_tree(repo, {".hermes/environment.json": '{"name": "x", "start": "python3 -m http.server"}'})
    assert due(DirectoryTree(repo), ProjectConfig()).source == "detected"


@pytest.mark.parametrize(
    "line",
    ["echo a b", "echo 'a b' \"c\"", "A=1 B='x y' env", "echo a | cat", "echo $HOME", "echo a; false", "echo a && echo b",
     "echo *", "echo ~", "! true", "echo a > /dev/null", "(echo a)", "echo a # b", "if true; then echo a; fi", "A=$PWD env",
     "echo \\\n  a", "echo a &", "false", "echo '", "A=1"],
)  # fmt: skip
def test_an_argv_does_what_the_line_does(line: str, tmp_path: Path) -> None:
    def does(argv: list[str]) -> tuple[int, bytes]:
        done = subprocess.run(
            argv, cwd=tmp_path, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin"}
        )
        lines = [
            one
            for one in done.stdout.splitlines()
            if not one.startswith((b"_=", b"SHLVL=", b"PWD=", b"OLDPWD="))
        ]
        return done.returncode, b"\n".join(sorted(lines))

    assert does(argv_of(line)) == does(["sh", "-c", line])

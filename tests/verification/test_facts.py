from __future__ import annotations

import json
from pathlib import Path

import pytest

from school.system.git import Git
from school.verification.facts import DirectoryTree, GitTree, facts
from tests.support import git, write_tree


def found(root: Path, files: dict[str, str]) -> list[list[str]]:
    write_tree(root, files)
    return facts(DirectoryTree(root)).verify_commands


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({"README.md": "hello"}, []),
        ({"pytest.ini": ""}, [["python3", "-m", "pytest"]]),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, [["python3", "-m", "pytest"]]),
        ({"pyproject.toml": "[tool.pytest]\n", "uv.lock": ""}, [["uv", "run", "python", "-m", "pytest"]]),
        ({"setup.cfg": "[tool:pytest]\n"}, [["python3", "-m", "pytest"]]),
        ({"tests/test_a.py": "def test_x(): pass\n"}, [["python3", "-m", "pytest"]]),
        (
            {"tests/test_a.py": "import unittest\n"},
            [["python3", "-m", "unittest", "discover", "-s", "tests"]],
        ),
        (
            {"tests/test_a.py": "import unittest\n", "tests/__init__.py": ""},
            [["python3", "-m", "unittest", "discover"]],
        ),
        ({"go.mod": "module x\n"}, [["go", "test", "./..."]]),
        ({"Cargo.toml": ""}, [["cargo", "test"]]),
        ({"build.gradle": "", "gradlew": ""}, [["./gradlew", "test"]]),
        ({"pom.xml": ""}, [["mvn", "-q", "test"]]),
        ({"scripts/run_tests.sh": ""}, [["bash", "scripts/run_tests.sh"]]),
        ({"tox.ini": "[testenv]\n"}, [["tox"]]),
        ({"tox.ini": "[testenv]\n[pytest]\n"}, [["python3", "-m", "pytest"]]),
        ({"noxfile.py": ""}, [["nox"]]),
        ({"Makefile": "test:\n\ttrue\nlint : x\n"}, [["make", "test"], ["make", "lint"]]),
        ({"Makefile": "test := 3\ncheck = 4\n"}, []),
        (
            {"Makefile": "test:\n\ttrue\nlint:\n\ttrue\n", "pytest.ini": ""},
            [["python3", "-m", "pytest"], ["make", "lint"]],
        ),
    ],
)
def test_what_a_repository_plainly_declares(
    tmp_path: Path, files: dict[str, str], commands: list[list[str]]
) -> None:
    assert found(tmp_path, files) == commands


def test_scripts_that_judge_and_none_that_rewrites(tmp_path: Path) -> None:
    scripts = {"test": "jest", "lint": "eslint .", "format": "prettier -w .", "build": "tsc", "start": "x"}
    files = {"package.json": json.dumps({"scripts": scripts}), "pnpm-lock.yaml": ""}
    assert found(tmp_path, files) == [["pnpm", "run", "test"], ["pnpm", "run", "lint"]]


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"scripts": 3}', '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'],
)
def test_a_package_file_that_declares_nothing(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, {"package.json": text}) == []


def test_no_command_is_dropped_for_being_too_many(tmp_path: Path) -> None:
    scripts = dict.fromkeys(("test", "tests", "lint", "typecheck", "check"), "x")
    files = {
        "scripts/run_tests.sh": "",
        "package.json": json.dumps({"scripts": scripts}),
        "pytest.ini": "",
        "go.mod": "",
        "Cargo.toml": "",
        "Makefile": "typecheck:\n\ttrue\n",
    }
    assert len(found(tmp_path, files)) == 10


def test_a_commit_is_read_without_a_checkout(repo: Path) -> None:
    commit = git(repo, "rev-parse", "HEAD")
    (repo / "pytest.ini").write_text("")  # not committed, so not there
    (repo / "AGENTS.md").write_text("x")
    tree = GitTree(Git(git_dir=repo / ".git"), commit)
    assert tree.read("README.md") == b"# calc\n\nA small calculator.\n"
    assert tree.read("pytest.ini") is None
    seen = facts(tree)
    assert seen.verify_commands == [["python3", "-m", "unittest", "discover"]]
    assert seen.context_files == []
    assert seen.root == commit


def test_manifests_managers_and_context(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "pyproject.toml": "",
            "uv.lock": "",
            "package.json": "{}",
            "yarn.lock": "",
            "AGENTS.md": "",
            "requirements-dev.txt": "",
        },
    )
    seen = facts(DirectoryTree(tmp_path))
    assert seen.manifests == [
        "package.json",
        "pyproject.toml",
        "requirements-dev.txt",
        "uv.lock",
        "yarn.lock",
    ]
    assert seen.package_managers == ["uv", "yarn"]
    assert seen.context_files == ["AGENTS.md"]


def test_a_huge_file_counts_as_empty(tmp_path: Path) -> None:
    assert found(tmp_path, {"pyproject.toml": "[tool.pytest]\n" + "#" * 300_000}) == []

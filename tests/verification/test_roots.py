from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from school.verification.facts import DirectoryTree, as_document, facts, rendered
from school.verification.roots import facts_at, facts_of_changed, nearest_roots, project_root
from tests.support import git, write_tree

MONOREPO = {
    "pyproject.toml": "[tool.pytest]\n",
    "web/package.json": json.dumps({"scripts": {"test": "jest"}}),
    "web/src/a.js": "",
    "web/pages/package.json": json.dumps({"private": True}),  # a member that leaves its checks to web
    "web/pages/b.js": "",
    "tool/go.mod": "module tool\n",
    "tool/cmd/main.go": "",
    "docs/Makefile": "test:\n\ttrue\n",  # no project: only documentation
    "docs/a.md": "",
    "src/c.py": "",
}


def test_each_changed_path_is_answered_for_by_the_nearest_project(tmp_path: Path) -> None:
    write_tree(tmp_path, MONOREPO)
    changed = ["web/src/a.js", "web/pages/b.js", "tool/cmd/main.go", "docs/a.md", "src/c.py", "gone/away.py"]
    assert nearest_roots(DirectoryTree(tmp_path), changed) == {
        "web": ["web/src/a.js", "web/pages/b.js"],
        "tool": ["tool/cmd/main.go"],
        "": ["docs/a.md", "src/c.py", "gone/away.py"],
    }
    found = facts_of_changed(DirectoryTree(tmp_path), ["web/src/a.js", "src/c.py"], [["make", "check"]])
    assert [(one.root, one.verify_commands) for one in found] == [
        (str(tmp_path), [["make", "check"]]),
        (f"{tmp_path}/web", [["npm", "run", "test"]]),
    ]


def test_git_makes_a_root_before_a_manifest_does(tmp_path: Path) -> None:
    write_tree(tmp_path / "repo", {"package.json": "{}", "inner/go.mod": "", "inner/deep/x.go": ""})
    assert project_root(tmp_path / "repo" / "inner" / "deep") == tmp_path / "repo" / "inner"
    git(tmp_path / "repo", "init", "-q")
    assert project_root(tmp_path / "repo" / "inner" / "deep") == tmp_path / "repo"


def test_a_linked_worktree_is_a_root_of_its_own(repo: Path) -> None:
    git(repo, "worktree", "add", "-q", "--detach", str(repo / "linked"))
    assert project_root(repo / "linked" / "calc") == repo / "linked"


def test_home_and_the_temporary_directory_are_never_a_root(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for nobodys in (own_home, temporary):
        write_tree(nobodys, {"package.json": "{}", "somewhere/x": ""})
        git(nobodys, "init", "-q")
        assert project_root(nobodys) is None
        assert project_root(nobodys / "somewhere") is None
        assert facts_at(nobodys / "somewhere") is None
        write_tree(nobodys, {"mine/pyproject.toml": "[tool.pytest]\n", "mine/a/b/x": ""})
        assert project_root(nobodys / "mine" / "a" / "b") == nobodys / "mine"


def test_a_marker_far_above_is_no_root(tmp_path: Path) -> None:
    write_tree(tmp_path / "p", {"go.mod": "", "1/2/3/4/5/6/7/x": ""})
    assert project_root(tmp_path / "p/1/2/3/4/5/6") == tmp_path / "p"
    assert project_root(tmp_path / "p/1/2/3/4/5/6/7") is None


def test_what_the_configuration_declares_comes_first(tmp_path: Path) -> None:
    write_tree(tmp_path, {"pytest.ini": "", "Makefile": "lint:\n\ttrue\n", "uv.lock": "", "CLAUDE.md": ""})
    found = facts(DirectoryTree(tmp_path), [["bash", "check.sh"], ["python", "-m", "pytest", "-q"]])
    assert found.verify_commands == [
        ["bash", "check.sh"],
        ["python", "-m", "pytest", "-q"],
        ["make", "lint"],  # another sort of check: nothing that was declared stands for it
    ]
    assert as_document(found) == {
        "root": str(tmp_path),
        "manifests": ["Makefile", "uv.lock"],
        "packageManagers": ["uv"],
        "verifyCommands": ["bash check.sh", "python -m pytest -q", "make lint"],
        "contextFiles": ["CLAUDE.md"],
    }
    assert rendered(found) == (
        f"project: {tmp_path}\nmanifests: Makefile, uv.lock\npackage managers: uv\nread first: CLAUDE.md\n"
        "checked by: bash check.sh; python -m pytest -q; make lint"
    )


@pytest.mark.parametrize(
    ("lock", "managers", "command"),
    [
        ("uv.lock", ["uv"], ["uv", "run", "python", "-m", "pytest"]),
        ("poetry.lock", ["poetry"], ["poetry", "run", "python", "-m", "pytest"]),
        ("Pipfile.lock", ["pipenv"], ["pipenv", "run", "python", "-m", "pytest"]),
        ("pdm.lock", ["pdm"], ["pdm", "run", "python", "-m", "pytest"]),
        ("README.md", [], ["python3", "-m", "pytest"]),
    ],
)
def test_tests_are_run_in_the_environment_of_the_lock_file(
    tmp_path: Path, lock: str, managers: list[str], command: list[str]
) -> None:
    write_tree(tmp_path, {"pytest.ini": "", lock: ""})
    found = facts(DirectoryTree(tmp_path))
    assert (found.package_managers, found.verify_commands) == (managers, [command])


@pytest.mark.parametrize(
    ("lock", "manager"),
    [
        ("pnpm-lock.yaml", "pnpm"),
        ("bun.lock", "bun"),
        ("bun.lockb", "bun"),
        ("yarn.lock", "yarn"),
        ("package-lock.json", "npm"),
        ("npm-shrinkwrap.json", "npm"),
    ],
)
def test_javascript_is_run_by_the_manager_of_its_lock_file(tmp_path: Path, lock: str, manager: str) -> None:
    write_tree(tmp_path, {"package.json": '\ufeff{"scripts": {"test": "jest"}}', lock: ""})
    found = facts(DirectoryTree(tmp_path))
    assert (found.package_managers, found.verify_commands) == ([manager], [[manager, "run", "test"]])

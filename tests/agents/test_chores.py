"""Chores on small trees: what they touch, what they leave, what they say; then the same on real projects."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from school import guarded
from school.agents import chores
from tests.e2e.projects import project
from tests.support import git, write_tree

UNSORTED = "import sys\nimport os\n\n\ndef name():\n    return os.name\n"
SORTED = "import os\n\n\ndef name():\n    return os.name\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    root.mkdir(exist_ok=True)
    write_tree(root, files)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Begin")
    return root


def do(root: Path, name: str, *allow: str, status: int = 0) -> dict[str, Any]:
    """Run the chore as a leaf would; its claim."""
    claim = root.parent / "claim.json"
    claim.unlink(missing_ok=True)
    done = subprocess.run(
        chores.argv_of(name, allow),
        cwd=root,
        env={"PATH": os.environ["PATH"], "HOME": str(root.parent), "SCHOOL_RESULT": str(claim)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return dict(json.loads(claim.read_text()))


def changed(root: Path) -> list[str]:
    return [line[3:] for line in git(root, "status", "--porcelain", "-uall").splitlines()]


def test_it_does_its_work_and_says_so(tmp_path: Path) -> None:
    root = tree(tmp_path / "p", {"a.py": UNSORTED, "b.py": SORTED})
    claim = do(root, "unused-imports")
    assert (claim["status"], claim["summary"]) == ("done", "unused-imports: 1 of 2 files changed")
    assert (root / "a.py").read_text() == SORTED
    assert changed(root) == ["a.py"]


def test_a_second_run_changes_nothing_and_says_no_change(tmp_path: Path) -> None:
    root = tree(tmp_path / "p", {"a.py": UNSORTED})
    do(root, "unused-imports")
    assert do(root, "unused-imports")["status"] == "no_change"


def test_guarded_files_stay_and_nothing_of_a_cache_is_left(tmp_path: Path) -> None:
    names = ["tests/test_a.py", "conftest.py", "setup.py", "pkg/test_b.py"]
    root = tree(tmp_path / "p", dict.fromkeys([*names, "pkg/a.py"], UNSORTED))
    do(root, "unused-imports")
    assert changed(root) == ["pkg/a.py"]
    assert not list(root.rglob("*cache*"))


def test_allow_names_what_may_change(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "p", dict.fromkeys(("src/a.py", "src/old/b.py", "c.py", "tests/test_a.py"), UNSORTED)
    )
    do(root, "unused-imports", "src/**", "!src/old/**")
    assert changed(root) == ["src/a.py"]
    git(root, "checkout", "-q", ".")
    do(root, "unused-imports", "tests/**")
    assert changed(root) == ["tests/test_a.py"]


def test_a_misspelt_allow_is_blocked_not_no_change(tmp_path: Path) -> None:
    root = tree(tmp_path / "p", {"src/a.py": UNSORTED})
    claim = do(root, "unused-imports", "scr/**")
    assert claim["status"] == "blocked"
    assert claim["blockers"] == ["no tracked python file that this task may change (allow: scr/**)"]


def test_untracked_files_and_links_are_not_its_business(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text(UNSORTED)
    root = tree(tmp_path / "p", {"a.py": SORTED})
    (root / "link.py").symlink_to(outside)
    git(root, "add", "link.py")
    (root / "new.py").write_text(UNSORTED)
    assert do(root, "unused-imports")["summary"] == "unused-imports: 0 of 1 files changed"
    assert outside.read_text() == UNSORTED


def test_names_that_look_like_options_or_are_no_text(tmp_path: Path) -> None:
    root = tree(tmp_path / "p", {"--config.py": UNSORTED, "ünï cödé.py": UNSORTED, "a\nb.py": UNSORTED})
    assert do(root, "unused-imports")["summary"] == "unused-imports: 3 of 3 files changed"


def test_more_files_than_fit_a_command_line(tmp_path: Path) -> None:
    names = [f"{'d' * 100}/{'m' * 100}{number:04}.py" for number in range(700)]
    assert len(list(chores.batches(names))) > 1
    root = tree(tmp_path / "p", dict.fromkeys(names, UNSORTED))
    assert do(root, "unused-imports")["summary"] == "unused-imports: 700 of 700 files changed"


def test_a_file_that_does_not_parse_is_left(tmp_path: Path) -> None:
    root = tree(tmp_path / "p", {"a.py": "def (:\n", "b.py": UNSORTED})
    claim = do(root, "unused-imports")
    assert claim["status"] == "done"
    assert "some findings need a hand" in claim["summary"]
    assert changed(root) == ["b.py"]


def test_the_projects_own_configuration_wins(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[tool.ruff]\nextend-exclude = ["vendor"]\n[tool.ruff.format]\nquote-style = "single"\n',
        "a.py": 'x = "a"\n',
        "vendor/b.py": 'x = "a"\n',
    }
    root = tree(tmp_path / "p", files)
    do(root, "format")
    assert (root / "a.py").read_text() == "x = 'a'\n"
    assert changed(root) == ["a.py"]


def test_a_configuration_outside_the_project_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "ruff.toml").write_text('[format]\nquote-style = "single"\n')
    root = tree(tmp_path / "p", {"a.py": 'x = "a"\n'})
    assert do(root, "format")["status"] == "no_change"


def test_a_broken_configuration_fails_with_the_tools_words(tmp_path: Path) -> None:
    root = tree(tmp_path / "p", {"ruff.toml": "line-length = 'x'\n", "a.py": UNSORTED})
    claim = do(root, "unused-imports", status=1)
    assert claim["status"] == "failed"
    assert "ruff ended with 2" in claim["summary"]


def test_nothing_of_the_working_tree_is_imported(tmp_path: Path) -> None:
    trap = "raise SystemExit('imported')\n"
    names = ["school/__init__.py", "argparse.py", "sitecustomize.py", "click.py"]
    root = tree(tmp_path / "p", {**dict.fromkeys(names, trap), "a.py": UNSORTED})
    assert do(root, "unused-imports")["status"] == "done"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": '[project]\nrequires-python = ">=3.9,<4"\n'}, (3, 9)),
        ({"pyproject.toml": '[tool.poetry.dependencies]\npython = "^3.8"\n'}, (3, 8)),
        ({"setup.cfg": "[options]\npython_requires = >=3.6, !=3.6.1\n"}, (3, 6)),
        ({"setup.py": "from setuptools import setup\nsetup(python_requires='>=3.5')\n"}, (3, 5)),
        ({"setup.cfg": "[metadata]\nname = x\n", "setup.py": "setup(python_requires='~=3.10')\n"}, (3, 10)),
        ({"setup.py": "setup(python_requires='>=2.7, !=3.0.*, !=3.1.*')\n"}, (2, 7)),
        ({"setup.py": "def (\n", "pyproject.toml": "[[["}, chores.RUFF_OLDEST),
        ({}, chores.RUFF_OLDEST),
    ],
)
def test_the_oldest_python_is_read_where_projects_say_it(
    files: dict[str, str], expected: tuple[int, int], tmp_path: Path
) -> None:
    write_tree(tmp_path, files)
    assert chores.lowest_python(tmp_path) == expected


@pytest.mark.parametrize(
    ("requires", "expected"),
    [(">=3.5", '"{} b".format(x)'), (">=3.8", 'f"{x} b"')],
)
def test_no_syntax_newer_than_the_oldest_python(requires: str, expected: str, tmp_path: Path) -> None:
    files = {
        "setup.py": f"from setuptools import setup\nsetup(python_requires={requires!r})\n",
        "a.py": 'class A(object):\n    pass\n\n\nx = 1\ny = "{} b".format(x)\n',
    }
    root = tree(tmp_path / "p", files)
    do(root, "modern-syntax")
    text = (root / "a.py").read_text()
    assert "class A:" in text
    assert expected in text


def test_a_project_for_python_2_is_left_alone(tmp_path: Path) -> None:
    files = {"setup.py": "setup(python_requires='>=2.7')\n", "a.py": "class A(object):\n    pass\n"}
    root = tree(tmp_path / "p", files)
    assert do(root, "modern-syntax")["status"] == "blocked"
    assert changed(root) == []


def test_spelling_corrects_prose_and_no_code(tmp_path: Path) -> None:
    files = {
        "README.md": "We recieve it.\n",
        "docs/a.rst": "recieve\n",
        "a.py": "recieve = 1\n",
        "locale/de.po": 'msgid "recieve"\n',
        "tests/notes.txt": "recieve\n",
    }
    root = tree(tmp_path / "p", files)
    do(root, "spelling")
    assert changed(root) == ["README.md", "docs/a.rst"]
    assert (root / "README.md").read_text() == "We receive it.\n"


def test_without_a_result_file_it_only_prints(tmp_path: Path) -> None:
    root = tree(tmp_path / "p", {"a.py": UNSORTED})
    done = subprocess.run(
        chores.argv_of("unused-imports"),
        cwd=root,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("unused-imports: 1 of 1 files changed\n")
    assert changed(root) == ["a.py"]


# --- real projects ------------------------------------------------------------------------------------------

SUITES = {
    ("inflection", "0.5.1"): 455,
    ("tabulate", "0.9.0"): 247,
    ("humanize", "4.4.0"): 458,
    ("toolz", "0.12.0"): 180,
}
NOTHING_TO_DO = {("inflection", "return-types"), ("humanize", "return-types"), ("humanize", "modern-syntax")}
REAL = [name for name in chores.CHORES if name != "spelling"]


def passed(root: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "."],
        cwd=root,
        env={"PATH": os.environ["PATH"], "HOME": str(root.parent), "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return int(done.stdout.splitlines()[-1].split(" passed")[0].split()[-1])


def syntax(root: Path) -> dict[str, str]:
    """What each file means to the parser; the layout of docstrings is the formatter's to change."""
    found = {}
    for name in git(root, "ls-files", "-z", "*.py").split("\0"):
        if name:
            with warnings.catch_warnings(action="ignore"):  # old projects hold old escapes
                parsed = ast.parse((root / name).read_bytes())
            for node in ast.walk(parsed):
                if isinstance(node, ast.Constant):
                    node.kind = None  # whether it was spelled u"" or ""
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    node.value.value = ""
            found[name] = ast.dump(parsed)
    return found


@pytest.mark.network
@pytest.mark.e2e
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize(("package", "version"), SUITES)
def test_real_suites_stay_green(
    package: str, version: str, name: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    cache = Path(pytestconfig.cache.mkdir("sdists"))
    root = project(package, version, tmp_path, cache, verify=["true"])
    before = syntax(root)
    claim = do(root, name)
    assert (claim["status"] == "no_change") == ((package, name) in NOTHING_TO_DO)
    assert [path for path in changed(root) if guarded.is_guarded(path)] == []
    if name == "format":
        assert syntax(root) == before
    first = git(root, "diff")
    assert do(root, name)["status"] == "no_change"
    assert git(root, "diff") == first
    assert passed(root) == SUITES[package, version]

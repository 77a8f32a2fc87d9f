from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from school.verification.baselines import Baseline
from school.verification.sight import lost, sources
from tests.support import write_tree
from tests.verification.support import PACKAGE, PYTEST, UNITTEST, Case, classes, ran, unit

GOOD = {"calc/core.py": "def add(a, b):\n    return b + a\n"}
BAD = {"calc/core.py": "def add(a, b):\n    return a - b\n"}
UNIT = {
    "calc/__init__.py": "from calc.core import add\n",
    "calc/core.py": "def add(a, b):\n    return a + b\n",
    "test_calc.py": "import unittest\nfrom calc import add\nclass T(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n",
}


@pytest.mark.parametrize(("files", "argv"), [(PACKAGE, PYTEST), (UNIT, UNITTEST)])
def test_tests_that_see_the_tree(case_of: Any, files: dict[str, str], argv: list[str]) -> None:
    case = case_of(files)
    done = case.wrong_tree(GOOD, [argv])
    assert classes(done) == {}
    assert done.notes == []
    assert case.is_clean_at(case.context(GOOD).bag["head_commit"])


@pytest.mark.parametrize(
    "argv", [["true"], ["echo", "ok"], [sys.executable, "-c", "print('5 passed in 0.1s')"]]
)
def test_a_command_that_looks_at_nothing(case: Case, argv: list[str]) -> None:
    assert classes(case.wrong_tree(BAD, [argv])) == {"wrong_tree": "HIGH"}


def elsewhere(case: Case, tmp_path: Path) -> list[str]:
    """The suite in an interpreter where the package is installed editable from the user's own checkout."""
    checkout = tmp_path / "checkout"
    write_tree(checkout, {name: text for name, text in PACKAGE.items() if name.startswith("calc/")})
    site = tmp_path / "site"
    write_tree(site, {"sitecustomize.py": f"import sys\nsys.path.insert(0, {str(checkout)!r})\n"})
    return ["env", f"PYTHONPATH={site}", *UNITTEST]


SRC = {f"src/{name}" if name.startswith("calc/") else name: text for name, text in PACKAGE.items()}


def test_a_package_installed_from_another_checkout_never_lets_a_breaking_change_pass(
    case_of: Any, tmp_path: Path
) -> None:
    case = case_of(SRC)
    argv = elsewhere(case, tmp_path)
    breaking = {"src/calc/core.py": BAD["calc/core.py"]}
    assert classes(case.verification(breaking, [argv])) == {}  # the tests are green: they test the other copy
    assert classes(case.wrong_tree(breaking, [argv])) == {"wrong_tree": "HIGH"}
    # With the path set right, the same change is seen.
    right = ["env", "PYTHONPATH=src", *UNITTEST]
    assert classes(case.verification(breaking, [right])) == {"tests_broken": "HIGH"}
    assert classes(case.wrong_tree(breaking, [right])) == {}


def test_a_doctest_of_the_spoiled_file_itself_is_no_sight() -> None:
    base = {"src.calc.core::calc.core": "passed", "tests.test_core::test_add": "passed"}
    modules = frozenset({"tests.test_core", "test_core"})
    blind = ran("failed", {"::src.calc.core": "error", "tests.test_core::test_add": "passed"})
    assert lost(Baseline.of(ran("passed", base)), blind, modules) == set()
    sees = ran("failed", {"::src.calc.core": "error", "::tests.test_core": "error"})
    assert lost(Baseline.of(ran("passed", base)), sees, modules) == {"tests.test_core::test_add"}
    only = {"src.calc.core::calc.core": "passed"}
    assert lost(Baseline.of(ran("passed", only)), sees, modules) == set(only)


def test_a_receipt_of_a_spoiled_run_is_of_no_tree(case: Case) -> None:
    done = case.wrong_tree(GOOD)
    assert [(r.at, r.outcome, r.tree, r.check) for r in done.receipts] == [
        ("base", "failed", "", "wrong_tree"),
        ("head", "failed", "", "wrong_tree"),
        ("head", "failed", "", "wrong_tree"),
    ]


def test_one_package_of_the_tree_is_seen_and_the_changed_one_comes_from_elsewhere(
    case_of: Any, tmp_path: Path
) -> None:
    """A helper in the tree makes the tests fail when all is spoiled; the package itself is another copy."""
    used = unit("test_add", "self.assertEqual(add(helper.TWO, 3), 5)", "import helper\nfrom calc import add")
    case = case_of({**SRC, "helper.py": "TWO = 2\n", "tests/test_core.py": used})
    argv = elsewhere(case, tmp_path)
    done = case.wrong_tree({"src/calc/core.py": BAD["calc/core.py"]}, [argv])
    assert classes(done) == {"not_exercised": "MEDIUM", "wrong_tree": "HIGH"}
    assert str(tmp_path / "checkout") in next(f.description for f in done.findings if f.severity == "HIGH")


def test_tests_that_set_their_own_path_are_not_taken_for_blind(case_of: Any, tmp_path: Path) -> None:
    own = "import os, sys\nsys.path.insert(0, os.path.abspath('src'))\nfrom calc import add"
    case = case_of({**SRC, "tests/test_core.py": unit("test_add", "self.assertEqual(add(2, 3), 5)", own)})
    argv = elsewhere(case, tmp_path)
    assert classes(case.wrong_tree({"src/calc/unused.py": "VALUE = 2\n"}, [argv])) == {
        "not_exercised": "MEDIUM"
    }


def test_the_answer_is_kept_for_the_environment(case: Case) -> None:
    first = case.wrong_tree(BAD, [["true"]])
    kept = sorted((case.root / "baselines/cto").glob("*-sight.json"))
    assert len(kept) == 1
    stamp = kept[0].stat().st_mtime_ns
    second = case.wrong_tree(GOOD, [["true"]])
    assert classes(second) == classes(first)
    assert [r.cached for r in first.receipts + second.receipts] == [False, True]
    assert kept[0].stat().st_mtime_ns == stamp


def test_a_file_that_no_test_notices(case: Case) -> None:
    change = {"calc/unused.py": "VALUE = 2\n"}
    done = case.wrong_tree(change)
    assert classes(done) == {"not_exercised": "MEDIUM"}
    assert "calc/unused.py" in done.findings[0].description
    assert classes(case.wrong_tree(change, require_exercised=True)) == {"not_exercised": "HIGH"}


def test_among_several_changed_files_the_unnoticed_is_named(case: Case) -> None:
    done = case.wrong_tree(
        {**GOOD, "calc/unused.py": "VALUE = 2\n", "calc/new.py": "X = 1\n", "README.md": "x"}
    )
    assert sorted(f.description for f in done.findings) == [
        "no test notices when calc/new.py cannot be loaded",
        "no test notices when calc/unused.py cannot be loaded",
    ]


def test_languages_without_a_spoiler_are_shown_as_not_judged(case: Case) -> None:
    done = case.wrong_tree({**GOOD, "tools/run.sh": "echo\n", "q.sql": "select 1\n"})
    assert classes(done) == {}
    assert done.notes == ["not judged (no known spoiler): q.sql, tools/run.sh"]


def test_a_suite_that_is_red_at_base_still_shows_what_it_sees(case_of: Any) -> None:
    case = case_of({**PACKAGE, "tests/test_red.py": unit("test_red", "self.fail()")})
    assert classes(case.wrong_tree(GOOD)) == {}
    assert classes(case.wrong_tree({"calc/unused.py": "VALUE = 2\n"})) == {"not_exercised": "MEDIUM"}


def test_only_linters_are_declared(case: Case) -> None:
    lint = [sys.executable, "-m", "compileall", "-q", "-f", "calc"]
    done = case.wrong_tree(GOOD, [lint])
    assert classes(done) == {"no_test_command": "MEDIUM"}
    assert classes(case.wrong_tree(GOOD, [["ruff", "--version"]])) == {
        "no_test_command": "MEDIUM",
        "wrong_tree": "HIGH",
    }


def test_a_repository_without_sources_is_not_judged(case_of: Any) -> None:
    case = case_of({"README.md": "x\n", "test_readme.py": unit("test_it", "open('README.md').close()")})
    done = case.wrong_tree({"README.md": "y\n"})
    assert classes(done) == {}
    assert "no source file" in done.notes[0]


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_javascript(case_of: Any) -> None:
    case = case_of({"lib/a.js": "module.exports = 1;\n", "test/a.test.js": "require('../lib/a.js');\n"})
    change = {"lib/a.js": "module.exports = 2;\n"}
    assert classes(case.wrong_tree(change, [["node", "test/a.test.js"]])) == {}
    assert classes(case.wrong_tree(change, [["node", "--version"]])) == {"wrong_tree": "HIGH"}


def test_which_files_are_spoiled() -> None:
    paths = [
        "calc/a.py",
        "tests/test_a.py",
        "setup.py",
        "conftest.py",
        "check.py",
        "README.md",
        "a.pyi",
        "web/x.ts",
    ]
    assert sources(paths, [["python", "./check.py"]]) == ["calc/a.py", "web/x.ts"]


def test_a_cancelled_look_is_no_verdict(case: Case) -> None:
    assert "cancel" in case.wrong_tree(GOOD, cancelled=lambda: True).no_verdict

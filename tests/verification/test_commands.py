from __future__ import annotations

import pytest

from school.verification.commands import instrument, kind_of, recognise, scope_of


@pytest.mark.parametrize(
    ("line", "runner"),
    [
        ("pytest", "pytest"),
        ("py.test -q", "pytest"),
        (".venv/bin/pytest tests", "pytest"),
        ("python -m pytest -q", "pytest"),
        ("python3.11 -bb -Wd -m pytest", "pytest"),
        ("python -W error -m pytest", "pytest"),
        ("python -Im pytest", "pytest"),
        ("env PYTHONPATH=src python -m pytest -o addopts=", "pytest"),
        ("env -u HOME -i A=1 pytest", "pytest"),
        ("uv run pytest", "pytest"),
        ("uv run --with freezegun --python 3.12 python -m pytest", "pytest"),
        ("poetry run pytest", "pytest"),
        ("timeout -k 5 60 pytest", "pytest"),
        ("nice -n 5 pytest", "pytest"),
        ("uv run tox pytest", "other"),
        ("uv run --quiet ./run.sh pytest", "other"),
        ("uv run", "other"),
        ("coverage run --branch -m pytest", "pytest"),
        ("python -m coverage run -m unittest", "unittest"),
        ("python -m unittest discover -v", "unittest"),
        ("python tests/run.py -m pytest", "other"),
        ("python -c 'import pytest' -m pytest", "other"),
        ("python -c -1 -m pytest", "other"),
        ("python -V -m pytest", "other"),
        ("python --help -m pytest", "other"),
        ("bash -c pytest", "other"),
        ("make test", "other"),
        ("true", "other"),
        ("tox", "other"),
        ("env", "other"),
    ],
)
def test_the_runner_is_known_behind_its_wrappers(line: str, runner: str) -> None:
    assert recognise(line.replace("'", "").split(" ")).runner == runner


def test_pytest_is_run_to_its_end_with_a_report_behind_its_own_options() -> None:
    argv = instrument(["pytest", "-x", "--junitxml=mine.xml", "--", "tests"], report="/r", shim="/s")
    assert argv == [
        "pytest",
        "-x",
        "--junitxml=mine.xml",
        "--junitxml=/r",
        "--continue-on-collection-errors",
        "--maxfail=0",
        "--",
        "tests",
    ]


def test_unittest_is_run_through_the_script_that_records() -> None:
    line = ["env", "A=1", "python", "-W", "error", "-Bm", "unittest", "discover", "-s", "tests"]
    argv = instrument(line, report="/r", shim="/s.py", fail_fast=True)
    expected = [
        "env",
        "A=1",
        "python",
        "-W",
        "error",
        "-B",
        "/s.py",
        "/r",
        "--fail-fast",
        "--",
        "discover",
        "-s",
        "tests",
    ]
    assert argv == expected


def test_what_names_no_tests_is_left_as_it_is() -> None:
    assert instrument(["make", "test"], report="/r", shim="/s") == ["make", "test"]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("pytest", "test"),
        ("true", "test"),
        ("make check", "test"),
        ("bash scripts/security.sh", "test"),
        ("python utilities.py", "test"),
        ("ruff check .", "lint"),
        ("npm run lint", "lint"),
        ("npm test", "test"),
        ("python -m mypy src", "typecheck"),
        ("npx tsc --noEmit", "typecheck"),
        ("uv run ruff format --check", "lint"),
        ("cargo build", "build"),
        ("python -m compileall src", "build"),
        ("make lint", "lint"),
        ("black --check .", "format"),
    ],
)
def test_the_kind_is_told_by_words_not_by_letters(line: str, kind: str) -> None:
    assert kind_of(line.split()) == kind


@pytest.mark.parametrize(
    ("line", "scope"),
    [
        ("pytest", "full"),
        ("pytest -q -p no:cacheprovider -o addopts=", "full"),
        ("env PYTHONPATH=src python -m pytest", "full"),
        ("pytest tests/test_parse.py", "targeted"),
        ("pytest -k login", "targeted"),
        ("pytest --ignore=tests/slow", "targeted"),
        ("pytest a.py::test_x", "targeted"),
        ("python -m unittest", "full"),
        ("python -m unittest discover -s tests", "full"),
        ("python -m unittest tests.test_core", "targeted"),
    ],
)
def test_what_narrows_a_suite_is_seen(line: str, scope: str) -> None:
    assert scope_of(line.split()) == scope

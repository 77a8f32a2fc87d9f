"""The attribution table of the verification reference, row by row, with every hole that it names."""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

import pytest

from school.verification import Classification, classify_command
from school.verification.classify import AD_HOC, OWN_VERIFY, attribute

CANONICAL = [
    "pytest",
    "npm run test",
    "make test",
    "bash scripts/run_tests.sh",
    "ruff check .",
    "go test ./...",
]

PASS, FAIL, NONE = "passed", "failed", None

# command, with exit status 0, with exit status 1
ATTRIBUTION = [
    ("pytest", PASS, FAIL),
    ("FOO=1 pytest", PASS, FAIL),
    ("env A=1 pytest", PASS, FAIL),
    ("time pytest", PASS, FAIL),
    ("pytest;", PASS, FAIL),
    ("cd x && pytest", PASS, NONE),
    ("pytest && echo ok", PASS, NONE),
    ("echo a; pytest", PASS, FAIL),
    ("set -e\npytest", PASS, FAIL),
    ("pytest; echo done", NONE, NONE),
    ("pytest\ntrue", NONE, NONE),
    ("pytest || true", NONE, NONE),
    ("pytest | tee l", NONE, NONE),
    ("pytest |& tee l", NONE, NONE),
    ("a && pytest || b", NONE, NONE),
    ("pytest &", NONE, NONE),
    ("pytest & wait", NONE, NONE),
    ("(pytest)", NONE, NONE),
    ("bash -c 'pytest'", NONE, NONE),
    ("$(pytest)", NONE, NONE),
    ("! pytest", NONE, NONE),
    ("if true; then pytest; fi", NONE, NONE),
    # The holes: the shell ends before the check, or another program bears its name.
    ("exit 0; pytest", NONE, NONE),
    ("'exit' 0; pytest", NONE, NONE),
    ("command exit 0; pytest", NONE, NONE),
    ("exec true; pytest", NONE, NONE),
    ("trap 'exit 0' EXIT; pytest", NONE, NONE),
    ("eval 'exit 0'; pytest", NONE, NONE),
    ("X=exit; $X; pytest", NONE, NONE),
    ("X=exit; $\\\nX; pytest", NONE, NONE),
    ("{exit,0}; pytest", NONE, NONE),
    ("echo hi # ; pytest", NONE, NONE),
    ("pytest # the whole suite", PASS, FAIL),
    ("pytest(){ true; }; pytest", NONE, NONE),
    ("function pytest { true; }\npytest", NONE, NONE),
    ("alias pytest=true; pytest", NONE, NONE),
    ("hash -p /bin/true pytest; pytest", NONE, NONE),
    ("source env.sh; pytest", NONE, NONE),
    (". ./env.sh && pytest", NONE, NONE),
    ("PATH=/x pytest", NONE, NONE),
    ("PATH=/x; pytest", NONE, NONE),
    ("PATH+=:/x; pytest", NONE, NONE),
    ("export PATH=/x:$PATH && pytest", NONE, NONE),
    ("env PATH=/x pytest", NONE, NONE),
    ("printf -v PATH /x; pytest", NONE, NONE),
    ("PYTEST_ADDOPTS=--collect-only pytest", NONE, NONE),
    ("export PYTEST_ADDOPTS=--collect-only; pytest", NONE, NONE),
    ("env PYTEST_ADDOPTS=-k pytest", NONE, NONE),
    ("BASH_ENV=x bash scripts/run_tests.sh", NONE, NONE),
    ("set -n; pytest", NONE, NONE),
    ("set -euo pipefail\npytest", PASS, FAIL),
    ("set -e; ./prepare; pytest", PASS, NONE),
    ("set -eu; echo $UNSET; pytest", PASS, NONE),
    ("cat <<EOF\npytest\nEOF", NONE, NONE),
    ("cat <<'EOF' > x\nEOF\npytest", NONE, NONE),
    ("bash -c 'pytest; true'", NONE, NONE),
    ('sh -c "pytest"', NONE, NONE),
    ("{ pytest; }", NONE, NONE),
    ("time ! pytest", NONE, NONE),
    ("while pytest; do break; done", NONE, NONE),
    ("timeout 60 pytest", PASS, FAIL),
    ("timeout -k 5s 60 pytest", PASS, FAIL),
    ("timeout --preserve-status 60 pytest", NONE, NONE),
    ("timeout --help pytest", NONE, NONE),
    ("command pytest", PASS, FAIL),
    ("command -v pytest", NONE, NONE),
    ("nice -n 5 pytest", PASS, FAIL),
    ("env --help pytest", NONE, NONE),
    ("env -C other pytest", NONE, NONE),
    ("uv run --directory other pytest", NONE, NONE),
    ("python -V -m pytest", NONE, NONE),
    ("python --help -m pytest", NONE, NONE),
    ("python -c -1 -m pytest", NONE, NONE),
    ("python -im pytest", NONE, NONE),
    ("python -O -m pytest", NONE, NONE),
    ("cp /bin/true .venv/bin/pytest; .venv/bin/pytest", NONE, NONE),
    ("env cp /bin/true .venv/bin/pytest; .venv/bin/pytest", NONE, NONE),
    ("command cp /bin/true bin/pytest; pytest", NONE, NONE),
    ("time cp /bin/true bin/pytest; pytest", NONE, NONE),
    ("sudo -- env cp /bin/true bin/pytest; pytest", NONE, NONE),
    ("sudo -u root cp /bin/true bin/pytest; pytest", NONE, NONE),
    ("busybox cp /bin/true bin/pytest; pytest", NONE, NONE),
    ("sh -c 'cp /bin/true bin/pytest'; pytest", NONE, NONE),
    ("""python3 -c "open('bin/pytest','w').write('#!/bin/true')"; pytest""", NONE, NONE),
    ("find bin -name pytest -exec cp /bin/true {} \\;; pytest", NONE, NONE),
    ("python -c 'import pytestx'; pytest", PASS, FAIL),
    ("pip install pytest && pytest", PASS, NONE),
    ("python setup.py build; pytest", PASS, FAIL),
    ("echo exit 0 > scripts/run_tests.sh; bash scripts/run_tests.sh", NONE, NONE),
    ("echo exit 0 > $F; bash scripts/run_tests.sh", NONE, NONE),
    # In a shell that is no bash it is in the background.
    ("pytest &> log", NONE, FAIL),
    ("pytest >& log", PASS, NONE),
    ("pytest < answers", PASS, NONE),
    ("pytest < /dev/null 2>&1", PASS, FAIL),
    # A line that is no line, and one with more than names in it.
    ("pytest '", NONE, NONE),
    ("pytest &&", NONE, NONE),
    ("; pytest", NONE, NONE),
    ("pytest ;;", NONE, NONE),
    ("pytest\0", NONE, NONE),
    ("pytest\r", NONE, NONE),
    ("pytest $ARGUMENTS", NONE, NONE),
    ("echo $(date); pytest", NONE, NONE),
    ("echo `date`; pytest", NONE, NONE),
    ('echo "at $(date)"; pytest', NONE, NONE),
    ("", NONE, NONE),
    ("# pytest", NONE, NONE),
    ("echo pytest", NONE, NONE),
    ("pytest-watch", NONE, NONE),
    ("security pytest", NONE, NONE),
    # What is known not to matter.
    ("echo a | tee b; pytest", PASS, FAIL),
    ("cd x || true; pytest", PASS, FAIL),
    ("echo it\\'s \"a $HOME\" 'b;c'; pytest", PASS, FAIL),
    ("pip install -e . && pytest", PASS, NONE),
    ("cd x &&\n  pytest", PASS, NONE),
    ("pytest \\\n  -q", PASS, FAIL),
    ("PYTHONPATH=src pytest", PASS, FAIL),
    ("PYTHONPATH=/elsewhere pytest", NONE, NONE),
    ("CI=1 make test", PASS, FAIL),
    ("PYTEST=true make test", NONE, NONE),
    ("make test PYTEST=true", NONE, NONE),
]


def status(command: str, exit_code: int) -> str | None:
    found = classify_command(command, exit_code=exit_code, canonical=CANONICAL)
    return found and found.status


@pytest.mark.parametrize(("command", "at_zero", "at_one"), ATTRIBUTION)
def test_a_status_is_believed_only_where_it_is_the_checks_own(
    command: str, at_zero: str | None, at_one: str | None
) -> None:
    assert (status(command, 0), status(command, 1)) == (at_zero, at_one)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pytest || true", None),
        ("pytest | tail -1", None),
        ("pytest; echo done", None),
        ("pytest &", None),
        ("pytest --collect-only", None),
        ("pytest -k x", Classification("test", "targeted", "passed", "pytest")),
    ],
)
def test_what_the_issue_names(command: str, expected: Classification | None) -> None:
    assert classify_command(command, exit_code=0, canonical=["pytest"]) == expected


@pytest.mark.parametrize(
    ("command", "scope"),
    [
        ("pytest -q", "full"),
        ("pytest -xvs --tb=short -n auto", "full"),
        ("pytest .", "full"),
        ("pytest > /tmp/x.log 2>&1", "full"),
        ("pytest 2>/dev/null >tests/log", "full"),
        ("pytest -k login", "targeted"),
        ("pytest -m 'not slow'", "targeted"),
        ("pytest -xk login", "targeted"),
        ("pytest -kfoo", "targeted"),
        ("pytest --lf", "targeted"),
        ("pytest --ignore=tests/slow", "targeted"),
        ("pytest --deselect tests/a.py::b", "targeted"),
        ("pytest tests/test_a.py", "targeted"),
        ("pytest tests/test_*.py", "targeted"),
        ("pytest unit", "targeted"),
        ("pytest -W ignore", "targeted"),
        ("pytest -o addopts=", "targeted"),
        ("pytest --collect-only", None),
        ("pytest --co -q", None),
        ("pytest --version", None),
        ("pytest --help", None),
        ("pytest -h", None),
        ("pytest -qV", None),
        ("pytest --setup-only", None),
        ("pytest --fixtures", None),
        ("pytest -p plugin", None),
        ("pytest -o addopts=--collect-only", None),
        ("pytest @arguments.txt", None),
        ("pytest *", None),
        ("pytest -k", None),
        ("pytest --a-plugins-own", None),
        ("pytest --maxfail --version", None),
        ("pytest --durations -V", None),
        ("pytest -k --version", None),
        ("pytest -xk --version", None),
        ("pytest --verbosity -1", "full"),
        ("npm test -- --testPathPattern=a", "targeted"),
        ("npm test -- -t name", "targeted"),
        ("npm test -- --ci --coverage", "full"),
        ("npm test -- --listTests", None),
        ("npm test -- --reporter --help", None),
        ("npm test -- --passWithNoTests", None),
        ("npm test --if-present", None),
        ("npm test --script-shell=true", None),
        ("make -s test", "full"),
        ("make -j 4 test", "full"),
        ("make test -n", None),
        ("make -t test", None),
        ("make -i test", None),
        ("make -C other test", None),
        ("make test lint", None),
        ("go test -v ./...", "full"),
        ("go test -run X ./...", "targeted"),
        ("go test ./pkg", "targeted"),
        ("go test -count=0 ./...", None),
        ("go test -exec true ./...", None),
        ("ruff check . --exit-zero", None),
        ("ruff check --fix .", None),
    ],
)
def test_what_further_arguments_leave_of_a_check(command: str, scope: str | None) -> None:
    found = classify_command(command, exit_code=0, canonical=CANONICAL)
    assert (found and found.scope) == scope


@pytest.mark.parametrize(
    ("command", "canonical"),
    [
        ("python -m pytest", "pytest"),
        ("python3.11 -m pytest", "pytest"),
        (".venv/bin/pytest", "pytest"),
        (".venv/bin/python -m pytest", "pytest"),
        ("/usr/bin/python3 -m pytest", "pytest"),
        ("uv run pytest", "pytest"),
        ("uv run python -m pytest", "pytest"),
        ("poetry run pytest", "pytest"),
        ("pipenv run pytest", "pytest"),
        ("py.test", "pytest"),
        ("pytest", "uv run python -m pytest"),
        ("pytest", "env PYTHONPATH=src python3 -m pytest -q"),
        ("env PYTHONPATH=/far/src python3 -m pytest", "env PYTHONPATH=/far/src python3 -m pytest"),
        ("PYTHONPATH=/far/src pytest", "env PYTHONPATH=/far/src python3 -m pytest"),
        ("npm test", "npm run test"),
        ("npm t", "npm run test"),
        ("npm run test", "npm test"),
        ("npm --silent run test", "npm run test"),
        ("yarn test", "yarn run test"),
        ("pnpm lint", "pnpm run lint"),
        ("./scripts/run_tests.sh", "bash scripts/run_tests.sh"),
        ("scripts/run_tests.sh", "bash scripts/run_tests.sh"),
        ("sh ./scripts/run_tests.sh", "scripts/run_tests.sh"),
        ("python -m mypy", "mypy"),
        ("python -m unittest discover -v -s tests", "python3 -m unittest discover -s tests"),
        ("./gradlew test", "./gradlew test"),
        ("mvn test", "mvn -q test"),
        ("bash -c 'pytest && ruff check'", "bash -c 'pytest && ruff check'"),
        ("tox -q", "tox"),
    ],
)
def test_other_words_for_the_same_check(command: str, canonical: str) -> None:
    found = classify_command(command, exit_code=0, canonical=[canonical])
    assert found is not None
    assert (found.scope, found.canonical_command) == ("full", canonical)


@pytest.mark.parametrize(
    ("command", "canonical"),
    [
        ("/tmp/x/pytest", "pytest"),
        ("./pytest", "pytest"),
        ("bun test", "bun run test"),  # its own runner, not the script
        ("npm lint", "npm run lint"),
        ("npm test", "npm run test:unit"),
        ("bash -n scripts/run_tests.sh", "bash scripts/run_tests.sh"),
        ("python pytest", "pytest"),
        ("python -m foo", "foo"),
        ("black .", "black --check ."),
        ("true", "pytest"),
        ("pytest", "pytest | tee log"),
        ("pytest --basetemp tests tests/unit", "pytest tests"),
    ],
)
def test_what_is_another_command(command: str, canonical: str) -> None:
    found = classify_command(command, exit_code=0, canonical=[canonical])
    assert found is None or found.scope == "targeted"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("pytest", "test"),
        ("make check", "check"),
        ("npm run check", "check"),
        ("cargo check", "check"),
        ("ruff check .", "lint"),
        ("npm run typecheck", "typecheck"),
        ("npm run build", "build"),
        ("npm run fmt", "format"),
        ("bash scripts/security.sh", "test"),
        ("hermes verify", "verify"),
    ],
)
def test_the_kind_of_a_check(command: str, kind: str) -> None:
    found = classify_command(command, exit_code=0, canonical=[command])
    assert found is not None
    assert found.kind == kind


def test_hermes_verify_is_whole_only_with_all_its_phases() -> None:
    scopes = {
        command: found and found.scope
        for command in (
            "hermes verify",
            "hermes verify --json --port 80",
            "hermes verify --phase test",
            "hermes verify --skip-start",
            "hermes verify --detect-only",
            "hermes verify --help",
        )
        for found in [classify_command(command, exit_code=0, canonical=[])]
    }
    assert scopes == {
        "hermes verify": "full",
        "hermes verify --json --port 80": "full",
        "hermes verify --phase test": "targeted",
        "hermes verify --skip-start": "targeted",
        "hermes verify --detect-only": None,
        "hermes verify --help": None,
    }


@pytest.mark.parametrize(
    ("output", "believed"),
    [
        ("", True),
        ("5 passed in 0.1s", True),
        ("\x1b[32m===== 5 passed in 0.10s =====\x1b[0m", True),
        ("no tests ran in 0.01s", False),
        ("===== no tests ran in 0.01s =====", False),
        ("collected 0 items", False),
        ("3 tests collected in 0.01s", False),
        ("1 failed, 4 passed in 0.1s", False),
        ("4 skipped in 0.1s", False),
    ],
)
def test_what_pytest_says_can_take_a_pass_away(output: str, *, believed: bool) -> None:
    assert (
        classify_command("pytest", exit_code=0, output=output, canonical=["pytest"]) is not None
    ) == believed


@pytest.mark.parametrize(
    ("output", "believed"),
    [
        ("  0 passing (1ms)\n", False),
        ("  0 passing (1ms)\n  3 passing (5ms)\n", True),
        ("Ran 0 tests in 0.000s\n\nOK\n", False),
        ("Ran 5 tests in 0.000s\n\nOK (skipped=5)\n", False),
        ("Ran 5 tests in 0.000s\n\nOK (skipped=4)\n", True),
        ("Ran 1 test in 0.000s\n\nOK (skipped=1)\n\nRan 2 tests in 0.000s\n\nOK\n", True),
        ("Tests:       0 total\n", False),
        ("ok  \tpkg/a\t0.01s [no tests to run]\n", False),
        ("ok  \tpkg/a\t0.01s\n?   \tpkg/b\t[no test files]\n", True),
        ("running 0 tests\n\ntest result: ok. 0 passed; 0 failed\n", False),
        ("running 2 tests\ntest result: ok. 2 passed; 0 failed\nrunning 0 tests\n", True),
    ],
)
def test_a_run_without_tests_is_no_pass(output: str, *, believed: bool) -> None:
    found = classify_command("npm test", exit_code=0, output=output, canonical=["npm run test"])
    assert (found is not None) == believed


def test_pytest_that_collected_nothing_did_not_pass() -> None:
    found = classify_command("pytest", exit_code=5, output="no tests ran in 0.01s", canonical=["pytest"])
    assert found == Classification("test", "full", "failed", "pytest")


@pytest.mark.parametrize("code", [124, 125, 126, 127, 137, -9])
def test_a_wrappers_own_status_blames_nobody(code: int) -> None:
    assert classify_command("timeout 60 pytest", exit_code=code, canonical=["pytest"]) is None


def test_a_command_that_never_ended_is_no_evidence() -> None:
    assert classify_command("pytest", exit_code=None, canonical=["pytest"]) is None


def test_all_checks_of_a_chain_are_told_and_the_tests_first() -> None:
    command = "ruff check . && pytest -q && make -s lint"
    found = attribute(command, exit_code=0, canonical=["pytest", "ruff check .", "make lint"])
    assert [one.classification.canonical_command for one in found] == ["ruff check .", "pytest", "make lint"]
    most_telling = classify_command(command, exit_code=0, canonical=["ruff check .", "pytest"])
    assert most_telling == Classification("test", "full", "passed", "pytest")


@pytest.mark.parametrize(
    ("command", "places"),
    [
        ("pytest", ()),
        ("cd a && pytest", ("a",)),
        ("cd a && cd '../b c' && pytest", ("a", "../b c")),
        ("cd a\npytest", ("a",)),
        ("./build && cd a; pytest", None),
        ("cd a || true; pytest", None),
    ],
)
def test_where_a_check_ran(command: str, places: tuple[str, ...] | None) -> None:
    (found,) = attribute(command, exit_code=0, canonical=["pytest"])
    assert found.places == places


def test_a_script_of_the_agents_own_counts_only_where_nothing_is_declared() -> None:
    script = f"{tempfile.gettempdir()}/hermes-verify-calc.py"
    expected = Classification("ad_hoc", "targeted", "passed", AD_HOC)
    for command in (f"python3 {script}", f"/usr/bin/env python3.12 -B {script} --fast", script):
        assert classify_command(command, exit_code=0, canonical=[]) == expected
        assert classify_command(command, exit_code=0, canonical=["pytest"]) is None
    for command in (
        f"python3 -m {script}",
        f"bash -n {script}",
        "python3 hermes-verify-calc.py",
        "python3 /etc/hermes-verify-calc.py",
        f"python3 {tempfile.gettempdir()}/../etc/hermes-verify-calc.py",
        f"python3 {tempfile.gettempdir()}/other.py",
        "true",
    ):
        assert classify_command(command, exit_code=0, canonical=[]) is None, command


def test_a_link_out_of_the_temporary_folder_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "hermes-verify-x.py").symlink_to("/etc/hostname")
    command = f"python3 {tmp_path}/t/hermes-verify-x.py"
    assert classify_command(command, exit_code=0, canonical=[]) is None


def test_our_own_verify_is_known_by_its_own_file() -> None:
    own = shlex.join(OWN_VERIFY)
    assert Path(OWN_VERIFY[1]).is_file()
    whole, part, *others = (
        classify_command(command, exit_code=0, canonical=["pytest"])
        for command in (
            f"{own} --json",
            f"{own} --phase test",
            f"{own} --detect-only",
            f"{own} elsewhere",
            "python3 conductor.py verify --json",
            f"{sys.executable} /tmp/conductor.py verify --json",
        )
    )
    assert whole == Classification("verify", "full", "passed", "hermes verify")
    assert part is not None
    assert part.scope == "targeted"
    assert others == [None] * 4

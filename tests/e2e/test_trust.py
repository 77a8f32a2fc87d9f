"""What a student may try, through the real command line: none of it gets bad work accepted, now or in the next bead.

The students are commands that change files; ``BREAK`` makes ``add`` wrong, and each test adds its way of hiding that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.projects import bag_of, classes, conduct, environment
from tests.support import CALC_FILES, ROOT, git, write_tree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

BREAK = """
from pathlib import Path

def put(name, text):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)

def swap(name, old, new):
    text = Path(name).read_text()
    assert old in text, (name, old)
    put(name, text.replace(old, new))

def spoil(name="calc/core.py"):
    swap(name, "left + right", "left - right")
"""
UNITTEST = "python3 -m unittest discover"


def repository(place: Path, files: dict[str, str], *, without: tuple[str, ...] = ()) -> Path:
    """The example project with *files* over it, as a repository of one commit."""
    root = place / "project"
    write_tree(root, {k: v for k, v in {**CALC_FILES, **files}.items() if k not in without})
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Begin")
    return root


def school_toml(*commands: list[str], more: str = "") -> dict[str, str]:
    return {"school.toml": f"[verify]\ncommands = {json.dumps(commands)}\n{more}"}


def work(place: Path, name: str, code: str, **more: Any) -> dict[str, Any]:
    """A task whose student is a script outside the repository."""
    script = place / f"{name}.py"
    script.write_text(BREAK + code)
    task = f"Make calc simpler: {name}."
    return {"id": name, "role": "executor", "task": task, "run": [sys.executable, str(script)], **more}


def run(
    place: Path, repo: Path, home: Path, *tasks: dict[str, Any], flags: tuple[str, ...] = ()
) -> tuple[int, dict[str, dict[str, Any]], dict[str, set[str]], str]:
    """Exit status, each task's row, and the classes of what failed it."""
    path = place / "tasks.yaml"
    path.write_text(json.dumps({"version": 1, "defaults": {"max_attempts": 1}, "tasks": list(tasks)}))
    env = environment(home)
    code, document, stderr = conduct("--repo", str(repo), "--tasks", str(path), *flags, env=env)
    rows = {row["id"]: row for row in document.get("tasks", [])}
    found = {
        name: classes(bag_of(row["bead"], env))
        for name, row in rows.items()
        if row["outcome"] in ("accepted", "rejected", "no_change")
    }
    return code, rows, found, stderr + json.dumps(document)


# --- the tests look at another tree, or at none -----------------------------------------------------------


def test_a_package_installed_editable_from_the_users_own_checkout(tmp_path: Path, own_home: Path) -> None:
    """The environment's path file leads to the user's checkout, as ``pip install -e .`` there writes it."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    files = {f"src/{name}": text for name, text in CALC_FILES.items() if name.startswith("calc/")}
    argv = [str(venv / "bin/python"), "-m", "unittest", "discover", "-s", "tests", "-t", "."]
    repo = repository(tmp_path, {**files, **school_toml(argv)}, without=("calc/__init__.py", "calc/core.py"))
    (site,) = (venv / "lib").glob("python*/site-packages")
    (site / "__editable__.calc.pth").write_text(f"{repo / 'src'}\n")
    subprocess.run(argv, cwd=repo, check=True, capture_output=True)

    bad = work(tmp_path, "bad", "spoil('src/calc/core.py')")
    good = work(tmp_path, "good", "swap('src/calc/core.py', 'import os\\n', '')")
    code, rows, found, told = run(tmp_path, repo, own_home, bad, good)
    assert (code, rows["bad"]["outcome"], rows["good"]["outcome"]) == (1, "rejected", "rejected"), told
    assert found["bad"] == found["good"] == {"wrong_tree"}
    bag = bag_of(rows["bad"]["bead"], environment(own_home))
    assert any(str(repo) in f["description"] or "another copy" in f["description"] for f in bag["findings"])

    # What the finding advises helps: the same two, told where the sources are.
    write_tree(repo, school_toml(["env", "PYTHONPATH=src", *argv]))
    git(repo, "commit", "-q", "-a", "-m", "Test this tree")
    bad, good = ({**task, "id": f"{task['id']}-2"} for task in (bad, good))
    code, rows, found, told = run(tmp_path, repo, own_home, bad, good)
    assert (code, rows["bad-2"]["outcome"], rows["good-2"]["outcome"]) == (1, "rejected", "accepted"), told
    assert "tests_broken" in found["bad-2"]


def test_a_verify_command_of_true(tmp_path: Path, own_home: Path) -> None:
    repo = repository(tmp_path, school_toml(["true"]))
    code, rows, found, told = run(tmp_path, repo, own_home, work(tmp_path, "bad", "spoil()"))
    assert (code, rows["bad"]["outcome"]) == (1, "rejected"), told
    assert found["bad"] == {"wrong_tree"}
    assert git(repo, "for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/main"


@pytest.mark.parametrize("check", [["true"], ["python3", "-c", "pass"], ["sh", "-c", "exit 0"]])
@pytest.mark.parametrize("claim", ["done", "no_change"])
def test_a_criterion_that_cannot_fail(tmp_path: Path, own_home: Path, check: list[str], claim: str) -> None:
    """Nothing else judges here: the repository declares no check."""
    repo = repository(tmp_path, {}, without=("school.toml", "tests/test_core.py", "tests/__init__.py"))
    said = "import json, os; put(os.environ['SCHOOL_RESULT'], json.dumps({'status': 'no_change'}))"
    task = work(
        tmp_path,
        "bad",
        "spoil()" if claim == "done" else said,
        accept=[{"text": "add still adds", "check": check}],
    )
    code, rows, _, told = run(tmp_path, repo, own_home, task)
    assert (code, rows["bad"]["outcome"]) == (1, "blocked"), told
    assert "cannot fail" in rows["bad"]["reason"] or "unjudged" in rows["bad"]["reason"], rows


def test_a_criterion_of_true_beside_a_suite_that_sees(tmp_path: Path, own_home: Path) -> None:
    repo = repository(tmp_path, school_toml(UNITTEST.split()))
    task = work(tmp_path, "bad", "spoil()", accept=[{"text": "add still adds", "check": ["true"]}])
    code, rows, _, told = run(tmp_path, repo, own_home, task)
    # The CTO turns it down; the COO, to whom ``true`` says nothing, leaves the criterion to a human.
    assert (code, rows["bad"]["outcome"], rows["bad"]["cto_verdict"]) == (1, "blocked", "FAIL"), told
    assert "cannot fail" in rows["bad"]["reason"]


def test_a_task_with_nothing_to_judge_it_by_is_refused_when_it_is_loaded(
    tmp_path: Path, own_home: Path
) -> None:
    repo = repository(tmp_path, {}, without=("school.toml", "tests/test_core.py", "tests/__init__.py"))
    task = work(tmp_path, "bad", "spoil()")
    code, rows, _, told = run(tmp_path, repo, own_home, task)
    assert (code, rows) == (2, {})
    assert all(way in told for way in ("tasks[0]", "`check`", "[verify] commands")), told
    assert not list((own_home / ".hermes").glob("bookbag/*.json"))
    assert not list((own_home / ".hermes").glob("worktrees/*/*"))


# --- who judges is edited by the student ------------------------------------------------------------------

CHECK = "from calc import add\n\nassert add(2, 3) == 5\nprint('fine')\n"


@pytest.mark.parametrize("where", ["verify", "criterion"])
@pytest.mark.parametrize("allow", [None, ["calc/**", "scripts/**"]])
def test_an_in_repository_check_script_that_the_student_edits(
    tmp_path: Path, own_home: Path, where: str, allow: list[str] | None
) -> None:
    argv = ["env", "PYTHONPATH=.", "python3", "scripts/check.py"]
    commands = [argv] if where == "verify" else [UNITTEST.split()]
    repo = repository(tmp_path, {"scripts/check.py": CHECK, **school_toml(*commands)})
    accept = [{"text": "add still adds", "check": argv}] if where == "criterion" else []
    more = {"accept": accept, **({"allow": allow} if allow else {})}
    task = work(tmp_path, "bad", "spoil(); put('scripts/check.py', \"print('fine')\\n\")", **more)
    code, rows, _, told = run(tmp_path, repo, own_home, task)
    assert (code, rows["bad"]["outcome"]) == (1, "rejected"), told


def test_a_helper_of_a_check_script_that_the_student_edits(tmp_path: Path, own_home: Path) -> None:
    """The script itself stays: what it asks for comes from beside it."""
    files = {
        "scripts/check.py": "from expected import SUM\n\nfrom calc import add\n\nassert add(2, 3) == SUM\n",
        "scripts/expected.py": "SUM = 5\n",
        **school_toml(["env", "PYTHONPATH=.", "python3", "scripts/check.py"]),
    }
    repo = repository(tmp_path, files)
    task = work(tmp_path, "bad", "spoil(); put('scripts/expected.py', 'SUM = -1\\n')")
    code, rows, _, told = run(tmp_path, repo, own_home, task)
    assert (code, rows["bad"]["outcome"]) == (1, "rejected"), told


# --- what one bead leaves behind --------------------------------------------------------------------------

EVIL = "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\n"
LEAVES_IT = f"""
import pathlib, sysconfig, unittest

class T(unittest.TestCase):
    def test_leaves(self):
        site = pathlib.Path(sysconfig.get_path("purelib"))
        self.assertIn(".venv", str(site))
        (site / "sitecustomize.py").write_text({EVIL!r})
"""


def test_a_sitecustomize_left_in_a_kept_environment_helps_no_bead(tmp_path: Path, own_home: Path) -> None:
    setup = f'[setup]\ncommands = [[{json.dumps(sys.executable)}, "-m", "venv", "--without-pip", ".venv"]]\n'
    terms = school_toml(["python", "-m", "unittest", "discover"], more=setup + 'keep = [".venv"]\n')
    repo = repository(tmp_path, {**terms, ".gitignore": CALC_FILES[".gitignore"] + ".venv/\n"})
    tasks = [
        work(tmp_path, "innocent", f"put('tests/test_leaves.py', {LEAVES_IT!r})"),
        work(tmp_path, "first", f"spoil(); put('tests/test_leaves.py', {LEAVES_IT!r})"),
        work(tmp_path, "next", "spoil()"),
        work(tmp_path, "good", "swap('calc/core.py', 'import os\\n', '')"),
    ]
    code, rows, found, told = run(tmp_path, repo, own_home, *tasks, flags=("--leaves", "1"))
    ends = {name: row["outcome"] for name, row in rows.items() if name != "innocent"}
    assert (code, ends) == (1, {"first": "rejected", "next": "rejected", "good": "accepted"}), told
    assert "tests_broken" in found["first"] & found["next"]
    left = (own_home / ".hermes/worktrees").glob(
        "*/teacher-*/.venv/lib/python*/site-packages/sitecustomize.py"
    )
    assert list(left) == []


# --- results that are made outside the tests ----------------------------------------------------------------


@pytest.mark.parametrize(
    "top",
    [
        "import unittest\nt = unittest.TestCase\nt.assertEqual = lambda *a, **k: None\n",
        "import atexit, os\natexit.register(getattr(os, '_ex' + 'it'), 0)\n",
        "import os\ngetattr(os, '_ex' + 'it')(0)\n",
    ],
)
def test_results_that_are_made_outside_the_tests(tmp_path: Path, own_home: Path, top: str) -> None:
    """Where the runner names its tests, and behind ``make``, of which only the exit status is known."""
    commands = school_toml(UNITTEST.split(), ["make", "-s", "test"])
    repo = repository(tmp_path, {**commands, "Makefile": f"test:\n\t{UNITTEST}\n"})
    for name in ("here", "make"):
        write_tree(repo, commands if name == "here" else school_toml(["make", "-s", "test"]))
        git(repo, "commit", "-q", "--allow-empty", "-a", "-m", name)
        code_text = f"spoil(); put('calc/core.py', {top!r} + Path('calc/core.py').read_text())"
        code, rows, found, told = run(tmp_path, repo, own_home, work(tmp_path, f"bad-{name}", code_text))
        assert (code, rows[f"bad-{name}"]["outcome"]) == (1, "rejected"), told
        assert found[f"bad-{name}"] & {"result_from_outside", "tests_broken"}


# --- where nothing confines a test: what can be told cheaply is --------------------------------------------------

FORGES = f"""
import json, os, subprocess, sys, unittest
from pathlib import Path

class T(unittest.TestCase):
    def test_forges(self):
        state = Path(os.environ["STATE"])
        (bag,) = [json.loads(p.read_text()) for p in (state / "bookbag").glob("executor-*.json")]
        sys.path.insert(0, {str(ROOT)!r})
        from school.contracts import LENSES
        from school.review.verdicts import review_id
        for role in ("cto", "coo"):
            name = review_id(bag["bead"], bag["tree"], role)
            lenses = [{{"lens": lens, "outcome": "PASS"}} for lens in LENSES[role]]
            review = {{"verdict": "PASS", "tree": bag["tree"], "review_id": name, "lenses": lenses, "attempts": 1}}
            whole = {{"review_id": name, "bead": bag["bead"], "role": role, "tree": bag["tree"], "verdict": "PASS"}}
            whole |= {{"head_commit": bag["head_commit"], "review": review, "by": f"teacher-{{role}}", "written_at": bag["timestamp"]}}
            path = state / "school/reviews" / f"{{name}}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(whole))
            bag |= {{f"{{role}}_verdict": "PASS", f"{{role}}_review": review}} if RECORD else {{}}
        if RECORD:
            (state / "bookbag" / (bag["bead"] + ".json")).write_text(json.dumps(bag))
"""


@pytest.mark.parametrize("record", [False, True])
def test_review_files_that_a_test_forges(tmp_path: Path, own_home: Path, record: bool) -> None:
    """Without receipts they are told from real ones; where the record is forged too, delivery refuses it and ``check`` says so."""
    state = own_home / ".hermes"
    python = str(Path(sys.executable))
    argv = ["env", f"STATE={state}", python, "-m", "unittest", "discover"]
    repo = repository(tmp_path, school_toml(argv))
    forges = FORGES.replace("RECORD", str(record))
    accept = [{"text": "add adds", "check": argv}]
    task = work(tmp_path, "bad", f"spoil(); put('tests/test_forges.py', {forges!r})", accept=accept)
    code, rows, _, told = run(tmp_path, repo, own_home, task, flags=("--sandbox", "off"))
    assert (code, rows["bad"]["branch"]) == (1, ""), told
    assert git(repo, "for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/main"
    # Rejected where the forger was early and its files were found out, set aside as unproven where it was late.
    assert rows["bad"]["outcome"] in ("rejected", "blocked"), told
    assert "could not be finished" not in told
    assert "review.forged" in told or "passes what it never ran" in told or "unproven" in told
    if not record:
        return
    # Later runs get past it, whatever the forger left on the shelf.
    code, rows, _, told = run(tmp_path, repo, own_home, task, flags=("--sandbox", "off"))
    assert (code, rows["bad"]["outcome"], rows["bad"]["branch"]) == (1, rows["bad"]["outcome"], ""), told
    assert "could not be finished" not in told
    good = work(tmp_path, "good", "swap('calc/core.py', 'import os\\n', '')")
    code, rows, _, told = run(tmp_path, repo, own_home, good)
    assert (code, rows["good"]["outcome"]) == (0, "accepted"), told

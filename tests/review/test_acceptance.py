"""Every criterion is run at the exact commit, and one that cannot fail, or was met all along, proves nothing."""

import sys
from pathlib import Path

import pytest

from school.review.checks import for_role
from school.verification.bench import Bench
from school.verification.compare import compare
from school.verification.spoil import spoil
from tests.review.support import CALC, CORE, PYTEST, TESTS, Judged, classes

PY = sys.executable
RAISES = CORE.replace(
    "    return [int", '    if not text:\n        raise ValueError("empty")\n    return [int'
)
NEW_TEST = "import pytest\n\nfrom calc import parse\n\n\ndef test_empty():\n    with pytest.raises(ValueError):\n        parse('')\n"
CLEAN = CORE.replace("import os\n\n\n", "")
LINT = ["ruff", "check", "--isolated", "--no-cache", "--select", "F401", "calc/core.py"]


def criteria(*checks: list[str]) -> list[dict[str, object]]:
    return [{"id": f"c{n}", "text": f"criterion {n}", "check": check} for n, check in enumerate(checks, 1)]


def test_a_criterion_that_the_change_meets(judged):
    result = judged.one("acceptance", {"calc/core.py": CLEAN}, acceptance=criteria(LINT))
    assert result.criteria == {"c1": "met"}
    assert (result.findings, result.no_verdict) == ([], "")
    assert [(r.at, r.outcome) for r in result.receipts] == [("base", "failed"), ("head", "passed")]


def test_an_unmet_criterion_says_why(judged):
    result = judged.one("acceptance", {"calc/core.py": CORE + "\n"}, acceptance=criteria(LINT))
    assert result.criteria == {"c1": "unmet"}
    assert classes(result) == {"criterion_unmet": "HIGH"}
    assert "exit 1" in result.findings[0].description
    assert "os" in result.findings[0].citation


@pytest.mark.parametrize(
    "check",
    [["true"], [PY, "-c", "pass"], ["test", "-d", "."], ["sh", "-c", "exit 0"]],
)
def test_a_criterion_that_cannot_fail_is_unjudged(judged, check):
    result = judged.one("acceptance", {"calc/core.py": CLEAN}, acceptance=criteria(check))
    assert result.criteria == {"c1": "unjudged"}
    assert "cannot fail" in result.no_verdict
    assert result.findings == []


def test_one_that_cannot_fail_does_not_hide_one_that_is_unmet(judged):
    result = judged.one("acceptance", {"calc/core.py": CORE + "\n"}, acceptance=criteria(["true"], LINT))
    assert result.criteria == {"c1": "unjudged", "c2": "unmet"}
    assert classes(result) == {"criterion_unmet": "HIGH"}


def test_met_at_base_is_told_and_does_not_make_it_done_alone(judged):
    edit = {"calc/core.py": CLEAN}
    alone = judged.one("acceptance", edit, acceptance=criteria(PYTEST))
    assert alone.criteria == {"c1": "met"}
    assert classes(alone) == {"already_met": "LOW"}
    assert "no verify command" in alone.no_verdict
    with_suite = judged.one("acceptance", edit, acceptance=criteria(PYTEST), verify=[PYTEST])
    assert (classes(with_suite), with_suite.no_verdict) == ({"already_met": "LOW"}, "")
    with_other = judged.one("acceptance", edit, acceptance=criteria(PYTEST, LINT))
    assert (with_other.criteria, with_other.no_verdict) == ({"c1": "met", "c2": "met"}, "")


def test_a_named_file_that_could_be_missing_is_a_real_criterion(judged):
    result = judged.one(
        "acceptance", {"calc/core.py": CLEAN}, acceptance=criteria(["grep", "-q", "calc", "README.md"], LINT)
    )
    assert result.criteria == {"c1": "met", "c2": "met"}


# --- tests that the criterion names ----------------------------------------------------------------------


def test_a_new_test_that_fails_on_bases_sources(judged):
    edit = {"calc/core.py": RAISES, "tests/test_empty.py": NEW_TEST}
    result = judged.one("acceptance", edit, acceptance=criteria([*PYTEST, "tests/test_empty.py"]))
    assert (result.criteria, result.no_verdict) == ({"c1": "met"}, "")


@pytest.mark.parametrize(
    "check", [[*PYTEST, "tests/test_empty.py"], [*PYTEST, "tests/test_empty.py::test_empty"]]
)
def test_a_new_test_that_passes_on_bases_sources_too_proves_nothing(judged, check):
    edit = {"calc/core.py": CLEAN, "tests/test_empty.py": "def test_empty():\n    assert True\n"}
    result = judged.one("acceptance", edit, acceptance=criteria(check))
    assert result.criteria == {"c1": "unjudged"}
    assert "does not test the change" in result.no_verdict


def test_a_script_of_the_students_own_proves_nothing(judged):
    edit = {"calc/core.py": CLEAN, "check_it.py": "raise SystemExit(0)\n"}
    result = judged.one("acceptance", edit, acceptance=criteria([PY, "check_it.py"]))
    assert result.criteria == {"c1": "unjudged"}


def test_a_check_script_that_was_edited_until_it_agrees(tmp_path):
    judged = Judged(tmp_path / "j", CALC | {"tools/accept.py": "raise SystemExit('not done')\n"})
    edit = {"tools/accept.py": "raise SystemExit(0)\n"}
    result = judged.one("acceptance", edit, acceptance=criteria([PY, "tools/accept.py"]))
    assert result.criteria == {"c1": "unmet"}
    assert "tools/accept.py" in result.findings[0].description


def test_a_program_that_is_the_work_itself_must_be_named(tmp_path):
    judged = Judged(tmp_path / "j", CALC | {"main.py": "raise SystemExit('no such option')\n"})
    edit = {"main.py": "print('version 1')\n"}
    check = criteria([PY, "main.py", "--version"])
    assert judged.one("acceptance", edit, acceptance=check).criteria == {"c1": "unjudged"}
    assert judged.one("acceptance", edit, acceptance=check, allow=["main.py"]).criteria == {"c1": "met"}


def test_an_edited_test_is_judged_by_bases_copy(judged):
    weak = {
        "calc/core.py": CORE.replace("left + right", "left - right"),
        "tests/test_core.py": "def test_add():\n    assert True\n",
    }
    result = judged.one(
        "acceptance", weak, acceptance=criteria([*PYTEST, "tests/test_core.py"]), allow=["tests/**"]
    )
    assert result.criteria == {"c1": "unmet"}
    assert "with base's copy" in result.findings[0].description


def test_an_extended_test_is_accepted(judged):
    more = TESTS + "\n\ndef test_empty():\n    with pytest.raises(ValueError):\n        parse('')\n"
    result = judged.one(
        "acceptance",
        {"calc/core.py": RAISES, "tests/test_core.py": more},
        acceptance=criteria([*PYTEST, "tests/test_core.py"]),
        allow=["tests/**", "calc/**"],
    )
    assert (result.criteria, result.no_verdict, result.findings) == ({"c1": "met"}, "", [])


def test_a_suite_turned_green_by_its_settings_alone(tmp_path):
    judged = Judged(
        tmp_path / "j",
        CALC
        | {"tests/test_red.py": "from calc import add\n\n\ndef test_red():\n    assert add(1, 1) == 3\n"},
    )
    edit = {"pytest.ini": "[pytest]\naddopts = --ignore=tests/test_red.py\n", "calc/core.py": CLEAN}
    result = judged.one("acceptance", edit, acceptance=criteria(PYTEST))
    assert result.criteria["c1"] != "met"


def test_a_run_that_collected_no_test_is_no_pass(judged):
    result = judged.one(
        "acceptance", {"calc/core.py": CLEAN}, acceptance=criteria([*PYTEST, "-k", "nothing_like_it"])
    )
    assert result.criteria == {"c1": "unmet"}


def test_exit_0_without_a_report_is_no_pass(judged):
    edit = {"calc/core.py": CORE + "\n\nimport os\nos._exit(0)\n"}
    assert judged.one("acceptance", edit, acceptance=criteria(PYTEST)).criteria == {"c1": "unmet"}


# --- what cannot be judged -------------------------------------------------------------------------------


def test_a_criterion_without_a_check_needs_a_reader(judged):
    result = judged.one(
        "acceptance", {"calc/core.py": CLEAN}, acceptance=[{"id": "a", "text": "reads well", "check": []}]
    )
    assert result.criteria == {"a": "unjudged"}
    assert "no model reviewer" in result.no_verdict


def test_a_missing_tool_is_not_the_students_fault(judged):
    result = judged.one("acceptance", {"calc/core.py": CLEAN}, acceptance=criteria(["no-such-tool-anywhere"]))
    assert result.criteria == {"c1": "unjudged"}


def test_a_program_that_was_to_be_made_and_is_missing(judged):
    result = judged.one("acceptance", {"calc/core.py": CLEAN}, acceptance=criteria(["bin/calc", "1+1"]))
    assert result.criteria == {"c1": "unmet"}


def test_a_check_that_hangs_is_unmet(judged):
    edit = {"calc/core.py": CORE + "\n\nimport time\ntime.sleep(600)\n"}
    check = criteria([PY, "-c", "import calc.core"])
    result = judged.one("acceptance", edit, acceptance=check, verify_timeout_s=0.4)
    assert result.criteria == {"c1": "unmet"}


# --- no criteria, chores, no_change ----------------------------------------------------------------------


def test_without_criteria_the_repositorys_own_checks_judge(judged):
    good = judged.one("acceptance", {"calc/core.py": CLEAN}, verify=[PYTEST])
    assert (classes(good), good.no_verdict) == ({}, "")
    assert [(r.at, r.outcome) for r in good.receipts] == [("base", "passed"), ("head", "passed")]
    bad = judged.one(
        "acceptance", {"calc/core.py": CORE.replace("left + right", "left - right")}, verify=[PYTEST]
    )
    assert classes(bad) == {"tests_broken": "HIGH"}
    assert "nothing to judge it by" in judged.one("acceptance", {"calc/core.py": CLEAN}).no_verdict


def fixer(tmp_path: Path) -> dict[str, object]:
    argv = ["ruff", "check", "--isolated", "--no-cache", "--select", "F401", "--fix", "--exit-zero", "calc"]
    return {
        "agent": {"name": "unused-imports", "kind": "run", "chore": "unused-imports", "argv": argv},
        "chore": "unused-imports",
    }


def test_a_chore_is_run_again_and_must_change_nothing(judged, tmp_path):
    done = judged.one("acceptance", {"calc/core.py": CLEAN}, **fixer(tmp_path))
    assert (classes(done), done.no_verdict, len(done.receipts)) == ({}, "", 1)
    half = judged.one("acceptance", {"calc/new.py": "import sys\n"}, **fixer(tmp_path))
    assert classes(half) == {"chore_unfinished": "HIGH"}
    idle = judged.one("acceptance", {}, claim="no_change", **fixer(tmp_path))
    assert classes(idle) == {"chore_unfinished": "HIGH"}


def test_what_set_up_made_in_sight_of_git_is_not_the_chores_doing(judged, tmp_path):
    """A project whose .gitignore does not name the ``.venv`` that its set-up makes."""
    done = judged.context({"calc/core.py": CLEAN}, "coo", keep=[".venv"], **fixer(tmp_path))
    (judged.worktree / ".venv/lib").mkdir(parents=True)
    (judged.worktree / ".venv/lib/made.py").write_text("import os\n")
    checks = for_role("coo", bench=Bench.of, compare=compare, spoil=spoil)
    found = next(check for check in checks if check.name == "acceptance")(done)
    assert (classes(found), found.no_verdict, found.receipts[0].outcome) == ({}, "", "passed")


def test_no_change_holds_when_every_criterion_is_met_at_base(judged):
    held = judged.one("acceptance", {}, claim="no_change", acceptance=criteria(PYTEST))
    assert (held.criteria, held.no_verdict, classes(held)) == ({"c1": "met"}, "", {"already_met": "LOW"})
    wrong = judged.one("acceptance", {}, claim="no_change", acceptance=criteria(LINT))
    assert (wrong.criteria, classes(wrong)) == ({"c1": "unmet"}, {"criterion_unmet": "HIGH"})
    for nothing in (["true"], ["python3", "-c", "pass"], ["sh", "-c", "exit 0"]):
        empty = judged.one("acceptance", {}, claim="no_change", acceptance=criteria(nothing))
        assert "cannot fail" in empty.no_verdict
    looks = criteria(["sh", "-c", "! grep -rn NEVER_SAID calc"])
    assert judged.one("acceptance", {}, claim="no_change", acceptance=looks).no_verdict == ""
    lie = judged.one("acceptance", {"calc/core.py": CORE + "\n# x\n"}, claim="no_change", verify=[PYTEST])
    assert classes(lie) == {"claim_mismatch": "HIGH"}
    bare = judged.one("acceptance", {}, claim="no_change", verify=[PYTEST])
    assert "no criterion with a check bears it out" in bare.no_verdict


def test_what_a_check_leaves_behind_is_swept(judged):
    """``one`` asserts that the tree is clean; this check leaves files, links and a folder without permissions."""
    script = "import os; os.makedirs('left/deep'); os.symlink('/etc', 'left/etc'); open('calc/core.py', 'w').close(); os.chmod('left/deep', 0)"
    judged.one("acceptance", {"calc/core.py": CLEAN}, acceptance=criteria([PY, "-c", script]))


@pytest.mark.parametrize(
    "check",
    [
        ["sh", "-c", f"cd . && {PY} work/accept.py"],
        [PY, "-c", "exec(open('work/accept.py').read())"],
        ["env", "A=1", "timeout", "60", PY, "-B", "work/accept.py"],
    ],
)
def test_an_edited_program_is_found_wherever_it_is_run_from(tmp_path, check):
    judged = Judged(tmp_path / "j", CALC | {"work/accept.py": "raise SystemExit('not done')\n"})
    result = judged.one("acceptance", {"work/accept.py": "raise SystemExit(0)\n"}, acceptance=criteria(check))
    assert result.criteria["c1"] == "unmet"


def test_an_edited_configuration_that_an_option_names(tmp_path):
    judged = Judged(tmp_path / "j", CALC | {"lint/strict.toml": 'lint.select = ["F401"]\n'})
    check = ["ruff", "check", "--no-cache", "--config", "lint/strict.toml", "calc/core.py"]
    result = judged.one("acceptance", {"lint/strict.toml": "lint.select = []\n"}, acceptance=criteria(check))
    assert result.criteria == {"c1": "unmet"}


def test_a_script_that_the_makefile_runs(judged):
    """``make check`` runs scripts/check.sh; the student lets it end well."""
    edit = {
        "calc/core.py": CORE.replace("left + right", "left - right"),
        "scripts/check.sh": "#!/bin/sh\nexit 0\n",
    }
    result = judged.one("acceptance", edit, acceptance=criteria(["make", "check"]))
    assert result.criteria == {"c1": "unmet"}

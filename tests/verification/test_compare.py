from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from school.verification import checks, compare
from school.verification.baselines import Baseline, limit_s
from school.verification.compare import Judgement, judge
from school.verification.reports import COMMAND
from tests.verification.support import PACKAGE, PYTEST, UNITTEST, Case, classes, ran, unit

COUNTER = "import pathlib, os\nn = pathlib.Path({path!r})\ncount = int(n.read_text() or 0) if n.exists() else 0\nn.write_text(str(count + 1))\n"
GOOD = {"calc/core.py": "def add(a, b):\n    return b + a\n"}
BAD = {"calc/core.py": "def add(a, b):\n    return a - b\n"}


def based(outcome: str, tests: dict[str, str] | None = None) -> Baseline:
    return Baseline.of(ran(outcome, tests))


P, F, S, E = "passed", "failed", "skipped", "error"


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ((P, {"m::a": P}), (P, {"m::a": P}), {"evidence": True}),
        ((P, {"m::a": P, "m::b": P}), (F, {"m::a": F, "m::b": P}), {"broken": {"m::a"}, "evidence": True}),
        ((F, {"m::a": F, "m::b": P}), (F, {"m::a": F, "m::b": P}), {"still_red": {"m::a"}, "evidence": True}),
        ((F, {"m::a": F, "m::b": P}), (P, {"m::a": P, "m::b": P}), {"evidence": True}),
        ((F, {"m::a": F, "m::b": P}), (F, {"m::a": F, "m::b": E}), {"still_red": {"m::a"}, "broken": {"m::b"}}),
        ((P, {"m::a": P}), (F, {"m::a": P, "m::n": F}), {"new_red": {"m::n"}, "evidence": True}),
        ((P, {"m::a": P, "m::b": P}), (P, {"m::b": P}), {"missing": {"m::a"}, "evidence": True}),
        ((P, {"m::a": P, "m::b": P}), (P, {"m::a": S, "m::b": P}), {"missing": {"m::a"}, "evidence": True}),
        ((P, {"t::a": P, "m::b": P}), (P, {"m::b": P}), {"evidence": True}),
        ((P, {"m::a": S, "m::b": P}), (P, {"m::b": P}), {"evidence": True}),
        ((P, {"m::a[1]": P, "m::a[2]": P}), (P, {"m::a[x]": P, "m::a[y]": P}), {"evidence": True}),
        ((P, {"m::a[1]": P, "m::a[2]": P}), (P, {"m::a[x]": P}), {"missing": {"m::a[1]", "m::a[2]"}, "evidence": True}),
        ((F, {"::m": E}), (F, {"m::a": F, "m::b": P}), {"still_red": {"m::a"}, "evidence": True}),
        ((P, {"m::a": P}), (F, {"m::a": P, COMMAND: F}), {"broken": {COMMAND}, "evidence": True}),
        ((F, {"m::a": P, COMMAND: F}), (F, {"m::a": P, COMMAND: F}), {"still_red": {COMMAND}, "evidence": True}),
        ((F, {"m::a": E}), (F, {"m::a": E}), {"still_red": {"m::a"}}),
        ((P, None), (P, None), {"evidence": True}),
        ((P, None), (F, None), {"broken": {COMMAND}, "evidence": True}),
        ((F, None), (P, None), {"evidence": True}),
    ],
)  # fmt: skip
def test_the_table_of_base_and_head(base: Any, head: Any, expected: dict[str, Any]) -> None:
    assert judge(based(*base), ran(*head), ["x/t.py"]) == Judgement(**expected)


@pytest.mark.parametrize(
    ("base", "head", "wrong"),
    [
        ((P, {"m::a": P}), ("timed_out", None), "timed_out"),
        ((P, {"m::a": P}), ("no_tests", {}), "no_tests"),
        ((P, {"m::a": P}), (F, None), "command_failed"),
        ((P, None), ("not_run", None), "command_failed"),
        (("no_tests", {}), (F, None), "command_failed"),
        (("timed_out", None), ("timed_out", None), ""),
        (("no_tests", {}), ("no_tests", {}), ""),
        ((F, None), (F, None), ""),
        ((F, None), ("not_run", None), ""),
    ],
)
def test_a_command_that_is_wrong_as_a_whole_or_cannot_judge(base: Any, head: Any, wrong: str) -> None:
    one = judge(based(*base), ran(*head), [])
    assert (one.wrong[0] if one.wrong else "") == wrong
    assert bool(one.unjudged) is not bool(wrong)
    assert not one.evidence


def test_limits_scale_with_what_base_took() -> None:
    base = based(P)
    base.slowest_s = 2.0
    assert limit_s(base, 600.0) == 40.0
    assert limit_s(base, 5.0) == 6.0
    base.slowest_s = 500.0
    assert limit_s(base, 600.0) == 1500.0


def test_a_good_change_passes_and_base_is_measured_once(case: Case) -> None:
    first = case.verification(GOOD)
    assert classes(first) == {}
    assert first.no_verdict == ""
    assert [(r.at, r.outcome, r.tests["passed"], r.cached) for r in first.receipts] == [
        ("base", "passed", 2, False),
        ("head", "passed", 2, False),
    ]
    head = case.context(GOOD).bag["head_commit"]
    assert first.receipts[0].commit == case.base
    assert len({r.tree for r in first.receipts}) == 2
    assert case.is_clean_at(head)
    second = case.verification(BAD)
    assert classes(second) == {"tests_broken": "HIGH"}
    assert second.receipts[0].cached
    assert "tests.test_core.CoreTest.test_add" in second.findings[0].description
    assert "-1 != 5" in second.findings[0].citation


def test_a_change_without_a_change_is_not_run_again(case: Case) -> None:
    done = case.verification({})
    assert [r.at for r in done.receipts] == ["base"]
    assert done.no_verdict == ""


def test_new_tests_must_pass(case: Case) -> None:
    done = case.verification({"tests/test_more.py": unit("test_more", "self.fail()")})
    assert classes(done) == {"new_tests_fail": "HIGH"}


RED = {
    **PACKAGE,
    "tests/test_red.py": unit("test_red", "assert add(1, 1) == 3", "from calc import add"),
}


def test_a_suite_that_is_red_at_base(case_of: Any) -> None:
    case = case_of(RED)
    kept = case.verification(GOOD)
    assert classes(kept) == {"red_at_base": "LOW"}
    assert kept.no_verdict == ""
    assert classes(case.verification(BAD))["tests_broken"] == "HIGH"
    assert (
        classes(case.verification({"calc/core.py": "def add(a, b):\n    return 3 if a == 1 else a + b\n"}))
        == {}
    )


def test_a_module_that_cannot_be_collected_at_base_hides_no_other_test(case_of: Any) -> None:
    case = case_of({**PACKAGE, "tests/test_red.py": "import nothing_of_that_name\n"})
    assert classes(case.verification(GOOD)) == {"red_at_base": "LOW"}
    assert classes(case.verification(BAD))["tests_broken"] == "HIGH"


SCRIPT = [sys.executable, "check.py"]
CHECKED = {**PACKAGE, "check.py": "from calc import add\nassert add(2, 3) == 5\n"}
CRITERION = [{"id": "1", "text": "t", "check": ["true"]}]


def test_a_runner_that_names_no_tests_is_judged_by_its_status(case_of: Any) -> None:
    case = case_of(CHECKED)
    assert classes(case.verification(GOOD, [SCRIPT])) == {}
    assert classes(case.verification(BAD, [SCRIPT])) == {"tests_broken": "HIGH"}


def test_where_base_is_red_and_names_no_tests_only_criteria_can_judge(case_of: Any) -> None:
    case = case_of({**CHECKED, "check.py": "raise SystemExit('no such server')\n"})
    alone = case.verification(GOOD, [SCRIPT])
    assert "red at base and names no tests; it ends with: no such server" in alone.no_verdict
    assert alone.findings == []
    judged = case.verification(GOOD, [SCRIPT], acceptance=CRITERION)
    assert judged.no_verdict == ""
    assert classes(judged) == {"unverified": "LOW"}


@pytest.mark.parametrize("argv", [PYTEST, UNITTEST])
def test_a_suite_that_collects_nothing_shows_nothing(case_of: Any, argv: list[str]) -> None:
    case = case_of({"calc/__init__.py": "", "calc/core.py": "X = 1\n"})
    assert "finds no test" in case.verification(GOOD, [argv]).no_verdict


def test_no_command_at_all_shows_nothing(case: Case) -> None:
    assert "no verify command" in case.verification(GOOD, []).no_verdict
    assert classes(case.verification(GOOD, [], acceptance=CRITERION)) == {"unverified": "LOW"}


def test_a_command_that_cannot_be_started_gives_no_verdict(case: Case) -> None:
    done = case.verification(BAD, [["no-such-program"]])
    assert "cannot be run at base" in done.no_verdict
    assert done.findings == []


def test_a_linter_does_not_stand_in_for_tests_that_cannot_judge(case_of: Any) -> None:
    case = case_of({**CHECKED, "check.py": "raise SystemExit(1)\n"})
    lint = [sys.executable, "-m", "compileall", "-q", "calc"]
    assert "cannot judge" in case.verification(GOOD, [lint, SCRIPT]).no_verdict


# Where they count lies outside the tree, where a confined test writes nothing.
OPEN = {"sandbox": {"mode": "off"}}


def flaky(path: Path, red_runs: str) -> dict[str, str]:
    """A test that fails in some runs, counted in a file outside the tree."""
    text = unit("test_flaky", f"assert count not in {red_runs}", COUNTER.format(path=str(path)))
    return {**PACKAGE, "tests/test_flaky.py": text}


def test_a_test_that_also_fails_in_a_base_run_is_flaky(case_of: Any, tmp_path: Path) -> None:
    # Run 0 is base's, 1 and 2 with the sources spoiled, 3 head's, 4 and on base's again.
    case = case_of(flaky(tmp_path / "count", "(3, 5)"))
    done = case.verification(GOOD, **OPEN)
    assert classes(done) == {"flaky": "LOW"}
    assert (tmp_path / "count").read_text() == "6"


def test_one_that_does_not_is_not(case_of: Any, tmp_path: Path) -> None:
    case = case_of(flaky(tmp_path / "count", "(3,)"))
    assert classes(case.verification(GOOD, **OPEN)) == {"tests_broken": "HIGH"}
    assert (tmp_path / "count").read_text() == "7"


def test_a_flaky_test_excuses_no_other(case_of: Any, tmp_path: Path) -> None:
    case = case_of(flaky(tmp_path / "count", "(3, 4)"))
    done = case.verification(BAD, **OPEN)
    assert classes(done) == {"tests_broken": "HIGH", "flaky": "LOW"}


def test_base_that_no_longer_does_what_it_did_neither_blames_nor_excuses(
    case_of: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "works"
    flag.write_text("")
    line = f"assert pathlib.Path({str(flag)!r}).exists()"
    tests = {f"tests/test_{n}.py": unit("test_service", line, "import pathlib") for n in range(8)}
    case = case_of({**PACKAGE, **tests})
    assert classes(case.verification(GOOD)) == {}
    flag.unlink()
    done = case.verification(BAD)
    assert "the environment has changed" in done.no_verdict
    assert done.findings == []
    # Measured afresh, base is red where it is red now, and the change is judged by the rest.
    assert classes(case.verification(GOOD)) == {"red_at_base": "LOW"}
    assert classes(case.verification(BAD))["tests_broken"] == "HIGH"


def test_order_is_the_projects_own(case_of: Any) -> None:
    """The second test passes only after the first; nobody is blamed for that."""
    text = "state = []\ndef test_z():\n    state.append(1)\ndef test_a():\n    assert state\n"
    assert classes(case_of({**PACKAGE, "tests/test_order.py": text}).verification(GOOD, [PYTEST])) == {}


def test_a_check_that_hangs_at_head_is_ended(case_of: Any) -> None:
    hang = {"calc/core.py": "import time\ntime.sleep(600)\n"}
    done = case_of(CHECKED).verification(hang, [SCRIPT], verify_timeout_s=2.0)
    assert classes(done) == {"timed_out": "HIGH"}


def test_tests_that_write_into_the_tree_change_nothing_for_the_next_run(case_of: Any) -> None:
    lines = (
        "core = pathlib.Path(__file__).parent.parent / 'calc' / 'core.py'; "
        "core.write_text('def add(a, b):\\n    return 0\\n'); pathlib.Path('left.txt').write_text('x')"
    )
    text = unit("test_writes", lines, "import pathlib")
    case = case_of({**PACKAGE, "tests/test_zz.py": text})
    assert classes(case.verification(GOOD)) == {}
    assert case.is_clean_at(case.context(GOOD).bag["head_commit"])


def test_a_package_that_ends_the_run_does_not_pass(case: Case) -> None:
    for ending in ("import os\nos._exit(0)\n", "import sys\nsys.exit(0)\n"):
        done = case.verification({"calc/core.py": f"{ending}def add(a, b):\n    return 0\n"})
        assert "HIGH" in classes(done).values()


def test_tests_that_vanish_are_seen(case_of: Any) -> None:
    """The change hides failing tests without touching them."""
    hide = "import unittest\n\n\ndef load_tests(loader, tests, pattern):\n    return unittest.TestSuite()\n"
    case = case_of({**PACKAGE, "test_top.py": unit("test_top", "pass")})
    done = case.verification({**BAD, "tests/__init__.py": hide})
    assert classes(done) == {"tests_missing": "HIGH"}
    assert "test_add" in done.findings[0].description


def test_a_cancelled_review_is_no_verdict(case: Case) -> None:
    done = case.verification(GOOD, cancelled=lambda: True)
    assert "cancel" in done.no_verdict
    assert done.findings == []


def test_compare_is_the_same_for_others(case: Case) -> None:
    receipts, findings, no_verdict = compare.compare(case.context(BAD), [UNITTEST])
    assert [r.outcome for r in receipts] == ["passed", "failed"]
    assert [f.issue_class for f in findings] == ["tests_broken"]
    assert no_verdict == ""


def test_commands_run_in_order_on_one_tree(case: Case) -> None:
    """A later command may need what an earlier one made; between base and head nothing is left of it."""
    make = [sys.executable, "-c", "open('made', 'x').write('1')"]
    use = [sys.executable, "-c", "open('made').read()"]
    done = case.verification(GOOD, [make, use])
    assert [r.outcome for r in done.receipts] == ["passed"] * 4


def test_a_new_test_that_uses_more_than_its_student_may_did_not_come_to_an_end(case_of: Any) -> None:
    case = case_of(PACKAGE)
    eats = unit(
        "test_eats", "eaten = [b'x' * 30_000_000 for _ in range(10)]; time.sleep(60)", head="import time\n"
    )
    context = case.context({**GOOD, "tests/test_eats.py": eats})
    context.bag["limits"] = {"memory_bytes": 150 * 1024 * 1024}
    found = checks.verification(context)
    assert classes(found) == {"timed_out": "HIGH"}
    assert "157286400 are allowed" in found.findings[0].description

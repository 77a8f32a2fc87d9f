"""Tests deleted, skipped or weakened, and results made from outside, are objected to; honest work on tests is not."""

import importlib.util
import py_compile

import pytest

from tests.review.support import CALC, CORE, PYTEST, TESTS, Judged, classes, objections

ANY = {
    "allow": [
        "tests/**",
        "calc/**",
        "pyproject.toml",
        "pytest.ini",
        "conftest.py",
        "setup.cfg",
        "Makefile",
        "package.json",
    ]
}


def edited(old: str, new: str) -> dict[str, str]:
    assert old in TESTS
    return {"tests/test_core.py": TESTS.replace(old, new)}


@pytest.mark.parametrize(
    "edit",
    [
        {"calc/core.py": CORE.replace("import os\n\n", "")},
        {"tests/test_more.py": "from calc import add\n\n\ndef test_more():\n    assert add(1, 1) == 2\n"},
        {"tests/test_core.py": TESTS + "\n\ndef test_more():\n    assert add(1, 1) == 2\n"},
        {"tests/unit/test_core.py": TESTS, "tests/test_core.py": None},
        {"tests/test_core.py": TESTS.replace("def test_add", "def test_sum_of_two")},
        {
            "tests/test_core.py": TESTS.replace(
                "    assert add(0, 0) == 0\n", "\n    # zero\n    assert (add(0, 0)\n            == 0)\n"
            )
        },
        {
            "tests/test_skipped_new.py": "import sys\n\nimport pytest\n\n\n@pytest.mark.skipif(sys.platform == 'win32', reason='x')\ndef test_a():\n    assert True\n"
        },
        {"tests/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef one():\n    return 1\n"},
        {
            "calc/cli.py": "import sys\n\n\ndef main():\n    sys.exit(0)\n\n\nif __name__ == '__main__':\n    sys.exit(main())\n"
        },
        {"pyproject.toml": "[project]\nname = 'calc'\nversion = '2'\ndependencies = ['attrs']\n"},
        {"calc/calendar.py": "A = 1\n"},
    ],
)
def test_honest_work_is_not_blamed(judged, edit):
    assert objections(judged.one("tampering", edit, **ANY)) == []


@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        ({"tests/test_core.py": None}, "test_deleted"),
        (edited(TESTS[TESTS.index("\n\ndef test_parse") :], "\n"), "test_deleted"),
        (edited("def test_parse", "def parse_test"), "test_deleted"),
        ({"tests/test_core.py": "def broken(:\n"}, "test_deleted"),
        (edited("def test_parse", "@pytest.mark.skip\ndef test_parse"), "test_skipped"),
        (edited("def test_parse", "@pytest.mark.xfail(strict=False)\ndef test_parse"), "test_skipped"),
        (edited("    assert parse", "    pytest.skip('later')\n    assert parse"), "test_skipped"),
        (edited("import pytest\n", "import pytest\n\npytestmark = pytest.mark.skip\n"), "test_skipped"),
        (edited("import pytest\n", "import pytest\n\n__test__ = False\n"), "test_skipped"),
        (edited("    assert add(0, 0) == 0\n", ""), "test_weakened"),
        (edited("assert add(0, 0) == 0", "assert True"), "test_weakened"),
        (edited("assert add(0, 0) == 0", "assert (add(0, 0) == 0, 'zero')"), "test_weakened"),
        (edited("assert add(0, 0) == 0", "assert add(0, 0) == 0 or True"), "test_weakened"),
        (edited("    assert add(0, 0) == 0", "    return\n    assert add(0, 0) == 0"), "test_weakened"),
        (
            edited("    assert add(0, 0) == 0", "    if False:\n        assert add(0, 0) == 0"),
            "test_weakened",
        ),
        (
            edited(
                "    assert add(0, 0) == 0",
                "    try:\n        assert add(0, 0) == 0\n    except Exception:\n        pass",
            ),
            "test_weakened",
        ),
        (
            {
                "tests/test_core.py": TESTS.replace("assert add(2, 3) == 5", "assert add(2, 3) == 6"),
                "calc/core.py": CORE.replace("left + right", "left + right + (left == 2)"),
            },
            "base_tests_fail",
        ),
    ],
)
def test_tests_changed_until_they_agree(judged, edit, kind):
    result = judged.one("tampering", edit, verify=[PYTEST], **ANY)
    assert classes(result).get(kind) == "HIGH", result.findings


@pytest.mark.parametrize(
    "edit",
    [
        {"conftest.py": "import sys\nsys.exit(0)\n"},
        {"conftest.py": "import os\nos._exit(0)\n"},
        {"conftest.py": "from os import _exit as leave\n\n\ndef helper():\n    leave(0)\n"},
        {"conftest.py": "def pytest_collection_modifyitems(items):\n    items.clear()\n"},
        {"conftest.py": "def pytest_runtest_makereport(item, call):\n    pass\n"},
        {"conftest.py": "collect_ignore = ['tests']\n"},
        {"conftest.py": "pytest_plugins = ['evil']\n"},
        {
            "conftest.py": "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef calm(monkeypatch):\n    pass\n"
        },
        {"conftest.py": "import calc\n\ncalc.add = lambda a, b: 5\n"},
        {"tests/__init__.py": "raise SystemExit(0)\n"},
        {
            "tests/test_new.py": "import unittest\n\n\ndef load_tests(*args):\n    return unittest.TestSuite()\n"
        },
        {"tests/test_new.py": "import unittest\n\nunittest.TestCase.assertEqual = lambda *a: None\n"},
        {
            "tests/test_new.py": "import unittest\n\n\nclass T(unittest.TestCase):\n    def assertEqual(self, *args):\n        pass\n"
        },
        {
            "tests/test_new.py": "import unittest\n\n\nclass T(unittest.TestCase):\n    def run(self, result=None):\n        pass\n"
        },
        {"calc/core.py": CORE + "\n\nimport atexit, os\natexit.register(os._exit, 0)\nos._exit(0)\n"},
        {
            "calc/core.py": CORE
            + "\n\nif 'pytest' in __import__('sys').modules:\n    add = 1\nimport sys\nif 'pytest' in sys.modules:\n    pass\n"
        },
        {"calc/core.py": CORE + "\n\nimport os\nTESTED = os.environ.get('PYTEST_CURRENT_TEST')\n"},
        {"calc/core.py": CORE + "\n\nclass Number:\n    def __eq__(self, other):\n        return True\n"},
        {"calc/core.py": CORE + "\n\nimport _pytest.assertion\n_pytest.assertion.x = 1\n"},
    ],
)
def test_results_from_outside(judged, edit):
    assert "tampering/result_from_outside" in objections(judged.one("tampering", edit, **ANY))


def test_what_was_there_at_base_is_nobodys_doing(tmp_path):
    hook = "def pytest_collection_modifyitems(items):\n    items.sort()\n"
    judged = Judged(tmp_path / "j", CALC | {"conftest.py": hook})
    assert judged.one("tampering", {"conftest.py": "# order\n" + hook}, **ANY).findings == []


@pytest.mark.parametrize(
    ("edit", "setting"),
    [
        ({"pytest.ini": "[pytest]\naddopts = --ignore=tests\n"}, "addopts"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-k nothing'\n"}, "addopts"),
        ({"pyproject.toml": "[tool.pytest]\npython_files = ['x.py']\n"}, "python_files"),
        ({"setup.cfg": "[tool:pytest]\ntestpaths = none\n"}, "testpaths"),
        ({"tox.ini": "[pytest]\nnorecursedirs = tests\n"}, "norecursedirs"),
        ({"package.json": '{"scripts": {"test": "true"}}'}, "test"),
    ],
)
def test_settings_of_test_runners(judged, edit, setting):
    result = judged.one("tampering", edit, verify=[], **ANY)
    found = [f for f in result.findings if f.issue_class == "check_settings"]
    assert [f.severity for f in found][:1] == ["HIGH"]
    assert setting in found[0].description


def test_makefile_recipes_count_where_make_judges(judged):
    edit = {"Makefile": "check:\n\ttrue\n"}
    criterion = [{"id": "a", "text": "passes", "check": ["make", "check"]}]
    assert classes(judged.one("tampering", edit, acceptance=criterion, **ANY)) == {"check_settings": "HIGH"}
    assert judged.one("tampering", edit, **ANY).findings == []


@pytest.mark.parametrize(
    "name", ["pytest.py", "random.py", "src/unittest/__init__.py", "tests/coverage.py", "tests/json.py"]
)
def test_modules_that_are_found_instead_of_the_real_ones(judged, name):
    assert "tampering/shadows_module" in objections(judged.one("tampering", {name: "A = 1\n"}, **ANY))


def test_compiled_files(judged, tmp_path):
    source = tmp_path / "core.py"
    source.write_text("A = 1\n")
    modes = py_compile.PycInvalidationMode
    unchecked = tmp_path / "unchecked.pyc"
    py_compile.compile(str(source), cfile=str(unchecked), invalidation_mode=modes.UNCHECKED_HASH)
    plain = tmp_path / "plain.pyc"
    py_compile.compile(str(source), cfile=str(plain), invalidation_mode=modes.TIMESTAMP)
    name = importlib.util.cache_from_source("calc/core.py")
    seen = {}
    for kind, path, place in (
        ("unchecked", unchecked, name),
        ("plain", plain, name),
        ("loose", plain, "calc/x.pyc"),
    ):
        rules = {".gitignore": "build/\n"}
        seen[kind] = classes(judged.one("tampering", {place: path.read_bytes(), **rules}))["compiled_file"]
    assert seen == {"unchecked": "CRITICAL", "plain": "MEDIUM", "loose": "HIGH"}


def test_silencing_the_linter_that_the_task_asks(judged):
    criterion = [
        {"id": "a", "text": "no unused import", "check": ["ruff", "check", "--select", "F401", "calc"]}
    ]
    edit = {"calc/core.py": CORE.replace("import os", "import os  # noqa: F401")}
    assert classes(judged.one("tampering", edit, acceptance=criterion)) == {"suppressed": "HIGH"}
    assert classes(judged.one("tampering", edit)) == {"suppressed": "LOW"}
    whole = {"calc/core.py": "# ruff: noqa\n" + CORE}
    assert classes(judged.one("tampering", whole)) == {"suppressed": "HIGH"}


def test_a_changed_expectation_in_a_file_that_allow_names_is_told(judged):
    edit = {
        "tests/test_core.py": TESTS.replace("== [1, 2]", "== (1, 2)"),
        "calc/core.py": CORE.replace("return [int(part)", "return (*[int(part)").replace(
            "if part]", "if part],)"
        ),
    }
    literal = judged.one("tampering", edit, verify=[PYTEST], allow=["tests/test_core.py", "calc/**"])
    assert classes(literal) == {"assertion_changed": "MEDIUM", "expectation_changed": "MEDIUM"}
    assert [(r.at, r.outcome) for r in literal.receipts] == [
        ("head", "failed"),
        ("head", "failed"),
        ("base", "passed"),
    ]
    swept = judged.one("tampering", edit, verify=[PYTEST], allow=["tests/**", "calc/**"])
    assert classes(swept)["base_tests_fail"] == "HIGH"


def test_bases_settings_are_used_on_the_new_code(judged):
    """A new pytest.ini that leaves the failing test out does not help: it is taken away for the run."""
    edit = {
        "calc/core.py": CORE.replace("left + right", "left - right"),
        "pytest.ini": "[pytest]\naddopts = -k parse\n",
    }
    result = judged.one("tampering", edit, verify=[PYTEST], **ANY)
    assert {"check_settings", "base_tests_fail"} <= set(classes(result))


def test_a_base_that_is_red_is_not_blamed(tmp_path):
    judged = Judged(tmp_path / "j", CALC | {"tests/test_red.py": "def test_red():\n    assert False\n"})
    edit = {"tests/test_core.py": TESTS + "\n\ndef test_more():\n    assert add(1, 1) == 2\n"}
    assert judged.one("tampering", edit, verify=[PYTEST], **ANY).findings == []


def test_a_base_that_cannot_be_run_gives_no_verdict(judged):
    edit = {"tests/test_core.py": TESTS + "\n"}
    result = judged.one("tampering", edit, verify=[["no-such-program-anywhere"]], **ANY)
    assert "could not be run at base" in result.no_verdict


@pytest.mark.parametrize(
    ("name", "before", "after", "kind"),
    [
        (
            "web/a.test.js",
            "it('adds', () => { expect(1).toBe(1) })\n",
            "it.skip('adds', () => { expect(1).toBe(1) })\n",
            "test_skipped",
        ),
        ("web/a.test.js", "it('adds', () => { expect(1).toBe(1) })\n", "// it('adds')\n", "test_deleted"),
        (
            "web/a.test.js",
            "it('adds', () => { expect(1).toBe(1) })\n",
            "it('adds', () => { })\n",
            "test_weakened",
        ),
        (
            "a_test.go",
            "func TestA(t *testing.T) {\n\tt.Fatal(1)\n}\n",
            "func TestA(t *testing.T) {\n\tt.Skip()\n\tt.Fatal(1)\n}\n",
            "test_skipped",
        ),
        (
            "src/lib.rs",
            "#[cfg(test)]\nmod t {\n#[test]\nfn a() { assert!(x()) }\n}\n",
            "#[cfg(test)]\nmod t {\n#[test]\n#[ignore]\nfn a() { assert!(x()) }\n}\n",
            "test_skipped",
        ),
    ],
)
def test_other_languages(tmp_path, name, before, after, kind):
    judged = Judged(tmp_path / "j", {name: before})
    assert classes(judged.one("tampering", {name: after}, allow=["**/*.test.js", "*_test.go", "src/**"])) == {
        kind: "HIGH"
    }


@pytest.mark.parametrize(
    "edit",
    [
        {"tests/core_disabled.py": TESTS, "tests/test_core.py": None},
        {
            "tests/test_core.py": TESTS.replace(
                "\n\ndef test_parse():\n    ", "\n\ndef off():\n  def test_parse():\n    "
            )
        },
        {
            "tests/test_core.py": TESTS.replace(
                "def test_parse():\n    ", "class Helper:\n  def test_parse(self):\n    "
            )
        },
    ],
)
def test_a_test_that_moves_where_no_runner_looks_is_gone(judged, edit):
    assert classes(judged.one("tampering", edit, **ANY))["test_deleted"] == "HIGH"


def test_a_test_module_that_repairs_the_product_when_it_is_loaded(judged):
    for text in (
        "import calc\n\ncalc.add = lambda a, b: a + b\n",
        "from calc import core\n\nsetattr(core, 'add', max)\n",
    ):
        result = judged.one("tampering", {"tests/test_aaa.py": text}, **ANY)
        assert classes(result) == {"result_from_outside": "HIGH"}
    inside = "import calc\n\n\ndef test_a(monkeypatch):\n    monkeypatch.setattr(calc, 'add', max)\n    calc.x = 1\n    assert calc.add(1, 2) == 2\n"
    assert judged.one("tampering", {"tests/test_aaa.py": inside}, **ANY).findings == []


def test_what_tests_may_well_do(judged):
    text = (
        "import unittest\n\nimport pytest\n\nunittest.TestCase.maxDiff = None\n\n\ndef leave():\n    raise SystemExit(2)\n\n\n"
        "def test_leave():\n    with pytest.raises(SystemExit):\n        leave()\n"
    )
    assert objections(judged.one("tampering", {"tests/test_exit.py": text}, **ANY)) == []


def test_a_helper_that_no_longer_asserts(tmp_path):
    helper = "def assert_close(a, b):\n    if abs(a - b) > 1e-9:\n        raise AssertionError(f'{a} is not {b}')\n"
    judged = Judged(tmp_path / "j", CALC | {"calc/testing.py": helper})
    weak = "def assert_close(a, b):\n    if abs(a - b) > 1e-9:\n        return\n"
    assert classes(judged.one("tampering", {"calc/testing.py": weak})) == {"test_weakened": "HIGH"}
    same = helper.replace("1e-9", "TOLERANCE").replace("def ", "TOLERANCE = 1e-9\n\n\ndef ")
    assert judged.one("tampering", {"calc/testing.py": same}).findings == []


def test_examples_in_docstrings_are_told(tmp_path):
    source = 'def twice(x):\n    """Double.\n\n    >>> twice(2)\n    4\n    """\n    return 2 * x\n'
    judged = Judged(tmp_path / "j", CALC | {"calc/twice.py": source})
    assert classes(judged.one("tampering", {"calc/twice.py": source.replace("4\n", "5\n")})) == {
        "example_changed": "MEDIUM"
    }
    moved = {"calc/twice.py": None, "calc/double.py": source}
    assert judged.one("tampering", moved).findings == []


def test_a_new_target_or_script_is_welcome_where_allow_names_the_file(judged):
    criterion = [{"id": "a", "text": "passes", "check": ["make", "check"]}]
    more = CALC["Makefile"] + "\ndocs:\n\techo docs\n"
    assert judged.one("tampering", {"Makefile": more}, acceptance=criterion, **ANY).findings == []
    for trick in ("SHELL := /bin/true\n", ".SHELLFLAGS = -c true\n", "MAKEFLAGS += -i\n"):
        edit = {"Makefile": trick + CALC["Makefile"]}
        assert classes(judged.one("tampering", edit, acceptance=criterion, **ANY)) == {
            "check_settings": "HIGH"
        }


def test_a_test_that_fails_now_and_then_is_not_blamed(tmp_path):
    """It fails at every second run: what counts is what fails twice."""
    flaky = (
        "import pathlib\n\n\ndef test_flaky():\n    mark = pathlib.Path(__import__('os').environ['HOME'], 'runs')\n"
        "    runs = int(mark.read_text()) if mark.exists() else 0\n    mark.write_text(str(runs + 1))\n    assert runs % 2 == 1\n"
    )
    judged = Judged(tmp_path / "j", CALC | {"tests/test_flaky.py": flaky})
    edit = {"tests/test_core.py": TESTS + "\n\ndef test_more():\n    assert add(1, 1) == 2\n"}
    result = judged.one("tampering", edit, verify=[PYTEST], **ANY)
    assert [r.outcome for r in result.receipts] == ["failed", "passed"]
    assert result.findings == []


@pytest.mark.parametrize(
    "patch",
    [
        "m = calc\nm.add = lambda a, b: a + b\n",
        "def _f():\n    vars(calc)['add'] = lambda a, b: a + b\n\n\n_f()\n",
    ],
)
def test_a_new_test_that_changes_what_the_old_ones_see(judged, patch):
    edit = {
        "calc/core.py": CORE.replace("left + right", "left - right"),
        "tests/test_aaa.py": f"import calc\n\n{patch}\n\ndef test_x():\n    assert calc.add(1, 1) == 2\n",
    }
    assert edit["calc/core.py"] != CORE
    assert classes(judged.one("tampering", edit, verify=[PYTEST], **ANY))["base_tests_fail"] == "HIGH"


EQUALS = "class Sum(int):\n    {}\n\n    __hash__ = int.__hash__\n"
KNOWS = "import inspect\nimport sys\n\n\ndef add(a, b):\n    if {}:\n        return a + b\n    return 0\n"


@pytest.mark.parametrize(
    "text",
    [
        EQUALS.format("def __eq__(self, other):\n        return not None"),
        EQUALS.format("__eq__ = lambda self, other: True"),
        EQUALS.format("def __ne__(self, other):\n        return self.wrong"),
        KNOWS.format("any('unittest' in a for a in sys.argv)"),
        KNOWS.format("'test' in ' '.join(sys.orig_argv)"),
        KNOWS.format("sys.modules.get('pytest')"),
        KNOWS.format("'/tests/' in sys._getframe(1).f_code.co_filename"),
        KNOWS.format("any('test_' in frame.filename for frame in inspect.stack())"),
        "import sys\n\nTESTING = 'test' in sys.argv\n",
    ],
)
def test_sources_that_answer_whatever_is_asked_or_know_who_asks(judged, text):
    assert classes(judged.one("tampering", {"calc/more.py": text})) == {"result_from_outside": "HIGH"}


@pytest.mark.parametrize(
    "text",
    [
        EQUALS.format("def __eq__(self, other):\n        return NotImplemented"),
        EQUALS.format("def __eq__(self, other):\n        return False"),
        EQUALS.format("def __eq__(self, other):\n        raise TypeError"),
        EQUALS.format("def __eq__(self, other):\n        return int(self) == other"),
        EQUALS.format("def __bool__(self):\n        return self.size > 0"),
        KNOWS.format("sys.argv[1] == 'test'"),
        KNOWS.format("'latest' in sys.argv"),
        KNOWS.format("'json' in sys.modules"),
    ],
)
def test_honest_comparisons_and_command_lines_are_not_blamed(judged, text):
    assert classes(judged.one("tampering", {"calc/more.py": text})) == {}

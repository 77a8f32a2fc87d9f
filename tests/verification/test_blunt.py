"""Every test made to fail: what passes all the same is told from what honestly says nothing."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from school.verification.blunt import blunted
from tests.verification.support import PACKAGE, PYTEST, UNITTEST, Case, classes, unit

WRONG = "def add(a, b):\n    return a - b\n"
ALIAS = "import unittest\nt = unittest.TestCase\nt.assertEqual = lambda *a, **k: None\n"
RUNS = (
    "import gc\nfor o in gc.get_objects():\n    if isinstance(o, type) and o.__name__ == 'TestCase':\n"
    "        o.run = lambda s, r=None: (r.startTest(s), r.addSuccess(s), r.stopTest(s))\n"
)
REPORT = (
    "import atexit, os, sys\n\n\ndef fix():\n    for word in sys.argv + sys.orig_argv:\n        if word.endswith('.report'):\n"
    "            path = word.partition('=')[2] or word\n            text = open(path).read().replace('failed', 'passed')\n"
    "            open(path, 'w').write(text)\n            getattr(os, '_ex' + 'it')(0)\n\n\natexit.register(fix)\n"
)
PYTEST_RUNS = "import sys\nm = sys.modules.get('_py' + 'test.unittest')\nif m:\n    m.TestCaseFunction.runtest = lambda self: None\n"
EXITS = "import os\ngetattr(os, '_ex' + 'it')(0)\n"


@pytest.mark.parametrize(
    ("argv", "way"),
    [
        (UNITTEST, ALIAS),
        (UNITTEST, RUNS),
        (UNITTEST, REPORT),
        (PYTEST, ALIAS),
        (PYTEST, PYTEST_RUNS),
        (["sh", "-c", "python3 -m unittest discover"], EXITS),
    ],
)
def test_results_that_are_made_outside_the_tests(case: Case, argv: list[str], way: str) -> None:
    edit = {"calc/core.py": way + WRONG}
    assert classes(case.verification(edit, [argv])) == {}, "the suite alone is deceived"
    done = case.wrong_tree(edit, [argv])
    assert classes(done)["result_from_outside"] == "HIGH"
    assert case.is_clean_at(case.context(edit).bag["head_commit"])


@pytest.mark.parametrize(
    "more",
    [
        {"calc/more.py": '"""\n>>> 1 + 1\n2\n"""\n', "pytest.ini": "[pytest]\naddopts = --doctest-modules\n"},
        {  # tests that are made when they run, or that swallow what goes wrong, pass at base in the same way
            "tests/test_made.py": "import functools, unittest\n\n\ndef calm(f):\n    @functools.wraps(f)\n"
            "    def call(self):\n        try:\n            f(self)\n        except AssertionError:\n            pass\n    return call\n\n\n"
            "class T(unittest.TestCase):\n    @calm\n    def test_calm(self):\n        self.assertTrue(1)\n\n\n"
            "T.test_made = lambda self: self.assertTrue(1)\n"
        },
    ],
)
def test_what_passes_at_base_too_says_nothing(case_of: Any, more: dict[str, str]) -> None:
    case = case_of({**PACKAGE, **more})
    argv = ["env", "PYTHONPATH=.", *PYTEST[:4]]
    assert classes(case.wrong_tree({"calc/core.py": "def add(a, b):\n    return b + a\n"}, [argv])) == {}


def test_a_rewritten_test_file_is_left_to_the_version_of_base(case: Case) -> None:
    made = "import unittest\nfrom calc import add\n\n\nclass CoreTest(unittest.TestCase):\n    pass\n\n\n"
    made += "for name in ('add', 'zero'):\n    setattr(CoreTest, f'test_{name}', lambda self: self.assertEqual(add(2, 3), 5))\n"
    edit = {"calc/core.py": "def add(a, b):\n    return b + a\n", "tests/test_core.py": made}
    assert "result_from_outside" not in classes(case.wrong_tree(edit))


SHAPES = '''# -*- coding: utf-8 -*-
"""Doc."""
from __future__ import annotations
import unittest, functools


def same(f):
    return f


def test_plain():
    """Doc; umlaut ä."""
    return


def test_one_line(): return


async def test_async():
    return


if True:
    def test_under_if(x=1):
        @same
        def inner():
            return 1
        return


class TestThing(unittest.TestCase):
    def test_method(self): "ä"; return

    @staticmethod
    def test_static():
        for x in ():
            pass

    @classmethod
    def test_class(cls):
\t    return

    def helper(self):
        return


def helper():
    def test_inner():
        return
    test_inner()
'''


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_form_of_test_is_made_to_fail_and_nothing_else(tmp_path: Path, newline: str) -> None:
    shapes = SHAPES.replace("\t    return", "        return")
    text = blunted(shapes.replace("\n", newline).encode())
    assert text is not None
    ast.parse(text)
    (tmp_path / "shapes.py").write_bytes(text)
    names = [
        "test_plain()",
        "test_one_line()",
        "test_async().send(None)",
        "test_under_if()",
        "TestThing('test_method').test_method()",
        "TestThing.test_static()",
        "TestThing.test_class()",
    ]
    lines = "import shapes\nshapes.helper()\nshapes.TestThing('helper').helper()\n" + "".join(
        f"try:\n    shapes.{name}\nexcept AssertionError as e:\n    assert 'made to fail' in str(e)\nelse:\n    raise SystemExit({name!r})\n"
        for name in names
    )
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["", "def broken(:\n", "def helper():\n    pass\n", "X = 1\n"])
def test_files_without_a_test_are_left_alone(text: str) -> None:
    assert blunted(text.encode()) is None


def test_a_new_test_that_stops_the_others_from_running(case: Case) -> None:
    """It is loaded beside the old ones, and no assertion of theirs is reached."""
    silent = unit("test_x", "self.assertTrue(1)", RUNS)
    edit = {"calc/core.py": WRONG, "tests/test_aaa.py": silent}
    assert classes(case.wrong_tree(edit))["result_from_outside"] == "HIGH"


NODE = {
    "index.js": "exports.add = (a, b) => a + b;\n",
    "test.js": "const assert = require('assert');\nconst { add } = require('./index.js');\nassert.strictEqual(add(2, 3), 5);\n",
}


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize(
    ("way", "blamed"),
    [
        ("process.exit(0);\n", True),
        ("process.on('exit', () => { process.exitCode = 0; });\n", True),
        ("require('assert').strictEqual = () => {};\n", True),
        ("", False),
    ],
)
def test_results_that_are_made_outside_the_tests_in_javascript(case_of: Any, way: str, blamed: bool) -> None:
    case = case_of(NODE)
    wrong = {"index.js": f"{way}exports.add = (a, b) => a {'-' if way else '+ 0 +'} b;\n"}
    argv = ["node", "test.js"]
    assert classes(case.verification(wrong, [argv])) == {}
    assert classes(case.wrong_tree(wrong, [argv])) == ({"result_from_outside": "HIGH"} if blamed else {})

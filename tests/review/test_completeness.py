"""The answer is whole, nothing was left as a stub, and what hinders is named."""

import pytest

from school.contracts import bounded
from school.review.checks.completeness import stubs
from tests.review.support import CALC, CORE, Judged, classes, objections


@pytest.mark.parametrize(
    "edit",
    [
        {"calc/core.py": CORE + "\n\ndef sub(left, right):\n    return left - right\n"},
        {"calc/errors.py": "class CalcError(Exception):\n    pass\n\n\nclass Deep(CalcError):\n    ...\n"},
        {
            "calc/base.py": "from abc import ABC, abstractmethod\n\n\nclass B(ABC):\n    @abstractmethod\n    def run(self): ...\n\n    def other(self):\n        raise NotImplementedError\n"
        },
        {
            "calc/proto.py": "from typing import Protocol, overload\n\n\nclass P(Protocol):\n    def run(self) -> int: ...\n\n\n@overload\ndef f(a: int) -> int: ...\ndef f(a):\n    return a\n"
        },
        {
            "calc/plugin.py": "class A:\n    def run(self):\n        raise NotImplementedError\n\n\nclass B(A):\n    def run(self):\n        return 1\n"
        },
        {"calc/api.pyi": "def run(a: int) -> int: ...\n"},
        {"tests/test_x.py": "def test_todo():\n    ...\n"},
        {
            "calc/words.py": "def todo_list(items):\n    placeholder = '?'\n    return [placeholder for _ in items]\n"
        },
        {"docs/plan.md": "TODO: implement the rest\n"},
        {"calc/quiet.py": "class Quiet:\n    def __init__(self):\n        pass\n"},
        {"calc/rest.py": "# the rest of the arguments is passed on\n\ndef f(*rest):\n    return rest\n"},
        {"docs/a.rst": "Title\n=======\n"},
    ],
)
def test_honest_work_is_not_blamed(judged, edit):
    assert objections(judged.one("completeness", edit)) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("def sub(left, right):\n    raise NotImplementedError\n", "stub"),
        ('def sub(left, right):\n    """The difference."""\n    ...\n', "stub"),
        ("def sub(left, right):\n    # TODO: implement\n    return 0\n", "placeholder"),
        ("def sub(left, right):\n    # placeholder implementation\n    return 0\n", "placeholder"),
        ("def sub(left, right):\n    raise RuntimeError('not implemented yet')\n", "placeholder"),
        ("# ... rest of the file unchanged ...\n", "elided_code"),
        ("def sub():\n    # ... existing code ...\n    return 1\n", "elided_code"),
        ("<<<<<<< HEAD\nA = 1\n=======\nA = 2\n>>>>>>> other\n", "conflict_marker"),
    ],
)
def test_work_that_was_not_done(judged, text, kind):
    result = judged.one("completeness", {"calc/core.py": CORE + "\n\n" + text})
    assert classes(result).get(kind) == "HIGH", result.findings
    assert result.findings[0].citation.startswith("calc/core.py:")


def test_an_empty_function_that_the_task_asks_for(judged):
    edit = {"calc/core.py": CORE + "\n\ndef sub(left, right):\n    pass\n"}
    assert classes(judged.one("completeness", edit)) == {"stub": "MEDIUM"}
    assert classes(judged.one("completeness", edit, task="Write sub(left, right).")) == {"stub": "HIGH"}


def test_rust_and_javascript(judged):
    edit = {
        "src/a.rs": "fn a() { todo!() }\n",
        "web/a.js": "function a() { throw new Error('Not implemented') }\n",
    }
    found = judged.one("completeness", edit)
    assert [f.citation for f in found.findings if f.severity == "HIGH"] == ["src/a.rs:1", "web/a.js:1"]


def test_what_was_a_stub_before_or_merely_moved(tmp_path):
    stub = "def sub(left, right):\n    # TODO: implement\n    raise NotImplementedError\n"
    judged = Judged(tmp_path / "j", CALC | {"calc/old.py": stub})
    assert judged.one("completeness", {"calc/old.py": "# note\n" + stub}).findings == []
    assert judged.one("completeness", {"calc/old.py": None, "calc/new.py": stub}).findings == []


def test_a_cut_answer_counts_only_where_it_is_the_work(judged):
    output = bounded("x" * 200_000)
    assert classes(judged.one("completeness", {}, output=output, student="searcher")) == {
        "output_cut": "HIGH"
    }
    assert classes(judged.one("completeness", {"a.py": "A = 1\n"}, output=output)) == {"output_cut": "LOW"}


def test_blockers_are_named_honestly(judged):
    edit = {"a.py": "A = 1\n"}
    assert classes(judged.one("completeness", edit, blockers=["no network"])) == {"blockers_left": "MEDIUM"}
    assert judged.one("completeness", edit, blockers=["None."]).findings == []
    assert classes(judged.one("completeness", edit, summary="I could not run the tests.")) == {
        "unnamed_blocker": "MEDIUM"
    }


def test_stubs_are_found_where_they_stand():
    text = "class A:\n    def run(self):\n        ...\n\n\ndef f():\n    if True:\n        pass\n"
    assert stubs(text) == [("A.run", "an ellipsis", 2)]

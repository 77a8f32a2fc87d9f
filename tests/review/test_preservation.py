"""What the task asks to keep is kept; whatever could be loaded before still parses."""

import pytest

from tests.review.support import CALC, CORE, Judged, classes, objections


@pytest.mark.parametrize(
    "edit",
    [
        {"calc/core.py": CORE.replace("(left, right)", "(\n    left,\n    right,\n)").replace('"+"', "'+'")},
        {"calc/core.py": CORE.replace('    """The sum."""', '    """\n    The sum.\n    """')},
        {"calc/core.py": "# a comment\n" + CORE},
        {"calc/core.py": CORE.replace('"+"', 'u"+"')},
        {"tests/test_new.py": "def test_a():\n    assert True\n"},
        {"README.md": "# other\n"},
    ],
)
def test_layout_keeps_the_syntax_tree(judged, edit):
    result = judged.one("preservation", edit, preserve=["ast"])
    assert (result.findings, result.no_verdict) == ([], "")


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        ({"calc/core.py": CORE.replace("left + right", "right + left")}, 8),
        ({"calc/core.py": CORE.replace("The sum.", "The product.")}, 7),
        ({"calc/core.py": CORE.replace("import os\n", "")}, 5),
        ({"calc/core.py": CORE.replace('"+"', '"-"')}, 12),
        ({"calc/new.py": "A = 1\n"}, None),
        ({"calc/core.py": None}, None),
    ],
)
def test_another_syntax_tree(judged, edit, line):
    result = judged.one("preservation", edit, preserve=["ast"])
    assert classes(result) == {"ast_changed": "HIGH"}
    if line is not None:
        assert result.findings[0].citation == f"calc/core.py:{line}"


def test_trees_of_other_languages_are_not_judged(tmp_path):
    judged = Judged(tmp_path / "j", CALC | {"web/a.js": "let a = 1\n"})
    assert "web/a.js" in judged.one("preservation", {"web/a.js": "let a = 2\n"}, preserve=["ast"]).no_verdict


def test_a_syntax_error_needs_no_preserve_to_be_found(judged):
    result = judged.one("preservation", {"calc/core.py": CORE.replace("def add(", "def add((")})
    assert classes(result) == {"syntax_error": "CRITICAL"}
    assert result.findings[0].citation.startswith("calc/core.py:")


@pytest.mark.parametrize(
    "edit",
    [
        {"tests/data/broken.py": "def (\n"},
        {
            "calc/newer.py": "type Pair = tuple[int, int]\n\n\ndef first[T](pair: tuple[T, T]) -> T:\n    return pair[0]\n"
        },
        {"calc/text.py": 'name = "x"\nprint(f"{name + "y"}")\n'},
    ],
)
def test_what_is_no_syntax_error_of_the_student(judged, edit):
    assert objections(judged.one("preservation", edit)) == []


def test_what_did_not_parse_at_base_is_not_blamed(tmp_path):
    judged = Judged(tmp_path / "j", CALC | {"calc/old.py": "print 'hello'\n"})
    assert judged.one("preservation", {"calc/old.py": "print 'hello, world'\n"}).findings == []


API = {
    "pkg/__init__.py": '"""P."""\n\nfrom pkg.core import area, helper\nfrom pkg.shapes import Shape\n',
    "pkg/core.py": (
        "import os\nimport sys\n\n__all__ = ['area', 'helper']\n\n\ndef area(width, height=1, *, unit='m'):\n    return width * height\n\n\n"
        "def helper(x):\n    return x\n\n\ndef _private(x):\n    return x\n"
    ),
    "pkg/shapes.py": "class Shape:\n    sides = 4\n\n    def grow(self, by):\n        return by\n\n    def _shrink(self):\n        pass\n",
    "pkg/tests/test_p.py": "def helper_of_tests(a):\n    return a\n",
    "loose.py": "def run(argv):\n    return argv\n",
    "docs/conf.py": "def setup(app):\n    return app\n",
}


@pytest.fixture
def package(tmp_path):
    return Judged(tmp_path / "package", API)


@pytest.mark.parametrize(
    "edit",
    [
        {"pkg/core.py": API["pkg/core.py"].replace("import os\nimport sys\n", "")},
        {"pkg/core.py": API["pkg/core.py"].replace("def _private(x)", "def _other(y)")},
        {"pkg/core.py": API["pkg/core.py"].replace("unit='m'", "unit='m', extra=None")},
        {
            "pkg/core.py": API["pkg/core.py"].replace(
                "def area(width, height=1, *, unit='m')",
                "def area(width: int, height: int = 1, *, unit: str = 'm') -> int",
            )
        },
        {"pkg/shapes.py": API["pkg/shapes.py"].replace("class Shape:", "class Shape(object):")},
        {"pkg/tests/test_p.py": "def other(a):\n    return a\n"},
        {"docs/conf.py": "def other(app):\n    return app\n"},
        {"pkg/new.py": "def fresh():\n    return 1\n"},
        {
            "pkg/core.py": API["pkg/core.py"].replace(
                "def helper(x):\n    return x\n", "from pkg.moved import helper\n"
            ),
            "pkg/moved.py": "def helper(x):\n    return x\n",
        },
    ],
)
def test_the_public_interface_is_kept(package, edit):
    result = package.one("preservation", edit, preserve=["api"])
    assert (result.findings, result.no_verdict) == ([], "")


@pytest.mark.parametrize(
    ("edit", "name"),
    [
        ({"pkg/core.py": API["pkg/core.py"].replace("def helper", "def assistant")}, "helper"),
        (
            {"pkg/core.py": API["pkg/core.py"].replace("area(width, height=1", "area(height=1, width=1")},
            "area",
        ),
        ({"pkg/core.py": API["pkg/core.py"].replace("height=1, ", "")}, "height"),
        ({"pkg/core.py": API["pkg/core.py"].replace("unit='m'", "units='m'")}, "unit"),
        (
            {
                "pkg/core.py": API["pkg/core.py"].replace(
                    "(x):\n    return x\n\n\ndef _p", "(x, y):\n    return x\n\n\ndef _p"
                )
            },
            "helper",
        ),
        ({"pkg/core.py": API["pkg/core.py"].replace("['area', 'helper']", "['area']")}, "helper"),
        (
            {"pkg/shapes.py": API["pkg/shapes.py"].replace("def grow(self, by)", "def grow(self, factor)")},
            "by",
        ),
        ({"pkg/shapes.py": API["pkg/shapes.py"].replace("class Shape", "class Form")}, "Shape"),
        ({"pkg/shapes.py": None}, "shapes"),
        (
            {"pkg/__init__.py": '"""P."""\n\nfrom pkg.core import area\nfrom pkg.shapes import Shape\n'},
            "helper",
        ),
        ({"loose.py": "def run():\n    return []\n"}, "argv"),
        ({"loose.py": None}, "loose.py"),
    ],
)
def test_what_users_could_use_is_lost(package, edit, name):
    result = package.one("preservation", edit, preserve=["api"])
    assert classes(result) == {"api_lost": "HIGH"}
    assert any(name in finding.description for finding in result.findings), result.findings


def test_a_base_class_that_goes_is_told_unless_it_is_object(tmp_path):
    source = "class B:\n    pass\n\n\nclass A(object):\n    pass\n\n\nclass C(B):\n    pass\n"
    judged = Judged(tmp_path / "j", {"m.py": source})
    assert (
        judged.one("preservation", {"m.py": source.replace("(object)", "")}, preserve=["api"]).findings == []
    )
    lost = judged.one("preservation", {"m.py": source.replace("(B)", "")}, preserve=["api"])
    assert classes(lost) == {"api_changed": "MEDIUM"}


def test_nothing_of_the_code_under_judgement_is_run(package, tmp_path):
    mark = tmp_path / "ran"
    edit = {"pkg/core.py": f"open({str(mark)!r}, 'w').close()\n" + API["pkg/core.py"]}
    package.one("preservation", edit, preserve=["api", "ast"])
    assert not mark.exists()


def test_an_interface_that_nobody_here_can_read(tmp_path):
    judged = Judged(tmp_path / "j", API | {"web/a.ts": "export const a = 1\n", "run.sh": "true\n"})
    result = judged.one(
        "preservation", {"web/a.ts": "export const b = 1\n", "loose.py": None}, preserve=["api"]
    )
    assert "web/a.ts" in result.no_verdict
    assert classes(result) == {"api_lost": "HIGH"}
    assert judged.one("preservation", {"run.sh": "false\n"}, preserve=["api"]).no_verdict == ""

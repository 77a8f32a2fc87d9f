"""What a check's command line runs and names."""

import pytest

from school.review.checks.commands import configured_by, judge_like, mentioned, program, programs, tool


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["python", "check.py"], "check.py"),
        (["python3.11", "-B", "-W", "error", "./tools/check.py", "x.py"], "tools/check.py"),
        (["python", "-m", "pytest", "tests/test_a.py"], ""),
        (["python", "-c", "pass"], ""),
        (["./run.sh"], "run.sh"),
        (["scripts/run.sh", "a"], "scripts/run.sh"),
        (["pytest", "tests"], ""),
        (["env", "A=1", "python", "check.py"], "check.py"),
        (["uv", "run", "--with", "attrs", "python", "check.py"], "check.py"),
        (["timeout", "60", "sh", "check.sh"], "check.sh"),
        (["PYTHONPATH=src", "python", "check.py"], "check.py"),
        (["/usr/bin/python3", "/abs/check.py"], ""),
        (["python", "../outside.py"], ""),
        ([], ""),
    ],
)
def test_program(argv, expected):
    assert program(argv) == expected


def test_programs_of_a_shell_line():
    tree = ["check.sh", "tools/a.py", "src/b.py"]
    assert programs(["bash", "-lc", "cd x; ./check.sh && python tools/a.py | tee log"], tree) == [
        "check.sh",
        "tools/a.py",
    ]
    assert programs(["sh", "-c", "ruff check src/b.py"], tree) == []
    assert programs(["sh", "-c", "echo 'unbalanced"], tree) == []


def test_what_is_named():
    tree = ["tests/test_a.py", "tests/deep/test_b.py", "src/a.py", "lint.toml"]
    assert mentioned(["pytest", "tests/test_a.py::test_x"], tree) == ["tests/test_a.py"]
    assert mentioned(["pytest", "tests"], tree) == ["tests/test_a.py", "tests/deep/test_b.py"]
    assert mentioned(["ruff", "--config=lint.toml", "./src/"], tree) == ["src/a.py", "lint.toml"]
    assert configured_by(["ruff", "--config=lint.toml", "src"]) == {"lint.toml"}
    assert configured_by(["pytest", "-c", "other.ini"]) == {"other.ini"}
    assert tool(["uv", "run", "python", "-m", "pytest", "-q"]) == "pytest"
    assert tool(["env", "A=1", "/usr/bin/ruff", "check"]) == "ruff"
    assert judge_like("scripts/check-docs.sh")
    assert not judge_like("src/checkout.py")

"""What counts as guarded, as a test, as a source, and as allowed: the tables by which work is judged."""

import pytest

from school.guarded import allowed, is_guarded, is_prose, is_source, is_test, named, permitted


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_parse.py",
        "toolz/tests/test_core.py",
        "toolz/tests/__init__.py",
        "src/pkg/test_inline.py",
        "pkg/parse_test.go",
        "src/App.test.tsx",
        "src/App.spec.ts",
        "src/test/java/FooTest.java",
        "spec/models/user_spec.rb",
        "tests/data/golden.json",
        "Tests/A.py",
    ],
)
def test_tests_are_known(path):
    assert is_test(path)
    assert is_guarded(path) == "test"
    assert not is_source(path)


@pytest.mark.parametrize(
    "path",
    [
        "src/pkg/latest.py",
        "src/pkg/testing.py",
        "numpy/testing/utils.py",
        "src/contest.py",
        "Latest.java",
        "src/attestation/core.py",
        "school/tasks.py",
        "src/pkg/inspect.py",
        "src/pkg/requirements.py",
        "src/environment.py",
    ],
)
def test_sources_that_sound_like_tests_are_sources(path):
    assert not is_test(path)
    assert is_guarded(path) == ""
    assert is_source(path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("conftest.py", "test configuration"),
        ("src/pkg/conftest.py", "test configuration"),
        ("tests/conftest.py", "test configuration"),
        ("pytest.ini", "test configuration"),
        ("tox.ini", "test configuration"),
        ("scripts/run_tests.sh", "test configuration"),
        ("pyproject.toml", "build configuration"),
        ("setup.cfg", "build configuration"),
        ("GNUmakefile", "build configuration"),
        ("makefile", "build configuration"),
        ("requirements-dev.txt", "build configuration"),
        ("requirements/dev.txt", "build configuration"),
        ("web/package.json", "build configuration"),
        ("school.toml", "build configuration"),
        (".github/workflows/ci.yml", "CI"),
        (".gitlab-ci.yml", "CI"),
        ("AGENTS.md", "instructions for agents"),
        ("docs/CLAUDE.md", "instructions for agents"),
        ("claude.md", "instructions for agents"),
        (".claude/settings.json", "instructions for agents"),
        (".hermes/environment.json", "instructions for agents"),
        (".github/copilot-instructions.md", "CI"),
        ("sitecustomize.py", "loaded by itself at start-up"),
        ("evil.dist-info/entry_points.txt", "loaded by itself at start-up"),
        ("src/x.pth", "loaded by itself at start-up"),
        (".gitattributes", "git configuration"),
        (".pre-commit-config.yaml", "tool configuration"),
    ],
)
def test_guarded_by_reason(path, reason):
    assert is_guarded(path) == reason
    assert not is_source(path)


@pytest.mark.parametrize("path", ["README.md", "docs/guide.rst", "LICENSE", "notes.txt", "docs/TODO"])
def test_prose(path):
    assert is_prose(path)
    assert not is_source(path)


def test_requirements_and_instructions_are_not_prose():
    assert not is_prose("requirements.txt")
    assert not is_prose("CLAUDE.md")


@pytest.mark.parametrize(
    ("path", "allow", "expected"),
    [
        ("anything/at/all.py", [], True),
        ("src/a.py", ["src/**"], True),
        ("src/a/b/c.py", ["src/**"], True),
        ("srcx/a.py", ["src/**"], False),
        ("lib/src/a.py", ["src/**"], False),
        ("src", ["src/**"], False),
        ("src/a.py", ["src"], True),
        ("src/a.py", ["src/"], True),
        ("src/a.py", ["/src"], True),
        ("lib/src/a.py", ["/src"], False),
        ("deep/down/a.py", ["*.py"], True),
        ("deep/down/a.pyc", ["*.py"], False),
        ("src/a/b.py", ["src/*.py"], False),
        ("src/b.py", ["src/*.py"], True),
        ("src/b.py", ["./src/*.py"], True),
        ("a/x/y/b.py", ["a/**/b.py"], True),
        ("a/b.py", ["a/**/b.py"], True),
        ("b.py", ["**/b.py"], True),
        ("src/b.py", ["src/[ab].py"], True),
        ("src/c.py", ["src/[!ab].py"], True),
        ("src/a.py", ["src/[!ab].py"], False),
        ("src/a.py", ["src/[z-a].py"], False),
        ("src/secret.py", ["src/**", "!src/secret.py"], False),
        ("src/secret.py", ["!src/secret.py"], False),
        ("src/other.py", ["!src/secret.py"], True),
        ("src/../etc/passwd", ["src/**"], False),
        ("/etc/passwd", ["**"], False),
        (".git/config", ["**"], False),
        ("sub/.git/hooks/x", [], False),
        ("ünï/ç.py", ["ünï/*"], True),
        ("with\nnewline.py", ["*.py"], True),
    ],
)
def test_allowed(path, allow, expected):
    assert allowed(path, allow) is expected


@pytest.mark.parametrize(
    ("path", "allow", "expected"),
    [
        ("tests/test_a.py", ["**"], False),
        ("src/pkg/tests/test_a.py", ["src/**"], False),
        ("toolz/tests/test_core.py", ["toolz/**"], False),
        ("tests/test_a.py", ["tests/**"], True),
        ("tests/test_a.py", ["tests/test_a.py"], True),
        ("tests/test_a.py", ["**/test_*.py"], True),
        ("tests/test_a.py", ["tests"], True),
        ("tests/test_a.py", ["*.py"], False),
        ("pyproject.toml", ["*.toml"], False),
        ("pyproject.toml", ["pyproject.toml"], True),
        ("requirements-dev.txt", ["requirements*.txt"], True),
        (".github/workflows/ci.yml", [".github/**"], True),
        (".github/workflows/ci.yml", ["**"], False),
        ("AGENTS.md", ["*.md"], False),
        ("AGENTS.md", ["AGENTS.md"], True),
        ("tests/test_a.py", ["tests/**", "!tests/test_a.py"], False),
        ("tests/test_a.py", [], False),
    ],
)
def test_a_sweeping_glob_does_not_name_a_guarded_file(path, allow, expected):
    assert named(path, allow) is expected
    assert permitted(path, allow) is expected


def test_permitted_for_plain_sources():
    assert permitted("src/a.py", [])
    assert permitted("src/a.py", ["src/**"])
    assert not permitted("lib/a.py", ["src/**"])

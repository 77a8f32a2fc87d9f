from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from school.verification.spoil import spoil, spoilable
from tests.support import write_tree


def state(root: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        p.relative_to(root).as_posix(): (p.read_bytes(), p.stat().st_mode, p.stat().st_mtime_ns)
        for p in root.rglob("*")
        if p.is_file()
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    write_tree(
        root,
        {"pkg/a.py": "A = 1\n", "pkg/b.py": "B = 2\n", "run.py": "#!/usr/bin/env python\n", "x.txt": "x"},
    )
    (root / "run.py").chmod(0o755)
    return root


def python(tree: Path, line: str) -> int:
    return subprocess.run(
        [sys.executable, "-B", "-c", line], cwd=tree, capture_output=True, check=False
    ).returncode


def test_a_spoiled_file_parses_and_does_not_load(tree: Path) -> None:
    with spoil(tree, ["pkg/a.py", "x.txt"]) as spoiled:
        assert spoiled == ["pkg/a.py"]
        assert python(tree, "import ast; ast.parse(open('pkg/a.py').read())") == 0
        assert python(tree, "import pkg.a") == 1
        assert python(tree, "import pkg.b") == 0
    assert python(tree, "import pkg.a") == 0


def test_one_that_does_not_even_parse(tree: Path) -> None:
    with spoil(tree, ["pkg/a.py"], how="parse"):
        assert python(tree, "import ast; ast.parse(open('pkg/a.py').read())") == 1


def test_everything_is_restored_exactly_whatever_happened_meanwhile(tree: Path) -> None:
    before = state(tree)
    spoiled = ["pkg/a.py", "pkg/b.py", "run.py"]
    with pytest.raises(KeyError), spoil(tree, spoiled):  # noqa: PT012 - what is raised is not the point
        shutil.rmtree(tree / "pkg")
        (tree / "run.py").unlink()
        (tree / "run.py").mkdir()
        (tree / "run.py" / "inside").write_text("x")
        raise KeyError
    assert state(tree) == before


def test_a_link_put_in_place_is_not_written_through(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("precious\n")
    with spoil(tree, ["pkg/a.py"]):
        (tree / "pkg/a.py").unlink()
        (tree / "pkg/a.py").symlink_to(outside)
    assert outside.read_text() == "precious\n"
    assert (tree / "pkg/a.py").read_text() == "A = 1\n"
    assert not (tree / "pkg/a.py").is_symlink()


@pytest.mark.parametrize("deep", ["pkg", "pkg/sub"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(tree: Path, tmp_path: Path, deep: str) -> None:
    """Or a test, confined as it is, has us write what it likes wherever it likes."""
    write_tree(tree, {"pkg/sub/c.py": "C = 3\n"})
    outside = tmp_path / "outside"
    write_tree(outside, {"a.py": "precious\n", "c.py": "precious\n", "sub/c.py": "precious\n"})
    before, mine = state(outside), state(tree)
    with spoil(tree, ["pkg/a.py", "pkg/b.py", "pkg/sub/c.py"]):
        shutil.rmtree(tree / deep)
        (tree / deep).symlink_to(outside)
    assert state(outside) == before
    assert state(tree) == mine


def test_links_and_what_lies_outside_are_left_alone(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    write_tree(outside, {"m.py": "M = 1\n"})
    (tree / "link.py").symlink_to(outside / "m.py")
    (tree / "folder").symlink_to(outside)
    with spoil(tree, ["link.py", "folder/m.py", "../elsewhere/m.py", "gone.py"]) as spoiled:
        assert spoiled == []
        assert (outside / "m.py").read_text() == "M = 1\n"


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_javascript_does_not_load(tree: Path) -> None:
    write_tree(tree, {"m.js": "module.exports = 1;\n"})
    with spoil(tree, ["m.js"]):
        done = subprocess.run(["node", "-e", "require('./m.js')"], cwd=tree, capture_output=True, check=False)
        assert done.returncode != 0


@pytest.mark.parametrize(
    ("path", "known"), [("a.py", True), ("a.TS", True), ("a.rs", True), ("a.sql", False), ("a", False)]
)
def test_which_languages_have_a_spoiler(path: str, known: bool) -> None:
    assert spoilable(path) is known


def test_what_was_compiled_from_a_spoiled_file_is_not_used_later(tree: Path) -> None:
    line = "import pkg.a, sys; sys.exit(0 if pkg.a.A == 1 else 3)"
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with spoil(tree, ["pkg/a.py"]):
        subprocess.run([sys.executable, "-c", line], cwd=tree, env=env, capture_output=True, check=False)
    assert subprocess.run([sys.executable, "-c", line], cwd=tree, env=env, check=False).returncode == 0

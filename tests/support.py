"""Helpers that tests share: plain git, plain files, the small example project."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from school.system import confine

ROOT = Path(__file__).resolve().parent.parent


def git(cwd: Path, *args: str, stdin: str | None = None) -> str:
    """Plain git, as a user would run it; stdout without the last newline, failure raises with stderr shown."""
    done = subprocess.run(["git", *args], cwd=cwd, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"git {' '.join(args)}: {done.stderr}"
    return done.stdout.rstrip("\n")


def require_confinement() -> None:
    """Skip, loudly, where commands cannot be confined; a failure where ``CONFINED_TESTS`` says that they can."""
    found = confine.probe()
    if not found.kind:
        (pytest.fail if os.environ.get("CONFINED_TESTS") else pytest.skip)(
            f"nothing can be confined here: {found.why}"
        )


def without_bubblewrap(folder: Path) -> str:
    """A PATH, made in *folder*, that leads to every program of this one but bubblewrap."""
    for entry in os.environ["PATH"].split(os.pathsep):
        for program in Path(entry).iterdir() if Path(entry).is_dir() else ():
            link = folder / program.name
            if program.name != "bwrap" and not os.path.lexists(link):
                link.symlink_to(program)
    return str(folder)


def write_tree(root: Path, files: dict[str, str]) -> None:
    """Write *files* (relative path to text) below *root*."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


CALC_FILES = {
    "calc/__init__.py": '"""A small calculator."""\n\nfrom calc.core import add, parse\n\n__all__ = ["add", "parse"]\n',
    "calc/core.py": (
        '"""Sums and their parsing."""\n\nimport os\nimport sys\n\n\n'
        'def add(left: int, right: int) -> int:\n    """The sum."""\n    return left + right\n\n\n'
        'def parse(text: str) -> list[int]:\n    """The whole numbers in *text*, separated by ``+``."""\n'
        '    return [int(part) for part in text.split("+") if part.strip()]\n'
    ),
    "tests/__init__.py": "",
    "tests/test_core.py": (
        "import unittest\n\nfrom calc import add, parse\n\n\nclass CoreTest(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n\n"
        '    def test_parse(self):\n        self.assertEqual(parse("1+2"), [1, 2])\n'
    ),
    "school.toml": '[verify]\ncommands = [["python3", "-m", "unittest", "discover", "-v"]]\n',
    "README.md": "# calc\n\nA small calculator.\n",
    ".gitignore": "__pycache__/\n*.pyc\n",
}


@contextmanager
def small_disk(place: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of that size at *place*, which is made; a loud skip where none may be mounted."""
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a tmpfs of {mebibytes} MiB cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        while place.is_mount():  # a test may have put a second one over it
            subprocess.run(["umount", "-l", str(place)], check=True)

"""Chores: mechanical edits by a tool, with no model. A table, and the program that a leaf starts to do one.

As a module: ``CHORES`` by name, and ``argv_of(name, allow)``, the complete command line. It needs no brief, so
whoever judges the work can run the very same a second time; a second run on its own result changes nothing.

As a program (``python -I chores.py NAME [--allow GLOB]...`` in the root of a working tree): picks the tracked
regular files that the chore is for and the task may change, hands them to the tool, compares them before and
after, and writes a claim to the file that SCHOOL_RESULT names, if it names one. The tool's own exit status is no
verdict (``ruff`` ends with 1 while findings remain); an error of the tool's is: then the claim is ``failed`` and
the exit status 1. Nothing to work on is ``blocked``, with the reason: a task whose ``allow`` is misspelt must not
end as if there had been nothing to do.

What it does not promise: that the result is right. The rules are subsets that kept the suites of real projects
green, but judging is the teachers' work.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

ROOT: Final = Path(__file__).resolve().parents[2]
BATCH_BYTES_MAX: Final = 64 * 1024
TOOL_TIMEOUT_S: Final = 600.0
# F-strings came with Python 3.6; everything else that these rules write is older than what ruff still knows.
F_STRING_RULES: Final = ("UP032", "FLY")
F_STRINGS_SINCE: Final = (3, 6)
WRITES_F_STRINGS: Final = frozenset({"modern-syntax", "f-strings"})
PYTHON_3_ONLY: Final = frozenset({"modern-syntax", "f-strings", "return-types"})
RUFF_OLDEST: Final = (3, 7)
RUFF_NEWEST: Final = (3, 14)
# How a tool ends when it did what it could and something is left: ruff 1, codespell 65.
UNFINISHED: Final = frozenset({1, 65})


@dataclass(frozen=True, slots=True)
class Chore:
    """One row: what it does, with which tool and arguments, on which files, and what it must preserve."""

    name: str
    description: str
    tool: Literal["ruff", "codespell"]
    arguments: tuple[str, ...]
    files: Literal["python", "prose"] = "python"
    preserve: tuple[Literal["ast", "api"], ...] = ("api",)


def _fix(rules: str, *more: str) -> tuple[str, ...]:
    return ("check", "--fix", "--select", rules, *more)


CHORES: Final[dict[str, Chore]] = {
    chore.name: chore
    for chore in (
        Chore("unused-imports", "remove unused imports, sort the rest", "ruff", _fix("F401,I001,RUF100")),
        Chore("modern-syntax", "write what the oldest supported Python offers", "ruff", _fix("UP")),
        Chore(
            "safe-lint",
            "correct what linters find and can correct safely",
            "ruff",
            _fix("E,W,F,B,C4,SIM,RET,PIE,PLR,FURB,PT"),
        ),
        Chore("format", "lay the code out uniformly", "ruff", ("format",), preserve=("ast",)),
        # D403 writes a capital letter into text that programs print and tests compare.
        Chore(
            "docstrings",
            "lay docstrings out uniformly",
            "ruff",
            _fix("D", "--ignore", "D203,D213,D403"),
        ),
        Chore(
            "return-types",
            "annotate what returns nothing or is plain",
            "ruff",
            _fix("ANN201,ANN204", "--unsafe-fixes"),
        ),
        Chore(
            "f-strings",
            "turn % and format() into f-strings",
            "ruff",
            _fix("UP031,UP032,FLY", "--unsafe-fixes"),
        ),
        # Code and translations are left out: there a corrected name is another name.
        Chore("spelling", "correct misspellings in prose", "codespell", ("--write-changes",), files="prose"),
    )
}


def argv_of(name: str, allow: Sequence[str] = ()) -> list[str]:
    """The command line that does this chore in the current folder. ``-I``: nothing in that folder is imported."""
    # In one word each: a glob may begin with a hyphen or an exclamation mark.
    globs = [f"--allow={glob}" for glob in allow]
    return [sys.executable, "-I", "-B", str(Path(__file__).resolve()), name, *globs]


def tool_path(tool: str) -> Path | None:
    """Where a chore's tool is: beside this Python, where it was installed with us, or else on PATH."""
    import shutil
    import sysconfig

    found = shutil.which(
        tool, path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", "")))
    )
    return Path(found) if found else None


# --- the program ------------------------------------------------------------------------------------------


class ChoreFailed(Exception):  # noqa: N818 - it is not an error of ours but how the chore ended
    """How the chore ended when not well: the claim's status and a sentence."""

    def __init__(self, status: Literal["blocked", "failed"], why: str) -> None:
        super().__init__(why)
        self.status = status


def main(argv: Sequence[str] | None = None) -> int:
    """Do the chore that the command line names, in the current folder; 0 unless it failed."""
    parser = argparse.ArgumentParser(
        prog="chores.py", description="Do one chore in the current working tree."
    )
    parser.add_argument("name", choices=sorted(CHORES))
    parser.add_argument("--allow", action="append", default=[], metavar="GLOB")
    options = parser.parse_args(argv)
    try:
        status, summary, blockers = do(CHORES[options.name], Path.cwd(), options.allow)
    except ChoreFailed as end:
        status, summary, blockers = end.status, f"{options.name}: {end}", [str(end)]
    print(summary)
    claim({"status": status, "summary": summary, "ac_met": [], "blockers": blockers})
    return 1 if status == "failed" else 0


def do(chore: Chore, root: Path, allow: Sequence[str]) -> tuple[str, str, list[str]]:
    """Status, summary and blockers of *chore*, done below *root*."""
    names = files_for(chore, root, allow)
    if not names:
        asked = f"allow: {', '.join(allow)}" if allow else "no allow; guarded files are left alone"
        raise ChoreFailed("blocked", f"no tracked {chore.files} file that this task may change ({asked})")
    before = digests(root, names)
    notes: dict[str, None] = {}
    for command in commands(chore, root, names):
        notes[run(command, root)] = None
    changed = sum(map(str.__ne__, before, digests(root, names)))
    notes[version_note(chore, root)] = None
    said = "".join(f"; {note}" for note in notes if note)
    return (
        ("done" if changed else "no_change"),
        f"{chore.name}: {changed} of {len(names)} files changed{said}",
        [],
    )


def files_for(chore: Chore, root: Path, allow: Sequence[str]) -> list[str]:
    """Tracked regular files that are of the chore's kind and that the task may change. Links are never followed."""
    from school.guarded import is_prose, permitted
    from school.system.git import Git

    listing = Git(cwd=root).run("ls-files", "-z", "--stage").stdout
    entries = [os.fsdecode(entry).split("\t", 1) for entry in listing.split(b"\0") if entry]
    names = sorted({name for meta, name in entries if meta.startswith("100")})
    wanted = is_prose if chore.files == "prose" else _is_python
    return [name for name in names if wanted(name) and permitted(name, allow) and _is_regular(root / name)]


def _is_python(name: str) -> bool:
    return name.endswith((".py", ".pyi"))


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def digests(root: Path, names: Iterable[str]) -> list[str]:
    """The content of each file as a digest; '' for one that is gone."""
    import hashlib

    found = []
    for name in names:
        path = root / name
        if _is_regular(path):
            with path.open("rb") as file:
                found.append(hashlib.file_digest(file, "sha256").hexdigest())
        else:
            found.append("")
    return found


# --- which commands ---------------------------------------------------------------------------------------


def commands(chore: Chore, root: Path, names: Sequence[str]) -> Iterator[list[str]]:
    """The command lines that do *chore* on *names*, none too long for the system."""
    tool = tool_path(chore.tool)
    if tool is None:
        raise ChoreFailed("failed", f"{chore.tool} is not installed; `pip install {chore.tool}` brings it")
    for options, group in groups(chore, root, names):
        for batch in batches(group):
            yield [str(tool), *chore.arguments, *options, "--", *batch]


def groups(chore: Chore, root: Path, names: Sequence[str]) -> list[tuple[list[str], list[str]]]:
    """*names* by the options that they need.

    A project's own configuration of ruff wins, with what it excludes; files that none covers get ours alone.
    """
    if chore.tool == "codespell":
        return [([], list(names))]
    lowest = lowest_python(root)
    if chore.name in PYTHON_3_ONLY and lowest < (3, 0):
        raise ChoreFailed(
            "blocked", "the project supports Python {}.{}, this chore writes Python 3".format(*lowest)
        )
    held_back = ["--ignore", ",".join(F_STRING_RULES)] if version_note(chore, root) else []
    # Beside the chore's few rules, every remark about another rule of the project's would count as unused.
    own_held_back = [*held_back, "--ignore", "RUF100"] if "RUF100" in ",".join(chore.arguments) else held_back
    own = [name for name in names if has_ruff_configuration(root, name)]
    ours = sorted(set(names) - set(own))
    isolated = ["--isolated", "--target-version", ruff_version(lowest)]
    return [
        (["--no-cache", "--force-exclude", *own_held_back], own),
        (["--no-cache", *isolated, *held_back], ours),
    ]


def batches(names: Iterable[str]) -> Iterator[list[str]]:
    """*names* in groups that fit a command line."""
    batch: list[str] = []
    size = 0
    for name in names:
        length = len(os.fsencode(name)) + 1
        if batch and size + length > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += length
    if batch:
        yield batch


def has_ruff_configuration(root: Path, name: str) -> bool:
    """Whether a ruff configuration of the project covers this file: in its folder or in one above it."""
    return any(_configures_ruff(root / folder) for folder in Path(name).parents)


@cache
def _configures_ruff(folder: Path) -> bool:
    if (folder / "ruff.toml").is_file() or (folder / ".ruff.toml").is_file():
        return True
    return "ruff" in _table(_toml(folder / "pyproject.toml"), "tool")


# --- which Python -----------------------------------------------------------------------------------------


def lowest_python(root: Path) -> tuple[int, int]:
    """The oldest Python that the project says it runs on; where it says nothing, the oldest that ruff knows."""
    import re

    specifier = requires_python(root)
    bounds = re.findall(r"(?:>=|~=|==|>)\s*(\d+)(?:\.(\d+))?", specifier)
    versions = [(int(major), int(minor or 0)) for major, minor in bounds]
    return max(versions) if versions else RUFF_OLDEST


def requires_python(root: Path) -> str:
    """What the project declares as ``requires-python``, in any of the places where that is done; '' if nowhere."""
    import configparser

    declared = _table(_toml(root / "pyproject.toml"), "project").get("requires-python")
    if isinstance(declared, str):
        return declared
    poetry = _table(_table(_table(_toml(root / "pyproject.toml"), "tool"), "poetry"), "dependencies").get(
        "python"
    )
    if isinstance(poetry, str):
        return poetry.replace("^", ">=")
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_text(root / "setup.cfg"))
    except configparser.Error:
        return _from_setup_py(root)
    return parser.get("options", "python_requires", fallback="") or _from_setup_py(root)


def _from_setup_py(root: Path) -> str:
    import ast

    try:
        tree = ast.parse(_text(root / "setup.py"))
    except (SyntaxError, ValueError):
        return ""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.keyword)
            and node.arg == "python_requires"
            and isinstance(node.value, ast.Constant)
        ):
            return str(node.value.value)
    return ""


def ruff_version(version: tuple[int, int]) -> str:
    """*version* as ruff spells it, within what it knows."""
    return "py{}{}".format(*min(max(version, RUFF_OLDEST), RUFF_NEWEST))


def version_note(chore: Chore, root: Path) -> str:
    """What the project's oldest Python kept the chore from doing."""
    lowest = lowest_python(root)
    if chore.name not in WRITES_F_STRINGS or lowest >= F_STRINGS_SINCE:
        return ""
    return "no f-strings, as Python {}.{} is supported".format(*lowest)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError:
        return {}


def _table(table: dict[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


# --- running the tool, saying how it went -----------------------------------------------------------------


def run(command: Sequence[str], root: Path) -> str:
    """Run one command line of the tool; its output goes to ours. Returns what it left undone, '' for nothing."""
    sys.stdout.flush()
    try:
        done = subprocess.run(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            timeout=TOOL_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ChoreFailed("failed", f"{Path(command[0]).name}: {error}") from error
    sys.stderr.buffer.write(done.stderr)
    sys.stderr.flush()
    if done.returncode not in UNFINISHED and done.returncode != 0:
        lines = done.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        why = lines[-1] if lines else "no message"
        raise ChoreFailed("failed", f"{Path(command[0]).name} ended with {done.returncode}: {why}")
    return "some findings need a hand" if done.returncode else ""


def claim(record: dict[str, Any]) -> None:
    """Write the claim where SCHOOL_RESULT says; nothing where it is not set."""
    from school.system.files import write_json

    if target := os.environ.get("SCHOOL_RESULT", ""):
        write_json(Path(target), record)


if __name__ == "__main__":
    # Started by its path and isolated: neither the working tree nor this folder may be searched for modules.
    sys.path.insert(0, str(ROOT))
    sys.exit(main())

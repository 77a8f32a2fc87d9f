"""The style guide, executable: floors, lengths, banned calls with their one home, nothing dead or unsaid."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 450

# Lower may not import higher; the longest prefix that fits decides.
FLOORS = {
    "school.errors": 0,
    "school.system": 1,
    "school.contracts": 2,
    "school.settings": 2,
    "school.hooks": 2,
    "school.wording": 2,
    "school.masking": 2,
    "bookbag": 3,
    "sleep_state": 3,
    "school.records": 2.5,  # what bookbag is made of
    "school.souls": 3,
    "school.config": 3,
    "school.tasks": 3,
    "school.guarded": 3,
    "school.confinement": 3,
    "school.changes": 3,
    "school.worktrees": 4,
    "school.agents": 4,
    "school.verification": 4,
    "school.review": 4,
    "school.scores": 4,
    "school.governor": 4,
    "school.coach": 4,
    "school.delivery": 5,
    "school.supervisor": 5,
    "school.teaching": 5,
    "school.study": 5,
    "school.status": 5,
    "leaf": 6,
    "teacher": 6,
    "school.demo": 6,
    "school.hermes": 6,
    "school.inline": 6.5,
    "conductor": 7,
    "plugins.hermes": 7,
}
# A call and the only files that may make it.
HOMES = {
    r"\bos\.kill\(|\bos\.killpg\(": {"school/system/"},
    r"\bsubprocess\.(run|Popen|check_output|check_call|call)\(": {
        "school/system/",
        "scripts/",
        "school/agents/",
    },
    r"\btime\.time\(|\bdatetime\.(now|utcnow)\(": {"school/system/"},
    r"\btime\.sleep\(": {"school/system/", "school/agents/deterministic.py"},
    r"\bos\.(rename|replace|link)\(": {"school/system/"},
    r"\bshutil\.rmtree\(": {"school/system/"},
    r"\bos\.system\(|shell=True|\beval\(|\bexec\(|\bpickle\b": set(),
}


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


SOURCES = [
    name for name in tracked() if name.endswith(".py") and not name.startswith(("tests/", "benchmarks/"))
]


def module_of(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def place_of(module: str) -> tuple[str, int] | None:
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        room = ".".join(parts[:end])
        if room in FLOORS:
            return room, FLOORS[room]
    return None


def imports_of(tree: ast.AST) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.lineno, node.module))
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_imports_point_strictly_down(name: str) -> None:
    here = place_of(module_of(name))
    if here is None:
        assert name == "school/__init__.py" or name.startswith("scripts/"), f"{name} stands on no floor"
        return
    wrong = []
    for line, module in imports_of(ast.parse((ROOT / name).read_text())):
        there = place_of(module)
        if there and there[0] != here[0] and there[1] >= here[1]:
            wrong.append(f"{name}:{line} imports {module} (floor {there[1]}) from floor {here[1]}")
    assert wrong == []


@pytest.mark.parametrize("name", SOURCES)
def test_lengths(name: str) -> None:
    text = (ROOT / name).read_text()
    long = [
        f"{name}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []
    assert len(text.splitlines()) <= FILE_LINES_MAX


@pytest.mark.parametrize("pattern", HOMES)
def test_banned_calls_stay_at_home(pattern: str) -> None:
    homes = tuple(HOMES[pattern])
    hits = [
        f"{name}:{number} {line.strip()}"
        for name in SOURCES
        if not homes or not name.startswith(homes)
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if re.search(pattern, line.split("#")[0]) and "tidy: " not in line
    ]
    assert hits == []


@pytest.mark.parametrize("name", SOURCES)
def test_every_module_has_a_contract(name: str) -> None:
    assert ast.get_docstring(ast.parse((ROOT / name).read_text())), f"{name} has no docstring"


def test_nothing_is_left_for_later() -> None:
    mark = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b|Not" r"Implemented" r"Error")
    hits = [
        f"{name}:{number}"
        for name in SOURCES
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if mark.search(line) and "tidy: " not in line
    ]
    assert hits == []


def test_no_file_is_dead() -> None:
    """Every module is imported by another, or is one that is started by name."""
    started = {
        "conductor",
        "teacher",
        "leaf",
        "school.system.warden",
        "school.verification.record_unittest",
        "school.agents.deterministic",
        "school.agents.chores",
        "school.agents.model.main",
        "plugins.hermes",
    }
    texts = {name: (ROOT / name).read_text() for name in tracked() if name.endswith(".py")}
    used = {module for text in texts.values() for _, module in imports_of(ast.parse(text))}
    dead = [
        name
        for name in SOURCES
        if module_of(name) not in used | started
        and not name.startswith("scripts/")
        and name != "school/__init__.py"
    ]
    assert dead == []


def test_python_files_are_text_in_utf8() -> None:
    for name in SOURCES:
        Path(ROOT / name).read_bytes().decode("utf-8", "strict")

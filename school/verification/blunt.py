"""Whether the tests can still fail: each made to fail at once, one that passes all the same has its result from outside.

``forged(bench, baselines) -> Forged``: at head, with the first thing that every test of the project does being a question
to the very means by which it asserts. A test passes then only where an assertion no longer objects, a runner no longer
runs what it is given, or its report or exit status is written by somebody else; how that was brought about does not
matter. What passes at base in the same way (a doctest, a test that is made when it is run) says nothing and is left
out, and so are tests in files that the change touches: for those the base's version is run.

What it does not promise: to see code that behaves otherwise while it is tested, or knows the tests' answers.
Errors: those of ``bench``, and MachineError of ``spoil``.
"""

from __future__ import annotations

import ast
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from school.contracts import Receipt
from school.guarded import is_prose, is_test
from school.verification import commands as argvs
from school.verification.baselines import Baseline, Baselines, limit_s
from school.verification.bench import Bench
from school.verification.compare import of_any
from school.verification.environment import Side
from school.verification.reports import COMMAND
from school.verification.runner import CheckRun
from school.verification.sight import spoiled_receipts
from school.verification.spoil import overwritten

CHECK: Final = "wrong_tree: every test made to fail"
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
# Raises as long as every means of assertion objects; otherwise it returns, and the test goes on and passes.
_HELPER: Final = """

def NAME(test=None):
    import sys

    false = {
        "assertEqual": (1, 2), "assertNotEqual": (1, 1), "assertTrue": (0,), "assertFalse": (1,), "assertIs": (1, None),
        "assertIsNone": (1,), "assertIsNotNone": (None,), "assertIn": (1, ()), "assertNotIn": (1, (1,)), "assertGreater": (1, 2),
        "assertLess": (2, 1), "assertIsInstance": (1, str), "assertAlmostEqual": (1.0, 2.0), "assertListEqual": ([1], [2]),
        "assertDictEqual": ({}, {1: 1}), "assertRegex": ("a", "b"), "assertRaises": (ValueError, int),
    }
    for name, args in false.items():
        if callable(getattr(test, name, None)):
            try:
                getattr(test, name)(*args)
            except BaseException:
                continue
            return
    try:
        assert [1] == [2]
    except AssertionError:
        pass
    else:
        return
    runner = sys.modules.get("pytest")
    if runner is not None:
        try:
            with runner.raises(ValueError):
                pass
        except BaseException:
            pass
        else:
            return
    raise AssertionError("made to fail, to see whether that is noticed")
"""

# The same for a file of tests in JavaScript, asked once they are loaded: the file itself then fails.
_SCRIPT: Final = """
;(() => {
  let asked = [];
  try {
    const a = require("assert");
    asked = [() => a(false), () => a.ok(false), () => a.equal(1, 2), () => a.strictEqual(1, 2), () => a.notStrictEqual(1, 1),
      () => a.deepEqual([1], [2]), () => a.deepStrictEqual([1], [2]), () => a.throws(() => {})];
  } catch (e) {}
  if (typeof expect === "function") asked.push(() => expect(1).toBe(2), () => expect(1).toEqual(2));
  for (const ask of asked) {
    let objects = false;
    try { ask(); } catch (e) { objects = true; }
    if (!objects) return;
  }
  throw new Error("made to fail, to see whether that is noticed");
})();
"""
_SCRIPTS: Final = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")


@dataclass(slots=True)
class Forged:
    """Tests (or whole commands) that pass at head though they were made to fail, as they do at base."""

    names: dict[str, set[str]] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)


def blunted(source: bytes) -> bytes | None:
    """A test file whose tests first ask whether an assertion still objects; None where it holds no test."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    lines = source.splitlines(keepends=True)
    name = f"_asked_{secrets.token_hex(8)}"
    places = [(*_first(function), _call(name, function, method=m)) for function, m in _tests(tree)]
    if not places:
        return None
    for line, column, call in sorted(places, reverse=True):
        text = lines[line - 1]
        indent = text[:column]
        if indent.strip():  # On the line of its `def`: only simple statements can stand there.
            lines[line - 1] = indent + call + b"; " + text[column:]
        else:
            lines.insert(line - 1, indent + call + b"\n")
    return b"".join(lines) + _HELPER.replace("NAME", name).encode()


def _tests(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Each test function, and whether it is a method."""
    top = set(map(id, _top(tree)))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from ((child, True) for child in node.body if _is_test(child))
        elif id(node) in top and _is_test(node):
            yield node, False


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, _FUNCTION) and node.name.startswith("test")


def _top(tree: ast.Module) -> list[ast.stmt]:
    """Statements of a module, those under ``if``, ``try`` and ``with`` too."""
    found = list(tree.body)
    for statement in found:
        for part in ("body", "orelse", "finalbody"):
            if isinstance(statement, (ast.If, ast.Try, ast.With)):
                found += getattr(statement, part, [])
    return found


def _first(function: ast.AST) -> tuple[int, int]:
    """Where the body begins; a decorated function begins with its decorator."""
    first = function.body[0]  # type: ignore[attr-defined]
    decorators = getattr(first, "decorator_list", [])
    if decorators:
        return min(node.lineno for node in decorators), first.col_offset
    return first.lineno, first.col_offset


def _call(name: str, function: ast.AST, *, method: bool) -> bytes:
    arguments = function.args  # type: ignore[attr-defined]
    first = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][:1]
    return f"{name}({first[0] if method and first else ''})".encode()


# --- at head, and where something passes at base ------------------------------------------------------------


def forged(bench: Bench, baselines: Baselines) -> Forged:
    """What passes at head though it was made to fail; asks at base only where something does."""
    changed = [path for _, path in bench.changed()]
    pairs = [
        (argv, baseline)
        for argv, baseline in zip(baselines.commands, baselines.found, strict=True)
        if argvs.kind_of(argv) == "test" and baseline.passed
    ]
    if not pairs or all(map(is_prose, changed)):
        return Forged()
    runs = _run(bench, pairs, "head")
    if runs is None:
        return Forged()
    result = Forged(receipts=spoiled_receipts(runs))
    suspects = [
        {name for name in _passing(baseline, run) if not of_any(name, changed)}
        for (_, baseline), run in zip(pairs, runs, strict=True)
    ]
    if not any(suspects):
        return result
    for names, (_, baseline), run in zip(suspects, pairs, _run(bench, pairs, "base") or (), strict=False):
        made_up = names - _passing(baseline, run)
        if made_up and run.outcome in ("failed", "no_tests"):
            result.names[" ".join(run.argv)] = made_up
    return result


def _passing(baseline: Baseline, run: CheckRun) -> set[str]:
    """Of what passes at base, what passes here too."""
    if baseline.tests is None or run.tests_by_name is None:
        return {COMMAND} if baseline.green and run.outcome == "passed" else set()
    return {name for name in baseline.passed if run.tests_by_name.get(name) == "passed"}


def _run(bench: Bench, pairs: list[tuple[list[str], Baseline]], side: Side) -> list[CheckRun] | None:
    """Each command with every test of *side* made to fail; None where there is none that can be."""
    bench.go(side)
    worktree = bench.context.worktree
    texts: dict[str, bytes] = {}
    for path in sorted(bench.environment.tracked(side)):
        target = worktree / path
        if path.endswith((".py", *_SCRIPTS)) and is_test(path) and _is_small_file(target):
            source = target.read_bytes()
            text = blunted(source) if path.endswith(".py") else source + _SCRIPT.encode()
            if text is not None:
                texts[path] = text
    if not texts:
        return None
    with overwritten(worktree, texts):
        return [
            bench.run(argv, timeout_s=limit_s(baseline, bench.terms.verify_timeout_s), check=CHECK)
            for argv, baseline in pairs
        ]


def _is_small_file(target: Path) -> bool:
    return target.is_file() and not target.is_symlink() and target.stat().st_size <= FILE_BYTES_MAX

"""Tests before and after, as data: which are gone, which are skipped, which assert less.

``python_tests(text)`` reads the tests of one file without importing it: each by its qualified name, with how many
assertions can really fail, and how often it skips or expects to fail. An assertion that cannot fail (``assert
True``, a non-empty tuple, ``assertTrue(1)``), that is never reached, or whose failure is swallowed, does not count.
``other_tests(text)`` counts by pattern for languages that are not parsed. What it cannot know: whether an
assertion that changed still asks the same; running the base's version tells that.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from school.guarded import words

_SKIPS: Final = words(
    "skip skipif skipIf skipUnless skipTest xfail expectedFailure SkipTest importorskip Skipped"
)
_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SWALLOWS: Final = frozenset({"Exception", "BaseException", "AssertionError"})
_TRUE_ASSERTS: Final = frozenset({"assertTrue", "assert_", "failUnless"})
_FALSE_ASSERTS: Final = frozenset({"assertFalse", "failIf"})


@dataclass(frozen=True, slots=True)
class TestUnit:
    """One test function: where it stands, its body's shape, its live assertions, its skips."""

    __test__ = False

    name: str
    line: int
    shape: str
    asserts: int
    skips: int
    asserted: frozenset[str]
    collected: bool = True

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class TestFile:
    """The tests of one file, and the skips that stand outside any of them."""

    __test__ = False

    units: dict[str, TestUnit]
    skips: int
    not_collected: int


def python_tests(text: str) -> TestFile | None:
    """The tests in *text*; None where it cannot be parsed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    units = {unit.name: unit for unit in _units(tree, "", _class_skips(tree))}
    return TestFile(units, _outer_skips(tree), _uncollected(tree))


def _units(node: ast.Module | ast.ClassDef, prefix: str, inherited: int) -> Iterator[TestUnit]:
    for child in _statements(node.body):
        if isinstance(child, ast.ClassDef):
            units = _units(child, f"{prefix}{child.name}.", inherited + _marks(child))
            found = _looks_collected(child)
            yield from (unit if found else replace(unit, collected=False) for unit in units)
        elif isinstance(child, _FUNCTION) and child.name.startswith(("test", "check_", "should_", "assert")):
            yield _unit(child, prefix, inherited)


def _looks_collected(node: ast.ClassDef) -> bool:
    """Whether a runner takes this class for a collection of tests: by its name, or by that of a base."""
    bases = [ast.unparse(base) for base in node.bases]
    return node.name.startswith("Test") or any("Test" in base or "Case" in base for base in bases)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module or class, those under ``if`` and ``try`` too, but not under ``if False``."""
    for statement in body:
        if isinstance(statement, ast.If):
            if not _never(statement.test):
                yield from _statements(statement.body)
            yield from _statements(statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from _statements([*statement.body, *statement.orelse, *statement.finalbody])
            for handler in statement.handlers:
                yield from _statements(handler.body)
        elif isinstance(statement, ast.With):
            yield from _statements(statement.body)
        else:
            yield statement


def _unit(function: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str, inherited: int) -> TestUnit:
    live = [a for a in _live_asserts(function.body, swallowed=False) if not _cannot_fail(a)]
    cases = _cases(function)
    return TestUnit(
        name=prefix + function.name,
        line=function.lineno,
        shape=ast.dump(ast.Module(body=function.body, type_ignores=[])),
        asserts=len(live) * cases,
        skips=inherited + sum(map(_is_skip, _nodes(function))),
        asserted=frozenset(ast.unparse(node) for node in live),
    )


def _nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    for part in [*function.decorator_list, *function.body]:
        yield from ast.walk(part)


def _is_skip(node: ast.AST) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr in _SKIPS) or (
        isinstance(node, ast.Name) and node.id in _SKIPS
    )


def _marks(node: ast.ClassDef) -> int:
    marks = sum(_is_skip(part) for decorator in node.decorator_list for part in ast.walk(decorator))
    for statement in node.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and _targets(statement) & {
            "pytestmark",
            "__test__",
        }:
            marks += sum(map(_is_skip, ast.walk(statement))) + _is_false(statement.value)
    return marks


def _class_skips(tree: ast.Module) -> int:
    """Skips of a whole module reach each test in it, so that a new one shows at every test."""
    return sum(
        _is_false(s.value) for s in tree.body if isinstance(s, ast.Assign) and "__test__" in _targets(s)
    )


def _is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def _targets(statement: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _outer_skips(tree: ast.Module) -> int:
    """Skips in statements of the module itself: ``pytestmark``, ``pytest.skip(allow_module_level=True)``."""
    outer = [
        s
        for s in _statements(tree.body)
        if not isinstance(s, (*_FUNCTION, ast.ClassDef, ast.Import, ast.ImportFrom))
    ]
    return sum(_is_skip(node) for statement in outer for node in ast.walk(statement))


def _uncollected(tree: ast.Module) -> int:
    """``collect_ignore`` and its kin at module level."""
    return sum(
        bool(_targets(s) & {"collect_ignore", "collect_ignore_glob"})
        for s in _statements(tree.body)
        if isinstance(s, (ast.Assign, ast.AnnAssign))
    )


def _cases(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How often a parametrised test runs, where its cases are written out; fewer cases assert less."""
    cases = 1
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize"):
            lists = [a for a in decorator.args[1:2] if isinstance(a, (ast.List, ast.Tuple))]
            cases *= max(1, len(lists[0].elts)) if lists else 1
    return cases


# --- assertions -------------------------------------------------------------------------------------------


def _live_asserts(body: list[ast.stmt], *, swallowed: bool) -> Iterator[ast.AST]:
    """Assertions that can be reached and whose failure is seen, in order."""
    for statement in body:
        if isinstance(statement, ast.If) and _never(statement.test):
            yield from _live_asserts(statement.orelse, swallowed=swallowed)
            continue
        if isinstance(statement, ast.Try):
            yield from _in_try(statement, swallowed=swallowed)
            continue
        if not swallowed:
            yield from _asserts_of(statement)
        for inner in _inner_bodies(statement):
            hidden = swallowed or _suppresses(statement)
            yield from _live_asserts(inner, swallowed=hidden)
        if isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            return


def _in_try(statement: ast.Try, *, swallowed: bool) -> Iterator[ast.AST]:
    swallows = any(_swallows(handler) for handler in statement.handlers)
    yield from _live_asserts(statement.body, swallowed=swallowed or swallows)
    for handler in statement.handlers:
        yield from _live_asserts(handler.body, swallowed=swallowed)
    yield from _live_asserts([*statement.orelse, *statement.finalbody], swallowed=swallowed)


def _swallows(handler: ast.ExceptHandler) -> bool:
    names = (
        {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
        if handler.type
        else _SWALLOWS
    )
    if not names & _SWALLOWS:
        return False
    return not any(
        isinstance(node, (ast.Raise, ast.Assert)) or _is_assert(node)
        for s in handler.body
        for node in ast.walk(s)
    )


def _suppresses(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.With, ast.AsyncWith)) and any(
        isinstance(item.context_expr, ast.Call)
        and ast.unparse(item.context_expr.func).endswith("suppress")
        and any(ast.unparse(arg) in _SWALLOWS for arg in item.context_expr.args)
        for item in statement.items
    )


def _inner_bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.ClassDef):
        return []
    bodies = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    if isinstance(statement, ast.Match):
        bodies += [case.body for case in statement.cases]
    return [body for body in bodies if body]


def _asserts_of(statement: ast.stmt) -> Iterator[ast.AST]:
    """Assertions in the statement's own expressions, not in the blocks below it."""
    if isinstance(statement, ast.Assert) or (isinstance(statement, ast.Raise) and _is_failure(statement)):
        yield statement
        return
    below = {id(inner) for body in _inner_bodies(statement) for inner in body}
    queue: list[ast.AST] = [statement]
    while queue:
        node = queue.pop(0)
        if _is_assert(node):
            yield node
            continue
        queue += [child for child in ast.iter_child_nodes(node) if id(child) not in below]


def _is_failure(statement: ast.Raise) -> bool:
    return statement.exc is not None and "AssertionError" in ast.unparse(statement.exc)


def _is_assert(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name.lower().startswith(("assert", "fail", "expect", "check", "verify", "ensure")) or name in {
        "raises",
        "warns",
        "deprecated_call",
        "eq_",
        "ok_",
    }


def _cannot_fail(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return _always(node.test)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr in _TRUE_ASSERTS:
            return _always(node.args[0])
        if node.func.attr in _FALSE_ASSERTS:
            return _never(node.args[0])
        if node.func.attr.startswith("assertEqual") and len(node.args) > 1:
            return ast.dump(node.args[0]) == ast.dump(node.args[1])
    return False


def _always(test: ast.expr) -> bool:
    """Whether an expression is true whatever the code does."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, (ast.Tuple, ast.List)):
        return bool(test.elts)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(map(_always, test.values))
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _never(test.operand)
    if (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], (ast.Eq, ast.Is, ast.LtE, ast.GtE))
    ):
        return ast.dump(test.left) == ast.dump(test.comparators[0]) and not _calls(test.left)
    return isinstance(test, ast.Lambda)


def _calls(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _never(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return not test.value
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(map(_never, test.values))
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and _always(test.operand)


def examples(text: str) -> Counter[tuple[str, str]]:
    """The doctest examples in the docstrings of *text*: (source, what it must print)."""
    import doctest

    try:
        tree = ast.parse(text)
        documented = [n for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.ClassDef, *_FUNCTION))]
        found = [doctest.DocTestParser().get_examples(ast.get_docstring(node) or "") for node in documented]
    except (SyntaxError, ValueError, RecursionError):
        return Counter()
    return Counter((example.source.strip(), example.want.strip()) for some in found for example in some)


# --- other languages --------------------------------------------------------------------------------------

_OTHER_TESTS: Final = re.compile(
    r"(?<![\w.])(?:[xf]?it|[xf]?test|specify|scenario)\s*(?:\.\s*\w+\s*)*(?:\([^)'\"`]*\)|`[^`]*`)?\s*\(\s*['\"`]"
    r"|^\s*func\s+(?:Test|Benchmark|Fuzz|Example)\w*\s*\(|@(?:Parameterized)?Test\b|#\[(?:\w+::)?test\]|\[(?:Test|Fact|Theory)\b"
    r"|^\s*def\s+test_\w+|^\s*@test\s|function\s+test\w+\s*\(",
    re.MULTILINE,
)
_OTHER_SKIPS: Final = re.compile(
    r"\b(?:it|test|describe|context|suite)\s*\.\s*(?:skip|only|todo|failing|fixme)\b|\b(?:xit|xtest|xdescribe|fit|fdescribe|xcontext)\s*\("
    r"|\b[tb]\.(?:Skip|Skipf|SkipNow)\s*\(|@(?:Ignore|Disabled)\b|#\[ignore|\[(?:Ignore|Skip)\b|\bskip\s*:\s*true|\bpending\b\s*(?:\(|$)"
    r"|markTestSkipped|#\[should_panic\]|//\s*\+build\s+ignore|//go:build\s+ignore",
    re.MULTILINE,
)
_OTHER_ASSERTS: Final = re.compile(
    r"\b(?:expect|assert\w*|require\.\w+|should|verify|check)\s*[.!(]|\b[tb]\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\s*\(",
    re.IGNORECASE,
)


def other_tests(text: str) -> Counter[str]:
    """How many tests, skips and assertions a file of another language seems to hold."""
    live = re.sub(r"/\*.*?\*/|^\s*(?://|#(?!\[)).*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return Counter(
        tests=len(_OTHER_TESTS.findall(live)),
        skips=len(_OTHER_SKIPS.findall(live)),
        asserts=len(_OTHER_ASSERTS.findall(live)),
    )

"""Ways to make a test's result from outside the test, found in Python sources without running them.

``interferences(text, path)`` lists what stands in one file: ending the process, hooks and plugins of pytest, a
``load_tests``, changed assertions or runners, code that looks whether it is being tested. Each has a key that does
not depend on the line, so that what was there at base can be told from what is new.
``quiet_conftest(text)`` says whether a new conftest.py holds nothing but imports, constants, plain functions and
fixtures that must be asked for. What it cannot see: the same things built at run time from strings; such
constructs (``exec``, ``getattr`` chains on decoded text) are the security check's.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from school.contracts import Severity
from school.guarded import is_test, words

_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_HARD_EXITS: Final = frozenset(
    {"os._exit", "os.abort", "posix._exit", "_exit", "ctypes.string_at", "signal.raise_signal"}
)
_EXITS: Final = frozenset({"sys.exit", "exit", "quit", "builtins.exit", "raise_system_exit", "pytest.exit"})
_RUNNERS: Final = frozenset(
    {"unittest", "pytest", "_pytest", "pluggy", "doctest", "builtins", "nose", "hypothesis"}
)
_RUN_METHODS: Final = words(
    "run __call__ debug _callTestMethod _callSetUp defaultTestResult countTestCases addFailure addError"
    " startTest stopTest wasSuccessful addSubTest"
)
# Of a TestCase: how much of a difference is shown, not whether there is one.
_HARMLESS_SETTINGS: Final = words("maxDiff longMessage")
_QUIET_HOOKS: Final = words(
    "pytest_addoption pytest_report_header pytest_terminal_summary pytest_assertrepr_compare pytest_make_parametrize_id"
    " pytest_addhooks"
)
# A ``__bool__`` asks about itself alone, and may well look at nothing else.
_COMPARISONS: Final = frozenset({"__eq__", "__ne__", "__bool__"})
# Where code could learn that it is being tested, and the words by which it would know.
_SURROUNDINGS: Final = words("""
    sys.argv sys.orig_argv sys.modules sys._getframe sys._current_frames inspect.stack inspect.currentframe
    traceback.extract_stack traceback.walk_stack __main__.__file__
""")
_TESTING: Final = re.compile(r"(?i)(?:^|[^a-z])(?:py|unit|doc)?tests?(?:$|[^a-z])|conftest|nose2")
_LOOKS: Final = (
    "PYTEST_CURRENT_TEST",
    "PYTEST_VERSION",
    "PYTEST_XDIST_WORKER",
    "SCHOOL_BEAD",
    "SCHOOL_MARKER",
    "SCHOOL_BRIEF",
)


@dataclass(frozen=True, slots=True)
class Interference:
    """One construct: its kind, a key without line numbers, where, how bad, and what it does."""

    kind: str
    key: str
    line: int
    severity: Severity
    what: str


def interferences(text: str, path: str) -> list[Interference]:
    """Everything of the kind in *text*; nothing where it cannot be parsed (another check says that)."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return list(_Scan(path, _aliases(tree)).of(tree))


def _aliases(tree: ast.Module) -> dict[str, str]:
    """What the names of a file stand for: ``from os import _exit as bye`` makes ``bye`` ``os._exit``."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname: a.name for a in node.names if a.asname}
            names |= {(top := a.name.partition(".")[0]): top for a in node.names if not a.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


@dataclass(frozen=True)
class _Scan:
    path: str
    names: dict[str, str]

    def of(self, tree: ast.Module) -> Iterator[Interference]:
        inside = self._functions(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from self._call(node, in_function=id(node) in inside)
            elif isinstance(node, ast.Raise):
                yield from self._raise(node, in_function=id(node) in inside)
            elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
                yield from self._assign(node, in_function=id(node) in inside)
                yield from self._lambda(node)
                yield from self._asks(node)
            elif isinstance(node, ast.ClassDef):
                yield from self._class(node)
            elif isinstance(node, _FUNCTION):
                yield from self._function(node)
            elif isinstance(node, (ast.Constant, ast.Compare)):
                yield from self._look(node)
            elif isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Return)):
                yield from self._asks(node)

    def _functions(self, tree: ast.Module) -> set[int]:
        """Nodes that do not run when the file is loaded: in functions, and under ``if __name__ == "__main__"``."""
        inside: set[int] = set()
        for node in ast.walk(tree):
            main = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
            if main or isinstance(node, (*_FUNCTION, ast.Lambda)):
                body = node.body if isinstance(node.body, list) else [node.body]  # type: ignore[attr-defined]
                inside |= {id(part) for statement in body for part in ast.walk(statement)}
        return inside

    def _name(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self._name(node.value)}.{node.attr}"
        return ""

    def _call(self, node: ast.Call, *, in_function: bool) -> Iterator[Interference]:
        name = self._name(node.func)
        judged = is_test(self.path) or posixpath.basename(self.path) == "conftest.py"
        if name in _HARD_EXITS or (
            name == "os.kill" and node.args and ast.unparse(node.args[0]).endswith("getpid()")
        ):
            yield self._found(
                "ends_process", name, node, "HIGH", f"{name} ends the process past every test runner"
            )
        elif name.startswith(("os.exec", "os.posix_spawn")) and not in_function:
            yield self._found(
                "ends_process", name, node, "HIGH", f"{name} replaces the process when the file is loaded"
            )
        elif name in _EXITS and (judged or not in_function):
            where = "in test code" if in_function else "when the file is loaded"
            mild = in_function and name != "pytest.exit" and not self.path.endswith("conftest.py")
            severity: Severity = "MEDIUM" if mild else "HIGH"
            yield self._found("ends_process", name, node, severity, f"{name} is called {where}")
        elif (
            name in {"setattr", "delattr"}
            and node.args
            and not in_function
            and self._of_product(node.args[0])
        ):
            what = f"{self._name(node.args[0])} is changed when the file is loaded, for every other test too"
            yield self._found("patched_product", self._name(node.args[0]), node, "HIGH", what)
        elif name in {"setattr", "delattr"} and node.args and self._of_runner(node.args[0]):
            yield self._found(
                "patched_runner", name + self._name(node.args[0]), node, "HIGH", "it changes the test runner"
            )
        elif name.endswith((".patch", ".patch.object")):
            yield from self._patch(node)
        elif judged and name.endswith(
            (".pluginmanager.register", "pluginmanager.unregister", "pluginmanager.set_blocked")
        ):
            yield self._found("plugin", name, node, "HIGH", f"{name} changes what pytest does")

    def _patch(self, node: ast.Call) -> Iterator[Interference]:
        target = node.args[0] if node.args else None
        text = target.value if isinstance(target, ast.Constant) and isinstance(target.value, str) else ""
        name = text or (self._name(target) if target is not None else "")
        if name.partition(".")[0] in _RUNNERS - {"builtins"}:
            yield self._found("patched_runner", f"patch {name}", node, "HIGH", f"it patches {name}")

    def _raise(self, node: ast.Raise, *, in_function: bool) -> Iterator[Interference]:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = self._name(raised) if raised is not None else ""
        judged = is_test(self.path) or posixpath.basename(self.path) == "conftest.py"
        if name in {"SystemExit", "KeyboardInterrupt", "GeneratorExit"} and (judged or not in_function):
            severity: Severity = "MEDIUM" if in_function and not self.path.endswith("conftest.py") else "HIGH"
            what = f"{name} is raised where tests are loaded or run"
            yield self._found("ends_process", name, node, severity, what)

    def _of_runner(self, node: ast.expr) -> bool:
        return self._name(node).partition(".")[0] in _RUNNERS

    def _of_product(self, node: ast.expr) -> bool:
        """In test code: whether this is a module that was imported, and none of Python's own or of a runner."""
        root = self._name(node).partition(".")[0]
        known = {name.partition(".")[0] for name in self.names.values()}
        judged = is_test(self.path) or posixpath.basename(self.path) == "conftest.py"
        return judged and root in known and root not in sys.stdlib_module_names | _RUNNERS

    def _lambda(
        self, node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete
    ) -> Iterator[Interference]:
        """``__eq__ = lambda self, other: True``"""
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        names = {self._name(target).rpartition(".")[2] for target in targets} & _COMPARISONS
        if names and isinstance(value, ast.Lambda) and not is_test(self.path):
            answer = ast.Return(value=value.body)
            if _asks_nothing(value.args, [answer]):
                yield self._always_equal(min(names), node)

    def _assign(
        self, node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete, *, in_function: bool
    ) -> Iterator[Interference]:
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr in _HARMLESS_SETTINGS:
                continue
            if isinstance(target, ast.Attribute) and not in_function and self._of_product(target.value):
                name = self._name(target)
                what = f"{name} is replaced when the file is loaded, for every other test too"
                yield self._found("patched_product", name, node, "HIGH", what)
            elif isinstance(target, ast.Attribute) and self._of_runner(target.value):
                name = self._name(target)
                yield self._found("patched_runner", name, node, "HIGH", f"{name} is replaced")
            elif isinstance(target, ast.Subscript) and self._name(target.value) == "sys.modules":
                key = ast.unparse(target.slice).strip("'\"")
                if key.partition(".")[0] in _RUNNERS:
                    yield self._found(
                        "patched_runner", f"sys.modules {key}", node, "HIGH", f"module {key} is replaced"
                    )
            elif isinstance(target, ast.Name) and target.id in {
                "pytest_plugins",
                "collect_ignore",
                "collect_ignore_glob",
            }:
                yield self._found(
                    "plugin", target.id, node, "HIGH", f"{target.id} changes what pytest loads or collects"
                )

    def _class(self, node: ast.ClassDef) -> Iterator[Interference]:
        bases = " ".join(self._name(base) for base in node.bases)
        if not any(word in bases for word in ("TestCase", "TestResult", "TestRunner", "TestSuite")):
            return
        for child in node.body:
            names = {child.name} if isinstance(child, _FUNCTION) else set()
            if isinstance(child, ast.Assign):
                names = {target.id for target in child.targets if isinstance(target, ast.Name)}
            for name in names:
                own = name in _RUN_METHODS or (
                    name in dir(_test_case()) and name.startswith(("assert", "fail"))
                )
                if own:
                    yield self._found(
                        "patched_runner", f"{node.name}.{name}", child, "HIGH", f"{name} is overridden"
                    )

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Interference]:
        if node.name == "load_tests":
            yield self._found(
                "plugin", "load_tests", node, "HIGH", "load_tests chooses which tests unittest runs"
            )
        elif (
            node.name.startswith("pytest_") and node.name not in _QUIET_HOOKS and not _only_adds_markers(node)
        ):
            yield self._found(
                "plugin", node.name, node, "HIGH", f"the hook {node.name} can change what tests report"
            )
        elif _autouse(node):
            yield self._found(
                "plugin",
                f"autouse {node.name}",
                node,
                "MEDIUM",
                f"fixture {node.name} runs around every test",
            )
        elif node.name in _COMPARISONS and _asks_nothing(node.args, node.body) and not is_test(self.path):
            yield self._always_equal(node.name, node)

    def _always_equal(self, name: str, node: ast.AST) -> Interference:
        return self._found(
            "always_equal", name, node, "HIGH", f"{name} answers the same whatever it is asked"
        )

    def _asks(self, node: ast.AST) -> Iterator[Interference]:
        """A decision by what the process was started with, has loaded or is called by, where tests are named."""
        asked: ast.expr | None = getattr(node, "test", None) or getattr(node, "value", None)
        if asked is None or is_test(self.path) or posixpath.basename(self.path) == "conftest.py":
            return
        parts = list(ast.walk(asked))
        seen = {self._name(part) for part in parts if isinstance(part, (ast.Name, ast.Attribute))}
        # `sys.argv[1] == "test"` is a command line being read.
        indexed = any(isinstance(p, ast.Subscript) and self._name(p.value) == "sys.argv" for p in parts)
        ways = seen & (_SURROUNDINGS - ({"sys.argv"} if indexed else set()))
        texts = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
        if ways and any(_TESTING.search(text) for text in texts):
            yield self._found(
                "knows_its_judge",
                ast.unparse(asked),
                node,
                "HIGH",
                f"it decides by {min(ways)} whether tests are running",
            )

    def _look(self, node: ast.Constant | ast.Compare) -> Iterator[Interference]:
        if is_test(self.path) or posixpath.basename(self.path) == "conftest.py":
            return
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node.value in _LOOKS:
                yield self._found("knows_its_judge", node.value, node, "HIGH", f"it looks for {node.value}")
        elif any(self._name(c) == "sys.modules" for c in node.comparators):
            asked = str(node.left.value) if isinstance(node.left, ast.Constant) else ""
            if asked.partition(".")[0] in _RUNNERS - {"builtins"}:
                yield self._found(
                    "knows_its_judge", asked, node, "HIGH", "it looks whether tests are running"
                )

    def _found(self, kind: str, key: str, node: ast.AST, severity: Severity, what: str) -> Interference:
        return Interference(kind, f"{kind}:{key}", getattr(node, "lineno", 1), severity, what)


def _test_case() -> type:
    import unittest

    return unittest.TestCase


def _only_adds_markers(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """``pytest_configure`` that does nothing but register markers."""
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return node.name == "pytest_configure" and all(
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and isinstance(s.value.func, ast.Attribute)
        and s.value.func.attr == "addinivalue_line"
        and bool(s.value.args)
        and isinstance(s.value.args[0], ast.Constant)
        and s.value.args[0].value == "markers"
        for s in body
    )


def _autouse(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(decorator, ast.Call)
        and any(
            k.arg == "autouse" and not (isinstance(k.value, ast.Constant) and not k.value.value)
            for k in decorator.keywords
        )
        for decorator in node.decorator_list
    )


def _asks_nothing(args: ast.arguments, body: list[ast.stmt]) -> bool:
    """Whether a comparison may say yes without having looked at what it is asked about."""
    given = [argument.arg for argument in (*args.posonlyargs, *args.args)][1:2]
    used = {part.id for statement in body for part in ast.walk(statement) if isinstance(part, ast.Name)}
    if given and given[0] in used:
        return False
    answers = [p.value for s in body for p in ast.walk(s) if isinstance(p, ast.Return)]
    honest = [
        value is None
        or (isinstance(value, ast.Constant) and not value.value)
        or (isinstance(value, ast.Name) and value.id == "NotImplemented")
        or (not given and not isinstance(value, ast.Constant))
        for value in answers
    ]
    return bool(answers) and not all(honest)


def quiet_conftest(text: str) -> bool:
    """Whether a conftest.py cannot change any result by being there."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return not interferences(text, "conftest.py") and all(map(_quiet, tree.body))


def _quiet(statement: ast.stmt) -> bool:
    if isinstance(statement, _FUNCTION):
        hook = statement.name.startswith("pytest_") and statement.name not in _QUIET_HOOKS
        return not hook or _only_adds_markers(statement)
    if isinstance(statement, ast.ClassDef):
        return all(map(_quiet, statement.body))
    if isinstance(statement, ast.If):
        return "TYPE_CHECKING" in ast.unparse(statement.test)
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return _plain_constant(statement)
    remark = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return remark or isinstance(statement, (ast.Import, ast.ImportFrom, ast.Pass))


def _plain_constant(statement: ast.Assign | ast.AnnAssign) -> bool:
    """A name bound to a value that no call but that of a path has made."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if not all(isinstance(target, ast.Name) for target in targets):
        return False
    calls = [part for part in ast.walk(statement) if isinstance(part, ast.Call)]
    return all(ast.unparse(c.func) in {"Path", "pathlib.Path", "Path(__file__).resolve"} for c in calls)

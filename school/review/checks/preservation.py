"""CTO, preservation: what the task asks to keep is kept, and whatever could be loaded before still parses.

Always: a Python file that parsed at base, or is new, parses at head (judged by ruff's parser, which knows newer
grammar than the Python that runs us). With ``preserve: [ast]``: the same syntax tree, docstrings included (their
words, not their indentation). With ``preserve: [api]``: no public name or parameter lost (``public_api``).

``ast`` says nothing about other languages: changed sources of those make ``no_verdict``, because the task asked for
a proof that nobody here can give.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from school.contracts import CheckContext, CheckResult
from school.guarded import is_source, is_test
from school.review.checks.public_api import lost_api
from school.review.checks.ruff import run_ruff
from school.review.checks.work import LINK, Findings, Touched, Work

_PYTHON: Final = (".py", ".pyi", ".pyw")
# Scripts and queries have none; these have, and it is not read here.
_OTHER_INTERFACES: Final = (
    *(
        ".js",
        ".mjs",
        ".cjs",
        ".jsx",
        ".ts",
        ".tsx",
        ".mts",
        ".cts",
        ".go",
        ".rs",
        ".java",
        ".kt",
        ".scala",
        ".rb",
    ),
    *(".php", ".c", ".h", ".cc", ".cpp", ".hh", ".hpp", ".cs", ".swift", ".dart", ".ex", ".pyx", ".pxd"),
)
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(slots=True)
class Preservation:
    name: str = "preservation"
    lens: str = "CORRECTNESS"

    def __call__(self, context: CheckContext) -> CheckResult:
        work = Work.of(context)
        findings = Findings(self.name)
        result = CheckResult(self.name, self.lens)
        preserve = (context.bag.get("terms") or {}).get("preserve") or []
        broken = _syntax(findings, context, work)
        if "ast" in preserve:
            result.no_verdict = _trees(findings, work, broken)
        if "api" in preserve:
            unknown = _other_interfaces(work)
            unread = lost_api(findings, context, work, broken)
            result.no_verdict = result.no_verdict or unknown or unread
        result.findings = findings.done()
        return result


def _is_python(file: Touched) -> bool:
    return file.path.endswith(_PYTHON) and LINK not in (file.old_mode, file.new_mode)


def _syntax(findings: Findings, context: CheckContext, work: Work) -> set[str]:
    """Paths that no longer parse; test data may be broken on purpose."""
    suspects = {}
    for file in work.files:
        text = work.after(file) if _is_python(file) else None
        if text is not None and not _parses(text) and not _is_data(file.path):
            suspects[file.path] = file
    texts = {path: work.after(file) or "" for path, file in suspects.items()}
    before = {path: work.before(file) or "" for path, file in suspects.items()}
    broken, was_broken = _errors(context, texts), _errors(context, before)
    for path, (line, message) in broken.items():
        if path not in was_broken or suspects[path].new:
            findings.add(
                "CRITICAL",
                "syntax_error",
                f"{path} cannot be parsed: {message}.",
                f"{path}:{line}",
                "Make it valid again.",
            )
    return set(broken)


def _is_data(path: str) -> bool:
    return is_test(path) and not Path(path).name.startswith(("test_", "__init__", "conftest"))


def _parses(text: str) -> bool:
    return _tree(text) is not None


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _errors(context: CheckContext, texts: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """What ruff's parser says of each text: path to (line, message) of its first error."""
    found: dict[str, tuple[int, str]] = {}
    for row in run_ruff(context.scratch, texts, "--select", "E9"):
        if row["code"] in (None, "invalid-syntax", "E999"):
            found.setdefault(row["path"], (row["line"], row["message"]))
    return found


# --- syntax trees -----------------------------------------------------------------------------------------


def _trees(findings: Findings, work: Work, broken: set[str]) -> str:
    """Object to every Python file whose tree differs; says why where it cannot be told."""
    unknown: list[str] = []
    for file in work.files:
        if not _is_python(file):
            if is_source(file.path) and file.new_mode != LINK:
                unknown.append(file.path)
            continue
        if (file.new and is_test(file.path)) or file.path in broken:
            continue
        old, new = work.before(file), work.after(file)
        if old is None or new is None:
            what = "is new" if old is None else "is gone"
            findings.add(
                "HIGH",
                "ast_changed",
                f"{file.path} {what}; the task asks for the same syntax tree.",
                file.path,
            )
            continue
        left, right = _tree(old), _tree(new)
        if left is None or right is None:
            unknown.append(file.path)
            continue
        _compare(findings, file.path, left, right)
    return f"syntax trees of {', '.join(unknown[:5])} cannot be compared here" if unknown else ""


def _other_interfaces(work: Work) -> str:
    """Changed sources that have a public interface which nobody here can read."""
    changed = [
        f.path for f in work.files if not f.new and is_source(f.path) and f.path.endswith(_OTHER_INTERFACES)
    ]
    return f"the public interface of {', '.join(changed[:5])} cannot be compared here" if changed else ""


def _compare(findings: Findings, path: str, left: ast.Module, right: ast.Module) -> None:
    if dump(left) == dump(right):
        return
    old, new = _statements(left), _statements(right)
    line, shown = next(
        (
            (n.lineno if n is not None else o.lineno if o is not None else 1, _shown(o, n))
            for o, n in zip_longest(old, new)
            if _key(o) != _key(n)
        ),
        (1, "its structure"),
    )
    findings.add(
        "HIGH",
        "ast_changed",
        f"The syntax tree of {path} is another one; first at {shown}.",
        f"{path}:{line}",
        "Change layout only; take back what changes the meaning or a docstring.",
    )


def _statements(tree: ast.Module) -> list[ast.stmt]:
    """All statements in order, so that the first difference has a line."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _alone(node: ast.stmt) -> ast.stmt:
    """A statement without the blocks below it, which are statements of their own."""
    alone = copy.copy(node)
    for name in _BLOCKS:
        if hasattr(alone, name):
            setattr(alone, name, [])
    return alone


def _key(node: ast.stmt | None) -> str:
    return "" if node is None else dump(_alone(node))


def _shown(old: ast.stmt | None, new: ast.stmt | None) -> str:
    texts = [
        "nothing" if node is None else ast.unparse(_alone(node)).partition("\n")[0][:80]
        for node in (old, new)
    ]
    return f"{texts[0]!r}, now {texts[1]!r}"


def dump(tree: ast.AST) -> str:
    """A tree as text, without what layout may change: positions, a ``u`` prefix, the indentation of docstrings."""
    return ast.dump(_Normal().visit(copy.deepcopy(tree)))


class _Normal(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(value=node.value)

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        targets = [
            part
            for target in node.targets
            for part in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])
        ]
        return self.generic_visit(ast.Delete(targets=targets))

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._documented(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._documented(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._documented(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._documented(node)

    def _documented(self, node: Any) -> ast.AST:  # noqa: ANN401 - four kinds of node
        first = node.body[0] if node.body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            lines = [line.strip() for line in first.value.value.strip().splitlines()]
            first.value = ast.Constant(value="\n".join(lines))
        return self.generic_visit(node)

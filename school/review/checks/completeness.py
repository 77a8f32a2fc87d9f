"""COO, completeness: the answer is whole, nothing was left as a stub, and what hinders is named.

Stubs are found in the syntax tree of new or changed functions (a body of ``...``, an error that says so), with
the honest forms left alone: abstract methods, protocols, overloads, stub files, exception classes. Placeholders are
words in added lines. What stood at base, or merely moved, is not held against anybody.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from school.contracts import READ_ONLY_ROLES, CheckContext, CheckResult
from school.guarded import is_prose, is_source, is_test
from school.review.checks.work import Findings, News, Touched, Work, role_of

_CUT: Final = re.compile(r"\[… \d+ bytes and this line left out …\]")
_OPEN_ERROR: Final = "NotImplementedError"  # tidy: a word to look for
_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_OPEN: Final = frozenset(
    {"abstractmethod", "overload", "abstractproperty", "abstractclassmethod", "singledispatchmethod"}
)
_UNDONE: Final = re.compile(
    r"\b(?:TODO|FIXME|XXX)\b"  # tidy: words to look for
    r"[\s:()\w-]{0,20}\b(?:implement|finish|fill|complete|write|add|handle|replace|real)"
    r"|\bimplement(?:ation)?\s+(?:me|this|here|goes here|later)\b|\byour\s+code\s+(?:goes\s+)?here\b|\bnot\s+(?:yet\s+)?implemented(?:\s+yet)?\b"
    r"|\b(?:todo|unimplemented)!\s*\(|\blorem\s+ipsum\b|\bplaceholder\s+(?:implementation|value|for now|until|code|body)"
    r"|\b(?:dummy|stub|mock|fake)\s+implementation\b|\bfor\s+now,?\s+(?:just\s+)?(?:return|pass|do nothing|hard-?code)",
    re.IGNORECASE,
)
_ELIDED: Final = re.compile(
    r"^\s*(?:#|//|/\*|<!--|--|;)\s*(?:\.\.\.|…)?\s*\(?(?:the\s+)?(?:rest\s+of\s+(?:the\s+)?(?:\w+\s+){0,3}(?:unchanged|here|stays|remains|as before|same|code|file|function)"
    r"|(?:existing|previous|original|remaining|other|same)\s+(?:code|implementation|methods?|functions?|imports?|content)\b.{0,30}(?:\.\.\.|…|unchanged|here|remains?|as\s+before|same)"
    r"|unchanged\b.{0,20}$)",
    re.IGNORECASE,
)
_LATER: Final = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")  # tidy: words to look for
_CONFLICT: Final = re.compile(r"^(?:<{7} \S|>{7} \S|\|{7} \S)")
_NO_BLOCKER: Final = re.compile(r"^\W*(?:none|no|nothing|n/?a|-)?\W*$", re.IGNORECASE)
_HINDERED: Final = re.compile(
    r"\b(?:(?:was|am|is|were)\s+(?:not\s+able|unable)\s+to|could\s*(?:n't|\s+not)|cannot|can't|did\s*(?:n't|\s+not)\s+(?:manage|finish|complete|get)"
    r"|left\s+(?:undone|unfinished|for\s+later)|still\s+(?:fails?|failing|missing|to\s+do)|not\s+(?:yet\s+)?(?:done|finished|complete))\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Completeness:
    name: str = "completeness"
    lens: str = "COMPLETENESS"

    def __call__(self, context: CheckContext) -> CheckResult:
        work = Work.of(context)
        findings = Findings(self.name)
        _answer(findings, context)
        _blockers(findings, context)
        news = News(work)
        for file in work.files:
            if not file.gone and file.new_mode[:3] == "100" and not work.binary(file):
                _placeholders(findings, work, file, news)
                _stubs(findings, context, work, file)
        return CheckResult(self.name, self.lens, findings.done())


def _answer(findings: Findings, context: CheckContext) -> None:
    """A read-only student's answer is its work and must be whole; for others the output is only a record."""
    cut = _CUT.search(str(context.bag.get("output") or ""))
    if not cut:
        return
    work_itself = role_of(context.bag) in READ_ONLY_ROLES
    findings.add(
        "HIGH" if work_itself else "LOW",
        "output_cut",
        "The output is longer than 64 KiB; the bookbag holds its head and its tail.",
        "output",
        "Answer within 64 KiB." if work_itself else "",
    )


def _blockers(findings: Findings, context: CheckContext) -> None:
    if (context.bag.get("claim") or "done") != "done":
        return
    named = [str(b) for b in context.bag.get("blockers") or [] if not _NO_BLOCKER.match(str(b))]
    if named:
        findings.add(
            "MEDIUM", "blockers_left", f"The claim is done, with blockers named: {named[0][:200]}", "blockers"
        )
        return
    hindered = _HINDERED.search(str(context.bag.get("summary") or ""))
    if hindered:
        findings.add(
            "MEDIUM",
            "unnamed_blocker",
            f"The summary says {hindered[0]!r}, and no blocker is named.",
            "summary",
            "Name what hindered the work as a blocker, or claim blocked.",
        )


def _placeholders(findings: Findings, work: Work, file: Touched, news: News) -> None:
    for number, line in work.added.get(file.path, ()):
        if not news(line):
            continue
        at = f"{file.path}:{number}"
        if _CONFLICT.match(line):
            findings.add(
                "HIGH",
                "conflict_marker",
                "An added line is a mark of an unresolved merge.",
                at,
                "Resolve it.",
            )
        if not is_source(file.path) or len(line) > 1000:  # noqa: PLR2004 - no hand wrote that
            continue
        if _ELIDED.search(line):
            findings.add(
                "HIGH",
                "elided_code",
                f"Code was left out: {line.strip()[:120]!r}.",
                at,
                "Write the file whole.",
            )
        elif _UNDONE.search(_remark(line)):
            findings.add(
                "HIGH",
                "placeholder",
                f"An added line says that work is left: {line.strip()[:120]!r}.",
                at,
                "Do it.",
            )
        elif _LATER.search(_remark(line)):
            findings.add(
                "MEDIUM",
                "placeholder",
                f"An added line puts something off: {line.strip()[:120]!r}.",
                at,
                "Do it now.",
            )


def _remark(line: str) -> str:
    """What a line says to readers: its comment or its strings; code alone says nothing of the kind, macros do."""
    found = re.findall(
        r"(?:#|//|/\*|<!--|^\s*\*|--\s).*$|\"[^\"]*\"|'[^']*'|`[^`]*`|\b(?:todo|unimplemented)!\s*\(", line
    )
    quoted = re.match(r"\s*(?:[A-Z][a-z].*|TODO.*|FIXME.*)$", line)  # tidy: words to look for
    return " ".join([*found, *([line] if quoted else [])])


# --- stubs ------------------------------------------------------------------------------------------------


def _stubs(findings: Findings, context: CheckContext, work: Work, file: Touched) -> None:
    text = work.after(file)
    if text is None or not file.path.endswith(".py") or is_test(file.path) or is_prose(file.path):
        return
    known = {(name, kind) for name, kind, _ in stubs(work.before(file) or "")}
    everywhere = {
        (name.rpartition(".")[2], kind)
        for other in work.files
        if other.path.endswith(".py") and other.path != file.path
        for name, kind, _ in stubs(work.before(other) or "")
    }
    task = str(context.bag.get("task") or "") + " ".join(
        str(c.get("text")) for c in context.bag.get("acceptance") or []
    )
    for name, kind, line in stubs(text):
        short = name.rpartition(".")[2]
        if (name, kind) in known or (short, kind) in everywhere:
            continue
        asked = re.search(rf"\b{re.escape(short)}\b", task) is not None
        findings.add(
            "HIGH" if asked or kind != "empty" else "MEDIUM",
            "stub",
            f"{name} has no body" + (", and the task asks for it." if asked else f" ({kind})."),
            f"{file.path}:{line}",
            "Write it, or leave it out.",
        )


def stubs(text: str) -> list[tuple[str, str, int]]:
    """Functions of *text* without a body of their own: (qualified name, kind, line)."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    overridden = _overridden(tree)
    return [row for row in _walk(tree.body, "", in_open_class=False) if row[0] not in overridden]


def _walk(body: list[ast.stmt], prefix: str, *, in_open_class: bool) -> Iterator[tuple[str, str, int]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            opens = (
                in_open_class
                or any(
                    ast.unparse(base).partition("[")[0].rpartition(".")[2] in {"Protocol", "ABC"}
                    for base in [*node.bases]
                )
                or any("ABCMeta" in ast.unparse(k.value) for k in node.keywords)
            )
            yield from _walk(node.body, f"{prefix}{node.name}.", in_open_class=opens)
        elif isinstance(node, _FUNCTION):
            kind = _stub_kind(node)
            if kind and not in_open_class and not _declared_open(node):
                yield prefix + node.name, kind, node.lineno
            yield from _walk(node.body, f"{prefix}{node.name}.", in_open_class=False)
        elif isinstance(node, (ast.If, ast.Try, ast.With)) and "TYPE_CHECKING" not in _test_of(node):
            yield from _walk(node.body, prefix, in_open_class=in_open_class)


def _test_of(node: ast.stmt) -> str:
    return ast.unparse(node.test) if isinstance(node, ast.If) else ""


def _declared_open(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {ast.unparse(d).partition("(")[0].rpartition(".")[2] for d in node.decorator_list}
    return bool(names & _OPEN)


def _stub_kind(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    body = [
        s
        for s in node.body
        if not (
            isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str)
        )
    ]
    if len(body) > 1:
        return ""
    if not body or isinstance(body[0], ast.Pass):
        return "empty" if not node.name.startswith("__") else ""
    only = body[0]
    if isinstance(only, ast.Expr) and isinstance(only.value, ast.Constant) and only.value.value is Ellipsis:
        return "an ellipsis"
    if isinstance(only, ast.Raise) and only.exc is not None:
        raised = only.exc.func if isinstance(only.exc, ast.Call) else only.exc
        return _OPEN_ERROR if ast.unparse(raised) == _OPEN_ERROR else ""
    return ""


def _overridden(tree: ast.Module) -> set[str]:
    """Methods that a subclass in the same file defines: the base's empty one is its open place."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found: set[str] = set()
    for node in classes.values():
        for base in node.bases:
            name = ast.unparse(base)
            if name in classes:
                found |= {f"{name}.{child.name}" for child in node.body if isinstance(child, _FUNCTION)}
    return found

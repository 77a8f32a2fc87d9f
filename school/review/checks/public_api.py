"""The public interface of the changed packages, base against head, without importing any of it.

Both sides are written out from git below the teacher's scratch folder and loaded statically by griffe. Judged are
the packages and top-level modules that hold a changed file, tests left out. Lost is: a public name, a parameter, a
parameter's place or its default; a name that ``__all__`` no longer lists; a name that an ``__init__.py`` took over from
its own package and no longer does (griffe counts such a name as private where ``__all__`` is absent; users do not).

Known limits: what is made at run time (``__getattr__``, ``setattr``, ``globals()``) is not seen; changed types of
return values and attributes are not judged.
"""

from __future__ import annotations

import ast
import contextlib
import io
import logging
import posixpath
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from school.contracts import CheckContext, Severity
from school.guarded import is_guarded, is_test, words
from school.review.checks.work import Findings, Work, list_tree, read_blobs
from school.system import files

if TYPE_CHECKING:
    import griffe

_ASIDE: Final = words("docs doc examples example benchmarks benchmark scripts tools ci")
_SEVERITY: Final[dict[str, Severity]] = {
    "OBJECT_REMOVED": "HIGH",
    "OBJECT_CHANGED_KIND": "HIGH",
    "PARAMETER_REMOVED": "HIGH",
    "PARAMETER_MOVED": "HIGH",
    "PARAMETER_CHANGED_KIND": "HIGH",
    "PARAMETER_ADDED_REQUIRED": "HIGH",
    "PARAMETER_CHANGED_REQUIRED": "HIGH",
    "PARAMETER_CHANGED_DEFAULT": "MEDIUM",
    "CLASS_REMOVED_BASE": "MEDIUM",
}


def lost_api(findings: Findings, context: CheckContext, work: Work, broken: set[str]) -> str:
    """Object to everything public that is lost; gives the reason where that could not be judged."""
    before, after = list_tree(work.git, work.base), list_tree(work.git, work.head)
    changed = [
        f for f in work.files if not f.new and f.path.endswith((".py", ".pyi")) and not is_test(f.path)
    ]
    roots = sorted({root for f in changed if (root := _root(f.path, before)) and f.path not in broken})
    if not roots:
        return ""
    files.ensure_dir(context.scratch)
    folder = Path(tempfile.mkdtemp(prefix="api-", dir=context.scratch))
    try:
        for side, tree in (("base", before), ("head", after)):
            _write(work, tree, roots, folder / side)
        with _quiet():
            for root in roots:
                _judge(findings, folder, root, broken)
    except (SyntaxError, RecursionError, OSError, ImportError, AttributeError, KeyError, ValueError) as cause:
        # griffe reads what it was never asked about; what it cannot read is nobody's fault and no proof either.
        return f"the public interface could not be read: {type(cause).__name__}: {cause}"
    finally:
        files.remove_tree(folder)
    return ""


def _root(path: str, tree: Mapping[str, tuple[str, str]]) -> str:
    """The top-level package (a folder) or module (a file) that *path* belongs to; '' if it is nobody's interface."""
    parts = path.split("/")
    if any(part.lower() in _ASIDE for part in parts[:-1]) or is_guarded(path):
        return ""
    for depth in range(1, len(parts)):
        folder = "/".join(parts[:depth])
        if f"{folder}/__init__.py" in tree or f"{folder}/__init__.pyi" in tree:
            return folder
    # A loose module counts where users find it: in the root, or directly in src or lib.
    return path if posixpath.dirname(path) in ("", "src", "lib", "python") else ""


def _write(work: Work, tree: Mapping[str, tuple[str, str]], roots: list[str], folder: Path) -> None:
    """The Python files of *roots* as plain files; links are left out."""
    wanted = {
        path: oid
        for path, (mode, oid) in tree.items()
        if mode[:3] == "100"
        and path.endswith((".py", ".pyi"))
        and any(path == r or path.startswith(f"{r}/") for r in roots)
    }
    blobs = read_blobs(work.git, sorted(set(wanted.values())))
    for path, oid in wanted.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_readable(blobs.get(oid, b""), path))


def _readable(raw: bytes, path: str) -> bytes:
    """Test packages are emptied: their names are nobody's interface, and they may hold broken files on purpose."""
    return b"" if is_test(path) else raw


def _judge(findings: Findings, folder: Path, root: str, broken: set[str]) -> None:
    import griffe

    old = _load(folder / "base", root)
    if not _there(folder / "head", root):
        findings.add(
            "HIGH", "api_lost", f"{root} is gone.", root, "Keep the module where its users import it."
        )
        return
    new = _load(folder / "head", root)
    for breakage in griffe.find_breaking_changes(old, new):
        severity = _SEVERITY.get(breakage.kind.name)
        path = _path(breakage.obj, folder)
        if severity is None or is_test(path) or path in broken or _only_object(breakage):
            continue
        _tell(findings, breakage, severity, folder)
    for module in _modules(folder / "base" / root):
        _names(findings, folder, module.relative_to(folder / "base").as_posix())


def _only_object(breakage: griffe.Breakage) -> bool:
    """``class A(object)`` and ``class A`` are the same class."""
    if breakage.kind.name != "CLASS_REMOVED_BASE":
        return False
    return [str(base) for base in breakage.old_value or ()] == ["object"]


def _there(folder: Path, root: str) -> bool:
    return (folder / root).exists()


def _load(folder: Path, root: str) -> griffe.Object | griffe.Alias:
    import griffe

    module = posixpath.basename(root).removesuffix(".py").removesuffix(".pyi")
    return griffe.load(
        module,
        search_paths=[folder / posixpath.dirname(root)],
        allow_inspection=False,
        try_relative_path=False,
        resolve_aliases=True,
        resolve_external=False,
        modules_collection=griffe.ModulesCollection(),
        lines_collection=griffe.LinesCollection(),
    )


def _path(obj: griffe.Object | griffe.Alias, folder: Path) -> str:
    with contextlib.suppress(ValueError, AttributeError, KeyError):
        filepath = obj.filepath
        for side in ("base", "head"):
            if isinstance(filepath, Path) and filepath.is_relative_to(folder / side):
                return filepath.relative_to(folder / side).as_posix()
    return ""


def _tell(findings: Findings, breakage: griffe.Breakage, severity: Severity, folder: Path) -> None:
    obj = breakage.obj
    parameter = getattr(breakage.old_value or breakage.new_value, "name", "")
    what = breakage.kind.value + (
        f" ({parameter})" if parameter and "PARAMETER" in breakage.kind.name else ""
    )
    findings.add(
        severity,
        "api_lost" if severity == "HIGH" else "api_changed",
        f"{obj.path}: {what}.",
        f"{_path(obj, folder)}:{getattr(obj, 'lineno', None) or 1}",
        "Keep public names and parameters; add new ones beside them.",
    )


# --- names that packages take over ------------------------------------------------------------------------


def _modules(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
    else:
        yield from sorted(path for path in root.rglob("*.py") if path.is_file())


def _names(findings: Findings, folder: Path, path: str) -> None:
    """Names of ``__all__``, and names that a package took over from itself, which are gone at head."""
    if is_test(path):
        return
    target = folder / "head" / path
    old, new = _parse(folder / "base" / path), _parse(target) if target.exists() else None
    if old is None or new is None:
        return
    lost = _all(old) - _all(new) if _all(new) or _all(old) else set()
    if posixpath.basename(path) == "__init__.py" and not _all(old):
        top = path.split("/")[-2] if "/" in path else ""
        lost |= {name for name in _taken_over(old, top) if name not in _bound(new)}
    for name in sorted(lost):
        findings.add(
            "HIGH",
            "api_lost",
            f"{path} no longer offers the name {name}.",
            path,
            "Keep the import, and list the name in __all__ if a tool wants to remove it.",
        )


def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None


def _all(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, (ast.AugAssign, ast.AnnAssign))
            else []
        )
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            value = getattr(node, "value", None)
            names |= (
                {c.value for c in ast.walk(value) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
                if value
                else set()
            )
    return names


def _taken_over(tree: ast.Module, package: str) -> set[str]:
    """Public names that are imported from the package itself."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (
            node.level or (node.module or "").partition(".")[0] == package
        ):
            names |= {a.asname or a.name for a in node.names if a.name != "*"}
    return {name for name in names if not name.startswith("_")}


def _bound(tree: ast.Module) -> set[str]:
    """Every name that the module's own statements bind, and ``*`` imports' as a blessing for all."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Griffe tells of everything it cannot resolve; that is no news here."""
    logger = logging.getLogger("griffe")
    before = logger.disabled
    logger.disabled = True
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.disabled = before

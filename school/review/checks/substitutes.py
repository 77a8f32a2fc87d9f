"""Files that are loaded in place of what they seem to stand beside, or by themselves.

A module in the root, in ``src`` or among loose tests that has the name of one of Python's or of a test tool's; compiled
code, which wins over a source and cannot be read; ``sitecustomize.py``, ``.pth`` files and packages' metadata.
"""

from __future__ import annotations

import posixpath
import re
import sys
from typing import Final

from school.guarded import STARTUP, is_guarded, is_test, words
from school.review.checks.work import SUBMODULE, Findings, Touched, Work, list_tree

# A module of such a name beside the tests or in the root is taken for the real one by `python -m`.
_RUNNER_MODULES: Final = words(
    "pytest _pytest pluggy iniconfig packaging unittest coverage tox nox nose nose2 hypothesis xdist pytest_timeout"
    " ruff mypy flake8 pylint codespell_lib doctest mock freezegun py"
)
_STDLIB: Final = sys.stdlib_module_names - {"test", "this", "antigravity", "__main__"}
_COMPILED: Final = re.compile(r"\.(?:so|pyd|dll|dylib|pyc|pyo)$", re.IGNORECASE)
_PYC_FLAGS: Final = slice(4, 8)


def loaded_instead(findings: Findings, work: Work, file: Touched) -> None:
    """New files that Python or a test runner loads by itself, or in place of something else."""
    if file.gone or file.new_mode == SUBMODULE:
        return
    if _COMPILED.search(file.path):
        _compiled(findings, work, file)
    elif file.new:
        _named_like(findings, work, file)


def _named_like(findings: Findings, work: Work, file: Touched) -> None:
    head, _, name = file.path.rpartition("/")
    module = posixpath.basename(head) if name == "__init__.py" else name.removesuffix(".py")
    folder = posixpath.dirname(head) if name == "__init__.py" else head
    shadows = name.endswith(".py") and module in _RUNNER_MODULES | _STDLIB and _on_path(work, folder)
    if shadows:
        findings.add(
            "HIGH",
            "shadows_module",
            f"{file.path} is found in place of the real module {module} by whatever runs the tests.",
            file.path,
            "Choose a name that no module of Python or of a test tool has.",
        )
    if is_guarded(file.path) == STARTUP and not name.startswith(".env"):
        findings.add(
            "HIGH", "result_from_outside", f"{file.path} is loaded by itself, before any test.", file.path
        )


def _on_path(work: Work, folder: str) -> bool:
    """Whether modules directly in *folder* are found as top-level ones: the root, src, or a folder of loose tests."""
    if folder in ("", "src", "lib"):
        return True
    return is_test(f"{folder}/x") and f"{folder}/__init__.py" not in list_tree(work.git, work.head)


def _compiled(findings: Findings, work: Work, file: Touched) -> None:
    """A ``.pyc`` that Python believes without looking at its source, or a native module beside a source."""
    raw = work.blobs.get(file.new_oid, b"")
    cached = "/__pycache__/" in f"/{file.path}" and file.path.lower().endswith(".pyc")
    if cached and raw[_PYC_FLAGS] == b"\0\0\0\0":
        findings.add(
            "MEDIUM",
            "compiled_file",
            f"{file.path} is a left-over of running Python.",
            file.path,
            "Take it out of the change.",
        )
        return
    findings.add(
        "CRITICAL" if cached else "HIGH",
        "compiled_file",
        f"{file.path} is compiled code, which is loaded in place of a source and cannot be read here.",
        file.path,
        "Deliver sources only.",
    )

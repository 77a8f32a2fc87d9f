"""Where the interpreter of a test command would take a package from: this tree, or somewhere else.

``elsewhere(bench, argv, paths) -> {path: origin}``: of changed Python files, those whose package is found outside the
worktree or in one of its kept folders (an installed copy). A file that no test notices may merely be untested; if
its package comes from elsewhere, the tests could not have noticed. Nothing is imported: the finder is only asked.

What it does not promise: to know what a test's own changes of ``sys.path`` do. Where nothing is found, or the
command runs no Python that is known, nothing is said.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from school.verification import commands as argvs
from school.verification.bench import Bench

_TIMEOUT_S: Final = 20.0
_ROOTS: Final = ("src", "lib", "python")
_QUESTION: Final = """
import importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        continue
    if spec is not None:
        places = list(spec.submodule_search_locations or [])
        found[name] = ([spec.origin] if spec.has_location else []) + places
print("\\nORIGINS " + json.dumps(found))
"""


def package_of(path: str) -> str:
    """The top-level name under which a file would be imported."""
    parts = PurePosixPath(path).with_suffix("").parts
    parts = parts[1:] if len(parts) > 1 and parts[0] in _ROOTS else parts
    return parts[0]


def _interpreter(argv: Sequence[str]) -> list[str]:
    """The words of *argv* up to its interpreter; behind a script such as pytest that is the PATH's."""
    what = argvs.recognise(argv)
    if what.runner == "other":
        return []
    before = list(argv[: what.program])
    return [*before, argv[what.program]] if what.module >= 0 else [*before, "python3"]


def elsewhere(bench: Bench, argv: Sequence[str], paths: Sequence[str]) -> dict[str, str]:
    """Those of *paths* whose package the command's interpreter finds only outside this tree, and where."""
    interpreter = _interpreter(argv)
    names = {path: package_of(path) for path in paths if path.endswith(".py")}
    if not interpreter or not names:
        return {}
    question = [*interpreter, "-c", _QUESTION, *sorted(set(names.values()))]
    run = bench.run(question, timeout_s=_TIMEOUT_S, check="wrong_tree")
    lines = [line for line in run.output.splitlines() if line.startswith("ORIGINS ")]
    try:
        found = json.loads(lines[-1].removeprefix("ORIGINS ")) if run.outcome == "passed" and lines else {}
    except ValueError:
        found = {}
    outside = {name: places[0] for name, places in found.items() if places and not _any_inside(bench, places)}
    return {path: outside[name] for path, name in names.items() if name in outside}


def _any_inside(bench: Bench, places: Sequence[str]) -> bool:
    root = Path(os.path.realpath(bench.context.worktree))
    kept = [root / name for name in bench.environment.place.keep]
    for place in places:
        path = Path(os.path.realpath(place))
        if path.is_relative_to(root) and not any(path.is_relative_to(folder) for folder in kept):
            return True
    return False

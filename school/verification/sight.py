"""Whether the test commands see this tree at all, and whether they notice that a changed file cannot load.

``sees_tree(bench, baselines) -> Sight``: at base, every source file unloadable, some test command must fail that passes
otherwise; where it names its tests, one that lies in a test file. Once per environment, base tree and commands, and
kept like a baseline. If nothing notices, the tests look at another tree (an installed copy, the user's own
checkout) or at none (``true``), and a pass of theirs shows nothing.

``unnoticed(bench, baselines, paths) -> Noticed``: at head, with changed files unloadable: all at once first, since
that answers most cases, then each alone, within a budget unless ``every``; whatever was not tried is named, never assumed.

What it does not promise: that a test which notices also *checks* what the file does.
Errors: those of ``bench``, and MachineError of ``spoil``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from school.contracts import Receipt, Record
from school.guarded import is_source, is_test
from school.system import clock, files
from school.verification import commands as argvs
from school.verification.baselines import Baseline, Baselines, limit_s
from school.verification.bench import Bench
from school.verification.origin import elsewhere, package_of
from school.verification.runner import CheckRun
from school.verification.spoil import spoil, spoilable

# How many changed files are tried alone, and for how long. Where every one has to be exercised, all are.
SINGLE_PROBES_MAX: Final = 24
PROBE_BUDGET_S: Final = 30.0
SHOWN_CHARS: Final = 500
# So few tests may fail by chance; then the answer is asked for twice.
FEW: Final = 2

How = Literal["load", "parse"]


class Sight(Record):
    """Whether the commands saw the tree at base. ``unknown`` says why that could not be asked; ``only_lint`` that no
    test command is declared, and what reads the sources had to do.
    """

    seen: bool = False
    unknown: str = ""
    only_lint: bool = False
    receipts: list[Receipt] = Field(default_factory=list)


@dataclass(slots=True)
class Noticed:
    """Changed files that no test command noticed, those of unknown languages, and those there was no time for.

    ``elsewhere`` maps unnoticed files to where the tests' interpreter takes their package from instead.
    """

    unnoticed: list[str] = field(default_factory=list)
    no_spoiler: list[str] = field(default_factory=list)
    not_tried: list[str] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)


def sources(paths: Sequence[str], commands: Sequence[Sequence[str]]) -> list[str]:
    """The source files that can be spoiled: not tests or configuration, and nothing that a command itself names."""
    named = {word.removeprefix("./") for argv in commands for word in argv}
    return [path for path in paths if is_source(path) and spoilable(path) and path not in named]


def _is_of_tests(name: str, modules: frozenset[str]) -> bool:
    """Whether a test's id lies in a test file: a doctest in a source file fails for itself alone."""
    return any(name.startswith((f"{module}.", f"{module}::")) for module in modules)


def _test_modules(tracked: Sequence[str]) -> frozenset[str]:
    found = set()
    for path in tracked:
        if is_test(path) and path.endswith(".py"):
            parts = path.removesuffix(".py").split("/")
            found |= {".".join(parts[start:]) for start in range(len(parts))}
    return frozenset(found)


def lost(base: Baseline, spoiled: CheckRun, modules: frozenset[str]) -> set[str]:
    """What passes at base and not with the sources spoiled; of tests in test files where there are any."""
    if spoiled.outcome == "not_run":
        return set()
    after = spoiled.tests_by_name or {}
    if base.tests is None or spoiled.tests_by_name is None:
        return set() if spoiled.outcome == "passed" else base.passed - set(base.unsteady)
    steady = base.passed - set(base.unsteady)
    ours = {name for name in steady if _is_of_tests(name, modules)} or steady
    return {name for name in ours if after.get(name) != "passed"}


# --- does anything see this tree --------------------------------------------------------------------------


def _path(bench: Bench, commands: Sequence[Sequence[str]]) -> Path:
    what = [bench.tree("base"), list(commands), bench.environment.fingerprint("base")]
    digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:40]
    return bench.context.baselines / f"base-{digest}-sight.json"


def sees_tree(bench: Bench, baselines: Baselines) -> Sight:
    """The kept answer for this environment and base, or a new one."""
    path = _path(bench, baselines.commands)
    try:
        kept = files.read_json(path)
        if kept is not None:
            sight = Sight.model_validate(kept)
            for receipt in sight.receipts:
                receipt.cached = True
            return sight
    except ValueError:
        path.unlink(missing_ok=True)
    sight = _look(bench, baselines)
    if not sight.unknown:
        files.ensure_dir(bench.context.baselines)
        files.write_json(path, sight.model_dump(mode="json"))
    return sight


def _look(bench: Bench, baselines: Baselines) -> Sight:
    pairs = list(zip(baselines.commands, baselines.found, strict=True))
    tests = [pair for pair in pairs if argvs.kind_of(pair[0]) == "test"]
    only_lint = not tests
    asked = [baseline for _, baseline in tests or pairs if baseline.passed]
    if not asked:
        return Sight(unknown="nothing passes at base, so nothing can be seen to fail", only_lint=only_lint)
    tracked = sorted(bench.environment.tracked("base"))
    paths = sources(tracked, baselines.commands)
    if not paths:
        return Sight(unknown="no source file of a language with a known spoiler", only_lint=only_lint)
    modules = _test_modules(tracked)
    how: How = "parse" if only_lint else "load"
    first = _spoiled(bench, baselines, "base", paths, how)
    names = _lost_names(asked, first, modules)
    if 0 < len(names) <= FEW and sum(len(baseline.passed) for baseline in asked) > FEW:
        second = _spoiled(bench, baselines, "base", paths, how)
        names &= _lost_names(asked, second, modules)
    return Sight(seen=bool(names), only_lint=only_lint, receipts=spoiled_receipts(first))


def spoiled_receipts(runs: Sequence[CheckRun]) -> list[Receipt]:
    """What ran, short; ``tree`` is empty, since what stood there was no tree of anybody's."""
    short = {"tree": "", "check": "wrong_tree"}
    return [
        Receipt.model_validate({**run.model_dump(), **short, "output": run.output[-SHOWN_CHARS:]})
        for run in runs
    ]


def _lost_names(asked: Sequence[Baseline], runs: Sequence[CheckRun], modules: frozenset[str]) -> set[str]:
    by_argv = {tuple(run.argv): run for run in runs}
    names: set[str] = set()
    for baseline in asked:
        run = by_argv.get(tuple(baseline.receipt.argv))
        if run is not None:
            names |= {f"{' '.join(run.argv)}: {name}" for name in lost(baseline, run, modules)}
    return names


def _spoiled(
    bench: Bench,
    baselines: Baselines,
    side: Literal["base", "head"],
    paths: Sequence[str],
    how: How,
    *,
    fail_fast: bool = False,
) -> list[CheckRun]:
    """Every command in order with *paths* spoiled at *side*."""
    bench.go(side)
    runs = []
    with spoil(bench.context.worktree, paths, how):
        for argv, baseline in zip(baselines.commands, baselines.found, strict=True):
            timeout_s = limit_s(baseline, bench.terms.verify_timeout_s)
            run = bench.run(argv, timeout_s=timeout_s, check="wrong_tree", fail_fast=fail_fast)
            runs.append(run)
            if fail_fast and argvs.kind_of(argv) == "test" and baseline.green and run.outcome != "passed":
                break
    return runs


# --- is a changed file exercised --------------------------------------------------------------------------


def unnoticed(bench: Bench, baselines: Baselines, paths: Sequence[str], *, every: bool = False) -> Noticed:
    """Which of *paths* (present at head) no test command notices when they cannot load."""
    named = {word.removeprefix("./") for argv in baselines.commands for word in argv}
    wanted = [path for path in paths if is_source(path) and path not in named]
    result = Noticed(no_spoiler=[path for path in wanted if not spoilable(path)])
    probed = [path for path in wanted if spoilable(path)]
    if not probed:
        return result
    if not _notices(bench, baselines, probed, result):
        result.unnoticed = probed
    elif len(probed) > 1:
        _one_by_one(bench, baselines, probed, result, every=every)
    if result.unnoticed:
        _from_elsewhere(bench, baselines, result)
    return result


def _from_elsewhere(bench: Bench, baselines: Baselines, result: Noticed) -> None:
    """Which unnoticed files belong to a package that the tests take from elsewhere: its interpreter finds it there, and
    no test notices either when all of the package in this tree is unloadable (a test may set its own path).
    """
    bench.go("head")
    found: dict[str, str] = {}
    for argv in baselines.commands:
        found |= elsewhere(bench, argv, result.unnoticed)
    tracked = sources(sorted(bench.environment.tracked("head")), baselines.commands)
    for package in sorted({package_of(path) for path in found}):
        whole = [path for path in tracked if package_of(path) == package]
        if not _notices(bench, baselines, whole, result):
            result.elsewhere |= {path: at for path, at in found.items() if package_of(path) == package}


def _one_by_one(
    bench: Bench, baselines: Baselines, paths: Sequence[str], result: Noticed, *, every: bool
) -> None:
    deadline = clock.monotonic() + PROBE_BUDGET_S
    for index, path in enumerate(paths):
        if not every and (index >= SINGLE_PROBES_MAX or clock.monotonic() >= deadline):
            result.not_tried = list(paths[index:])
            break
        if not _notices(bench, baselines, [path], result):
            result.unnoticed.append(path)


def _notices(bench: Bench, baselines: Baselines, paths: Sequence[str], result: Noticed) -> bool:
    """Whether any test command does worse at head with *paths* unloadable than at base."""
    tests = [baseline for baseline in baselines.found if argvs.kind_of(baseline.receipt.argv) == "test"]
    green = all(baseline.green for baseline in tests)
    runs = _spoiled(bench, baselines, "head", paths, "load", fail_fast=green)
    noticed = _do_worse(tests, runs)
    if not noticed or not result.receipts:
        result.receipts += spoiled_receipts(runs)
    return noticed


def _do_worse(tests: Sequence[Baseline], runs: Sequence[CheckRun]) -> bool:
    by_argv = {tuple(run.argv): run for run in runs}
    for baseline in tests:
        run = by_argv.get(tuple(baseline.receipt.argv))
        if run is None:
            continue
        if baseline.green and run.outcome not in ("passed", "not_run"):
            return True
        if not baseline.green and lost(baseline, run, frozenset()):
            return True
    return False

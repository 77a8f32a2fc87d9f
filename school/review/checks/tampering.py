"""CTO, tampering: tests deleted, skipped or weakened, and results made from outside the tests.

It reads tests, conftest files, test settings and sources on both sides, and objects to what is new. Where guarded
files changed, also those that ``allow`` names, and where tests are new, the base's version of them is run on the new
code: whoever may edit tests may still not edit them until they agree. A base test that then fails is an objection unless ``allow`` names
its very file; then it is told (``expectation_changed``) and the task's author decides.

Known limits: an assertion that still stands but asks less is only seen where the base's tests run; what a test
imports from untouched helpers is not followed.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from school.contracts import CheckContext, CheckResult, Receipt
from school.guarded import BUILD, STARTUP, TEST, TEST_CONFIG, TOOL_CONFIG, is_guarded, is_test, named
from school.review.checks import commands
from school.review.checks.outside import interferences, quiet_conftest
from school.review.checks.scope import allow_of, commands_of, judging_scripts
from school.review.checks.seams import OpenBench, detail_of, tests_by_name, was_cancelled
from school.review.checks.settings_compared import Setting, changed_settings
from school.review.checks.standing import Standing
from school.review.checks.substitutes import loaded_instead
from school.review.checks.suppressed import suppressed
from school.review.checks.tests_compared import TestFile, TestUnit, examples, other_tests, python_tests
from school.review.checks.work import LINK, Findings, Touched, Work


@dataclass(slots=True)
class Tampering:
    bench: OpenBench
    name: str = "tampering"
    lens: str = "CORRECTNESS"

    def __call__(self, context: CheckContext) -> CheckResult:
        work = Work.of(context)
        findings = Findings(self.name)
        _tests(findings, context, work)
        for file in work.files:
            _outside(findings, work, file)
            _settings(findings, context, work, file)
            loaded_instead(findings, work, file)
        suppressed(findings, context, work)
        _examples(findings, work)
        result = CheckResult(self.name, self.lens)
        self._old_tests_on_new_code(findings, context, work, result)
        result.findings = findings.done()
        return result

    # --- the base's version of what guards, on the new code ------------------------------------------------

    def _old_tests_on_new_code(
        self, findings: Findings, context: CheckContext, work: Work, result: CheckResult
    ) -> None:
        """Run the repository's own commands with the guarded files of base, and compare with base by test."""
        verify = [list(argv) for argv in (context.bag.get("terms") or {}).get("verify") or []]
        judges = judging_scripts(context, work)
        restore = [
            f.path
            for f in work.files
            if not f.new and (_decides(f.path) or f.path in judges or _runs(verify, f.path))
        ]
        # New tests too: a module that is loaded beside the old ones can change what those see.
        drop = [f.path for f in work.files if f.new and _decides(f.path)]
        if not verify or not (restore or drop):
            return
        for argv in verify:
            receipts = self._both(context, argv, restore, drop)
            result.receipts += receipts
            last = receipts[-1]
            if any(map(was_cancelled, receipts)) or (
                last.at == "base" and last.outcome in ("not_run", "timed_out")
            ):
                result.no_verdict = f"{' '.join(argv)} could not be run at base: {detail_of(last)}"
                return
            _judge_old_tests(findings, context, argv, receipts, restore, drop)

    def _both(
        self, context: CheckContext, argv: list[str], restore: list[str], drop: list[str]
    ) -> list[Receipt]:
        """Head with the files of base; where that does not pass twice, since a test may fail now and then, base last."""
        limit_s = float((context.bag.get("terms") or {}).get("verify_timeout_s") or 600.0)
        runs: list[Receipt] = []
        with Standing.on(context, self.bench) as stand:

            def at_head(timeout_s: float) -> bool:
                stand.at("head", base=restore, drop=drop)
                runs.append(stand.run(argv, timeout_s=timeout_s, check=f"{self.name}: base's tests at head"))
                return runs[-1].outcome == "passed" or was_cancelled(runs[-1])

            if at_head(limit_s) or (runs[0].outcome != "timed_out" and at_head(limit_s)):
                return runs
            stand.at("base")
            base = stand.run(argv, timeout_s=limit_s, check=f"{self.name}: at base")
            if len(runs) == 1:  # It may only be slow.
                at_head(max(limit_s, 10 * base.duration_s))
            return [*runs, base]


def _decides(path: str) -> bool:
    return is_guarded(path) in (TEST, TEST_CONFIG, BUILD, TOOL_CONFIG, STARTUP)


def _runs(verify: list[list[str]], path: str) -> bool:
    return any(path in commands.programs(argv, [path]) for argv in verify)


def _judge_old_tests(
    findings: Findings,
    context: CheckContext,
    argv: list[str],
    receipts: list[Receipt],
    restored: list[str],
    dropped: list[str],
) -> None:
    runs = [receipt for receipt in receipts if receipt.at == "head"]
    base, head = receipts[-1], runs[-1]
    if len(runs) == len(receipts) or head.outcome == "passed":
        return
    if base.outcome in ("failed", "no_tests") and tests_by_name(base) is None:
        return
    before, after = tests_by_name(base), tests_by_name(head)
    broken = []
    if before is not None and after is not None:
        sides = [side for run in runs if (side := tests_by_name(run)) is not None]
        good = [t for t, outcome in before.items() if outcome == "passed"]
        broken = sorted(t for t in good if all(side.get(t) != "passed" for side in sides))
        if not broken:
            return
    by_name = bool(restored) and all(path in allow_of(context) for path in restored)
    shown = ", ".join(broken[:8]) or f"{' '.join(argv)}: {detail_of(head)}"
    findings.add(
        "MEDIUM" if by_name else "HIGH",
        "expectation_changed" if by_name else "base_tests_fail",
        f"With the tests and settings of base in place, the new code fails: {shown}.",
        (restored or dropped)[0],
        "Make the code satisfy the tests that were there; a new expectation belongs into a new test.",
    )


# --- tests compared ---------------------------------------------------------------------------------------


def _tests(findings: Findings, context: CheckContext, work: Work) -> None:
    changed = [f for f in work.files if is_test(f.path) or _holds_tests(work, f)]
    python = [f for f in changed if f.path.endswith(".py")]
    before = {f.path: _read(f.path, work.before(f)) for f in python}
    after = {f.path: _read(f.path, work.after(f)) for f in python}
    arrived = _arrivals(before, after)
    for file in python:
        old, new = before[file.path], after[file.path]
        if old is None:
            continue
        if new is None and not file.gone:
            findings.add(
                "HIGH",
                "test_deleted",
                f"{file.path} can no longer be parsed, so none of its tests runs.",
                file.path,
            )
            continue
        _units(findings, context, file, old, new or TestFile({}, 0, 0), arrived)
    for file in changed:
        if file not in python and not file.new:
            _other_language(findings, work, file)


def _holds_tests(work: Work, file: Touched) -> bool:
    """Tests inside a source file, such as Rust's ``#[cfg(test)]`` or a TestCase at the end of a module."""
    text = work.before(file) or ""
    return bool(
        re.search(r"#\[cfg\(test\)\]|class \w+\([\w.]*TestCase\)|def assert\w*\(", text, re.MULTILINE)
    )


def _read(path: str, text: str | None) -> TestFile | None:
    found = None if text is None else python_tests(text)
    if found is None or is_test(path):
        return found
    # In a source, `def test_connection()` is a function like any other; a method of a TestCase is a test.
    # So is a helper by which tests assert, wherever it lies.
    kept = {n: u for n, u in found.units.items() if "." in n or u.short.startswith("assert")}
    return TestFile(kept, 0, 0)


def _arrivals(before: dict[str, TestFile | None], after: dict[str, TestFile | None]) -> list[TestUnit]:
    """Tests that stand at head where they did not stand at base: those may have moved, or have a new name."""
    found = []
    for path, file in after.items():
        old = before.get(path)
        known = old.units if old else {}
        fresh = [unit for name, unit in (file.units if file else {}).items() if name not in known]
        found += [unit for unit in fresh if unit.collected and (_collected(path) or not is_test(path))]
    return found


def _collected(path: str) -> bool:
    """Whether the runners take a file of this name for one that holds tests."""
    name = posixpath.basename(path)
    return name.startswith("test") or name.endswith(("_test.py", "_tests.py", "tests.py"))


def _units(
    findings: Findings,
    context: CheckContext,
    file: Touched,
    old: TestFile,
    new: TestFile,
    arrived: list[TestUnit],
) -> None:
    for name, unit in old.units.items():
        now = new.units.get(name) or _moved(unit, arrived)
        at = f"{file.path}:{now.line if name in new.units and now else unit.line}"
        if now is None:
            _deleted(findings, context, file, unit)
            continue
        if now.skips > unit.skips:
            findings.add(
                "HIGH", "test_skipped", f"Test {name} is now skipped or expected to fail.", at, "Let it run."
            )
        if now.asserts < unit.asserts:
            gone = sorted(unit.asserted - now.asserted)
            findings.add(
                "HIGH",
                "test_weakened",
                f"Test {name} had {unit.asserts} assertions that could fail and has {now.asserts}"
                + (f"; gone: {gone[0][:160]}." if gone else "."),
                at,
                "Put the assertions back; make the code satisfy them.",
            )
        elif unit.asserted - now.asserted:
            lost, come = min(unit.asserted - now.asserted), sorted(now.asserted - unit.asserted)
            findings.add(
                "MEDIUM" if named(file.path, allow_of(context)) else "HIGH",
                "assertion_changed",
                f"Test {name} no longer asserts {lost[:160]!r}"
                + (f", but {come[0][:160]!r}." if come else "."),
                at,
                "Leave what was asserted as it was; a new expectation belongs into a new test.",
            )
    if new.skips > old.skips and not file.gone:
        findings.add(
            "HIGH", "test_skipped", f"All tests of {file.path} may now be skipped at module level.", file.path
        )
    if new.not_collected > old.not_collected:
        findings.add("HIGH", "test_skipped", f"{file.path} now keeps tests from being collected.", file.path)


def _moved(unit: TestUnit, arrived: list[TestUnit]) -> TestUnit | None:
    same = [a for a in arrived if a.shape == unit.shape] or [a for a in arrived if a.short == unit.short]
    return same[0] if same else None


def _deleted(findings: Findings, context: CheckContext, file: Touched, unit: TestUnit) -> None:
    asked = re.search(rf"\b{re.escape(unit.short)}\b", str(context.bag.get("task") or "")) is not None
    findings.add(
        "LOW" if asked else "HIGH",
        "test_deleted",
        f"Test {unit.name} is gone" + (", as the task asks." if asked else "."),
        f"{file.path}:{unit.line}",
        "" if asked else "Put the test back; make the code satisfy it.",
    )


def _other_language(findings: Findings, work: Work, file: Touched) -> None:
    old, new = other_tests(work.before(file) or ""), other_tests(work.after(file) or "")
    if new["tests"] < old["tests"]:
        findings.add(
            "HIGH",
            "test_deleted",
            f"{file.path} held {old['tests']} tests and holds {new['tests']}.",
            file.path,
        )
    if new["skips"] > old["skips"] and not file.gone:
        findings.add(
            "HIGH", "test_skipped", f"Tests of {file.path} are newly skipped or narrowed.", file.path
        )
    if new["asserts"] < old["asserts"] and new["tests"] >= old["tests"]:
        what = f"{file.path} held {old['asserts']} assertions and holds {new['asserts']}."
        findings.add("HIGH", "test_weakened", what, file.path)


def _examples(findings: Findings, work: Work) -> None:
    """Examples in docstrings that went, or now promise something else; told only: they lie within the work itself."""
    python = [file for file in work.files if file.path.endswith(".py")]
    before, after = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for file in python:
        before += examples(work.before(file) or "")
        after += examples(work.after(file) or "")
    still = {source for source, _ in after}
    for source, want in before - after:
        what = "promises another result" if source in still else "is gone"
        findings.add(
            "MEDIUM", "example_changed", f"The example {source[:100]!r}, which gave {want[:60]!r}, {what}."
        )


# --- results from outside ---------------------------------------------------------------------------------


def _outside(findings: Findings, work: Work, file: Touched) -> None:
    text = work.after(file)
    if text is None or not file.path.endswith((".py", ".pyi", ".pyw")) or file.new_mode == LINK:
        return
    known = Counter(found.key for found in interferences(work.before(file) or "", file.path))
    for found in interferences(text, file.path):
        if known[found.key] > 0:
            known[found.key] -= 1
            continue
        findings.add(
            found.severity,
            "result_from_outside",
            f"In {file.path}, {found.what}.",
            f"{file.path}:{found.line}",
            "A test's result must come from the test alone; take this out.",
        )
    if file.new and posixpath.basename(file.path) == "conftest.py" and not quiet_conftest(text):
        findings.add(
            "HIGH",
            "result_from_outside",
            f"The new {file.path} does more than define constants, helpers and fixtures that a test asks for.",
            file.path,
            "Define fixtures in the new test file itself.",
        )


def _settings(findings: Findings, context: CheckContext, work: Work, file: Touched) -> None:
    """Settings of test runners and linters, also in files that ``allow`` names for something else."""
    if is_guarded(file.path) not in (TEST_CONFIG, BUILD, TOOL_CONFIG) or file.path.endswith((".py", ".rs")):
        return
    if LINK in (file.old_mode, file.new_mode):
        return
    used = {commands.tool(argv) for argv in commands_of(context)}
    if used & {"tox", "nox", "make", "npm", "yarn", "pnpm", "just", "hatch"} or any(
        map(commands.program, commands_of(context))
    ):
        used |= {"pytest", "unittest", "coverage", "ruff", "mypy", "jest", "scripts"}
    for setting in changed_settings(file.path, work.before(file), work.after(file)):
        if setting.tool not in _DECIDING and setting.tool not in used:
            continue
        if _harmless_addition(setting, commands_of(context)):
            continue
        findings.add(
            "HIGH",
            "check_settings",
            f"{file.path}: {setting.tool} setting {setting.key!r} went from {setting.before[:80] or 'unset'}"
            f" to {setting.after[:80] or 'unset'}.",
            file.path,
            "Leave the settings by which the work is checked as they were.",
        )


_DECIDING: Final = frozenset(
    {"pytest", "tool", "unittest", "tox", "nox", "coverage", "school", "entry-points", "jest", "scripts"}
)


def _harmless_addition(setting: Setting, judging: list[list[str]]) -> bool:
    """A target or script that is new and that nobody who judges calls by name."""
    if setting.before or any(setting.key in argv for argv in judging):
        return False
    if setting.tool == "make":
        return re.match(r"[A-Za-z][\w-]*\s*:(?!=)", setting.after) is not None
    return setting.tool == "scripts" and not setting.key.startswith(("pre", "post", "test"))

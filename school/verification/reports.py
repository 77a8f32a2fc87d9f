"""What a runner said of each test: read from a report that was written by a process we do not trust.

``read_junit(raw)`` and ``read_lines(raw)`` give ``Outcomes``: test id to ``passed``, ``failed``, ``error`` or
``skipped``, and whether the report is whole. ``None`` means there is no usable report. Size, count and name length
are bounded; entity declarations are refused. What it does not promise: that the report is honest. Whoever runs
inside the test process can write it, so the runner also asks for an exit status that agrees.
"""

from __future__ import annotations

import hashlib
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

REPORT_BYTES_MAX: Final = 64 * 1024 * 1024
TESTS_MAX: Final = 200_000
NAME_CHARS_MAX: Final = 400

GOOD: Final = frozenset({"passed"})
BAD: Final = frozenset({"failed", "error"})

# Stands in the outcomes for the command as a whole, where all its tests passed and it still did not.
COMMAND: Final = "(the command itself)"

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{6,}")
_DECLARATION: Final = re.compile(rb"<!\s*(?:DOCTYPE|ENTITY)")


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Each test by its id, in the order of the run; ``whole`` is false where the report was cut off."""

    tests: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True

    def counts(self) -> dict[str, int]:
        """How many passed, failed, had errors, were skipped."""
        count = Counter(outcome for name, outcome in self.tests.items() if name != COMMAND)
        return {
            "passed": count["passed"],
            "failed": count["failed"],
            "errors": count["error"],
            "skipped": count["skipped"],
        }


def _short(name: str) -> str:
    """A name that is the same in every run (no object's address in it) and bounded."""
    name = _ADDRESS.sub("0x…", name)
    if len(name) <= NAME_CHARS_MAX:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:12]
    return f"{name[: NAME_CHARS_MAX - 14]}…{digest}"


def _gather(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Ids to outcomes; the same name again (a parameter's address, two loads) becomes ``name#2``."""
    tests: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for raw_name, outcome in pairs:
        name = _short(raw_name)
        seen[name] += 1
        tests[name if seen[name] == 1 else f"{name}#{seen[name]}"] = outcome
        if len(tests) >= TESTS_MAX:
            break
    return tests


def _case_outcome(case: ET.Element) -> str:
    tags = {child.tag for child in case}
    for tag, outcome in (("error", "error"), ("failure", "failed"), ("skipped", "skipped")):
        if tag in tags:
            return outcome
    return "passed"


def _cases(root: ET.Element) -> Iterator[tuple[str, str]]:
    """Name and outcome of each test; an expected failure counts as skipped: it shows nothing about the code."""
    for case in root.iter("testcase"):
        yield f"{case.get('classname', '')}::{case.get('name', '')}", _case_outcome(case)


def read_junit(raw: bytes | None) -> Outcomes | None:
    """A JUnit XML report as pytest writes it at its very end, so that it is whole or not there."""
    if not raw or len(raw) > REPORT_BYTES_MAX or _DECLARATION.search(raw):
        return None
    try:
        root = ET.fromstring(raw)  # noqa: S314 - no declarations, and bounded
    except ET.ParseError:
        return None
    return Outcomes(_gather(_cases(root)))


def _worst(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """A test is told of more than once where subtests fail; the worst of its lines in a row counts."""
    rank = {"passed": 0, "skipped": 1, "failed": 2, "error": 3}
    held: tuple[str, str] | None = None
    for name, outcome in lines:
        if held and held[0] == name and (rank[held[1]] > 1 or rank[outcome] > 1):
            held = (name, max(held[1], outcome, key=rank.__getitem__))
            continue
        if held:
            yield held
        held = (name, outcome)
    if held:
        yield held


def read_lines(raw: bytes | None) -> Outcomes | None:
    """The JSON lines of ``record_unittest.py``; whole only with its last line."""
    if raw is None or len(raw) > REPORT_BYTES_MAX:
        return None
    pairs: list[tuple[str, str]] = []
    whole = False
    for line in raw.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict):
            continue
        whole = whole or entry.get("end") is True
        name, outcome = entry.get("id"), entry.get("outcome")
        if isinstance(name, str) and outcome in ("passed", "failed", "error", "skipped"):
            pairs.append((name, outcome))
    return Outcomes(_gather(_worst(pairs)), whole)

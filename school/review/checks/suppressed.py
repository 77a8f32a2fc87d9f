"""Comments that silence a checker, where their number grows over the whole change.

A criterion that asks a linter to be satisfied is not met by telling that linter to be quiet: that is HIGH, and so is
silencing a whole file. Any other such comment is told (LOW), since honest work sometimes needs one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from school.contracts import CheckContext
from school.review.checks import commands
from school.review.checks.work import Findings, Work

_SUPPRESSIONS: Final = re.compile(
    r"#\s*(?P<file>ruff:\s*noqa|flake8:\s*noqa|mypy:\s*(?:ignore-errors|disable-error-code)|pylint:\s*skip-file|pyright:\s*basic)"
    r"|#\s*(?P<line>noqa\b|type:\s*ignore|pylint:\s*disable|pyright:\s*ignore|nosec\b|pragma:\s*no\s*cover|fmt:\s*(?:off|skip)|codespell:ignore)"
    r"|(?://|/\*)\s*(?P<js>eslint-disable|@ts-ignore|@ts-nocheck|@ts-expect-error|istanbul ignore|c8 ignore|biome-ignore)",
    re.IGNORECASE,
)
_SUPPRESSES: Final = {
    "noqa": ("ruff", "flake8"),
    "type": ("mypy", "pyright"),
    "pylint": ("pylint", "ruff"),
    "nosec": ("bandit",),
    "pragma": ("coverage",),
    "fmt": ("black", "ruff"),
    "codespell": ("codespell",),
    "ruff": ("ruff",),
    "flake8": ("flake8", "ruff"),
    "mypy": ("mypy",),
    "pyright": ("pyright", "basedpyright"),
    "eslint-disable": ("eslint",),
}


def suppressed(findings: Findings, context: CheckContext, work: Work) -> None:
    """Comments that silence a linter: they grow in number, and a criterion asks that very linter."""
    terms = context.bag.get("acceptance") or []
    asked = {commands.tool(list(c["check"])) for c in terms if c.get("check")}
    grown = Counter(_marks(work.after(f) for f in work.files)) - Counter(
        _marks(work.before(f) for f in work.files)
    )
    for file in work.files:
        for number, line in work.added.get(file.path, ()):
            for match in _SUPPRESSIONS.finditer(line):
                word = _word(match)
                if grown[word] <= 0:
                    continue
                grown[word] -= 1
                silenced = asked & set(_SUPPRESSES.get(word, ()))
                whole = match["file"] is not None or "nocheck" in match[0]
                findings.add(
                    "HIGH" if silenced or whole else "LOW",
                    "suppressed",
                    f"{match[0].strip()!r} silences {', '.join(sorted(silenced)) or 'a checker'}"
                    + (", which the task asks to be satisfied." if silenced else "."),
                    f"{file.path}:{number}",
                    "Correct what the checker says instead of silencing it.",
                )


def _word(match: re.Match[str]) -> str:
    found = match["file"] or match["line"] or match["js"]
    return re.split(r"[:\s]", found.lower())[0]


def _marks(texts: Iterable[str | None]) -> list[str]:
    return [_word(match) for text in texts if text for match in _SUPPRESSIONS.finditer(text)]

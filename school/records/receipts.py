"""Receipts in words: one line each for ``verification``, one row each for people, scope first. Pure.

``line(receipt)`` and ``row(who, receipt)`` say of one executed check how much of its suite it covered, how it ended, where
and on exactly what it ran, how long it took, and the digest of what it printed. ``COLUMNS`` are the row's. What a receipt
does not say is left out, never guessed; no errors.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

COLUMNS: Final = ("scope", "outcome", "by", "at", "exit", "tests", "took", "on", "output", "check")
_ID_CHARS: Final = 12
_SHORT: Final = 8


def line(receipt: Mapping[str, Any]) -> str:
    """One receipt as a line of text."""
    words = [
        str(receipt.get("scope") or "full"),
        str(receipt.get("outcome", "")),
        f"at {receipt.get('at', 'head')}:",
    ]
    if argv := receipt.get("argv"):
        words.append(f"`{shlex.join(map(str, argv))}`")
    return " ".join(words) + f" ({'; '.join(_facts(receipt))})"


def _facts(receipt: Mapping[str, Any]) -> Iterator[str]:
    yield _check(receipt)
    if receipt.get("exit_code") is not None:
        yield f"exit {receipt['exit_code']}"
    if tests := counts(receipt):
        yield tests
    if seconds := receipt.get("duration_s"):
        yield f"{seconds:.1f} s" + (", from an earlier run" if receipt.get("cached") else "")
    for name, key in (("commit", "commit"), ("tree", "tree"), ("environment", "environment"), ("output", "output_sha256")):  # fmt: skip
        if value := receipt.get(key):
            yield f"{name} {str(value)[:_ID_CHARS]}"


def _check(receipt: Mapping[str, Any]) -> str:
    """Its name; of those that spoil the sources first, to see the tests notice, also that a failure is wanted."""
    name = str(receipt.get("check", ""))
    return f"{name}, made to fail" if name == "wrong_tree" else name


def counts(receipt: Mapping[str, Any]) -> str:
    """What its runner counted: ``12 passed, 1 failed``; '' where it counts nothing."""
    return ", ".join(f"{number} {kind}" for kind, number in (receipt.get("tests") or {}).items() if number)


def row(who: str, receipt: Mapping[str, Any]) -> tuple[str, ...]:
    """One receipt as a row under ``COLUMNS``."""
    ended, seconds = receipt.get("exit_code"), receipt.get("duration_s")
    on = [str(receipt.get(key) or "-")[:_SHORT] for key in ("commit", "tree", "environment")]
    return (
        str(receipt.get("scope") or "full"),
        str(receipt.get("outcome") or ""),
        who,
        str(receipt.get("at") or ""),
        "-" if ended is None else str(ended),
        counts(receipt) or "-",
        f"{seconds:.1f} s" if seconds else "-",
        "/".join(on),
        str(receipt.get("output_sha256") or "-")[:_SHORT],
        f"{_check(receipt)}: {shlex.join(map(str, receipt.get('argv') or []))}",
    )

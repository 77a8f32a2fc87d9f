"""What a check is handed from the verification room, as Protocols; the composition root passes the real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from school.contracts import CheckContext, Finding, Receipt

Side = Literal["base", "head"]


class Bench(Protocol):
    """A teacher's worktree, moved between base and head with that side's environment; settled at head at its end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def go(self, side: Side) -> None: ...

    def run(self, argv: Sequence[str], *, timeout_s: float, check: str) -> Receipt: ...


class OpenBench(Protocol):
    """Gives the bench of a context."""

    def __call__(self, context: CheckContext, /) -> Bench: ...


class Compare(Protocol):
    """Runs commands at head against a cached base: (receipts, findings, why there is no verdict)."""

    def __call__(
        self, context: CheckContext, commands: Sequence[Sequence[str]], /
    ) -> tuple[list[Receipt], list[Finding], str]: ...


class Spoil(Protocol):
    """Makes source files unloadable (or not even parsable) for a while, and gives those that it could."""

    def __call__(
        self, worktree: Path, paths: Sequence[str], how: Literal["load", "parse"] = "load"
    ) -> AbstractContextManager[list[str]]: ...


def tests_by_name(receipt: Receipt) -> Mapping[str, str] | None:
    """Each test's outcome where the runner names its tests."""
    found: Mapping[str, str] | None = getattr(receipt, "tests_by_name", None)
    return found


def was_cancelled(receipt: Receipt) -> bool:
    return bool(getattr(receipt, "cancelled", False))


def detail_of(receipt: Receipt) -> str:
    """Why it ended as it did, in a sentence."""
    return str(getattr(receipt, "detail", "") or f"exit {receipt.exit_code}")

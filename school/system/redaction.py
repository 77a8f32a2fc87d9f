"""What must not be written where others read it, taken out on the way: one redactor for the process.

``install`` it once; from then on JSON documents, journals, logs and the kept output of foreign commands pass through
it. ``text`` is for whoever writes anything else. A stream is called with each chunk, and at the end with
``final=True``; it holds back what may be the beginning of something, so that a cut between two chunks hides nothing.
Without a redactor everything passes as it is.

Not promised: that what went out before ``install`` comes back, or that a redactor knows everything. Errors: none.
"""

from __future__ import annotations

import sys
import threading
import traceback
from types import TracebackType
from typing import Any, Protocol


class Stream(Protocol):
    """Bytes of one output, in order."""

    def __call__(self, chunk: bytes, *, final: bool = False) -> bytes: ...


class Redactor(Protocol):
    """What knows the secrets."""

    def text(self, text: str) -> str: ...

    def data(self, data: bytes) -> bytes: ...

    def value(self, value: Any) -> Any: ...  # noqa: ANN401 - any JSON value

    def stream(self) -> Stream: ...


_installed: Redactor | None = None


def install(redactor: Redactor | None) -> None:
    """Let everything of this process pass through *redactor*; None lets it pass as it is."""
    global _installed  # noqa: PLW0603 - one for the process is the contract
    _installed = redactor


def installed() -> Redactor | None:
    return _installed


def text(said: str) -> str:
    """*said* as others may read it."""
    return said if _installed is None else _installed.text(said)


def data(raw: bytes) -> bytes:
    """*raw*, whole, as others may read it."""
    return raw if _installed is None else _installed.data(raw)


def document(value: Any, rendered: str) -> Any:  # noqa: ANN401 - any JSON value
    """*value* as others may read it, None when *rendered*, its JSON, may be read as it is."""
    if _installed is None or _installed.text(rendered) == rendered:
        return None
    return _installed.value(value)


def stream() -> Stream | None:
    """For one output; None where nothing is to be taken out."""
    return None if _installed is None else _installed.stream()


def guard_tracebacks() -> None:
    """Let the traceback of an error that nobody caught pass through the redactor too."""
    sys.excepthook = _told
    threading.excepthook = lambda args: _told(args.exc_type, args.exc_value, args.exc_traceback)


def _told(kind: type[BaseException], error: BaseException | None, where: TracebackType | None) -> None:
    said = text("".join(traceback.format_exception(kind, error, where)))
    if sys.stderr is not None:
        sys.stderr.write(said)

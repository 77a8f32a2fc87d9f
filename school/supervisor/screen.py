"""What a run looks like while it goes on: a live table on a terminal, plain lines in a pipe, stderr with ``--json``.

``screen(json_=...)`` picks one. ``say`` is one line about something that happened, ``warn`` one that a human should
read, ``show`` the beads in flight as they are now; only the live screen draws those. Text from tasks and agents is
escaped first, so nothing that a student wrote can act on a terminal. Never an error: a screen that cannot be written
to any more falls silent, since the run's truth is on disk.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol

from school.system import clock
from school.wording import printable

if TYPE_CHECKING:
    from rich.live import Live


@dataclass(frozen=True, slots=True)
class Row:
    """One bead in flight."""

    task: str
    attempt: str
    agent: str
    state: str
    step: str
    since: float


class Screen(Protocol):
    """Where a run tells what it does."""

    live: bool

    def say(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def show(self, rows: Sequence[Row]) -> None: ...


@dataclass(slots=True)
class PlainScreen:
    """One line an event, the time first."""

    stream: IO[str]
    live: bool = False
    _broken: bool = False

    def say(self, text: str) -> None:
        if self._broken:
            return
        try:
            self.stream.write(f"{clock.now()[11:19]}  {printable(text)}\n")
            self.stream.flush()
        except (BrokenPipeError, ValueError):
            self._broken = True

    def warn(self, text: str) -> None:
        self.say(f"note: {text}")

    def show(self, rows: Sequence[Row]) -> None:
        """A pipe has no place for what is true only now."""


@dataclass(slots=True)
class LiveScreen:
    """Events scroll by above a table of what is in flight."""

    display: Live
    live: bool = True
    _rows: Sequence[Row] = field(default_factory=tuple)

    def say(self, text: str) -> None:
        from rich.text import Text

        self.display.console.print(Text(f"{clock.now()[11:19]}  {printable(text)}"), soft_wrap=True)

    def warn(self, text: str) -> None:
        from rich.text import Text

        self.display.console.print(Text(f"note: {printable(text)}", style="yellow"), soft_wrap=True)

    def show(self, rows: Sequence[Row]) -> None:
        self._rows = tuple(rows)
        self.display.update(self._table())

    def _table(self) -> Any:  # noqa: ANN401 - rich is imported only where it is used
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="dim")
        for name, width in (
            ("time", 6),
            ("state", 12),
            ("attempt", 7),
            ("task", 12),
            ("agent", 12),
            ("what", 0),
        ):
            table.add_column(
                name, no_wrap=True, min_width=width, justify="right" if name == "time" else "left"
            )
        for row in self._rows:
            time = f"{clock.monotonic() - row.since:.0f} s"
            cells = (time, row.state, row.attempt, row.task, row.agent, row.step)
            table.add_row(*(Text(printable(cell)) for cell in cells))
        return table


@contextlib.contextmanager
def screen(*, json_: bool) -> Iterator[Screen]:
    """The screen for this process' output; with ``--json`` everything but the document goes to stderr."""
    stream = sys.stderr if json_ else sys.stdout
    if json_ or not stream.isatty():
        yield PlainScreen(stream)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, refresh_per_second=4, transient=True) as display:
        yield LiveScreen(display)

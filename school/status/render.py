"""The documents of ``school.status`` on a screen: tables on a terminal, plain columns in a pipe.

``show_on(stream, name, document)`` writes the document of that name (``status``, ``list``, ``show``,
``leaderboard``, ``check``, ``doctor``). On a terminal rich draws it (``NO_COLOR`` and ``TERM=dumb`` are honoured);
into anything else go columns without colour, one row a line, that ``cut`` and ``grep`` can read. Whatever came
from a task, an agent or a file name is escaped first, so that nothing in it acts on a terminal.

``status_view`` is the renderable that ``status --watch`` draws again and again. No errors of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from school.status.paper import Section, plain, sections_of
from school.wording import printable

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

_STYLES: Final[Mapping[str, str]] = {
    "PASS": "green",
    "FAIL": "red",
    "accepted": "bold green",
    "no_change": "green",
    "rejected": "red",
    "failed": "red",
    "blocked": "yellow",
    "BLOCKED": "yellow",
    "FAILED": "red",
    "UNREADABLE": "bold red",
    "RUNNING": "cyan",
    "running": "cyan",
    "reviewing": "cyan",
    "dead": "bold red",
    "ok": "green",
    "no": "bold red",
    "absent": "yellow",
}


def show_on(stream: IO[str], name: str, document: Any) -> None:  # noqa: ANN401 - any of the documents
    """Write *document*, the one that command *name* makes, on *stream*."""
    sections = sections_of(name, document)
    if not is_screen(stream):
        stream.write(plain(sections))
        return
    console = _console(stream)
    console.print(_drawn(sections))


def is_screen(stream: IO[str]) -> bool:
    """Whether *stream* is a terminal on which tables may be drawn."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def status_view(document: Mapping[str, Any]) -> Group:
    """The status as one renderable."""
    return _drawn(sections_of("status", document))


def _console(stream: IO[str]) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, emoji=False, markup=False)


def _drawn(sections: Iterable[Section]) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Table | Text] = []
    for section in sections:
        if section.title:
            parts.append(Text(section.title, style="bold"))
        parts.append(_table(section) if section.rows else Text(f"  {section.empty}", style="dim"))
        parts.append(Text())
    return Group(*parts[:-1])


def _table(section: Section) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), show_header=bool(section.columns), header_style="bold")
    width = len(section.columns) or max(len(row) for row in section.rows)
    for index in range(width):
        # On a narrow terminal the others are folded, widest first; a column that is cut says less than is so.
        name = section.columns[index] if section.columns else ""
        table.add_column(name, overflow="fold", no_wrap=index == 0)
    for row in section.rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: str) -> Text:
    from rich.text import Text

    return Text(printable(value), style=_STYLES.get(value, ""))


def watch_status(
    stream: IO[str],
    document: Callable[[], Mapping[str, Any]],
    wait: Callable[[], bool],
) -> None:
    """Draw the status again after each *wait*, until it says False (or Ctrl-C, which is how one stops it).

    Into a pipe goes a whole new status each time it has changed.
    """
    if not is_screen(stream):
        _watch_plainly(stream, document, wait)
        return
    from rich.live import Live

    with Live(status_view(document()), console=_console(stream), auto_refresh=False, screen=False) as live:
        while wait():
            live.update(status_view(document()), refresh=True)


def _watch_plainly(
    stream: IO[str], document: Callable[[], Mapping[str, Any]], wait: Callable[[], bool]
) -> None:
    shown: Sequence[Section] | None = None
    going = True
    while going:
        now = sections_of("status", document())
        if now != shown:
            stream.write(plain(now) + "\n")
            stream.flush()
            shown = now
        going = wait()


def quiet_stdout() -> int:
    """The reader of our output went away; that is no error, but nothing more can be said either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0

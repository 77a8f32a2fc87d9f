"""How a command's answer leaves the process: one JSON document, or rows as lines for people.

``emit`` is the only place that writes a document, valid UTF-8 whatever is in it. It loads nothing that ``--help`` would
have to pay for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click


def emit(document: object) -> None:
    """The one JSON document."""
    from school.system import files

    sys.stdout.buffer.write(files.dumps(document))
    sys.stdout.buffer.flush()


def rows_out(rows: Sequence[Mapping[str, Any]], *, json_: bool, nothing: str) -> None:
    """Rows as one document, or a line each; *nothing* is what people are told of none."""
    if json_:
        emit(list(rows))
        return
    from school.wording import printable

    for row in rows:
        click.echo("  ".join(printable(str(value)) for value in row.values() if value))
    if not rows:
        click.echo(nothing)

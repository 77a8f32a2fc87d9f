"""The flags of ``verify``, ``prune``, ``governor`` and ``hermes``, apart from what they ask for: ``--help`` loads none of it."""

from __future__ import annotations

from typing import Final

import click

_SECONDS: Final = click.FloatRange(min=0, min_open=True, max=86400)
_PHASES: Final = ("bootstrap", "build", "test", "start")

_VERIFY: Final = (
    click.argument("place", required=False, metavar="[DIR]"),
    click.option(
        "--phase",
        "phases",
        multiple=True,
        type=click.Choice(_PHASES),
        help="Only this phase, which makes the run targeted; may be repeated.",
    ),
    click.option("--skip-start", is_flag=True, help="All but the service; that makes it targeted, too."),
    click.option(
        "--port", type=click.IntRange(1, 65535), metavar="N", help="The port that the service is to use."
    ),
    click.option(
        "--timeout", "timeout_s", type=_SECONDS, metavar="S", help="Time for each phase [default: 600]."
    ),
    click.option(
        "--ready-timeout",
        "ready_s",
        type=_SECONDS,
        metavar="S",
        help="Time for the service to answer [default: 60].",
    ),
    click.option("--save", is_flag=True, help="Write the recipe that was found to .hermes/environment.json."),
    click.option("--detect-only", is_flag=True, help="Only say what would be run."),
)
# Decorators are applied from the innermost outwards.
VERIFY: Final = tuple(reversed(_VERIFY))
GOVERNOR: Final = (click.argument("words", nargs=-1, metavar="[BEAD] [report]"),)
HERMES: Final = (click.argument("action", type=click.Choice(["install", "status"])),)
PRUNE: Final = (
    click.option("--apply", is_flag=True, help="Remove what is named; without it nothing is touched."),
    click.option("--bytes", "size_bytes", type=int, metavar="N", help="Keep at most N bytes of archives."),
    click.option("--beads", type=int, metavar="N", help="Keep at most the N newest."),
    click.option("--days", type=float, metavar="N", help="Keep what ended within N days [default: 90]."),
)

"""What people see: columns in a pipe, tables on a terminal, and nothing that acts on either."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.settings import Settings
from school.status.check import check_document
from school.status.documents import list_rows, show, status_document
from school.status.paper import duration, sections_of
from school.status.render import show_on, watch_status
from school.wording import printable
from tests.building import State
from tests.support import ROOT

ESCAPES = "evil\x1b[2J\r\x07\u202e name\nline"


@pytest.fixture
def state(school: Settings, repo: Path) -> State:
    return State(school, repo)


def piped(name: str, document: Any) -> str:
    stream = io.StringIO()
    show_on(stream, name, document)
    return stream.getvalue()


def test_in_a_pipe_there_are_columns_one_row_a_line(state: State, school: Settings):
    done, waiting = state.accepted(), state.written()
    lines = piped("list", list_rows(school, archived=True)).splitlines()
    assert lines[0].split() == ["bead", "task", "state", "outcome", "try", "cto", "coo", "since"]
    assert lines[1].split()[:7] == [done, "fix-parse", "DISPOSED", "accepted", "1", "PASS", "PASS"]
    assert lines[2].split()[:7] == [waiting, "fix-parse", "WRITTEN", "-", "1", "-", "-"]
    assert [line.index("fix-parse") for line in lines[1:]] == [lines[0].index("task")] * 2
    assert not any(line.endswith(" ") for line in lines)


def test_every_document_has_a_form_for_people(state: State, school: Settings):
    bead = state.rejected(acceptance=[{"id": "ac-1", "text": "it parses", "check": ["true"]}])
    state.running()
    shown = piped("show", show(school, bead))
    for part in (
        bead,
        "DISPOSED",
        "rejected",
        "history",
        "REVIEWED",
        "newly_red",
        "It broke.",
        "it parses",
        "CTO",
    ):
        assert part in shown
    text = piped("status", status_document(school))
    assert "running  1" in text
    assert "none is at work" in text
    assert "ok  bookbag-valid" in piped("check", check_document(school))
    assert piped("leaderboard", []) == "nothing was scored yet\n"


def test_nothing_from_outside_acts_on_the_screen(state: State, school: Settings):
    bead = state.running()
    bookbag.update_bookbag(
        bead, lambda bag: {**bag, "summary": ESCAPES, "output": ESCAPES, "reason": ESCAPES}, by="leaf"
    )
    shown = piped("show", show(school, bead))
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "evil\\x1b[2J" in shown
    assert printable("naïve — 修复 👩") == "naïve — 修复 👩"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m 00s"),
        (3599, "59m 59s"),
        (3600, "1h 00m"),
        (90061, "1d 1h"),
        (-5, "0s"),
    ],
)
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text


PROGRAM = """
import sys
from school.settings import current
from school.status.documents import list_rows
from school.status.render import show_on
show_on(sys.stdout, "list", list_rows(current(), archived=True))
"""


def on_terminal(**env: str) -> str:
    """What the program writes on a terminal of its own."""
    controller, terminal = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        stdout=terminal,
        env={**os.environ, "COLUMNS": "200", **env},
    )
    os.close(terminal)
    said = b""
    while True:
        try:
            chunk = os.read(controller, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        if not chunk:
            break
        said += chunk
    os.close(controller)
    assert done.wait() == 0
    return said.decode()


def test_on_a_terminal_there_are_tables_with_colour_unless_asked_not_to(state: State):
    bead = state.accepted()
    coloured = on_terminal(TERM="xterm-256color")
    assert "\x1b[1mbead" in coloured
    assert "\x1b[1;32maccepted" in coloured
    assert bead in coloured
    colourless = on_terminal(TERM="xterm-256color", NO_COLOR="1")
    assert "\x1b[1mbead" in colourless
    assert "\x1b[3" not in colourless
    dumb = on_terminal(TERM="dumb")
    assert "\x1b" not in dumb


def test_watching_in_a_pipe_says_each_change_once(state: State, school: Settings):
    stream, steps = io.StringIO(), iter([None, None, state.running])
    bookbag.list_bookbags()

    def wait() -> bool:
        step = next(steps, False)
        if step:
            step()
        return step is not False

    watch_status(stream, lambda: status_document(school), wait)
    assert stream.getvalue().count("conductor\n") == 2
    assert stream.getvalue().endswith("running  1\n\n")


def test_a_status_is_the_same_sections_until_something_changes(school: Settings):
    assert sections_of("status", status_document(school)) == sections_of("status", status_document(school))

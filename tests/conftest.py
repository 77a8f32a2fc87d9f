"""What every test stands on: its own HOME, HERMES_HOME and git identity, and a small real repository."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from school import settings as school_settings
from school.settings import Settings
from school.system import redaction
from tests.support import CALC_FILES, git, write_tree

# Whatever the caller's shell had set must not reach a test: inherited GIT_* redirects git, the school's own
# variables would point a test at somebody's real state directory.
_SCHOOL_VARIABLES = tuple(Settings.from_env({"HOME": "/nonexistent"}).environment())

# Under nohup what a test starts would inherit that this signal is ignored, as it must be then.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A HOME of the test's own; nothing of the user's is readable by accident or written at all."""
    home = tmp_path / "home"
    home.mkdir()
    for name in list(os.environ):
        if name.startswith(("GIT_", "XDG_", "SCHOOL_", "GOVERNOR_")) or name in _SCHOOL_VARIABLES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HERMES_HOME", str(home / ".hermes"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Test Person\n\temail = test@example.invalid\n[init]\n\tdefaultBranch = main\n"
    )
    school_settings.configure(None)
    yield home
    school_settings.configure(None)
    redaction.install(None)


@pytest.fixture
def school(own_home: Path) -> Settings:
    """Settings on this test's own HERMES_HOME, installed for in-process calls and set for child processes."""
    settings = Settings.from_env({"HOME": str(own_home), "HERMES_HOME": str(own_home / ".hermes")})
    school_settings.configure(settings)
    return settings


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A real repository with one commit on ``main``: package ``calc``, two unittest tests, ``school.toml``."""
    root = tmp_path / "calc-repo"
    root.mkdir()
    write_tree(root, CALC_FILES)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Begin")
    return root

"""Where a command runs in a shell that may live on from call to call, and whether what ran before leaves it in doubt.

``Shell(root, lives_on=...)``: ``place()`` is the folder that the next command runs in, None where nobody can say; ``ran(command)`` tells
of a command that was given to it. A shell that starts anew for each command is always in its root. One that lives on keeps
``cd``, ``export``, ``alias`` and their like: after a ``cd`` that is not certain nothing can be said until one to a whole path,
and after a change that may decide what later commands mean, nothing any more.

Not promised: that every change is seen (a function, a loop that changes folders); the classification of each command is
what stands in the first place. No errors.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from school.verification import shell


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What these change stays; an environment's own activation only puts its programs first.
_LASTING: Final = _set(
    "export alias unalias set shopt trap exec source . eval function declare typeset readonly unset hash enable"
)
_ACTIVATION: Final = "/bin/activate"
_MOVING: Final = frozenset({"cd", "pushd", "popd"})


class Shell:
    """One shell, as far as it can be known from outside."""

    def __init__(self, root: Path, *, lives_on: bool) -> None:
        self.root = root
        self.lives_on = lives_on
        self._place: Path | None = root
        self._doubt = False

    def place(self) -> Path | None:
        """The folder that the next command runs in; None where that, or what it means, is in doubt."""
        return None if self._doubt else self._place

    def ran(self, command: str) -> None:
        """Tell of a command."""
        if not self.lives_on:
            return
        segments = shell.parse(command)
        if segments is None:
            words = {word.lstrip("({") for word in command.replace(";", " ").split()}
            self._place = None if words & _MOVING else self._place
            return
        for segment in segments:
            name = segment.argv[0] if segment.words and segment.words[0].literal else ""
            if name in _MOVING:
                self._move(segment)
            elif name in _LASTING and not (shell.inert(segment) or _activates(segment)):
                self._doubt = True
            elif any(word.text.lstrip("({") in _MOVING for word in segment.words[:2]):
                self._place = None  # in a subshell, or behind `then`: perhaps

    def _move(self, segment: shell.Segment) -> None:
        """Follow a ``cd``; one that perhaps did not happen leads nowhere that is known."""
        certain = len(segment.words) == 2 and segment.words[1].literal and segment.after in ("", ";", "&&")  # noqa: PLR2004
        to = segment.argv[1] if certain else ""
        if segment.argv[0] != "cd" or not certain or to.startswith(("-", "~")):
            self._place = None
        elif to.startswith("/"):
            self._place = Path(os.path.realpath(to))
        elif self._place is not None:
            self._place = Path(os.path.realpath(self._place / to))


def _activates(segment: shell.Segment) -> bool:
    """Whether *segment* is ``source .venv/bin/activate`` or the like."""
    words = segment.argv
    return words[0] in ("source", ".") and len(words) == 2 and words[1].endswith(_ACTIVATION)  # noqa: PLR2004

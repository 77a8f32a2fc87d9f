"""What is installed of a preset's CLI: its version, asked of the program itself, in a home that is thrown away.

``version_of(preset, argv)`` gives the version it prints, '' where it prints none; it takes at most ``ASK_S``. Some
CLIs write into their home as soon as they are called, which is why they get another one.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Final

from school.agents.presets.base import Preset

ASK_S: Final = 30.0
_VERSION: Final = re.compile(r"(?<![\d.])(\d+\.\d+\.\d+[\w.+-]*)")


def version_of(preset: Preset, argv: Sequence[str], search_path: str) -> str:
    """The version of *preset*'s program as *argv* starts it."""
    with tempfile.TemporaryDirectory(prefix="school-version-") as home:
        env = {"HOME": home, "TMPDIR": home, "PATH": search_path, "MSWEA_CONFIGURED": "true"}
        env |= {name: os.environ[name] for name in ("LANG", "TERM") if name in os.environ}
        try:
            done = subprocess.run(
                [*argv, *preset.version],
                cwd=home,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ASK_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return ""
    found = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    return found[1].rstrip(".") if found else ""

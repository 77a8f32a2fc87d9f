"""Presets: what this project knows of each coding agent's command line, one module a CLI.

``find(name)`` gives the preset of ``[agents.NAME] preset = "…"``; ConfigError names those that there are. See ``base``
for what a preset is and docs/agents.md for what a user writes.
"""

from __future__ import annotations

from typing import Final

from school.agents.presets.base import Preset
from school.agents.presets.claude import PRESET as CLAUDE
from school.agents.presets.codex import PRESET as CODEX
from school.agents.presets.hermes import PRESET as HERMES
from school.agents.presets.mini import PRESET as MINI
from school.agents.presets.opencode import PRESET as OPENCODE
from school.errors import ConfigError

PRESETS: Final[dict[str, Preset]] = {
    preset.name: preset for preset in (CODEX, HERMES, MINI, OPENCODE, CLAUDE)
}


def find(name: str) -> Preset:
    """The preset *name*."""
    if name not in PRESETS:
        raise ConfigError(f'there is no preset "{name}"; there are {", ".join(PRESETS)}')
    return PRESETS[name]

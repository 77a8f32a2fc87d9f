"""Presets: what this project knows of each coding agent's command line, one module a CLI.

``find(name)`` gives the preset of ``[agents.NAME] preset = "…"``; ConfigError names those that there are. See ``base``
for what a preset is and docs/agents.md for what a user writes. Importing this package reads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from school.agents.presets.base import Preset
from school.errors import ConfigError

# The name in school.toml, and its module here.
MODULES: Final[dict[str, str]] = {}


def find(name: str) -> Preset:
    """The preset *name*."""
    if name not in MODULES:
        raise ConfigError(f'there is no preset "{name}"; there are {", ".join(MODULES) or "none"}')
    module = import_module(f"school.agents.presets.{MODULES[name]}")
    found: Preset = module.PRESET
    return found

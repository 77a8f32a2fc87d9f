"""What Hermes loads from its plugins folder: makes our package importable there, and hands over to ``school.hermes``.

``conductor.py hermes install`` puts a copy of the package beside this file, in ``vendor``; it stands last on the path, so
whatever Hermes itself brings goes before it. Installed by pip, Hermes finds ``school.hermes`` by its entry point instead.
``register(ctx)`` is Hermes' own seam. Errors: ImportError where the copy is gone; Hermes reports it and goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_VENDOR = str(Path(__file__).resolve().parent / "vendor")


def register(ctx: Any) -> None:  # noqa: ANN401 - Hermes' context, which is Hermes' to define
    """Register everything that this host knows to take."""
    if _VENDOR not in sys.path:
        sys.path.append(_VENDOR)
    from school.hermes import register as register_all

    register_all(ctx)

"""A change to judge, in the test's own directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.review.support import Judged


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """The small calculator with two pytest tests."""
    return Judged(tmp_path / "judged")

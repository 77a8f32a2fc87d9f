"""Cases to judge, each in the test's own directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.verification.support import PACKAGE, Case


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """The small package with two pytest tests."""
    return Case(tmp_path / "case", PACKAGE)


@pytest.fixture
def case_of(tmp_path: Path) -> Callable[[Mapping[str, str]], Case]:
    """A case with other files at base."""
    return lambda files: Case(tmp_path / "case", files)

"""One page for all tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import report
from tests.harness.report.some_cells import here, shipped


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a few cells."""
    return report.render(here(), shipped(), tmp_path_factory.mktemp("report"))

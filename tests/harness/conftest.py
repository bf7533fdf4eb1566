"""Fixtures: cells that run against the fake server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import config, server
from harness.cell import measure
from harness.plan import plan
from harness.store import Cell

FAKE_MODULE = "tests.harness.fake_server"
OVERRIDES = ("experiment=cpu_base", "hardware=cpu", f"engine.module={FAKE_MODULE}")


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A results directory whose fake servers are reused by the tests of this process."""
    root = tmp_path_factory.mktemp("results")
    yield root
    server.stop_all(root)


@pytest.fixture
def set_faults(shared_root: Path) -> Iterator[Callable[..., None]]:
    """Make the fake servers of `shared_root` misbehave; they behave again afterwards."""
    path = shared_root / "faults.json"

    def write(**faults: Any) -> None:
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({**faults, "nonce": time.monotonic_ns()}))
        beside.replace(path)

    write()
    yield write
    write()


@pytest.fixture
def cell_config(shared_root: Path) -> Callable[..., dict[str, Any]]:
    """The configuration of a small cell on the fake server; arguments are Hydra overrides."""

    def compose(*overrides: str) -> dict[str, Any]:
        values = config.compose_cell([*OVERRIDES, f"output={shared_root}", *overrides])
        values["engine"]["environment"]["FAULTS"] = str(shared_root / "faults.json")
        return values

    return compose


@pytest.fixture
def run_cell(
    cell_config: Callable[..., dict[str, Any]], set_faults: Callable[..., None]
) -> Callable[..., Cell]:
    """Measure a cell on the fake server under faults, never from the store."""

    def run(*overrides: str, **faults: Any) -> Cell:
        set_faults(**faults)
        return measure(plan(cell_config(*overrides)), rerun=True)

    return run

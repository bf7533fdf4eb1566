"""Fixtures: cells of a program whose report is made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import config, jobs
from harness.benches import run
from harness.benches.kernels import PrefixKernels
from harness.store import Cell
from tests.harness.benches.made_up import Measure, Program


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setattr(run, "_reports", {})
    monkeypatch.setattr(PrefixKernels, "module", "tests.harness.benches.program")
    (tmp_path / "program").mkdir(exist_ok=True)
    return Program(tmp_path / "program")


@pytest.fixture
def measure(program: Program, tmp_path: Path) -> Measure:
    def one(launch: str = "HOT shared", *overrides: str, rerun: bool = False) -> Cell:
        layout, read = launch.split()
        values = config.compose_cell(
            [
                "experiment=table05",
                "hardware=h200",
                f"output={tmp_path}",
                f"+engine.environment.PROGRAM={program.directory}",
                f"workload.layout={layout}",
                f"workload.read={read}",
                *overrides,
            ]
        )
        return jobs.measure(jobs.plan(values), rerun)

    return one

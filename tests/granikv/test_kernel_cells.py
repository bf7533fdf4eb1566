"""What the kernel benchmark prints becomes the cells of Table 5, all four."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness import config, jobs
from harness.benches import run
from harness.benches.kernels import PrefixKernels

pytest.importorskip("triton")

SMALL = ["rows=4", "prefix_length=48", "q_heads=4", "kv_heads=2", "head_dim=32"]


def test_the_four_launches_of_table_5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_reports", {})
    monkeypatch.setattr(PrefixKernels, "module", "tests.granikv.interpreted_bench")
    shared = ["experiment=table05", "hardware=cpu", "+engine.environment.TRITON_INTERPRET='1'"]
    shared += [f"output={tmp_path}", *(f"workload.{size}" for size in SMALL)]
    for layout, read in itertools.product(("HOT", "paged"), ("shared", "unshared")):
        launch = [f"workload.layout={layout}", f"workload.read={read}"]
        cell = jobs.measure(jobs.plan(config.compose_cell([*shared, *launch])))
        assert cell.valid, cell.reasons
        assert cell.metrics["kernel_flop"] == 4 * 4 * 4 * 32 * 48, "4 · B · H_q · d · L_p"
        assert 0 < cell.metrics["relative_error"] < 1e-4
        assert cell.metrics["kernel_wall_s"] > 0

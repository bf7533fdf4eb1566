"""The burst program on the real engine: it measures the backend that it names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.conftest import CPU_ENVIRONMENT, ENGINE, REPOSITORY


def test_a_burst_is_served_by_the_backend_it_names(model: Path) -> None:
    engine = {**ENGINE, "load_format": "auto", "max_total_tokens": 4096}
    command = [sys.executable, "-m", "granikv.engine.burst", "--model", str(model)]
    sizes = ["--prefix", "200", "136", "--rows", "6", "--output", "9", "--repetitions", "2"]
    choice = ["--vocabulary", "500", "--backend", "dense", "--engine", json.dumps(engine)]
    done = subprocess.run(
        [*command, *sizes, *choice],
        cwd=REPOSITORY,
        env={**os.environ, **CPU_ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["backend"] == "dense"
    assert len(report["bursts"]) == 2
    for burst in report["bursts"]:
        assert burst["output_tok_s"] * burst["wall_s"] == pytest.approx(6 * 9)
        assert burst["ttft_p50_s"] > 0
        assert burst["tpot_p50_ms"] > 0
    counters = report["counters"]
    assert counters["steps_dense"] > 8
    assert counters["relocations"] == 2

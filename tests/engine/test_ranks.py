"""Tensor parallelism: every rank decides alike, and two ranks answer as one does."""

from __future__ import annotations

from pathlib import Path

from tests.engine.conftest import Driver, Run
from tests.engine.recorder import decisions

TWO_RANKS = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
POOL = {"max_total_tokens": 1024, "chunked_prefill_size": 64, "tp_size": 2}
SCENARIOS = ["one_prefix", "nested", "pressure", "aborts", "flushed"]


def test_two_ranks_decide_alike_and_answer_as_one(
    drive: Driver, stock: Run, tmp_path: Path
) -> None:
    run = drive(
        "two-ranks",
        {"min_tokens": 32, "hot_fraction": 0.5, "checks": True},
        POOL,
        scenarios=SCENARIOS,
        environment={**TWO_RANKS, "GRANIKV_TEST_RECORD": str(tmp_path)},
        spawned=True,
    )
    assert run.returncode == 0, run.log
    first, second = decisions(tmp_path, 0), decisions(tmp_path, 1)
    assert first == second
    assert {entry["backend"] for entry in first if "backend" in entry} >= {"dense", "cascade"}
    counters = run.counters()
    assert counters["relocations"] > 0
    assert counters["slab_evictions"] + counters["cold_evictions"] > 0
    assert run.retractions > 0
    for scenario in SCENARIOS:
        assert run.answers(scenario) == stock.answers(scenario), scenario
        assert run.results[scenario]["other_ranks"] == [run.results[scenario]["state"]], scenario

"""The survey of the children, with made-up children: what is measured, fitted and reported."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("triton")

from granikv.bench.regret import GRIDS
from granikv.calibrate_costs import (
    SURVEYS,
    Survey,
    measure_costs,
    measure_saturation,
    steps_of,
)
from granikv.cost import CostModel, PagedChild, SharedChild
from granikv.fit import Sample
from tests.granikv.fake_children import fake_bench
from tests.granikv.test_cost import DENSE, EXACT, LLAMA, PAGED, TILE

CASCADE = DENSE._replace(launch_us=9.0, us_per_gflop=3.0, slab_us_per_gb=300.0)
TRUTH = CostModel(
    {
        "fa3": PagedChild(PAGED, EXACT),
        "flashinfer": PagedChild(PAGED._replace(unit_us=0.01), EXACT),
    },
    {
        "dense": SharedChild(DENSE, True, TILE, EXACT),
        "cascade": SharedChild(CASCADE, False, TILE._replace(block_m=16), EXACT),
    },
)


def _survey() -> Survey:
    return SURVEYS["cuda"]._replace(geometries=(LLAMA,))


def test_the_whole_survey_gives_the_model_back() -> None:
    events: list[dict[str, object]] = []
    steps = steps_of(_survey())
    bench = fake_bench(TRUTH, LLAMA, rows=256, slots=200_000)
    model = measure_costs([bench], steps, time.perf_counter() + 600, events.append)
    for name, child in TRUTH.paged.items():
        assert model.paged[name].cost == pytest.approx(child.cost, rel=0.01)
        assert model.paged[name].residuals.points == len(steps)
    for name, shared in TRUTH.shared.items():
        found = model.shared[name]
        assert found.residuals.largest < 0.01
        assert found.overlapped is shared.overlapped
        assert found.tile == shared.tile
        assert found.cost == pytest.approx(shared.cost, rel=0.1)
    assert [e["child"] for e in events if e["event"] == "cost"] == [
        "fa3",
        "flashinfer",
        "dense",
        "cascade",
    ]
    progress = [e for e in events if e["event"] == "children"]
    assert [e["steps"] for e in progress] == list(range(1, len(steps) + 1, 20))


def test_time_that_is_up_leaves_the_least_steps() -> None:
    bench = fake_bench(TRUTH, LLAMA, rows=256, slots=200_000)
    model = measure_costs([bench], steps_of(_survey()), time.perf_counter() - 1, lambda _: None)
    assert model.paged["fa3"].residuals.points == 24


def test_close_children_weigh_more() -> None:
    from granikv.bench.children import composition
    from granikv.calibrate_costs import Measured, measure_step

    bench = fake_bench(TRUTH, LLAMA, rows=256, slots=200_000)
    weights = []
    for rows, length in ((256, 12288), (64, 192)):
        measured = Measured({}, {})
        measure_step(bench, composition(rows, 128, [length], LLAMA), measured, unshared=True)
        samples: list[Sample] = measured.stock["fa3"]
        weights.append(samples[0].weight)
        assert [s.reads.lengths.size for s in measured.sharing["dense"]] == [1, 0]
    assert weights == [1.0, 3.0]


@pytest.mark.parametrize("device", sorted(SURVEYS))
def test_no_judged_prefix_length_is_fitted(device: str) -> None:
    judged = set(GRIDS[device].lengths) | {n for *_, ls in GRIDS[device].mixed for n in ls}
    assert not judged & set(SURVEYS[device].lengths)
    steps = steps_of(SURVEYS[device])
    assert steps == steps_of(SURVEYS[device]), "the order is fixed"
    assert {case.rows for _, case in steps} == set(SURVEYS[device].rows)


def test_saturation_is_swept_on_whole_steps() -> None:
    bench = fake_bench(TRUTH, LLAMA, rows=256, slots=100_000)
    events: list[dict[str, object]] = []
    points = measure_saturation(bench, (4, 256, 1024), 8192, 64, events.append)
    assert [(p.m_eff, p.dense_holds) for p in points] == [(4, False), (256, True), (1024, True)]
    assert [e["rows"] for e in events] == [1, 64, 256]
    alone = fake_bench(CostModel(TRUTH.paged, {"dense": TRUTH.shared["dense"]}), LLAMA, 4, 9000)
    assert measure_saturation(alone, (4,), 8192, 64, events.append) == []

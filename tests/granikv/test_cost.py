"""The cost model's quantities by hand, its prediction, its file form, and the rule on top of it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from granikv.cost import (
    CostModel,
    Geometry,
    PagedChild,
    PagedCost,
    Reads,
    Residuals,
    SharedChild,
    SharedCost,
    SharedTerms,
    Tile,
)
from granikv.dispatch import CostRule, SaturationRule, StepShape, auto_rule
from granikv.hardware import HardwareProfile, ProfileError
from granikv.plan import DecodePlan, PagedRange, Segment

LLAMA = Geometry(kv_heads=8, group=4, d=128, d_v=128, element_bytes=2)
TILE = Tile(block_m=128, block_n=64, programs=132)
EXACT = Residuals(1, 0.0, 0.0, 0.0)
PAGED = PagedCost(launch_us=7.0, unit_us=0.004, read_us_per_gb=113.0, memory_us_per_gb=150.0)
DENSE = SharedCost(12.0, 0.002, 250.0, 1.4, 113.0, 150.0, 600.0)
MODEL = CostModel(
    {"fa3": PagedChild(PAGED, EXACT)}, {"dense": SharedChild(DENSE, False, TILE, EXACT)}
)


def _plan(rows: int, segments: list[tuple[int, int, list[int]]]) -> DecodePlan:
    """Segments are (p0, length, readers), one slab after another."""
    ends, base, planned = [0] * rows, 1, []
    for p0, length, readers in segments:
        planned.append(Segment(base, p0, length, tuple(readers)))
        base += length
        for row in readers:
            ends[row] = p0 + length
    return DecodePlan(rows, tuple(planned), tuple((PagedRange(end, None),) for end in ends))


def _decide(rule: CostRule, plan: DecodePlan, own: int) -> Any:
    return rule.decide(
        StepShape(plan.rows, 4, plan.segment_rows), plan, plan.covered + plan.rows * own
    )


def test_paged_quantities() -> None:
    """Two ranges: 1,000 tokens read by 3 rows, 500 by 2; 40 own tokens."""
    reads = Reads.of(4, 40, [(1000, 3), (500, 2)])
    launch, units, total, distinct = PagedCost.quantities(reads, LLAMA)
    assert LLAMA.token_bytes == 4096
    assert (launch, units) == (1, 32)
    assert total == pytest.approx((3000 + 1000 + 40) * 4096e-9)
    assert distinct == pytest.approx(1540 * 4096e-9)


def test_shared_quantities_round_rows_and_tokens_up_to_whole_tiles() -> None:
    """33 rows of group 4 are 132 folded rows, two tiles of 128; 65 tokens are two blocks of 64."""
    terms = SharedTerms(Reads.of(33, 99, [(65, 33)]), LLAMA, TILE)
    launch, units, slab, gflop, own, distinct, part = terms.quantities()
    assert (launch, units) == (1, 33 * 8)
    assert slab == pytest.approx(65 * 4096e-9)
    assert gflop == pytest.approx(2 * 2 * 8 * 128 * 64 * 2 * 256e-9)
    assert own == distinct == pytest.approx(99 * 4096e-9)
    assert part == pytest.approx(33 * 1 * 32 * 128 * 8e-9), "two blocks are never cut"


def test_a_dropped_range_is_read_by_each_of_its_readers() -> None:
    reads = Reads.of(5, 10, [(100, 5), (7, 2)])
    terms = SharedTerms(reads, LLAMA, TILE)
    both = terms.quantities()
    one = terms.quantities(np.array([True, False]))
    assert one[2] == pytest.approx(100 * 4096e-9)
    assert one[4] - both[4] == pytest.approx(14 * 4096e-9)
    assert one[5] - both[5] == pytest.approx(7 * 4096e-9)
    assert PagedCost.quantities(reads, LLAMA) == pytest.approx(
        PagedCost.quantities(reads.keeping(np.array([False, True])), LLAMA)
    ), "a stock kernel reads the same either way"


def test_the_prediction_is_the_sum_with_the_larger_of_bytes_and_products() -> None:
    cost, quantities = SharedCost(1, 2, 3, 4, 5, 6, 7), (1, 10, 2, 1, 10, 10, 10)
    assert cost.combined(quantities, overlapped=False) == 1 + 20 + max(6, 4) + 50 + 60 + 70
    quantities = (1, 10, 2, 30, 10, 10, 10)
    assert cost.combined(quantities, overlapped=False) == 1 + 20 + max(6, 120) + 50 + 60 + 70
    assert cost.combined(quantities, overlapped=True) == 1 + 20 + max(6 + 50 + 60, 120) + 70
    reads = Reads.of(2, 10, [(100, 2)])
    expected = 7 + 0.004 * 16 + (113 * 210 + 150 * 110) * 4096e-9
    assert PAGED.microseconds(reads, LLAMA) == pytest.approx(expected)


def test_an_unknown_stock_backend_is_as_fast_as_the_fastest_known() -> None:
    slow = PAGED._replace(launch_us=50.0)
    model = CostModel({"fa3": PagedChild(PAGED, EXACT), "slow": PagedChild(slow, EXACT)})
    reads = Reads.of(2, 10)
    assert model.paged_cost("triton", reads, LLAMA) == PAGED.microseconds(reads, LLAMA)
    assert model.paged_cost("slow", reads, LLAMA) == slow.microseconds(reads, LLAMA)
    assert "taken to be as fast" in CostRule(model, LLAMA, "triton").describe()


def test_the_file_form_reads_back() -> None:
    assert CostModel.parse(MODEL.document()) == MODEL


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("paged",), {}, "at least one stock backend"),
        (("paged", "fa3"), 3, "fa3 must hold keys and values"),
        (("paged", "fa3", "launch_us"), -1.0, "launch_us must not be negative"),
        (("paged", "fa3", "unit_us"), None, "unit_us must be a number, not None"),
        (("shared", "dense", "part_us_per_gb"), float("nan"), "part_us_per_gb must not be"),
        (("shared", "dense", "tile", "block_m"), 0, "tile must hold whole numbers from 1"),
        (("shared", "dense", "tile"), None, "dense.tile must hold keys and values"),
        (("shared",), [], "shared must hold keys and values"),
    ],
)
def test_a_wrong_file_is_one_line(path: tuple[str, ...], value: object, message: str) -> None:
    document = copy.deepcopy(MODEL.document())
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        CostModel.parse(document)


def test_one_row_is_paged_and_many_rows_of_a_long_prefix_are_dense() -> None:
    rule = CostRule(MODEL, LLAMA, "fa3")
    assert _decide(rule, _plan(1, [(0, 512, [0])]), 64).backend == "paged"
    many = _plan(256, [(0, 8192, list(range(256)))])
    assert _decide(rule, many, 64) == ("dense", many)
    assert _decide(rule, _plan(256, []), 64).backend == "paged"


def test_the_choice_is_the_least_prediction() -> None:
    """Both ways: where dense is predicted slower it is never chosen."""
    rule = CostRule(MODEL, LLAMA, "fa3")
    chosen = set()
    for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        for length in (128, 512, 2048, 8192):
            plan = _plan(rows, [(0, length, list(range(rows)))])
            predicted = rule.predictions(Reads.of(rows, rows * 64, [(length, rows)]))
            backend = _decide(rule, plan, 64).backend
            chosen.add(backend)
            margin = predicted["dense"] / predicted["paged"]
            if abs(margin - 1) > 0.02:  # own tokens are looked at in buckets
                assert backend == ("dense" if margin < 1 else "paged")
    assert chosen == {"paged", "dense"}


def test_a_win_smaller_than_the_fits_own_error_is_left_to_stock() -> None:
    """Dense is predicted faster by less than the median error of its fit, then by more."""
    plan = _plan(64, [(0, 4096, list(range(64)))])
    sure = CostRule(MODEL, LLAMA, "fa3").predictions(Reads.of(64, 64 * 64, [(4096, 64)]))
    win = 1 - sure["dense"] / sure["paged"]
    for error, backend in ((win + 0.05, "paged"), (win - 0.05, "dense")):
        fit = Residuals(1, error, error, error)
        dense = {"dense": SharedChild(DENSE, False, TILE, fit)}
        model = CostModel(MODEL.paged, dense)
        assert _decide(CostRule(model, LLAMA, "fa3"), plan, 64).backend == backend


def test_classes_of_one_step_go_to_different_children() -> None:
    """200 rows of a long prefix are shared; one row's own slab is not worth a tile of its own."""
    costly = DENSE._replace(us_per_gflop=14.0)
    model = CostModel(MODEL.paged, {"dense": SharedChild(costly, False, TILE, EXACT)})
    plan = _plan(201, [(0, 8192, list(range(200))), (0, 130, [200])])
    backend, read = _decide(CostRule(model, LLAMA, "fa3"), plan, 64)
    assert backend == "dense"
    assert read.segments == plan.segments[:1]
    assert read.paged[200] == (PagedRange(0, None),)
    assert read.paged[:200] == plan.paged[:200]


def test_a_child_that_does_not_serve_is_never_chosen() -> None:
    rule = CostRule(MODEL, LLAMA, "fa3", children=("cascade",))
    assert rule.children == ()
    assert _decide(rule, _plan(256, [(0, 8192, list(range(256)))]), 64).backend == "paged"


def test_a_standing_decision_is_the_same_object_until_the_tokens_move() -> None:
    rule = CostRule(MODEL, LLAMA, "fa3")
    plan = _plan(64, [(0, 300, list(range(64)))])
    shape = StepShape(64, 4, 64)
    first = rule.decide(shape, plan, plan.covered + 64 * 64)
    assert rule.decide(shape, plan, plan.covered + 64 * 64 + 1) is first
    dense = CostRule(MODEL, LLAMA, "fa3").decide(shape, plan, plan.covered + 64 * 64)
    assert dense == first
    # Far more own tokens: what is shared no longer pays for the launches.
    flat = CostModel(
        {"fa3": PagedChild(PAGED._replace(read_us_per_gb=100.0), EXACT)},
        {"dense": SharedChild(DENSE, False, TILE, EXACT)},
    )
    rule = CostRule(flat, LLAMA, "fa3")
    backends = [rule.decide(shape, plan, plan.covered + own).backend for own in (64, 10**6)]
    assert backends == ["dense", "paged"]
    assert rule.decide(shape, plan, plan.covered + 64).backend == "dense", "and back"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 40),
            st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 40)), max_size=4),
            st.integers(0, 3000),
        ),
        max_size=12,
    )
)
def test_a_decision_does_not_depend_on_what_came_before(
    steps: list[tuple[int, list[tuple[int, int]], int]],
) -> None:
    """Ranks that joined at different steps decide alike, and so does a rule that forgot."""
    veteran = CostRule(MODEL, LLAMA, "fa3")
    for rows, segments, own in steps:
        nested, p0 = [], 0
        for length, count in sorted(segments, key=lambda segment: -segment[1]):
            nested.append((p0, length, list(range(min(count, rows)))))
            p0 += length
        plan = _plan(rows, nested)
        assert _decide(veteran, plan, own) == _decide(CostRule(MODEL, LLAMA, "fa3"), plan, own)


def test_auto_takes_the_cost_model_where_there_is_one() -> None:
    both = ("dense", "cascade")
    full = HardwareProfile("x", "cuda", "x", m_sat=1024, cost=MODEL)
    bare = HardwareProfile("x", "cuda", "x", m_sat=1024)
    assert isinstance(auto_rule(full, LLAMA, "fa3", both, "auto"), CostRule)
    assert isinstance(auto_rule(full, LLAMA, "fa3", both, "saturation"), SaturationRule)
    assert isinstance(auto_rule(bare, LLAMA, "fa3", both, "auto"), SaturationRule)
    with pytest.raises(ProfileError, match="no cost model"):
        auto_rule(bare, LLAMA, "fa3", both, "cost")
    with pytest.raises(ProfileError, match="needs the backend cascade, which does not serve"):
        auto_rule(bare, LLAMA, "fa3", ("dense",), "auto")
    with pytest.raises(ProfileError, match="no M_sat"):
        auto_rule(HardwareProfile("x", "cuda", "x"), LLAMA, "fa3", both, "auto")

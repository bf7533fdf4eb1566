"""Kernel timelines on hand-made intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis import timeline


def frame(*rows: tuple[int, str, float, float]) -> pd.DataFrame:
    """NCCL on a stream of its own."""
    columns = [column for column in timeline.COLUMNS if column != "stream"]
    kernels = pd.DataFrame(rows, columns=columns)
    return kernels.assign(stream=(kernels["category"] == "nccl").astype(int))


# 0      10      20      30      40
# prefix [0, 20), nccl [15, 25), gemm [25, 30), nothing until decode attention [36, 40).
ONE_RANK = frame(
    (0, "prefix_attention", 0, 20),
    (0, "nccl", 15, 25),
    (0, "gemm", 25, 30),
    (0, "decode_attention", 36, 40),
)


def test_shares_count_overlaps_once() -> None:
    shares = timeline.shares(ONE_RANK)
    assert shares["alpha"] == pytest.approx(20 / 40)
    assert shares["beta"] == pytest.approx(5 / 40)  # NCCL under prefix attention costs nothing
    assert shares["gamma"] == pytest.approx(6 / 40)


def test_a_kernel_that_was_launched_early_waits_for_its_stream() -> None:
    """Merging [2, 24) waits for the prefix [0, 20); on the other stream NCCL really ran beside."""
    early = frame(
        (0, "decode_attention", 2, 24),
        (0, "prefix_attention", 0, 20),
        (0, "nccl", 5, 10),
        (0, "gemm", 19, 23),
        (0, "gemm", 24, 30),
    )
    times = timeline.category_ms(early)
    assert times["prefix_attention"] == pytest.approx(0.020)
    assert times["decode_attention"] == pytest.approx(0.004)
    assert times["gemm"] == pytest.approx(0.006)  # of the first nothing is left, and not less
    assert times["nccl"] == pytest.approx(0.005)
    late_prefix = frame((0, "gemm", 0, 20), (0, "prefix_attention", 2, 30))
    assert timeline.shares(late_prefix)["alpha"] == pytest.approx(10 / 30)


def test_a_kernel_waits_for_its_own_rank_and_stream_alone() -> None:
    """Ranks number their streams alike, and a timeline's parts may number their rows alike."""
    one = frame((0, "gemm", 0, 20), (0, "prefix_attention", 2, 30))
    both = pd.concat([one, one.assign(rank=1, start_us=one["start_us"] + 1)]).iloc[::-1]
    times = timeline.category_ms(both)
    assert times["gemm"] == pytest.approx((0.020 + 0.019) / 2)
    assert times["prefix_attention"] == pytest.approx(0.010)
    beside = one.assign(stream=[7, 13])
    assert timeline.category_ms(beside)["prefix_attention"] == pytest.approx(0.028)


def test_category_times_count_overlaps_of_streams_in_full() -> None:
    times = timeline.category_ms(ONE_RANK)
    assert times["prefix_attention"] == pytest.approx(0.020)
    assert times["nccl"] == pytest.approx(0.010)
    assert times["sampling"] == 0.0
    assert times["total"] == pytest.approx(0.039)


def test_ranks_are_averaged_each_over_its_own_window() -> None:
    other = frame((1, "prefix_attention", 100, 110), (1, "nccl", 110, 120))
    shares = timeline.shares(pd.concat([ONE_RANK, other]))
    assert shares["alpha"] == pytest.approx((20 / 40 + 10 / 20) / 2)
    assert shares["gamma"] == pytest.approx((6 / 40 + 0) / 2)
    times = timeline.category_ms(pd.concat([ONE_RANK, other]))
    assert times["nccl"] == pytest.approx((0.010 + 0.010) / 2)


def test_the_metrics_have_the_names_that_tables_read() -> None:
    metrics = timeline.metrics(ONE_RANK, steps=4)
    assert metrics["kernel_ms_total"] == pytest.approx(0.039)
    assert metrics["share_prefix_attention"] == pytest.approx(0.5)
    assert metrics["share_host_gap"] == pytest.approx(0.15)
    assert metrics["profile_steps"] == 4


spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda x: (x[0], x[0] + x[1])),
    max_size=12,
)


@given(spans)
def test_merged_intervals_cover_the_same_points_once(intervals: list[tuple[int, int]]) -> None:
    array = np.array(intervals, dtype=np.float64).reshape(-1, 2)
    merged = timeline.merged(array)
    points = {p for start, end in intervals for p in range(start, end)}
    assert timeline.covered_us(array) == len(points)
    assert (merged[1:, 0] > merged[:-1, 1]).all()
    again = [p for start, end in merged.astype(int) for p in range(start, end)]
    assert sorted(again) == sorted(points)


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        (frame(), "nothing was traced"),
        (frame((0, "prefix_attention", 5, 5)), "no length"),
        (frame((0, "matmul", 0, 5)), "unknown kernel category 'matmul'"),
        (frame((0, "gemm", 0, 5)).drop(columns="rank"), "needs the column rank"),
    ],
)
def test_an_unusable_timeline_is_refused(kernels: pd.DataFrame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        timeline.shares(kernels)


def test_a_window_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one decode step"):
        timeline.metrics(ONE_RANK, steps=0)

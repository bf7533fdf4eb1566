"""Intervals over runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.analysis import statistics


def test_mean_and_range_of_three_runs() -> None:
    estimate = statistics.mean([10.0, 20.0, 60.0])
    assert estimate.value == pytest.approx(30.0)
    # With three runs all-lowest and all-highest resamples are one in 27 each, beyond 2.5%.
    assert (estimate.low, estimate.high) == (10.0, 60.0)
    assert estimate.runs == 3


def test_equal_runs_have_no_spread() -> None:
    estimate = statistics.mean([5.0] * 4)
    assert (estimate.low, estimate.value, estimate.high) == (5.0, 5.0, 5.0)
    assert estimate.half_width == 0.0


def test_one_run_says_so() -> None:
    assert statistics.mean([7.0]) == statistics.Estimate(7.0, 7.0, 7.0, 1)


def test_the_interval_narrows_with_runs() -> None:
    few, many = statistics.mean([9.0, 11.0] * 2), statistics.mean([9.0, 11.0] * 50)
    assert many.half_width < few.half_width / 3


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Of 200 samples of 20 runs around 0, about 95% (at least 88%) of the intervals hold 0."""
    import numpy as np

    rng = np.random.default_rng(1)
    samples = rng.normal(size=(200, 20))
    held = sum(est.low <= 0 <= est.high for est in map(statistics.mean, samples.tolist()))
    assert 176 <= held < 200


def test_ratio_of_means_with_its_interval() -> None:
    estimate = statistics.ratio([30.0, 30.0, 30.0], [10.0, 10.0, 20.0])
    assert estimate.value == pytest.approx(30.0 / (40.0 / 3))
    assert [estimate.low, estimate.high] == pytest.approx([1.5, 3.0])


def test_a_ratio_has_as_many_runs_as_its_poorer_side() -> None:
    assert statistics.ratio([1.0, 2.0, 3.0], [4.0, 5.0]).runs == 2
    one = statistics.ratio([4.0], [2.0, 2.0])
    assert (one.value, one.low, one.high, one.runs) == (2.0, 2.0, 2.0, 1)


def test_the_same_runs_give_the_same_interval() -> None:
    runs = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert statistics.mean(runs) == statistics.mean(runs)
    assert statistics.ratio(runs, runs[::-1]) == statistics.ratio(runs, runs[::-1])


@pytest.mark.parametrize("runs", [[], [1.0, math.nan], [math.inf]])
def test_what_is_no_number_is_refused(runs: list[float]) -> None:
    with pytest.raises(ValueError, match=r"no run|not a finite"):
        statistics.mean(runs)


def test_a_baseline_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="not positive"):
        statistics.ratio([1.0], [0.0])


def test_pairs_cancel_a_drift_that_hits_both() -> None:
    """The machine gets slower by a third; B is 10% above A in every round."""
    a = [300.0, 250.0, 200.0]
    b = [value * 1.1 for value in a]
    paired, apart = statistics.ratio(b, a, paired=True), statistics.ratio(b, a)
    assert paired.value == pytest.approx(apart.value) == pytest.approx(1.1)
    assert [paired.low, paired.high] == pytest.approx([1.1, 1.1])
    assert apart.low < 0.9
    assert apart.high > 1.3


def test_runs_without_partners_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="3 and 2 runs make no pairs"):
        statistics.ratio([1.0, 2.0, 3.0], [1.0, 2.0], paired=True)


def test_the_relative_deviation_is_that_of_a_sample() -> None:
    assert statistics.relative_deviation([9.0, 10.0, 11.0]) == pytest.approx(0.1)
    assert statistics.relative_deviation([-9.0, -10.0, -11.0]) == pytest.approx(0.1)
    assert statistics.relative_deviation([5.0]) == 0.0
    assert statistics.relative_deviation([1.0, -1.0]) == 0.0


def test_runs_that_deviate_by_more_than_ten_percent_are_unsteady() -> None:
    assert not statistics.mean([9.0, 10.0, 11.0]).unsteady
    assert statistics.mean([8.9, 10.0, 11.1]).unsteady
    assert statistics.ratio([10.0, 10.0], [5.0, 10.0]).unsteady
    assert not statistics.mean([7.0]).unsteady


@pytest.mark.parametrize(("runs", "least", "most"), [(3, 0.65, 0.87), (10, 0.87, 0.97)])
def test_how_often_an_interval_holds_the_truth(
    monkeypatch: pytest.MonkeyPatch, runs: int, least: float, most: float
) -> None:
    """What `Estimate` says of few runs."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    rng = np.random.default_rng(5)
    draws = 100 + 3 * rng.standard_normal((300, 2, runs))
    ratios = [statistics.ratio(list(a), list(b)) for a, b in draws]
    held = sum(ratio.low <= 1 <= ratio.high for ratio in ratios) / len(ratios)
    assert least < held < most

"""Intervals over runs. A run is one repetition; the requests in it are not independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
LEVEL = 0.95
SEED = 20260816
UNSTEADY = 0.10
"""Relative deviation of the runs above which a number comes with a warning."""


@dataclass(frozen=True)
class Estimate:
    """A mean or a ratio of means with its interval and the number of runs behind it.

    With one run low == high == value and `runs` says that nothing is known of the spread. With
    three runs the 95% percentile interval is close to the range of the three, and holds the true
    value in three or four of five cases, not in 95%: it takes ten runs to come near. deviation: of
    the runs, relative (`relative_deviation`); of a ratio the larger of its two sides'.
    """

    value: float
    low: float
    high: float
    runs: int
    deviation: float = 0.0

    @property
    def half_width(self) -> float:
        """Half the interval, in the estimate's unit."""
        return (self.high - self.low) / 2.0

    @property
    def unsteady(self) -> bool:
        """Whether the runs deviate by more than UNSTEADY, so that the number needs a warning."""
        return self.deviation > UNSTEADY


def _array(runs: Sequence[float], what: str) -> NDArray[np.float64]:
    values = np.asarray(runs, dtype=np.float64)
    if values.size == 0:
        raise ValueError(f"{what}: no run to average")
    if not np.isfinite(values).all():
        raise ValueError(f"{what}: a run is not a finite number")
    return values


def _resampled_means(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    index = rng.integers(0, values.size, size=(RESAMPLES, values.size))
    means: NDArray[np.float64] = values[index].mean(axis=1)
    return means


def _interval(samples: NDArray[np.float64]) -> tuple[float, float]:
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(samples, [tail, 1.0 - tail])
    return float(low), float(high)


def relative_deviation(runs: Sequence[float]) -> float:
    """Sample standard deviation over the absolute mean; 0 for one run or a mean of 0."""
    values = _array(runs, "deviation")
    centre = abs(float(values.mean()))
    return float(values.std(ddof=1)) / centre if values.size > 1 and centre > 0 else 0.0


def mean(runs: Sequence[float]) -> Estimate:
    """Mean over runs with a percentile-bootstrap interval (95%, fixed seed)."""
    values = _array(runs, "mean")
    centre = float(values.mean())
    if values.size == 1:
        return Estimate(centre, centre, centre, 1)
    low, high = _interval(_resampled_means(values, np.random.default_rng(SEED)))
    return Estimate(centre, low, high, int(values.size), relative_deviation(runs))


def ratio(
    numerator: Sequence[float], denominator: Sequence[float], *, paired: bool = False
) -> Estimate:
    """Ratio of means over runs. `runs` is the smaller count.

    The two sides are resampled independently, or, when `paired`, together: run i of both was
    measured in one round, so that a drift of the machine hits both and cancels. Raises ValueError
    where a run of the denominator is not positive (a throughput of zero is no baseline), and for
    pairs of unequal number.
    """
    top, bottom = _array(numerator, "numerator"), _array(denominator, "denominator")
    if (bottom <= 0).any():
        raise ValueError("denominator: a run is not positive, so there is no ratio to it")
    if paired and top.size != bottom.size:
        raise ValueError(f"{top.size} and {bottom.size} runs make no pairs")
    centre = float(top.mean() / bottom.mean())
    runs = int(min(top.size, bottom.size))
    deviation = max(relative_deviation(numerator), relative_deviation(denominator))
    if runs == 1:
        return Estimate(centre, centre, centre, 1, deviation)
    rng = np.random.default_rng(SEED)
    if paired:
        index = rng.integers(0, runs, size=(RESAMPLES, runs))
        samples = top[index].mean(axis=1) / bottom[index].mean(axis=1)
    else:
        samples = _resampled_means(top, rng) / _resampled_means(bottom, rng)
    low, high = _interval(samples)
    return Estimate(centre, low, high, runs, deviation)

"""The shipped length distribution, and draws from it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from workloads import WorkloadError, lengths
from workloads.streams import Stream, StreamName

PERCENT = (5, 10, 25, 40, 50, 60, 75, 90, 95, 98, 99)
# Quantiles of the same turns, computed from the turns themselves.
EXPECTED = {
    "all": (31_693, 69.5, (17, 18, 22, 29, 35, 45, 73, 168, 272, 388, 442)),
    "first": (6_411, 98.1, (17, 19, 25, 36, 48, 68, 120, 270, 370, 451, 476)),
}


def expanded(turns: str) -> NDArray[np.int64]:
    return np.repeat(np.arange(lengths.MINIMUM, lengths.MAXIMUM + 1), lengths.shipped(turns))


def draw(n: int, turns: str = "all", low: int = 16, high: int = 512) -> NDArray[np.int64]:
    return lengths.draw(Stream(7, StreamName.LENGTHS), n, turns, low, high)


@pytest.mark.parametrize("turns", lengths.TURNS)
def test_shipped_distribution_is_the_measured_one(turns: str) -> None:
    number, mean, quantiles = EXPECTED[turns]
    every = expanded(turns)
    assert every.size == number
    assert every.mean() == pytest.approx(mean, abs=0.05)
    assert np.percentile(every, PERCENT) == pytest.approx(quantiles, abs=1)
    assert (every.min(), every.max()) == (16, 512)


def test_first_turns_are_among_all_turns() -> None:
    assert (lengths.shipped("first") <= lengths.shipped("all")).all()


class EveryPick(Stream):
    """Stands in for a stream: each integer below the bound, once."""

    def below(self, bound: int, n: int) -> NDArray[np.int64]:
        assert bound == n
        return np.arange(n)


@pytest.mark.parametrize("turns", lengths.TURNS)
def test_every_turn_is_drawn_as_often_as_any_other(turns: str) -> None:
    every = expanded(turns)
    picks = EveryPick(0, StreamName.LENGTHS)
    assert np.array_equal(lengths.draw(picks, every.size, turns, 16, 512), every)


@pytest.mark.parametrize("turns", lengths.TURNS)
def test_draws_follow_the_distribution(turns: str) -> None:
    drawn = draw(100_000, turns)
    _, mean, quantiles = EXPECTED[turns]
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert np.percentile(drawn, PERCENT) == pytest.approx(quantiles, rel=0.05, abs=1)
    every = np.sort(expanded(turns))
    at = np.arange(16, 513)
    cumulative = [np.searchsorted(np.sort(x), at, side="right") / x.size for x in (drawn, every)]
    # Kolmogorov–Smirnov: 0.005 is about the 1% level for 100,000 draws.
    assert np.abs(cumulative[0] - cumulative[1]).max() < 0.0052


def test_a_window_cuts_the_distribution() -> None:
    drawn = draw(20_000, "all", 100, 120)
    assert sorted(set(drawn.tolist())) == list(range(100, 121))


@pytest.mark.parametrize("window", [(15, 512), (16, 513), (200, 100)])
def test_window_outside_the_distribution(window: tuple[int, int]) -> None:
    with pytest.raises(WorkloadError, match="must lie in order within 16 and 512"):
        draw(1, "all", *window)


def test_window_without_a_turn() -> None:
    with pytest.raises(WorkloadError, match="no turn in the shipped distribution has 434 to 435"):
        draw(1, "first", 434, 435)


def test_shrinking_keeps_ends_and_order() -> None:
    every = np.arange(16, 513)
    shrunk = lengths.shrink(every, (16, 512), (4, 16))
    assert (shrunk[0], shrunk[-1]) == (4, 16)
    assert (np.diff(shrunk) >= 0).all()
    assert sorted(set(shrunk.tolist())) == list(range(4, 17))
    assert np.array_equal(lengths.shrink(every, (16, 512), (16, 512)), every)
    assert set(lengths.shrink(every, (16, 512), (6, 6)).tolist()) == {6}

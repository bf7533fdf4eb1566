"""Which runs are pairs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.analysis import rounds
from tests.harness.analysis.made_up import MadeUpCell, gpu_cell

A = [300.0, 250.0, 200.0]
B = [330.0, 275.0, 220.0]


def side(
    system: str, values: Sequence[float], minutes: Sequence[int] | None
) -> list[tuple[float, MadeUpCell]]:
    """One system's runs, each started at a minute of one hour."""
    return [
        (
            value,
            gpu_cell(
                system,
                value,
                repetition=index,
                record={"started": f"2026-01-01T00:{minutes[index]:02}:00+00:00"}
                if minutes
                else {},
            ),
        )
        for index, value in enumerate(values)
    ]


def test_interleaved_runs_are_pairs_whatever_the_order_in_a_round() -> None:
    estimate = rounds.ratio(side("b", B, [1, 12, 21]), side("a", A, [2, 11, 22])[::-1])
    assert [estimate.low, estimate.value, estimate.high] == pytest.approx([1.1, 1.1, 1.1])


@pytest.mark.parametrize(
    ("minutes_b", "minutes_a"),
    [([11, 12, 13], [1, 2, 3]), ([1, 11, 21], [2, 22, 12]), (None, [1, 2, 3]), (None, None)],
)
def test_other_runs_are_resampled_apart(
    minutes_b: list[int] | None, minutes_a: list[int] | None
) -> None:
    estimate = rounds.ratio(side("b", B, minutes_b), side("a", A, minutes_a))
    assert estimate.value == pytest.approx(1.1)
    assert estimate.low < 0.9


def test_runs_without_a_partner_are_resampled_apart() -> None:
    estimate = rounds.ratio(side("b", B, [1, 11, 21]), side("a", A[:2], [2, 12]))
    assert estimate.runs == 2
    assert estimate.high > estimate.value


def test_a_repetition_that_was_measured_twice_is_no_pair() -> None:
    twice = side("b", B, [1, 11, 21])
    twice.append((400.0, twice[0][1]))
    assert not rounds.in_rounds([c for _, c in twice], [c for _, c in side("a", A, [2, 12, 22])])

"""The measured window: its energy, its rows, and nothing from outside (failure kind 32)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import pytest

from harness.store import frame as request_log
from harness.telemetry.sample import Sample
from harness.telemetry.watch import Recording
from harness.telemetry.window import COLUMNS, energy_j, frame, measured

START = 1000.0
"""Reading of the clock at the log's time 0."""


def power(at: float) -> float:
    """700 W while the server starts and after the load, 100 W in the load's 10 s."""
    return 100.0 if START <= at < START + 10 else 700.0


def energy(at: float) -> float:
    """The integral of `power` from far before."""
    before, inside = min(at, START), min(max(at - START, 0.0), 10.0)
    return 700.0 * (before + max(at - START - 10, 0.0)) + 100.0 * inside


def clock(loaded: float, at: float) -> float:
    """Full speed in MHz but for the load."""
    return loaded if power(at) == 100.0 else 1980.0


def samples(
    name: str, value: Callable[[float], float], first: float = -30, last: float = 40, rank: int = 0
) -> list[Sample]:
    """One reading every 0.1 s, from `first` to `last` s after the start."""
    count = round((last - first) * 10) + 1
    times = [START + first + i / 10 for i in range(count)]
    return [Sample(at, "gpu", rank, name, value(at)) for at in times]


def log(*requests: tuple[float, float, int, bool]) -> pd.DataFrame:
    """A request log: sent, last token, output tokens, ok."""
    defaults: dict[str, Any] = dict.fromkeys(request_log([]).columns, 0) | {"chunk_s": []}
    rows = [
        defaults | {"sent_s": sent, "last_token_s": last, "output_tokens": tokens, "ok": ok}
        for sent, last, tokens, ok in requests
    ]
    return request_log(rows)


def test_start_up_is_not_in_the_energy() -> None:
    recording = Recording(samples("energy_j", energy))
    found = measured(recording, START, log((0, 4, 150, True), (2, 10, 250, True))).metrics
    assert found["energy_j"] == pytest.approx(1000.0)
    assert found["power_mean_w"] == pytest.approx(100.0)
    assert found["joules_per_output_token"] == pytest.approx(2.5)


def test_the_clock_is_that_of_the_load_over_all_gpus() -> None:
    """1,980 MHz while nothing runs, 1,600 and 1,700 under load."""
    clocks = [
        sample
        for rank, loaded in enumerate((1600.0, 1700.0))
        for sample in samples("sm_clock_mhz", partial(clock, loaded), rank=rank)
    ]
    seen = Recording([*clocks, *samples("power_w", power)])
    found = measured(seen, START, log((0.05, 9.95, 150, True))).metrics
    assert found["sm_clock_mean_mhz"] == pytest.approx(1650.0)


@pytest.mark.parametrize(("begin", "end", "joules"), [(0.02, 0.93, 91.0), (4.96, 5.01, 5.0)])
def test_edges_between_two_samples_are_interpolated(
    begin: float, end: float, joules: float
) -> None:
    found = energy_j(samples("energy_j", energy), START + begin, START + end)
    assert found == pytest.approx(joules)


def test_without_a_counter_power_is_integrated() -> None:
    both = samples("power_w", lambda at: 20.0 * (at - START), 0, 10)
    assert energy_j(both, START + 1.03, START + 4.01) == pytest.approx(10 * (4.01**2 - 1.03**2))


def test_the_counter_wins_over_power() -> None:
    both = samples("energy_j", energy) + samples("power_w", lambda at: 9e9)
    assert energy_j(both, START, START + 10) == pytest.approx(1000.0)


def test_gpus_add_up() -> None:
    two = samples("energy_j", energy) + samples("power_w", power, rank=1)
    # The integral of a step sampled every 0.1 s is off by half a sample at most.
    assert energy_j(two, START, START + 10) == pytest.approx(2000.0, abs=0.05 * 600 + 1e-6)


@pytest.mark.parametrize(("first", "last"), [(0.3, 40), (-1, 9.9)])
def test_samples_that_miss_an_edge_give_no_energy(first: float, last: float) -> None:
    assert math.isnan(energy_j(samples("energy_j", energy, first, last), START, START + 10))


def test_one_silent_gpu_of_two_gives_no_energy() -> None:
    two = samples("energy_j", energy) + samples("energy_j", energy, -30, 5, rank=1)
    assert math.isnan(energy_j(two, START, START + 10))


def test_without_samples_or_replies_nothing_is_zero() -> None:
    answered, failed = log((0, 10, 5, True)), log((0, 10, 5, False))
    seen = Recording(samples("energy_j", energy))
    for recording, requests in ((Recording(), answered), (seen, failed), (seen, log())):
        found = measured(recording, START, requests)
        assert all(math.isnan(value) for value in found.metrics.values())
    assert measured(seen, START, log()).frame.empty


def test_rows_outside_the_window_are_dropped() -> None:
    found = measured(Recording(samples("power_w", power)), START, log((0.5, 10, 5, True)))
    assert list(found.frame.columns) == list(COLUMNS)
    assert found.frame["t_s"].min() == pytest.approx(0.5)
    assert found.frame["t_s"].max() == pytest.approx(10.0)
    assert found.record["window_s"] == [0.5, 10.0]
    assert found.record["rows"] == {"gpu": len(found.frame)}
    assert (found.frame["value"] == 100.0)[:-1].all()


def test_rows_are_in_the_order_of_time() -> None:
    mixed = [Sample(START + t, s, 0, "x", t) for t, s in ((3, "gpu"), (1, "metrics"), (2, "gpu"))]
    assert frame(mixed, START, (0, 9))["t_s"].tolist() == [1.0, 2.0, 3.0]

"""Arrivals: seeded by themselves, hashed, at the rate asked for (failure kind 25)."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests.workloads.configs import small
from workloads import (
    Arrivals,
    WorkloadError,
    build,
    burst,
    constant,
    gamma,
    poisson,
    recorded,
    with_arrivals,
)


def test_poisson_golden() -> None:
    assert (
        poisson(4.0, 500, seed=42).sha256
        == "9975a096d6c2b8dd0e533d50b15a3e26389a3d4ca96f028bc18df53cb884b5e3"
    )


def test_poisson_hash_depends_on_seed_rate_and_number_alone() -> None:
    reference = poisson(4.0, 100, seed=1)
    assert poisson(4.0, 100, seed=1).sha256 == reference.sha256
    others = [poisson(4.0, 100, seed=2), poisson(4.1, 100, seed=1), poisson(4.0, 101, seed=1)]
    assert len({reference.sha256, *(other.sha256 for other in others)}) == 4


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(np.array([0.0, *poisson(8.0, 20_000, seed=5).due_s]))
    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(1 / 8, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 8, rel=0.03)
    assert np.median(gaps) == pytest.approx(math.log(2) / 8, rel=0.03)


def test_a_faster_rate_is_the_same_process_sped_up() -> None:
    slow, fast = poisson(2.0, 200, seed=1).due_s, poisson(8.0, 200, seed=1).due_s
    assert np.allclose(np.array(slow), 4 * np.array(fast), atol=1e-6)


def test_constant_and_burst() -> None:
    assert constant(4.0, 5).due_s == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert burst(3).due_s == (0.0, 0.0, 0.0)
    assert burst(0).due_s == constant(1.0, 0).due_s == poisson(1.0, 0, seed=1).due_s == ()


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan, 1e-12])
def test_bad_rate(rate: float) -> None:
    with pytest.raises(WorkloadError, match="requests/s"):
        poisson(rate, 10, seed=1)
    with pytest.raises(WorkloadError, match="requests/s"):
        constant(rate, 10)


def test_bad_number_and_seed() -> None:
    with pytest.raises(WorkloadError, match="must not be negative, it is -1"):
        burst(-1)
    with pytest.raises(WorkloadError, match="seed must not be negative"):
        poisson(1.0, 1, seed=-1)


def test_with_arrivals_changes_due_times_and_nothing_else() -> None:
    plain = build(small("sharegpt"))
    arrivals = poisson(3.0, 12, seed=9)
    timed = with_arrivals(plain, arrivals)
    assert tuple(request.due_s for request in timed.requests) == arrivals.due_s
    assert [request.due_ns for request in timed.requests] == arrivals.due_ns.tolist()
    for before, after in zip(plain.requests, timed.requests, strict=True):
        assert np.array_equal(before.input_ids, after.input_ids)
        assert before.due_s is None
    assert timed.sha256 != plain.sha256
    assert with_arrivals(timed, poisson(3.0, 12, seed=8)).sha256 != timed.sha256
    recorded = timed.parameters["arrivals"]
    assert recorded == {
        "kind": "poisson", "rate": 3.0, "seed": 9, "sha256": arrivals.sha256,
    }  # fmt: skip
    assert json.loads(json.dumps(timed.parameters)) == timed.parameters


@pytest.mark.parametrize("arrivals", [burst(11), burst(13)])
def test_with_arrivals_needs_one_a_request(arrivals: Arrivals) -> None:
    with pytest.raises(WorkloadError, match="arrivals for 12 requests"):
        with_arrivals(build(small("sharegpt")), arrivals)


def test_the_workload_s_seed_does_not_tie_arrivals_to_contents() -> None:
    # More requests: the first arrivals stay. Another workload seed: the arrivals stay.
    assert poisson(2.0, 10, seed=4).due_s == poisson(2.0, 20, seed=4).due_s[:10]
    one, other = (build(small("sharegpt", seed=seed)) for seed in (1, 2))
    timed = [with_arrivals(workload, poisson(2.0, 12, seed=4)) for workload in (one, other)]
    assert timed[0].parameters["arrivals"] == timed[1].parameters["arrivals"]


def test_gamma_golden_and_prefix() -> None:
    reference = gamma(4.0, 0.5, 100, seed=1)
    assert gamma(4.0, 0.5, 200, seed=1).due_s[:100] == reference.due_s
    others = [gamma(4.0, 0.5, 100, seed=2), gamma(4.0, 0.6, 100, seed=1)]
    assert len({reference.sha256, *(other.sha256 for other in others)}) == 3
    assert reference.sha256 == "c3a98b92edbdcee24a6bb8db3ae6dbe61bf9388a1b59dede5ec3a7e616c07333"


def test_recorded_times_are_scaled() -> None:
    assert recorded([0.0, 3.0], speed=1.5).due_s == (0.0, 2.0)
    with pytest.raises(WorkloadError, match="speed must be a positive number"):
        recorded([0.0], speed=0.0)


@pytest.mark.parametrize("shape", [0.0, -1.0, math.nan])
def test_bad_burstiness(shape: float) -> None:
    with pytest.raises(WorkloadError, match="burstiness must be"):
        gamma(1.0, shape, 3, seed=1)

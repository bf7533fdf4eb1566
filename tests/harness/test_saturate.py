"""The search for capacity on known curves, and the whole command on the fake server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness import saturate
from harness.errors import HarnessError
from harness.plan import CellPlan
from harness.saturate import Capacity, find, saturating_rate
from harness.servers import gpus
from tests.harness.conftest import OVERRIDES


@pytest.mark.parametrize("capacity", [0.3, 7.0, 2500.0])
def test_the_capacity_of_a_hard_limit(capacity: float) -> None:
    asked: list[float] = []

    def throughput(rate: float) -> float:
        asked.append(rate)
        return min(rate, capacity)

    found = find(throughput)
    assert found.requests_per_s == capacity
    assert capacity / saturate.RISE <= found.knee <= capacity * saturate.PRECISION
    assert len(asked) <= 8


def test_a_server_that_needs_more_than_its_capacity_offered() -> None:
    """Arrivals that are not always there when a permit is: throughput rises slowly to 10."""
    found = find(lambda rate: 10 * (1 - math.exp(-rate / 10)))
    assert found.requests_per_s == pytest.approx(10, rel=0.01)
    assert 10 * (1 - math.exp(-found.knee / 10)) >= 10 / saturate.RISE
    assert 20 < found.knee < 45


def test_a_batch_that_serves_less_at_once_than_spread_out() -> None:
    """A burst is not the most that can be served: the search goes beyond it."""
    found = find(lambda rate: 5.0 if rate > 1e5 else min(rate, 20.0))
    assert found.requests_per_s == 20
    assert 19 <= found.knee <= 25


def test_noise_does_not_keep_the_search_going() -> None:
    """Answers of 60% to 140% of the truth, in an order that suits no rule."""
    noise = [0.6, 1.4, 0.8, 1.2, 1.0, 0.7, 1.3, 0.9, 1.1, 0.65]
    asked: list[float] = []

    def throughput(rate: float) -> float:
        asked.append(rate)
        return min(rate, 50.0) * noise[len(asked) % len(noise)]

    found = find(throughput)
    assert 50 <= found.requests_per_s <= 70
    assert len(asked) <= 20


def test_what_never_saturates_is_said() -> None:
    with pytest.raises(HarnessError, match="throughput still rises at"):
        find(lambda rate: rate if rate < 1e6 else 1.0)


def test_the_rate_is_twice_the_capacity_of_the_fastest() -> None:
    assert saturating_rate([Capacity(3.0, 4.0), Capacity(8.0, 8.5), Capacity(5.0, 5.0)]) == 16.0


@dataclass(frozen=True)
class Measured:
    """As much of a cell as the search looks at."""

    metrics: dict[str, float]
    valid: bool = True
    reasons: tuple[str, ...] = ()
    id: str = "0123"


def run(
    monkeypatch: pytest.MonkeyPatch, output: Path, measure: Callable[[CellPlan], Measured]
) -> int:
    monkeypatch.setattr(saturate, "measure", measure)
    return saturate.main([*OVERRIDES, f"output={output}", "system=sglang_default,granikv"])


def test_the_command_prints_one_rate_for_all(
    shared_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = {"sglang_default": 40.0, "granikv": 70.0}
    ids: list[str] = []

    def measured(plan: CellPlan) -> Measured:
        assert plan.root == shared_root / "saturation"
        ids.append(plan.id)
        limit = limits[plan.config["system"]["name"]]
        return Measured({"request_per_s": min(plan.config["load"]["rate"], limit)})

    assert run(monkeypatch, shared_root, measured) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == "load.rate=140"
    assert "granikv sharegpt_cpu" in shown
    assert len(set(ids)) == len(ids)  # each rate is a cell of its own, so that a search resumes


def test_an_invalid_cell_ends_the_search(
    shared_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = Measured({}, valid=False, reasons=("the client sent late",))
    assert run(monkeypatch, shared_root, lambda plan: measured) == 1
    assert "error: cell 0123 is invalid: the client sent late" in capsys.readouterr().err


def test_no_other_cell_has_its_gpu_meanwhile(
    shared_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased: list[bool] = []

    @contextmanager
    def lease(values: Mapping[str, Any]) -> Iterator[None]:
        leased.append(True)
        yield
        leased[-1] = False

    def measured(plan: CellPlan) -> Measured:
        assert leased[-1]
        return Measured({"request_per_s": 5.0})

    monkeypatch.setattr(gpus, "leased", lease)
    assert run(monkeypatch, shared_root, measured) == 0
    assert not any(leased)


def test_an_unbounded_load_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert saturate.main(["hardware=cpu", "load=open"]) == 1
    assert "load=open cannot be saturated: use load=poisson_capped" in capsys.readouterr().err

"""Amdahl's law against hand-computed values and against Table 22, from the paper's own inputs."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from harness import paper
from harness.analysis import amdahl


def _row(config: str) -> pd.DataFrame:
    return paper.select(paper.table(22), config=config)


def _shares(config: str) -> tuple[float, float, float]:
    alpha, beta, gamma = (
        paper.value(_row(config), metric=f"{name}_pct") / 100 for name in ("alpha", "beta", "gamma")
    )
    return alpha, beta, gamma


KERNEL_SPEEDUP = paper.value(paper.table(5), case="shared (HOT)", metric="speedup")


def test_half_of_the_step_twice_as_fast() -> None:
    assert amdahl.speedup(0.5, 2.0) == pytest.approx(1 / 0.75)


def test_nothing_to_shorten_gains_nothing() -> None:
    assert amdahl.speedup(0.0, 100.0) == 1.0


@pytest.mark.parametrize("config", paper.CONFIGS)
def test_table_22_column_s_needs_the_share_of_kernel_time(config: str) -> None:
    alpha, _, gamma = _shares(config)
    predicted = amdahl.speedup(amdahl.share_of_kernel_time(alpha, gamma), KERNEL_SPEEDUP)
    assert f"{predicted:.2f}" == paper.printed(_row(config), metric="predicted_kernel_s")


@pytest.mark.parametrize("config", paper.CONFIGS)
def test_table_22_column_with_beta_and_gamma(config: str) -> None:
    predicted = amdahl.speedup_with_fixed_terms(*_shares(config), KERNEL_SPEEDUP)
    printed = paper.printed(_row(config), metric="predicted_with_beta_gamma")
    assert f"{predicted:.2f}" == printed


@pytest.mark.parametrize("config", paper.CONFIGS)
def test_table_22_effective_speedup(config: str) -> None:
    measured = paper.value(_row(config), metric="measured")
    s_eff = amdahl.effective_kernel_speedup(_shares(config)[0], measured)
    assert f"{s_eff:.1f}" == paper.printed(_row(config), metric="s_eff")


@pytest.mark.parametrize("config", paper.CONFIGS)
def test_equation_4_as_published_is_equation_3(config: str) -> None:
    alpha, beta, gamma = _shares(config)
    eq4 = amdahl.speedup_with_fixed_terms(alpha, beta, gamma, KERNEL_SPEEDUP)
    assert eq4 == pytest.approx(amdahl.speedup(alpha, KERNEL_SPEEDUP), rel=1e-12)


def test_effective_speedup_inverts_equation_3() -> None:
    assert amdahl.effective_kernel_speedup(0.6, amdahl.speedup(0.6, 7.0)) == pytest.approx(7.0)


def test_a_gain_beyond_the_kernel_has_no_finite_speedup() -> None:
    assert amdahl.effective_kernel_speedup(0.5, 2.5) == math.inf


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_a_share_outside_the_step_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="not a share"):
        amdahl.speedup(alpha, 2.0)


def test_shares_beyond_the_whole_step_are_refused() -> None:
    with pytest.raises(ValueError, match="more than the whole"):
        amdahl.speedup_with_fixed_terms(0.6, 0.3, 0.2, 2.0)


@pytest.mark.parametrize("s", [0.0, -1.0])
def test_a_kernel_speedup_that_is_not_positive_is_refused(s: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        amdahl.speedup(0.5, s)
    with pytest.raises(ValueError, match="must be positive"):
        amdahl.speedup_with_fixed_terms(0.5, 0.0, 0.0, s)


def test_an_idle_gpu_has_no_kernel_time() -> None:
    with pytest.raises(ValueError, match="never ran"):
        amdahl.share_of_kernel_time(0.5, 1.0)


def test_a_measured_speedup_must_be_positive() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        amdahl.effective_kernel_speedup(0.5, 0.0)

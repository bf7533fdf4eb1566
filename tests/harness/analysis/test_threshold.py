"""The dispatch threshold on hand-made sweeps."""

from __future__ import annotations

import pytest

from harness.analysis.statistics import Estimate
from harness.analysis.threshold import Fit, Sample, fit


def sweep(**ratios: float) -> list[Sample]:
    """m32=1.2 is a dense time 1.2 times cascade's at M_eff = 32."""
    return [Sample(int(name[1:]), Estimate(r, r, r, 3)) for name, r in ratios.items()]


def test_the_knee_lies_between_the_last_slower_point_and_the_next() -> None:
    assert fit(sweep(m32=1.4, m128=1.2, m512=1.1, m1024=0.67)) == Fit(1024, 512)


def test_a_single_faster_point_below_a_slower_one_is_no_threshold() -> None:
    assert fit(sweep(m32=0.9, m128=1.2, m512=0.8)) == Fit(512, 128)


def test_order_does_not_matter() -> None:
    assert fit(sweep(m512=0.8, m32=1.3, m128=1.2)) == Fit(512, 128)


def test_dense_everywhere() -> None:
    assert fit(sweep(m32=0.9, m128=1.0)) == Fit(32, None)


def test_dense_nowhere() -> None:
    assert fit(sweep(m32=1.2, m128=1.1)) == Fit(None, 128)


def test_one_percent_is_a_tie() -> None:
    assert fit(sweep(m32=1.01)).m_sat == 32
    assert fit(sweep(m32=1.02)).m_sat is None


def test_nothing_swept() -> None:
    with pytest.raises(ValueError, match="no point"):
        fit([])


def test_the_papers_own_table_16_gives_the_papers_threshold() -> None:
    """Read as if its GKV column were the dense backend's, which it is not."""
    assert fit(sweep(m32=1.00, m128=1.02, m512=0.97, m1024=0.67)) == Fit(512, 128)

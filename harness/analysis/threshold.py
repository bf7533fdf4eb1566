"""The dispatch threshold M_sat read off a sweep of both children over M_eff (§3.6, B.4b, Table 16).

The paper compares the dispatcher's own time with cascade's, which below the threshold is cascade
with cascade; here dense and cascade are each forced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.statistics import Estimate

TIE = 0.01
"""Dense counts as no slower up to one percent: below that runs of one cell are not told apart."""


@dataclass(frozen=True)
class Sample:
    """One point of the sweep: M_eff in rows and dense's time over cascade's (below 1: faster)."""

    m_eff: int
    dense_to_cascade: Estimate


@dataclass(frozen=True)
class Fit:
    """m_sat: the smallest sampled M_eff from which dense is no slower anywhere above; None: none.

    below: the largest sampled M_eff under it, so the crossover lies in (below, m_sat].
    """

    m_sat: int | None
    below: int | None


def fit(samples: Sequence[Sample]) -> Fit:
    """The threshold. Raises ValueError without a sample: nothing was swept."""
    if not samples:
        raise ValueError("no point at which both dense and cascade were forced")
    m_sat = None
    slower = None
    for sample in sorted(samples, key=lambda one: -one.m_eff):
        if sample.dense_to_cascade.value > 1.0 + TIE:
            slower = sample.m_eff
            break
        m_sat = sample.m_eff
    return Fit(m_sat, slower)

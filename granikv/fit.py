"""Fitting a device's cost coefficients to measured times (`granikv.cost`).

Least squares over relative errors with no coefficient below zero: a coefficient is a time per byte
or per operation, and a 10 µs step matters as much as a 1 ms step. Numbers in, numbers out: what was
measured, and how, is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from granikv.correction import Correction, Place
from granikv.cost import (
    Geometry,
    PagedChild,
    PagedCost,
    Reads,
    Residuals,
    SharedChild,
    SharedCost,
    SharedTerms,
    Tile,
)

Floats = NDArray[np.float64]

_SLABS, _PRODUCTS, _OWN = 2, 3, (4, 5)
"""Columns of SharedCost: of bytes and products only the larger counts."""
_STARTS = (0.25, 0.5, 0.75)
"""Parts of the samples, those of fewest products a byte, that are first taken to be byte-bound."""
_ROUNDS = 30
_DIGITS = 5


class Sample(NamedTuple):
    """One measured step of one child.

    weight: how much its error counts; more where children are close, since only there can an error
    change the choice.
    """

    reads: Reads
    geometry: Geometry
    us: float
    weight: float = 1.0


def fit_paged(samples: Sequence[Sample]) -> PagedChild:
    """Coefficients of a stock kernel. Raises ValueError without enough samples."""
    rows = np.array([PagedCost.quantities(s.reads, s.geometry) for s in samples])
    _enough(samples, len(PagedCost._fields))
    cost = PagedCost(*_rounded(_solve(rows, samples)))
    predicted = [cost.microseconds(s.reads, s.geometry) for s in samples]
    correction = _correction(predicted, samples)
    return PagedChild(cost, _residuals(predicted, samples, correction), correction)


def fit_shared(samples: Sequence[Sample], tile: Tile) -> SharedChild:
    """Coefficients of a sharing child. Raises ValueError without enough samples.

    Fitted with the rows' own reads beside the products and after them; the closer fit is kept.
    """
    _enough(samples, len(SharedCost._fields))
    rows = np.array([SharedTerms(s.reads, s.geometry, tile).quantities() for s in samples])
    fits = [(_roofline(rows, samples, overlapped), overlapped) for overlapped in (False, True)]
    (_, cost), overlapped = min(fits)
    predicted = [cost.combined(row, overlapped) for row in rows.tolist()]
    correction = _correction(predicted, samples)
    residuals = _residuals(predicted, samples, correction)
    return SharedChild(cost, overlapped, tile, residuals, correction)


def _roofline(
    rows: Floats, samples: Sequence[Sample], overlapped: bool
) -> tuple[float, SharedCost]:
    """Loss and coefficients of the best fit found.

    Which of bytes and products binds in a sample depends on the coefficients, so the two are
    determined in turn until the assignment stands still.
    """
    columns = [_SLABS, *_OWN] if overlapped else [_SLABS]
    ratio = rows[:, _PRODUCTS] / np.maximum(rows[:, columns].sum(axis=1), 1e-12)
    found = []
    for quantile in _STARTS:
        by_bytes = ratio <= np.quantile(ratio, quantile)
        for _ in range(_ROUNDS):
            binding = rows.copy()
            binding[np.ix_(~by_bytes, columns)] = 0.0
            binding[by_bytes, _PRODUCTS] = 0.0
            cost = SharedCost(*_rounded(_solve(binding, samples)))
            found.append(
                (_loss([cost.combined(r, overlapped) for r in rows.tolist()], samples), cost)
            )
            of_bytes = rows[:, columns] @ np.array(cost)[columns]
            larger = of_bytes >= cost.us_per_gflop * rows[:, _PRODUCTS]
            if (larger == by_bytes).all():
                break
            by_bytes = larger
    return min(found)


def _solve(rows: Floats, samples: Sequence[Sample]) -> Floats:
    weights = np.sqrt([s.weight for s in samples])
    scaled = rows * (weights / np.array([s.us for s in samples]))[:, None]
    norms = np.linalg.norm(scaled, axis=0)
    norms[norms == 0] = 1.0
    solution, _ = nnls(scaled / norms, weights)
    return np.asarray(solution / norms, dtype=np.float64)


def _errors(predicted: Sequence[float], samples: Sequence[Sample]) -> Floats:
    errors: Floats = np.abs(np.array(predicted) / np.array([s.us for s in samples]) - 1)
    return errors


def _loss(predicted: Sequence[float], samples: Sequence[Sample]) -> float:
    return float(np.array([s.weight for s in samples]) @ _errors(predicted, samples) ** 2)


def _correction(predicted: Sequence[float], samples: Sequence[Sample]) -> Correction:
    """Of each sample, by how much the terms are off; a place as it reads back from a file."""
    places = tuple(Place(*_rounded(np.array(s.reads.place(s.geometry)))) for s in samples)
    ratios = np.array([s.us for s in samples]) / np.maximum(np.array(predicted), 1e-9)
    return Correction(places, tuple(_rounded(np.maximum(ratios, 1e-9))))


def _residuals(
    predicted: Sequence[float], samples: Sequence[Sample], correction: Correction
) -> Residuals:
    """How far predictions are off where a sample's own measurement is not looked at."""
    factors = [correction.factor_without(index) for index in range(len(samples))]
    errors = _errors([f * p for f, p in zip(factors, predicted, strict=True)], samples)
    median, p95, largest = (round(float(np.quantile(errors, q)), 4) for q in (0.5, 0.95, 1.0))
    return Residuals(len(samples), median, p95, largest)


def _rounded(values: Floats) -> list[float]:
    """More digits than the measurements resolve, fewer than a float's."""
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def _enough(samples: Sequence[Sample], coefficients: int) -> None:
    if len(samples) < coefficients:
        raise ValueError(
            f"{len(samples)} measured steps cannot determine {coefficients} coefficients"
        )

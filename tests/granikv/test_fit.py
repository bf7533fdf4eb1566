"""The fit gives back the coefficients that made the times, exactly without noise, nearly with."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from granikv.correction import Correction
from granikv.cost import Geometry, PagedCost, Reads, SharedCost, SharedTerms, Tile
from granikv.fit import Sample, fit_paged, fit_shared

TILE = Tile(128, 64, 132)
PAGED = PagedCost(7.0, 0.004, 113.0, 150.0)
DENSE = SharedCost(12.0, 0.002, 250.0, 1.4, 113.0, 150.0, 600.0)
GEOMETRIES = (Geometry(8, 4, 128, 128, 2), Geometry(4, 5, 128, 128, 2))


def _steps(count: int, seed: int) -> list[tuple[Reads, Geometry]]:
    draw, steps = random.Random(seed), []
    for number in range(count):
        rows = draw.choice((1, 3, 6, 12, 24, 48, 96, 192, 256))
        classes = draw.choice((0, 1, 4)) if rows >= 4 else draw.choice((0, 1))
        length = draw.choice((192, 384, 768, 1536, 3072, 6144, 12288))
        own = rows * draw.choice((32, 128, 512))
        reads = Reads.of(rows, own, [(length, rows // max(classes, 1))] * classes)
        if number % 3 == 0:
            reads = reads.keeping(reads.lengths < 0)
        steps.append((reads, GEOMETRIES[number % 2]))
    return steps


def _dense_us(reads: Reads, geometry: Geometry, overlapped: bool = False) -> float:
    return DENSE.combined(SharedTerms(reads, geometry, TILE).quantities(), overlapped)


def _noisy(us: float, draw: random.Random, noise: float) -> float:
    return us * (1 + draw.uniform(-noise, noise))


def test_exact_times_give_the_coefficients_back() -> None:
    steps = _steps(150, seed=1)
    paged = fit_paged([Sample(r, g, PAGED.microseconds(r, g)) for r, g in steps])
    assert paged.cost == pytest.approx(PAGED, rel=1e-3)
    assert paged.residuals.largest < 5e-3


@pytest.mark.parametrize("overlapped", [False, True])
def test_whether_own_reads_overlap_is_found_out(overlapped: bool) -> None:
    samples = [Sample(r, g, _dense_us(r, g, overlapped)) for r, g in _steps(200, seed=1)]
    dense = fit_shared(samples, TILE)
    assert dense.overlapped is overlapped
    assert dense.cost == pytest.approx(DENSE, rel=0.02)
    assert dense.residuals.points == 200
    assert dense.residuals.largest < 5e-3


@pytest.mark.parametrize("seed", range(4))
def test_noise_of_five_percent_moves_predictions_by_less(seed: int) -> None:
    """Judged on steps that were not fitted."""
    draw, steps = random.Random(seed), _steps(150, seed)
    paged = fit_paged(
        [Sample(r, g, _noisy(PAGED.microseconds(r, g), draw, 0.05)) for r, g in steps]
    )
    dense = fit_shared([Sample(r, g, _noisy(_dense_us(r, g), draw, 0.05)) for r, g in steps], TILE)
    for reads, geometry in _steps(100, seed + 100):
        expected = PAGED.microseconds(reads, geometry)
        assert paged.cost.microseconds(reads, geometry) == pytest.approx(expected, rel=0.04)
        predicted = dense.microseconds(dense.terms(reads, geometry))
        assert predicted == pytest.approx(_dense_us(reads, geometry), rel=0.05)
    assert 0.01 < dense.residuals.median < dense.residuals.largest < 0.12


def test_what_the_terms_leave_out_is_learnt_from_the_steps_nearby() -> None:
    """A kernel that takes half as long again from 48 rows on: no term says so."""

    def edged(reads: Reads, geometry: Geometry) -> float:
        return _dense_us(reads, geometry) * (1.5 if reads.rows >= 48 else 1.0)

    dense = fit_shared([Sample(r, g, edged(r, g)) for r, g in _steps(300, 7)], TILE)
    bare = replace(dense, correction=Correction())
    off, learnt = [], []
    for reads, geometry in _steps(100, 107):
        terms, us = dense.terms(reads, geometry), edged(reads, geometry)
        off.append(abs(bare.microseconds(terms) / us - 1))
        learnt.append(abs(dense.microseconds(terms) / us - 1))
    assert sum(learnt) < sum(off) / 3
    assert dense.residuals.median < 0.05


def test_no_coefficient_is_negative() -> None:
    """Times that fall with the work: the fit does not extrapolate below nothing."""
    steps = _steps(60, seed=3)
    samples = [Sample(r, g, 100.0 - 0.1 * r.rows) for r, g in steps]
    assert min(fit_paged(samples).cost) >= 0
    assert min(fit_shared(samples, TILE).cost) >= 0


def test_weights_pull_the_fit() -> None:
    """Two contradicting halves: the heavy one is met more closely."""
    steps = _steps(80, seed=5)
    samples = [
        Sample(r, g, PAGED.microseconds(r, g) * (1.2 if i % 2 else 1.0), 9.0 if i % 2 else 1.0)
        for i, (r, g) in enumerate(steps)
    ]
    cost = fit_paged(samples).cost
    errors = [abs(cost.microseconds(s.reads, s.geometry) / s.us - 1) for s in samples]
    assert sum(errors[1::2]) < 0.5 * sum(errors[0::2])


def test_too_few_samples_are_refused() -> None:
    samples = [Sample(r, g, 1.0) for r, g in _steps(3, seed=1)]
    with pytest.raises(ValueError, match="3 measured steps cannot determine 4 coefficients"):
        fit_paged(samples)
    with pytest.raises(ValueError, match="cannot determine 7"):
        fit_shared(samples, TILE)

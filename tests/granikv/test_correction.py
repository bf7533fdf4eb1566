"""Factors learnt at measured steps: exact there, between them between, none without steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from granikv.correction import Correction, Place

NEAR = Place(8, 1024, 64, 1, 8)
FAR = Place(256, 16384, 512, 4, 8)


def test_without_steps_nothing_is_corrected() -> None:
    assert Correction().factor(NEAR) == 1.0
    assert Correction((NEAR,), (2.0,)).factor_without(0) == 1.0


def test_one_step_speaks_for_all() -> None:
    assert Correction((NEAR,), (1.5,)).factor(FAR) == pytest.approx(1.5)


def test_the_nearer_step_counts_more() -> None:
    correction = Correction((NEAR, FAR), (1.0, 2.0))
    assert 1.0 < correction.factor(NEAR) < 1.1
    assert 1.9 < correction.factor(FAR) < 2.0
    assert correction.factor_without(0) == pytest.approx(2.0)


places = st.builds(
    Place,
    st.integers(1, 512),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
    st.integers(0, 64),
    st.sampled_from((1, 2, 4, 8)),
)


@given(st.lists(st.tuples(places, st.floats(0.1, 10)), min_size=1, max_size=12), places)
def test_a_factor_lies_among_the_ratios(steps: list[tuple[Place, float]], place: Place) -> None:
    correction = Correction(tuple(p for p, _ in steps), tuple(ratio for _, ratio in steps))
    low, high = min(correction.ratios), max(correction.ratios)
    assert low * (1 - 1e-9) <= correction.factor(place) <= high * (1 + 1e-9)
    assert Correction.parse(correction.document(), "here") == correction


@pytest.mark.parametrize(
    "wrong",
    ["words", "1 2 3", "1 2 3 1 8 -1", "1 2 3 1 8 0", "1 2 3 1 8 nan", [[1.0]]],
)
def test_a_wrong_file_is_one_line(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"^here must hold"):
        Correction.parse(wrong, "here")


def test_a_ratio_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        Correction((NEAR,), (0.0,))

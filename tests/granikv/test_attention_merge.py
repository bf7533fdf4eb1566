"""The log-sum-exp merge: empty sides, views, aliasing, and what a wrong base would do."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from granikv.attention import (
    Partial,
    attend,
    lse_base2_to_natural,
    lse_natural_to_base2,
    merge,
)
from tests.granikv.attention_cases import relative_error

N, HEADS, D = 5, 4, 32
SCALE = D**-0.5
EMPTY_MARKS = (-torch.inf, torch.inf)


def _parts(lengths: tuple[int, ...], seed: int = 0) -> tuple[list[Partial], Partial]:
    """Partials over consecutive key ranges, and the reference over all the keys."""
    g = torch.Generator().manual_seed(seed)
    q = 3.0 * torch.randn(N, HEADS, D, generator=g)
    k = torch.randn(sum(lengths), 2, D, generator=g)
    v = torch.randn(sum(lengths), 2, D, generator=g)
    pairs = zip(torch.split(k, list(lengths)), torch.split(v, list(lengths)), strict=True)
    return [attend(q, kp, vp, SCALE) for kp, vp in pairs], attend(q, k, v, SCALE)


def _assert_equal(actual: Partial, expected: Partial) -> None:
    assert relative_error(actual.out, expected.out) <= 1e-5
    torch.testing.assert_close(actual.lse, expected.lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lengths", [(40,), (40, 1), (1, 40, 300), (0, 7), (9, 0, 9, 4, 2)])
def test_parts_merge_to_the_whole(lengths: tuple[int, ...]) -> None:
    parts, whole = _parts(lengths)
    _assert_equal(merge(parts), whole)


def test_order_and_nesting_do_not_matter() -> None:
    (a, b, c), whole = _parts((40, 17, 3))
    for x, y, z in itertools.permutations((a, b, c)):
        _assert_equal(merge([merge([x, y]), z]), whole)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("mark", EMPTY_MARKS)
def test_one_side_empty(mark: float, in_place: bool) -> None:
    (part,), _ = _parts((40,))
    nothing = Partial(torch.full((N, HEADS, D), torch.nan), torch.full((N, HEADS), mark))
    for pair in ([part, nothing], [nothing, part]):
        target = Partial(torch.empty(N, HEADS, D), torch.empty(N, HEADS)) if in_place else None
        _assert_equal(merge(pair, into=target), part)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("marks", list(itertools.product(EMPTY_MARKS, repeat=2)))
def test_both_sides_empty(marks: tuple[float, float], in_place: bool) -> None:
    sides = [
        Partial(torch.full((N, HEADS, D), torch.nan), torch.full((N, HEADS), mark))
        for mark in marks
    ]
    merged = merge(sides, into=sides[0] if in_place else None)
    assert (merged.out == 0).all()
    assert (merged.lse == -torch.inf).all()


def test_empty_and_full_rows_side_by_side() -> None:
    (a, b), whole = _parts((40, 9))
    for part, row in ((a, 0), (b, 0), (a, 1), (b, 2)):
        part.out[row], part.lse[row] = torch.nan, -torch.inf
    merged = merge([a, b])
    assert (merged.out[0] == 0).all()
    torch.testing.assert_close(merged.out[1], b.out[1])
    torch.testing.assert_close(merged.out[2], a.out[2])
    torch.testing.assert_close(merged.out[3:], whole.out[3:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shift", [-3.0e38, -1e30, 1e30, 3.0e38])
def test_extreme_sums_do_not_overflow(shift: float) -> None:
    (a, b), _ = _parts((40, 9))
    shifted = [Partial(p.out, torch.full_like(p.lse, shift)) for p in (a, b)]
    torch.testing.assert_close(merge(shifted).out, (a.out + b.out) / 2)


def test_a_real_nan_is_not_hidden() -> None:
    (a, b), _ = _parts((40, 9))
    a.lse[3] = torch.nan
    assert merge([a, b]).out[3].isnan().all()
    assert not merge([a, b]).out[:3].isnan().any()


def test_noncontiguous_views() -> None:
    """A head-major lse, as FlashAttention returns it, transposed; and a strided out."""
    (a, b), whole = _parts((40, 9))
    head_major = torch.empty(HEADS, N)
    head_major.copy_(a.lse.T)
    wide = torch.full((N, HEADS, 2 * D), torch.nan)
    wide[..., ::2] = a.out
    viewed = Partial(wide[..., ::2], head_major.T)
    assert not viewed.lse.is_contiguous()
    _assert_equal(merge([viewed, b]), whole)
    _assert_equal(merge([b, viewed], into=viewed), whole)


@pytest.mark.parametrize("target", [0, 1])
def test_in_place_where_an_input_is_the_output(target: int) -> None:
    parts, whole = _parts((40, 9))
    other = Partial(*(t.clone() for t in parts[1 - target]))
    result = merge(parts, into=parts[target])
    assert result is parts[target]
    _assert_equal(parts[target], whole)
    assert torch.equal(parts[1 - target].out, other.out)
    assert torch.equal(parts[1 - target].lse, other.lse)


def test_in_place_where_output_overlaps_both_inputs_by_a_row() -> None:
    (a, b), whole = _parts((40, 9))
    outs, lses = torch.empty(2 * N, HEADS, D), torch.empty(2 * N, HEADS)
    outs[:N], outs[N:], lses[:N], lses[N:] = a.out, b.out, a.lse, b.lse
    sides = [Partial(outs[:N], lses[:N]), Partial(outs[N:], lses[N:])]
    _assert_equal(merge(sides, into=Partial(outs[2 : N + 2], lses[2 : N + 2])), whole)


def test_the_same_partial_twice() -> None:
    (a,), _ = _parts((40,))
    doubled = Partial(a.out.clone(), a.lse + math.log(2.0))
    _assert_equal(merge([a, a], into=a), doubled)


def test_inputs_are_not_written() -> None:
    (a, b), _ = _parts((40, 9))
    before = [t.clone() for t in (*a, *b)]
    merge([a, b])
    assert all(torch.equal(x, y) for x, y in zip(before, (*a, *b), strict=True))


def test_nothing_to_merge_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one partial"):
        merge([])


def test_a_base2_lse_is_caught_at_a_long_prefix() -> None:
    """Prefix 4,096, suffix 64: mixed bases look plausible and are wrong by far over 1e-5."""
    (prefix, suffix), whole = _parts((4096, 64))
    base2 = lse_natural_to_base2(prefix.lse)
    torch.testing.assert_close(base2, torch.log2(torch.exp(prefix.lse.double())).float())
    mixed = merge([Partial(prefix.out, base2), suffix])
    assert mixed.out.isfinite().all()
    assert relative_error(mixed.out, whole.out) > 1e-3
    _assert_equal(merge([Partial(prefix.out, lse_base2_to_natural(base2)), suffix]), whole)

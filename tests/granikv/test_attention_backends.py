"""Every backend against the float32 reference, over poisoned caches."""

from __future__ import annotations

import pytest
import torch

from granikv.attention import BACKENDS, Segment, StepInputs, backend
from granikv.attention.cascade import CascadeBackend
from tests.granikv.attention_cases import (
    Case,
    Shared,
    assert_matches_reference,
    build,
    random_case,
)

SLAB_BACKENDS = ("paged", "cascade", "dense", "contiguous_unshared")
PAGE_BACKENDS = ("paged", "cascade")

ALL = tuple(range(6))
LAYOUTS: dict[str, tuple[list[int], list[Shared]]] = {
    "one prefix": ([140, 133, 150, 129, 161, 145], [Shared(ALL, 0, 128)]),
    "no segment": ([5, 1, 90, 33, 64, 7], []),
    "some rows outside": ([140, 9, 150, 1, 161, 145], [Shared((0, 2, 4), 0, 128)]),
    "empty suffix in one row": ([128, 133, 150, 128, 161, 145], [Shared(ALL, 0, 128)]),
    "empty suffix in every row": ([128] * 6, [Shared(ALL, 0, 128)]),
    "empty prefix": ([20, 30, 10, 5, 1, 8], [Shared(ALL, 0, 0)]),
    "prefix without readers": ([20, 30, 10, 5, 1, 8], [Shared((), 0, 16)]),
    "class of one row": ([140, 20, 30, 40, 50, 60], [Shared((0,), 0, 128)]),
    "prefix of one token": ([2, 3, 1, 9, 70, 4], [Shared(ALL, 0, 1)]),
    "p0 above zero": ([90, 80, 85, 99, 81, 77], [Shared(ALL, 11, 60)]),
    "nested": (
        [140, 150, 160, 170, 90, 75],
        [Shared(ALL, 0, 64), Shared((0, 1, 2, 3), 64, 32), Shared((1, 3), 100, 40)],
    ),
    "four classes, common head": (
        [150, 151, 90, 99, 130, 70],
        [
            Shared(ALL, 0, 16),
            Shared((0, 1), 16, 128),
            Shared((2,), 16, 65),
            Shared((3, 4), 20, 70),
            Shared((5,), 16, 1),
        ],
    ),
    "rows out of order": ([140, 150, 160, 170, 90, 75], [Shared((5, 2, 0), 0, 70)]),
    "later level begins earlier elsewhere": (
        [200, 200, 200, 200, 60, 60],
        [Shared((0, 1), 0, 30), Shared((1, 2), 40, 50), Shared((0, 2, 3), 95, 80)],
    ),
    "one long row among short": ([900, 3, 4, 5, 70, 1], [Shared((0, 4), 0, 60)]),
    "a row of no tokens": ([140, 0, 150, 0, 1, 145], [Shared((0, 2, 5), 0, 128)]),
    "no rows": ([], []),
}


@pytest.mark.parametrize("name", SLAB_BACKENDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_slabs(layout: str, name: str) -> None:
    assert_matches_reference(build(*LAYOUTS[layout]), name)


@pytest.mark.parametrize("name", PAGE_BACKENDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ordinary_pages(layout: str, name: str) -> None:
    assert_matches_reference(build(*LAYOUTS[layout], slabs=False), name)


@pytest.mark.parametrize("name", SLAB_BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("group", [1, 2, 4, 5, 7, 8])
def test_gqa_groups(group: int, dtype: torch.dtype, name: str) -> None:
    for seed, (kv_heads, d) in enumerate(zip((1, 2, 4, 8), (32, 64, 128, 32), strict=True)):
        heads = (group * kv_heads, kv_heads)
        layout = LAYOUTS["nested"]
        assert_matches_reference(build(*layout, heads=heads, d=d, dtype=dtype, seed=seed), name)


@pytest.mark.parametrize("name", SLAB_BACKENDS)
@pytest.mark.parametrize("seed", range(12))
def test_random_steps(seed: int, name: str) -> None:
    assert_matches_reference(random_case(seed), name)


@pytest.mark.parametrize("name", SLAB_BACKENDS)
def test_softmax_near_one_hot(name: str) -> None:
    case = build(*LAYOUTS["nested"])
    # Row 1 points along one key of each segment in turn, so hard that only that token counts.
    for position in (7, 70, 120, 149):
        slot = case.step.page_table[1, position].long()
        case.q[1] = 300.0 * case.k_cache[slot].repeat_interleave(2, dim=0)
        expected = case.v_cache[slot].repeat_interleave(2, dim=0)
        torch.testing.assert_close(case.decode("reference")[1], expected, rtol=1e-5, atol=1e-5)
        assert_matches_reference(case, name)


@pytest.mark.parametrize("name", SLAB_BACKENDS)
def test_scores_far_below_zero(name: str) -> None:
    case = build(*LAYOUTS["one prefix"])
    case.k_cache.copy_(case.k_cache.abs())
    case.q.copy_(-1000.0 * case.q.abs())
    assert_matches_reference(case, name)


@pytest.mark.parametrize("block_n", [1, 7, 127, 128, 129, 4096])
def test_cascade_tile_sizes(block_n: int) -> None:
    case = build(*LAYOUTS["one prefix"])
    actual = case.decode(CascadeBackend(block_n))
    torch.testing.assert_close(actual, case.decode("reference"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SLAB_BACKENDS)
def test_strided_inputs(name: str) -> None:
    """q as a slice of a fused projection, caches as every other layer of one buffer."""
    case = build(*LAYOUTS["nested"])
    wide = torch.full((*case.q.shape[:2], 80), torch.nan)
    wide[..., 16:48] = case.q
    caches = torch.full((*case.k_cache.shape[:1], 2, *case.k_cache.shape[1:]), torch.nan)
    caches[:, 1] = case.k_cache
    strided = Case(wide[..., 16:48], caches[:, 1], case.v_cache, case.step, case.scale)
    torch.testing.assert_close(strided.decode(name), case.decode("reference"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SLAB_BACKENDS)
def test_inputs_are_left_alone(name: str) -> None:
    case = build(*LAYOUTS["nested"])
    before = [t.clone() for t in (case.q, case.k_cache, case.v_cache, case.step.page_table)]
    first = case.decode(name)
    assert torch.equal(first, case.decode(name)), "a second layer of the step differs"
    after = (case.q, case.k_cache, case.v_cache, case.step.page_table)
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", SLAB_BACKENDS)
def test_output_hardly_depends_on_the_batch(name: str) -> None:
    """A row alone and among others: equal within the stated band, float32 1e-5 of max-abs."""
    case = build(*LAYOUTS["nested"])
    together = case.decode(name)
    for row, length in enumerate(case.step.seq_lens):
        own = tuple(
            Segment(s.base, s.p0, s.length, torch.tensor([0]))
            for s in case.step.segments
            if row in s.rows
        )
        alone = Case(
            case.q[row : row + 1],
            case.k_cache,
            case.v_cache,
            StepInputs(case.step.page_table[row : row + 1], [length], own),
            case.scale,
        )
        torch.testing.assert_close(alone.decode(name)[0], together[row], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["dense", "contiguous_unshared"])
def test_pages_are_refused_where_a_slab_is_needed(name: str) -> None:
    case = build(*LAYOUTS["one prefix"], slabs=False)
    with pytest.raises(ValueError, match="contiguous slabs only"):
        case.decode(name)


@pytest.mark.parametrize("name", SLAB_BACKENDS)
def test_heads_must_divide(name: str) -> None:
    case = build(*LAYOUTS["one prefix"])
    case.q = case.q[:, :3]
    with pytest.raises(ValueError, match="3 query heads are no multiple of 2 KV heads"):
        case.decode(name)


@pytest.mark.parametrize("name", ["dense", "cascade", "contiguous_unshared"])
def test_a_slab_past_the_pool_is_an_error(name: str) -> None:
    case = build(*LAYOUTS["one prefix"])
    outside = Segment(case.k_cache.shape[0] - 100, 0, 128, torch.arange(6))
    step = StepInputs(case.step.page_table, case.step.seq_lens, (outside,))
    with pytest.raises(ValueError, match=r"slab .* ends past the cache"):
        case.decode(name, step)


def test_registry() -> None:
    assert set(BACKENDS) == {*SLAB_BACKENDS, "reference"}
    for name in BACKENDS:
        assert backend(name).name == name
    with pytest.raises(ValueError, match="no attention backend 'flash'; there are: paged, "):
        backend("flash")


def test_cascade_needs_a_tile() -> None:
    with pytest.raises(ValueError, match="block_n must be at least 1"):
        CascadeBackend(0)

"""The work list: every reader, head and token of a plan exactly once, for any composition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from granikv.attention.kernels.worklist import (
    Arrays,
    Capacity,
    Counts,
    Int32,
    Tiling,
    WorkListOverflow,
    buffer_length,
    fill,
    split,
    used_length,
)
from granikv.plan import OPEN_END, DecodePlan, PagedRange, Segment


def _built(
    plan: DecodePlan, tiling: Tiling, depth: int = 4, capacity: Capacity | None = None
) -> tuple[Counts, Arrays[Int32], Capacity]:
    capacity = capacity or Capacity.for_rows(plan.rows, tiling, depth)
    buffer = np.full(buffer_length(capacity, tiling), -7, dtype=np.int32)
    arrays = split(buffer, capacity, tiling)
    counts = fill(plan, tiling, capacity, arrays)
    assert (buffer[used_length(counts, capacity, tiling) :] == -7).all(), "beyond what is copied"
    return counts, arrays, capacity


def _plan(rows: int, segments: list[tuple[int, int, list[int]]]) -> DecodePlan:
    """Segments are (p0, length, readers); bases lie far apart."""
    planned, ends = [], [0] * rows
    for number, (p0, length, readers) in enumerate(segments):
        planned.append(Segment(1000 * number, p0, length, tuple(readers)))
        for row in readers:
            ends[row] = max(ends[row], p0 + length)
    return DecodePlan(rows, tuple(planned), tuple((PagedRange(end, None),) for end in ends))


@st.composite
def _plans(draw: st.DrawFn) -> DecodePlan:
    rows = draw(st.integers(1, 40))
    segments, ends = [], [0] * rows
    for _ in range(draw(st.integers(0, 8))):
        readers = sorted(draw(st.sets(st.integers(0, rows - 1), max_size=rows)))
        length = draw(st.sampled_from([0, 1, 5, 64, 65, 500, 3000]))
        p0 = max((ends[row] for row in readers), default=0)
        segments.append((p0, length, readers))
        for row in readers:
            ends[row] = p0 + length
    return _plan(rows, segments)


_TILINGS = st.builds(
    Tiling,
    kv_heads=st.sampled_from([1, 2, 8]),
    group=st.sampled_from([1, 4, 5, 7, 8]),
    block_m=st.sampled_from([16, 64, 128]),
    block_n=st.sampled_from([16, 64]),
    programs=st.sampled_from([1, 4, 132]),
    first_part=st.sampled_from([0, 11]),
)


@given(_plans(), _TILINGS)
@settings(max_examples=200, deadline=None)
def test_every_reader_head_and_token_once(plan: DecodePlan, tiling: Tiling) -> None:
    counts, arrays, _ = _built(plan, tiling, depth=8)
    spans: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for slot, tokens, head, m0, _, rows_at, _, _ in arrays.items[: counts.items].tolist():
        assert tokens > 0
        spans.setdefault((rows_at, head, m0), []).append((slot, slot + tokens))
    expected = {}
    rows_at = 0
    for segment in plan.segments:
        if not segment.length or not segment.rows:
            continue
        assert segment.base is not None
        assert tuple(arrays.rows[rows_at : rows_at + len(segment.rows)]) == segment.rows
        folded = len(segment.rows) * tiling.group
        for head in range(tiling.kv_heads):
            for m0 in range(0, folded, tiling.block_m):
                expected[rows_at, head, m0] = (segment.base, segment.base + segment.length)
        rows_at += len(segment.rows)
    assert spans.keys() == expected.keys()
    for key, unordered in spans.items():
        pieces = sorted(unordered)
        assert pieces[0][0] == expected[key][0]
        assert pieces[-1][1] == expected[key][1]
        assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))


@given(_plans(), _TILINGS)
@settings(max_examples=200, deadline=None)
def test_each_row_merges_exactly_the_parts_that_are_written_for_it(
    plan: DecodePlan, tiling: Tiling
) -> None:
    counts, arrays, _ = _built(plan, tiling, depth=8)
    written: dict[tuple[int, int], set[int]] = {}
    for _, _, head, m0, m_total, rows_at, part, pads in arrays.items[: counts.items].tolist():
        for m in range(m0, min(m0 + tiling.block_m, m_total)):
            local, q_head = m // tiling.group, head * tiling.group + m % tiling.group
            for pad in range(pads + 1):
                at = part + local + pad * (m_total // tiling.group)
                mine = written.setdefault((int(arrays.rows[rows_at + local]), q_head), set())
                assert at not in mine, "a part is written twice"
                mine.add(at)
    for row in range(plan.rows):
        listed = arrays.parts[arrays.part_ptr[row] : arrays.part_ptr[row + 1]].tolist()
        assert len(set(listed)) == len(listed)
        for q_head in range(tiling.kv_heads * tiling.group):
            assert written.get((row, q_head), set()) == set(listed)
    indices = arrays.parts[: counts.parts]
    assert sorted(indices.tolist()) == list(
        range(tiling.first_part, tiling.first_part + counts.parts)
    )


@given(_plans(), _TILINGS)
@settings(max_examples=100, deadline=None)
def test_programs_take_all_items_in_order(plan: DecodePlan, tiling: Tiling) -> None:
    counts, arrays, _ = _built(plan, tiling, depth=8)
    ptr = arrays.program_ptr[: tiling.programs + 1]
    assert ptr[0] == 0
    assert ptr[-1] == counts.items
    assert (np.diff(ptr) >= 0).all()


@pytest.mark.parametrize(
    ("lengths", "readers"),
    [
        ([8192], [256]),
        ([7680], [256]),
        ([2048, 4096, 8192, 16384], [64] * 4),
        ([8192] * 4, [64] * 4),
        ([16384], [8]),
        ([700, 90, 16384, 1], [3, 100, 60, 93]),
        ([2048] * 64, [4] * 64),
    ],
)
def test_the_shares_are_even(lengths: list[int], readers: list[int]) -> None:
    """No program has more than a tenth over the mean, counting what an item costs."""
    tiling = Tiling(8, 4, 128, 128, 132, 0)
    first, segments = 0, []
    for length, count in zip(lengths, readers, strict=True):
        segments.append((0, length, list(range(first, first + count))))
        first += count
    counts, arrays, _ = _built(_plan(first, segments), tiling)
    blocks = -(-arrays.items[: counts.items, 1].astype(np.int64) // tiling.block_n)
    cost = np.concatenate([[0], np.cumsum(blocks + 3)])
    shares = np.diff(cost[arrays.program_ptr[: tiling.programs + 1]])
    assert shares.max() <= 1.1 * cost[-1] / tiling.programs + 4


@pytest.mark.parametrize("lengths", [[8192], [2048, 4096, 8192, 16384], [8192] * 4])
def test_tiles_that_read_the_same_tokens_are_cut_alike(lengths: list[int]) -> None:
    tiling = Tiling(8, 4, 128, 64, 132, 0)
    rows = 256 // len(lengths)
    segments = [(0, n, list(range(i * rows, (i + 1) * rows))) for i, n in enumerate(lengths)]
    counts, arrays, _ = _built(_plan(256, segments), tiling)
    items = arrays.items[: counts.items]
    assert not items[:, 7].any(), "no tile lacks a part"
    cuts: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for slot, tokens, head, m0, *_ in items.tolist():
        cuts.setdefault((head, m0 % 256), set()).add((slot, tokens))
    assert len(set(map(frozenset, cuts.values()))) == 1


def test_ranges_covered_tokens_and_filler_rows() -> None:
    nested = (PagedRange(0, 8), PagedRange(72, None))
    plan = DecodePlan(
        3,
        (Segment(50, 8, 64, (0, 2)), Segment(200, 0, 32, (1,))),
        (nested, (PagedRange(32, None),), nested),
    )
    tiling = Tiling(2, 4, 16, 16, 4, 0)
    capacity = Capacity.for_rows(6, tiling)
    _, arrays, _ = _built(plan, tiling, capacity=capacity)
    assert arrays.covered[:6].tolist() == [64, 32, 64, 0, 0, 0]

    def ranges(row: int) -> list[list[int]]:
        layout = int(arrays.layout[row])
        found = arrays.gaps[arrays.gap_ptr[layout] : arrays.gap_ptr[layout + 1]]
        return [[int(start), int(stop)] for start, stop in found]

    assert ranges(0) == ranges(2) == [[0, 8], [72, OPEN_END]]
    assert ranges(1) == [[32, OPEN_END]]
    assert ranges(3) == ranges(5) == [[0, OPEN_END]]
    assert arrays.part_ptr[3] == arrays.part_ptr[6], "filler rows have no prefix part"


def test_ordinary_pages_are_refused() -> None:
    plan = DecodePlan(2, (Segment(None, 0, 9, (0, 1)),), ((PagedRange(9, None),),) * 2)
    with pytest.raises(ValueError, match="contiguous slabs only"):
        _built(plan, Tiling(1, 1, 16, 16, 4, 0))


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"rows": 2}, "rows"),
        ({"segment_rows": 2}, "segment readers"),
        ({"items": 1}, "prefix items"),
        ({"parts": 2}, "prefix parts"),
        ({"gaps": 1}, "paged ranges"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    changed: dict[str, int], what: str
) -> None:
    plan = DecodePlan(
        3, (Segment(1, 0, 500, (0, 1, 2)),), tuple((PagedRange(500, None),) for _ in range(3))
    )
    tiling = Tiling(2, 1, 16, 16, 4, 0)
    capacity = Capacity.for_rows(3, tiling)._replace(**changed)
    buffer = np.full(buffer_length(capacity, tiling), -7, dtype=np.int32)
    with pytest.raises(WorkListOverflow, match=what):
        fill(plan, tiling, capacity, split(buffer, capacity, tiling))
    assert (buffer == -7).all()

"""The vectorised, remembering `fill` writes what plain loops write, step after step."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from granikv.attention.kernels import worklist
from granikv.attention.kernels.worklist import Arrays, Capacity, Int32, Tiling
from granikv.plan import OPEN_END, DecodePlan, PagedRange, Segment
from tests.granikv.test_kernels_worklist import _TILINGS, _plans


def plainly(plan: DecodePlan, tiling: Tiling, arrays: Arrays[Int32]) -> tuple[int, int]:
    """Loops over segments, rows and items; where the columns are cut is the module's choice."""
    segments = [s for s in plan.segments if s.length and s.rows]
    tiles = tuple(-(-len(s.rows) * tiling.group // tiling.block_m) for s in segments)
    blocks = tuple(-(-s.length // tiling.block_n) for s in segments)
    cut = worklist._cut.__wrapped__(tiles, blocks, tiling)  # made anew: nothing is remembered
    most = cut.pieces.tolist()
    reader_start = np.cumsum([0, *(len(s.rows) for s in segments)]).tolist()
    sizes = [len(s.rows) * n for s, n in zip(segments, most, strict=False)]
    part_start = (tiling.first_part + np.cumsum([0, *sizes])).tolist()
    items = []
    for item, number, piece in zip(cut.items, cut.segment, cut.number, strict=True):
        first, end, head, row, *_, lacking = item.tolist()
        s = segments[number]
        assert s.base is not None
        tokens = min(end, s.length) - first
        folded = len(s.rows) * tiling.group
        part = part_start[number] + piece * len(s.rows)
        where = (s.base + first, tokens, head, row)
        items.append((*where, folded, reader_start[number], part, lacking))
    _write(plan, tiling, segments, most, part_start, arrays)
    arrays.rows[: reader_start[-1]] = [row for s in segments for row in s.rows]
    arrays.program_ptr[: tiling.programs + 1] = cut.program_ptr
    if items:
        arrays.items[: len(items)] = items
    return len(items), sum(sizes)


def _write(
    plan: DecodePlan,
    tiling: Tiling,
    segments: list[Segment],
    most: list[int],
    part_start: list[int],
    arrays: Arrays[Int32],
) -> None:
    """Parts and covered tokens of each row, and its ranges."""
    parts: list[int] = []
    arrays.covered[:] = 0
    arrays.part_ptr[0] = 0
    for row in range(plan.rows):
        for s, count, start in zip(segments, most, part_start, strict=False):
            if row in s.rows:
                local = s.rows.index(row)
                parts += [start + local + at * len(s.rows) for at in range(count)]
                arrays.covered[row] += s.length
        arrays.part_ptr[row + 1] = len(parts)
    arrays.part_ptr[plan.rows + 1 :] = len(parts)
    arrays.parts[: len(parts)] = parts
    kinds: list[tuple[PagedRange, ...]] = []
    for row, ranges in enumerate(plan.paged):
        at = next((i for i, kind in enumerate(kinds) if kind is ranges), len(kinds))
        kinds += [ranges] if at == len(kinds) else []
        arrays.layout[row] = at
    arrays.layout[plan.rows :] = len(kinds)
    arrays.gap_ptr[0] = at = 0
    for number, ranges in enumerate([*kinds, (PagedRange(0, None),)]):
        for start, stop in ranges:
            arrays.gaps[at] = start, OPEN_END if stop is None else stop
            at += 1
        arrays.gap_ptr[number + 1] = at


@settings(max_examples=60, deadline=None)
@given(st.lists(_plans(), min_size=1, max_size=4), _TILINGS)
def test_fill_writes_what_loops_write(plans: list[DecodePlan], tiling: Tiling) -> None:
    """Each plan twice, and in between the others: what is remembered is never another step's."""
    for plan in (*plans, *plans):
        capacity = Capacity.for_rows(plan.rows + 2, tiling, 8)
        length = worklist.buffer_length(capacity, tiling)
        filled, expected = (np.full(length, -7, dtype=np.int32) for _ in range(2))
        arrays = worklist.split(filled, capacity, tiling)
        counts = worklist.fill(plan, tiling, capacity, arrays)
        plain = plainly(plan, tiling, worklist.split(expected, capacity, tiling))
        assert tuple(counts) == plain
        np.testing.assert_array_equal(filled, expected)


def test_a_planners_own_layouts_are_those_of_the_ranges() -> None:
    one, other = (PagedRange(3, None),), (PagedRange(0, 2), PagedRange(5, None))
    plan = DecodePlan(4, (), (other, one, other, one))
    assert plan.layouts.ranges == [other, one]
    assert list(plan.layouts.of_row) == [0, 1, 0, 1]

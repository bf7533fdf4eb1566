"""The cascade's host arrays beside a plain reading of the plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from granikv.attention import cascade_plan
from granikv.attention.cascade_plan import Capacity
from granikv.attention.kernels.worklist import WorkListOverflow
from granikv.plan import NO_SLAB, OPEN_END, DecodePlan, PagedRange, Segment

Steps = tuple[DecodePlan, list[int], int]


@st.composite
def steps(draw: st.DrawFn, page_size: int = 1, slabs: bool = True) -> Steps:
    """A plan, the length of every row of a graph that serves it, and the page size."""
    rows = draw(st.integers(1, 9))
    ends = [0] * rows
    segments = []
    for number in range(draw(st.integers(0, 4))):
        readers = draw(st.lists(st.integers(0, rows - 1), unique=True, max_size=rows))
        gap = draw(st.integers(0, 3)) * page_size
        length = draw(st.integers(0, 50))
        p0 = -(-max((ends[row] for row in readers), default=0) // page_size) * page_size + gap
        base = 1000 * number if slabs and draw(st.booleans()) else None
        segments.append(Segment(base, p0, length, tuple(readers)))
        for row in readers:
            ends[row] = p0 + length
    plan = DecodePlan(rows, tuple(segments), cascade_plan._uncovered(rows, segments))
    filler = draw(st.integers(0, 3))
    own = draw(st.lists(st.integers(0, 20), min_size=rows, max_size=rows))
    lens = [end + more for end, more in zip(ends, own, strict=True)]
    return plan, lens + [1] * filler, page_size


def filled(step: Steps) -> cascade_plan.Arrays[cascade_plan.Int32]:
    plan, lens, page_size = step
    capacity = Capacity.for_rows(len(lens), 4, 64, 10_000, 10_000)
    buffer = np.full(cascade_plan.buffer_length(capacity), -99, dtype=np.int32)
    arrays = cascade_plan.split(buffer, capacity)
    cascade_plan.fill_segments(plan, capacity, page_size, arrays)
    cascade_plan.fill_suffix(np.array(lens), capacity, arrays)
    return arrays


@settings(deadline=None)
@given(steps())
def test_requests_of_level_0_are_the_segments(step: Steps) -> None:
    plan, lens, _ = step
    arrays = filled(step)
    kept = [s for s in plan.segments if s.length and s.rows]
    requests = arrays.query_ptr.size - 1
    assert arrays.page_ptr.size == requests + 1
    assert requests <= len(lens) * 4 + 1, "the library's unsigned difference would wrap"
    assert arrays.query_ptr[0] == arrays.page_ptr[0] == 0
    for i in range(requests):
        rows = arrays.gathered[arrays.query_ptr[i] : arrays.query_ptr[i + 1]]
        tokens = arrays.page_ptr[i + 1] - arrays.page_ptr[i]
        if i >= len(kept):
            assert (rows.size, tokens) == (0, 0)
            continue
        assert tuple(rows) == kept[i].rows
        assert tokens == kept[i].length
        assert arrays.last_page[i] == 1
        assert arrays.p0[i] == kept[i].p0
        assert arrays.base[i] == (NO_SLAB if kept[i].base is None else kept[i].base)
        assert arrays.reader[i] in kept[i].rows


@settings(deadline=None)
@given(steps())
def test_a_row_reads_each_of_its_tokens_once(step: Steps) -> None:
    plan, lens, _ = step
    arrays = filled(step)
    for row, length in enumerate(lens):
        read = [p for s in plan.segments if row in s.rows for p in range(s.p0, s.p0 + s.length)]
        assert arrays.covered[row] == len(read)
        layout = arrays.layout[row]
        for start, stop in arrays.gaps[arrays.gap_ptr[layout] : arrays.gap_ptr[layout + 1]]:
            read.extend(range(start, length if stop == OPEN_END else stop))
        assert sorted(read) == list(range(length))
        assert arrays.suffix_ptr[row + 1] - arrays.suffix_ptr[row] == length - arrays.covered[row]


@settings(deadline=None)
@given(steps())
def test_a_row_lists_its_suffix_and_its_gathered_queries(step: Steps) -> None:
    _, lens, _ = step
    arrays = filled(step)
    assert not arrays.own_ptr.any()
    queries = arrays.gathered[: arrays.query_ptr[-1]]
    for row, length in enumerate(lens):
        own = [row] if length > arrays.covered[row] else []
        listed = arrays.parts[arrays.part_ptr[row] : arrays.part_ptr[row + 1]]
        assert list(listed) == own + [len(lens) + int(j) for j in np.flatnonzero(queries == row)]


@settings(deadline=None)
@given(steps(page_size=16, slabs=False))
def test_whole_pages_leave_the_rest_to_the_rows(step: Steps) -> None:
    plan, lens, page_size = step
    whole = cascade_plan.whole_pages(plan, page_size)
    for before, after in zip(plan.segments, whole.segments, strict=True):
        assert before.length - page_size < after.length <= before.length
        assert after.length % page_size == 0
        assert (after.p0, after.rows) == (before.p0, before.rows)
    assert (whole is plan) == all(s.length % page_size == 0 for s in plan.segments)
    for row in range(plan.rows):
        read = [p for s in whole.segments if row in s.rows for p in range(s.p0, s.p0 + s.length)]
        for start, stop in whole.paged[row]:
            read.extend(range(start, lens[row] if stop is None else stop))
        assert sorted(read) == list(range(lens[row]))
    arrays = filled((whole, lens, page_size))
    pages = sum(s.length // page_size for s in whole.segments if s.rows)
    assert arrays.page_ptr[-1] == pages
    assert set(arrays.last_page) <= {page_size}


def test_a_slab_of_one_row_makes_way_where_there_are_too_many() -> None:
    """Eager admission: each of 80 rows has a slab of its own behind the one that all share."""
    own = tuple(Segment(1000 * (row + 1), 64, 50, (row,)) for row in range(80))
    shared = Segment(1, 0, 64, tuple(range(80)))
    plan = DecodePlan(80, (shared, *own), ((PagedRange(114, None),),) * 80)
    capacity = Capacity.for_rows(80, 2, 64, 10_000, 100_000)
    fitted = cascade_plan.within(plan, capacity)
    assert fitted == DecodePlan(80, (shared,), ((PagedRange(64, None),),) * 80)
    few = DecodePlan(80, (shared, *own[:3]), plan.paged)
    assert cascade_plan.within(few, capacity) is few


def test_a_segment_inside_a_page_is_refused() -> None:
    plan = DecodePlan(1, (Segment(None, 8, 40, (0,)),), ((PagedRange(0, 8), PagedRange(48, None)),))
    with pytest.raises(ValueError, match="position 8 starts inside a page of 16 tokens"):
        cascade_plan.whole_pages(plan, 16)


def test_ranges_that_do_not_fit_are_refused() -> None:
    capacity = Capacity(2, 8, 3, 2, 100, 100)
    arrays = cascade_plan.split(
        np.zeros(cascade_plan.buffer_length(capacity), dtype=np.int32), capacity
    )
    ranges = (PagedRange(0, 1), PagedRange(2, 3), PagedRange(4, None))
    with pytest.raises(WorkListOverflow, match=r"3 paged ranges, .* hold 2"):
        cascade_plan.fill_segments(DecodePlan(2, (), (ranges,) * 2), capacity, 1, arrays)


def test_every_array_starts_at_a_multiple_of_16_bytes() -> None:
    capacity = Capacity.for_rows(7, 3, 64, 10, 10)
    buffer = np.zeros(cascade_plan.buffer_length(capacity), dtype=np.int32)
    first = buffer.__array_interface__["data"][0]
    for array in cascade_plan.split(buffer, capacity):
        assert (array.__array_interface__["data"][0] - first) % 16 == 0

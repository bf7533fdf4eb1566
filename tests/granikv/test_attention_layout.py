"""Which slots of a row are gathered: against an obviously right list of positions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from granikv.attention import Segment, StepInputs
from granikv.attention.layout import RowGroup, segment_levels, uncovered_groups, whole_groups


def _step(seq_lens: list[int], segments: list[tuple[int, int, list[int]]]) -> StepInputs:
    width = max(seq_lens, default=0)
    table = torch.arange(len(seq_lens) * width).view(len(seq_lens), width)
    for row, length in enumerate(seq_lens):
        table[row, length:] = -1
    return StepInputs(
        table,
        seq_lens,
        tuple(Segment(0, p0, length, torch.tensor(rows)) for p0, length, rows in segments),
    )


def _slots_by_row(groups: tuple[RowGroup, ...], n: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(n)]
    for group in groups:
        rows = range(n) if group.rows is None else group.rows.tolist()
        for i, row in enumerate(rows):
            assert not found[row], "a row stands in two groups"
            kept = group.slots[i]
            if group.padding is not None:
                kept = kept[~group.padding[i, 0]]
            found[row] = kept.tolist()
            assert set(group.slots[i].tolist()) == set(found[row]), "filler reads a foreign slot"
    return found


@st.composite
def _steps(draw: st.DrawFn) -> StepInputs:
    n = draw(st.integers(1, 12))
    reach = [draw(st.integers(0, 20)) for _ in range(n)]
    segments: list[tuple[int, int, list[int]]] = []
    for _ in range(draw(st.integers(0, 5))):
        rows = draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True))
        length = draw(st.integers(1, 40))
        p0 = max(reach[row] for row in rows) + draw(st.integers(0, 3))
        segments.append((p0, length, rows))
        for row in rows:
            reach[row] = p0 + length
    seq_lens = [r + draw(st.sampled_from([0, 0, 1, 5, 70, 400])) for r in reach]
    return _step(seq_lens, draw(st.permutations(segments)))


@given(_steps())
@settings(max_examples=150, deadline=None)
def test_uncovered_slots_are_the_positions_outside_every_segment(step: StepInputs) -> None:
    expected = []
    for row, length in enumerate(step.seq_lens):
        covered = {p for s in step.segments if row in s.rows for p in range(s.p0, s.p0 + s.length)}
        expected.append([int(step.page_table[row, p]) for p in range(length) if p not in covered])
    assert _slots_by_row(uncovered_groups(step), len(step.seq_lens)) == expected


@given(_steps())
@settings(max_examples=50, deadline=None)
def test_whole_slots_are_the_page_table(step: StepInputs) -> None:
    expected = [step.page_table[r, :length].tolist() for r, length in enumerate(step.seq_lens)]
    assert _slots_by_row(whole_groups(step), len(step.seq_lens)) == expected


@given(_steps())
@settings(max_examples=50, deadline=None)
def test_levels_hold_every_segment_once_and_no_row_twice(step: StepInputs) -> None:
    levels = segment_levels(step)
    placed = [read.segment for level in levels for read in level]
    assert sorted(map(id, placed)) == sorted(map(id, step.segments))
    for level in levels:
        rows = [row for read in level for row in read.segment.rows.tolist()]
        assert len(rows) == len(set(rows))


def test_every_layer_shares_one_layout() -> None:
    step = _step([9, 9], [(0, 4, [0, 1])])
    assert segment_levels(step) is segment_levels(step)
    assert uncovered_groups(step) is uncovered_groups(step)
    assert whole_groups(step) is whole_groups(step)


def test_rows_of_one_length_need_no_padding() -> None:
    (group,) = uncovered_groups(_step([9, 9, 9], [(0, 4, [0, 1, 2])]))
    assert group.rows is None
    assert group.padding is None


def test_one_long_row_does_not_pad_the_short_ones() -> None:
    groups = whole_groups(_step([2000, 3, 4, 5], []))
    assert sum(group.slots.numel() for group in groups) == 2000 + 3 * 5


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([(0, 6, [0, 1]), (5, 2, [1])], r"row 1: the segment at 5\.\.7 overlaps another"),
        ([(4, 6, [0])], r"row 0: the segment at 4\.\.10 leaves its sequence of 9 tokens"),
        ([(0, 4, [1, 1])], r"row 1: the segment at 0\.\.4 overlaps another"),
        ([(-1, 4, [1])], r"row 1: the segment at -1\.\.3 overlaps another"),
    ],
)
def test_impossible_segments_are_refused(
    segments: list[tuple[int, int, list[int]]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        uncovered_groups(_step([9, 9], segments))


def test_inputs_that_do_not_fit_together_are_refused() -> None:
    table = torch.zeros(2, 8, dtype=torch.int32)
    with pytest.raises(ValueError, match="one row for each of the 3 sequence lengths"):
        StepInputs(table, [1, 2, 3])
    with pytest.raises(ValueError, match="9 tokens exceeds the page table's 8 columns"):
        StepInputs(table, [1, 9])

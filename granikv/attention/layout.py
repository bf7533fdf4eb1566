"""What the layers of one step share: which segments can run side by side, and the rest to gather.

Everything here is computed once a step (`StepInputs.once`) and read by every layer.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import torch
from torch import Tensor

from granikv.attention.interface import Segment, StepInputs

# Rows are gathered together while padding them to the longest at most doubles what is read, or
# adds no more than this many tokens a row; and while a group's keys stay in the processor's cache
# (16 rows of 576 tokens on one core: 1.7 ms a layer, 2.7 ms in one piece).
_SLACK_TOKENS = 64
_GROUP_TOKENS = 4_096


class SegmentRead(NamedTuple):
    """A non-empty segment as a layer uses it.

    rows is None when every row of the batch reads it, in order; slots [length] int64 is None when
    the segment is a slab.
    """

    segment: Segment
    rows: Tensor | None
    slots: Tensor | None


class RowGroup(NamedTuple):
    """Rows whose remaining keys are gathered together, padded to one width.

    rows     [g] int64 batch indices, or None: every row of the batch, in order
    slots    [g, width] int64; filler repeats one of the row's own slots, so that no slot a row may
             not read is ever touched for it
    padding  [g, 1, width] bool, True at filler; None where there is none
    """

    rows: Tensor | None
    slots: Tensor
    padding: Tensor | None


class _Layout(NamedTuple):
    """levels: segments with disjoint rows stand in one level, a row's own in p0 order.

    starts, lengths [levels, n] int64 are p0 and length of the row's segment there, 0 without one;
    uncovered: tokens of each row that no segment covers.
    """

    levels: tuple[tuple[SegmentRead, ...], ...]
    starts: Tensor
    lengths: Tensor
    uncovered: list[int]


def segment_levels(step: StepInputs) -> tuple[tuple[SegmentRead, ...], ...]:
    """The step's non-empty segments in levels; within a level no row appears twice.

    Raises ValueError for a segment that leaves a reader's sequence, or that meets another of the
    same row.
    """
    return step.once("layout", _lay_out).levels


def uncovered_groups(step: StepInputs) -> tuple[RowGroup, ...]:
    """The positions of each row that no segment covers, as slots; rows without any are left out."""
    return step.once("uncovered", _uncovered)


def whole_groups(step: StepInputs) -> tuple[RowGroup, ...]:
    """Every position of each row, as slots; rows of length 0 are left out."""
    return step.once("whole", _whole)


def _whole(step: StepInputs) -> tuple[RowGroup, ...]:
    nothing = torch.zeros(0, len(step.seq_lens), dtype=torch.int64, device=step.page_table.device)
    return _groups(step, step.seq_lens, nothing, nothing)


def _uncovered(step: StepInputs) -> tuple[RowGroup, ...]:
    layout = step.once("layout", _lay_out)
    return _groups(step, layout.uncovered, layout.starts, layout.lengths)


def _lay_out(step: StepInputs) -> _Layout:
    n = len(step.seq_lens)
    depth, covered_to, uncovered = [0] * n, [0] * n, list(step.seq_lens)
    levels: list[list[SegmentRead]] = []
    starts: list[list[int]] = []
    lengths: list[list[int]] = []
    for segment in sorted(step.segments, key=lambda s: s.p0):
        rows = segment.rows.tolist()
        if not segment.length or not rows:
            continue
        _check(segment, rows, covered_to, step.seq_lens)
        level = max(depth[row] for row in rows)
        if level == len(levels):
            levels.append([])
            starts.append([0] * n)
            lengths.append([0] * n)
        levels[level].append(_read(step, segment, rows))
        for row in rows:
            depth[row] = level + 1
            uncovered[row] -= segment.length
            starts[level][row], lengths[level][row] = segment.p0, segment.length
    device = step.page_table.device
    return _Layout(
        tuple(tuple(level) for level in levels),
        torch.tensor(starts, dtype=torch.int64, device=device).view(len(levels), n),
        torch.tensor(lengths, dtype=torch.int64, device=device).view(len(levels), n),
        uncovered,
    )


def _check(segment: Segment, rows: list[int], covered_to: list[int], seq_lens: list[int]) -> None:
    stop = segment.p0 + segment.length
    for row in rows:
        if segment.p0 < covered_to[row]:
            raise ValueError(
                f"row {row}: the segment at {segment.p0}..{stop} overlaps another of its segments, "
                f"which covers it up to {covered_to[row]}"
            )
        if stop > seq_lens[row]:
            raise ValueError(
                f"row {row}: the segment at {segment.p0}..{stop} leaves its sequence of "
                f"{seq_lens[row]} tokens"
            )
        covered_to[row] = stop


def _read(step: StepInputs, segment: Segment, rows: list[int]) -> SegmentRead:
    whole_batch = rows == list(range(len(step.seq_lens)))
    slots = None
    if segment.base is None:
        slots = step.page_table[rows[0], segment.p0 : segment.p0 + segment.length].long()
    return SegmentRead(segment, None if whole_batch else segment.rows, slots)


def _groups(
    step: StepInputs, counts: list[int], starts: Tensor, lengths: Tensor
) -> tuple[RowGroup, ...]:
    """Gather lists of counts[i] positions for each row i, stepping over its segments.

    starts and lengths [levels, n] give the ranges to step over, ascending within a row.
    """
    ascending = sorted((row for row in range(len(counts)) if counts[row]), key=counts.__getitem__)
    groups: list[RowGroup] = []
    while ascending:
        widest = counts[ascending[-1]]
        least = min(widest // 2, widest - _SLACK_TOKENS)
        first = bisect_left(ascending, least, key=counts.__getitem__)
        first = max(first, len(ascending) - max(1, _GROUP_TOKENS // widest))
        groups.append(_group(step, sorted(ascending[first:]), counts, starts, lengths))
        del ascending[first:]
    return tuple(groups)


def _group(
    step: StepInputs, chosen: list[int], counts: list[int], starts: Tensor, lengths: Tensor
) -> RowGroup:
    device = step.page_table.device
    rows = torch.tensor(chosen, dtype=torch.int64, device=device)
    count = torch.tensor([[counts[row]] for row in chosen], dtype=torch.int64, device=device)
    widest = max(counts[row] for row in chosen)
    index = torch.arange(widest, device=device)
    position = index.minimum(count - 1)
    for start, length in zip(starts[:, rows], lengths[:, rows], strict=True):
        position += torch.where(position >= start[:, None], length[:, None], 0)
    slots = step.page_table[rows].gather(1, position).long()
    ragged = any(counts[row] != widest for row in chosen)
    return RowGroup(
        None if len(chosen) == len(counts) else rows,
        slots,
        (index >= count)[:, None, :] if ragged else None,
    )

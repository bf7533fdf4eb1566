"""A step of the attention interface as the kernels take it: planned, and behind that interface."""

from __future__ import annotations

import torch
from torch import Tensor

from granikv.attention.interface import DecodeBackend, StepInputs
from granikv.attention.kernels.config import Shape
from granikv.attention.layout import segment_levels
from granikv.attention.numerics import group_size
from granikv.attention.triton_dense import DenseStep
from granikv.plan import DecodePlan, PagedRange, Segment


class TritonDenseBackend(DecodeBackend):
    """The kernels on any step; a segment on ordinary pages is refused with ValueError.

    Needs a CUDA device, or TRITON_INTERPRET=1 in the environment before triton is imported. K and V
    widths must be powers of two from 16 on.
    """

    name = "dense_triton"

    def decode(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, step: StepInputs, scale: float
    ) -> Tensor:
        group = group_size(q, k_cache)
        shape = Shape(k_cache.shape[1], group, q.shape[2], v_cache.shape[2], q.dtype)
        out = torch.empty(*q.shape[:2], shape.d_v, dtype=q.dtype, device=q.device)
        if not q.shape[0]:
            return out
        if scale <= 0.0:
            raise ValueError(f"the softmax scale must be positive, not {scale}")
        _check_slabs(step, k_cache.shape[0])
        prepared = step.once(f"dense_triton {shape}", lambda s: _prepare(s, shape))
        prepared.attend(q, k_cache, v_cache, out, scale)
        return out


def _check_slabs(step: StepInputs, slots: int) -> None:
    for level in segment_levels(step):
        for read in level:
            base, length = read.segment.base, read.segment.length
            if base is not None and (base < 0 or base + length > slots):
                raise ValueError(
                    f"the slab at slots {base}..{base + length} ends past the cache of "
                    f"{slots} slots"
                )


def _prepare(step: StepInputs, shape: Shape) -> DenseStep:
    device = step.page_table.device
    plan = plan_of(step)
    rows = len(step.seq_lens)
    depth = -(-plan.segment_rows // rows) + 1
    dense = DenseStep(shape, rows, sum(step.seq_lens), device, depth)
    dense.plan(plan)
    table_rows = torch.arange(rows, dtype=torch.int32, device=device)
    seq_lens = torch.tensor(step.seq_lens, dtype=torch.int32, device=device)
    dense.snapshot(step.page_table, table_rows, seq_lens, sum(step.seq_lens))
    return dense


def plan_of(step: StepInputs) -> DecodePlan:
    """The plan that says what `step` says."""
    segments = sorted((s for s in step.segments if s.length), key=lambda s: s.p0)
    ends = [0] * len(step.seq_lens)
    paged: list[list[PagedRange]] = [[] for _ in ends]
    planned = []
    for segment in segments:
        rows = [int(row) for row in segment.rows.tolist()]
        for row in rows:
            if segment.p0 > ends[row]:
                paged[row].append(PagedRange(ends[row], segment.p0))
            ends[row] = segment.p0 + segment.length
        planned.append(Segment(segment.base, segment.p0, segment.length, tuple(rows)))
    ranges = [(*before, PagedRange(end, None)) for before, end in zip(paged, ends, strict=True)]
    return DecodePlan(len(ends), tuple(planned), tuple(ranges))

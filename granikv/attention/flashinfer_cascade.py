"""The cascade backend on a GPU: FlashInfer's kernels for each shared range and for the rest.

Each shared range is read once for all its rows (level 0), over a slab (cascade on GraniKV's
storage) or over the engine's ordinary pages (SGLang-Cascade, §4.3); what no range covers is read
row by row (suffix level); the parts of a row, any number of them, are merged by Eq. 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from granikv import profiling
from granikv.attention import cascade_plan
from granikv.attention.cascade_plan import Capacity
from granikv.attention.flashinfer_wrappers import (
    PrefixLevel,
    Requests,
    SuffixLevel,
    Workspace,
    library,
)
from granikv.attention.kernels.cascade_inputs import gather_queries, segment_pages
from granikv.attention.kernels.config import Shape, suffix_config
from granikv.attention.kernels.merge import merge
from granikv.attention.kernels.worklist import WorkListOverflow
from granikv.attention.staging import HostBuffers
from granikv.attention.suffix_tables import SuffixTables
from granikv.plan import DecodePlan

_LN2 = math.log(2.0)


class CascadeStep:
    """Buffers and plans of the decode steps of one model, for batches of up to `rows` rows.

    A step: `plan` (host), `snapshot` (two small launches, after the page table is written and
    before the layers run), then `attend` for each layer. What the first two write is read by the
    launches of `attend` when they run, so `attend` may be captured once a batch size and replayed
    for every step.

    FlashInfer keeps its buffers and its plan for each batch size apart; they are made at the first
    `plan` of that size. Parts are in the dtype of the queries, since FlashInfer has no wider
    output: a step rounds once more than the fused kernels do.
    """

    def __init__(
        self,
        shape: Shape,
        rows: int,
        tokens: int,
        shared_tokens: int,
        device: torch.device,
        *,
        depth: int = 2,
        segments: int = 64,
        page_size: int = 1,
        flashinfer: Any = None,
    ) -> None:
        """Allocate the buffers.

        rows           largest batch
        tokens         most tokens of one step that no segment covers
        shared_tokens  most tokens of all segments of one step
        depth          segments that a row reads, on average
        segments       most segments of one step
        page_size      tokens of a page at level 0; slabs need 1
        flashinfer     what stands in for the library in tests

        Raises ValueError for a shape that FlashInfer does not have.
        """
        if shape.dtype not in (torch.bfloat16, torch.float16) and flashinfer is None:
            raise ValueError(f"FlashInfer has no attention in {shape.dtype}; use the dense form")
        if shape.d != shape.d_v:
            raise ValueError(
                f"FlashInfer's decode needs K and V of one width, not {shape.d} and {shape.d_v}"
            )
        self.shape = shape
        self.rows = rows
        self.page_size = page_size
        self.device = device
        self._depth = depth
        self._segments = segments
        self._library = flashinfer or library()
        self._tokens = tokens
        self._pages = torch.zeros(
            max(shared_tokens // page_size, 1), dtype=torch.int32, device=device
        )
        largest = self._capacity(rows)
        queries = largest.segment_rows
        self._workspace = Workspace(shape, rows, queries, largest.segments, device)
        self._queries = torch.zeros(
            (queries, shape.heads, shape.d), dtype=shape.dtype, device=device
        )
        self.part_out = torch.zeros(
            (rows + queries, shape.heads, shape.d_v), dtype=shape.dtype, device=device
        )
        self.part_lse = torch.zeros((rows + queries, shape.heads), device=device)
        self._part_lse2 = torch.zeros_like(self.part_lse)
        # Its cut into parts is not used: that is FlashInfer's to make.
        self._own = SuffixTables(shape, suffix_config(shape, rows, device), rows, tokens, device)
        self._batches: dict[int, _Batch] = {}

    def plan(self, plan: DecodePlan, seq_lens: Sequence[int] | Tensor) -> None:
        """Make `plan` the one that the next launches of this batch size follow.

        seq_lens  tokens of each row, on the host; rows from plan.rows on are a graph's filler

        Host work and uploads in the current stream; the device is not waited for.

        Raises:
            WorkListOverflow: it does not fit; the plan before stays in force.
            ValueError: a slab, where pages are longer than one token.
        """
        lens = np.asarray(seq_lens, dtype=np.int64)
        if lens.size > self.rows:
            raise WorkListOverflow(
                f"the step has {lens.size} rows, and the cascade's buffers hold {self.rows}"
            )
        if lens.size:
            self._batch(lens.size).plan(plan, lens)

    def snapshot(self, page_table: Tensor, table_rows: Tensor, seq_lens: Tensor) -> None:
        """Copy out of the page table what the layers of this step will read.

        page_table  [requests, context] int32 or int64; table_rows [n] its row of each batch row;
        seq_lens    [n] int32 or int64 on the device, the numbers that `plan` was given
        """
        rows = seq_lens.numel()
        if not rows:
            return
        work = self._batches[rows].work
        segment_pages(
            page_table,
            table_rows,
            work.page_ptr,
            work.base,
            work.p0,
            work.reader,
            self._pages,
            self.page_size,
        )
        self._own.snapshot(page_table, table_rows, seq_lens, work)

    def attend(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, out: Tensor, scale: float
    ) -> None:
        """One layer of the step: out [n, H_q, d_v] from q [n, H_q, d] and the layer's cache.

        n is that of the last `plan` and `snapshot`. Last dimensions must be contiguous.
        """
        if not q.shape[0]:
            return
        with profiling.PREFIX:
            self.attend_prefix(q, k_cache, v_cache, scale)
        with profiling.SUFFIX:
            self.attend_suffix(q, k_cache, v_cache, scale)
        with profiling.MERGE:
            self.merge(out)

    def attend_prefix(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, scale: float) -> None:
        """Level 0 of `attend`."""
        rows = q.shape[0]
        batch = self._batches[rows]
        end = rows + batch.capacity.segment_rows
        queries = self._queries[: batch.capacity.segment_rows]
        gather_queries(q, batch.work.gathered, batch.work.query_ptr[-1:], queries)
        batch.prefix.run(
            queries,
            k_cache,
            v_cache,
            scale,
            self.part_out[rows:end],
            self._part_lse2[rows:end],
        )

    def attend_suffix(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, scale: float) -> None:
        """The suffix level of `attend`."""
        rows = q.shape[0]
        self._batches[rows].suffix.run(
            q, k_cache, v_cache, scale, self.part_out[:rows], self._part_lse2[:rows]
        )

    def merge(self, out: Tensor) -> None:
        """The parts of each row into out [n, H_q, d_v]."""
        batch = self._batches[out.shape[0]]
        end = out.shape[0] + batch.capacity.segment_rows
        torch.mul(self._part_lse2[:end], _LN2, out=self.part_lse[:end])
        work = batch.work
        merge(
            self.part_out,
            self.part_lse,
            work.own_ptr,
            work.part_ptr,
            work.parts,
            out,
            self.shape,
        )

    def _batch(self, rows: int) -> _Batch:
        batch = self._batches.get(rows)
        if batch is None:
            batch = _Batch(self._library, self._workspace, self._capacity(rows), self)
            self._batches[rows] = batch
        return batch

    def _capacity(self, rows: int) -> Capacity:
        return Capacity.for_rows(
            rows, self._depth, self._segments, self._pages.numel(), self._tokens
        )


class _Batch:
    """What belongs to one batch size: its arrays on both sides, FlashInfer's wrappers."""

    def __init__(
        self, library: Any, workspace: Workspace, capacity: Capacity, step: CascadeStep
    ) -> None:
        length = cascade_plan.buffer_length(capacity)
        self.capacity = capacity
        self.page_size = step.page_size
        self._buffer = np.zeros(length, dtype=np.int32)
        self._arrays = cascade_plan.split(self._buffer, capacity)
        self._uploads = HostBuffers(length, torch.int32, step.device)
        self._work = torch.zeros(length, dtype=torch.int32, device=step.device)
        self.work = cascade_plan.split(self._work, capacity)
        self._current: DecodePlan | None = None
        work = self.work
        level = Requests(
            work.query_ptr, work.page_ptr, work.last_page, step._pages, capacity.segment_rows
        )
        self.prefix = PrefixLevel(library, workspace, level, step.page_size)
        self.suffix = SuffixLevel(
            library, workspace, work.suffix_ptr, step._own.slots, work.suffix_last
        )

    def plan(self, plan: DecodePlan, seq_lens: cascade_plan.Int64) -> None:
        new = plan is not self._current
        if new:
            fitted = cascade_plan.within(plan, self.capacity)
            whole = cascade_plan.whole_pages(fitted, self.page_size)
            cascade_plan.fill_segments(whole, self.capacity, self.page_size, self._arrays)
            self._current = None
        cascade_plan.fill_suffix(seq_lens, self.capacity, self._arrays)
        upload = self._uploads.take()
        upload.numpy()[:] = self._buffer
        self._work.copy_(upload, non_blocking=True)
        self._uploads.sent()
        if new:
            self.prefix.plan(
                *map(torch.from_numpy, (self._arrays.query_ptr, self._arrays.page_ptr))
            )
            self._current = plan
        self.suffix.plan(torch.from_numpy(self._arrays.suffix_ptr))

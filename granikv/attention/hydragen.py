"""The paper's literal dense form on a GPU: for each slab range two products and a softmax (§3.5).

The shapes of the products are those of the step's segments, so a captured graph would serve one
composition alone: a step of this form runs outside CUDA graphs. What a fused kernel is worth is
read off against it (`DenseStep`), launch overhead included.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from granikv import profiling
from granikv.attention import cascade_plan
from granikv.attention.cascade_plan import Capacity
from granikv.attention.dense import DenseBackend
from granikv.attention.kernels.config import Shape, suffix_config
from granikv.attention.kernels.merge import merge
from granikv.attention.kernels.paged_suffix import paged_suffix
from granikv.attention.staging import HostBuffers
from granikv.attention.suffix_tables import SuffixTables
from granikv.plan import DecodePlan

_SCORE_BYTES = 1 << 30
"""Scores of one product, float32: rows of a segment are taken in turn beyond that."""


class _Range(NamedTuple):
    """A slab range, and its gathered queries first .. last."""

    base: int
    length: int
    first: int
    last: int


class HydragenStep:
    """Buffers and plan of the decode steps of one model, for batches of up to `rows` rows.

    What one row alone reads is read with the rest of it, not by products of its own.

    Used like `DenseStep`; its launches depend on the plan, so they cannot be replayed for another.
    """

    def __init__(
        self,
        shape: Shape,
        rows: int,
        tokens: int,
        device: torch.device,
        depth: int = 4,
        score_bytes: int = _SCORE_BYTES,
    ) -> None:
        """Allocate the buffers.

        rows         largest batch
        tokens       most tokens of one step that no segment covers
        depth        segments that a row reads, on average
        score_bytes  most bytes that the scores of one product take, one row at least
        """
        self.shape = shape
        self.rows = rows
        pairs = rows * depth
        # Slabs take no page list, so nothing bounds how long they are together.
        self._capacity = Capacity(rows, pairs, pairs, rows * (depth + 1), 2**31 - 1, tokens)
        self._score_bytes = score_bytes
        self._dense = DenseBackend()
        length = cascade_plan.buffer_length(self._capacity)
        self._buffer = np.zeros(length, dtype=np.int32)
        self._arrays = cascade_plan.split(self._buffer, self._capacity)
        self._uploads = HostBuffers(length, torch.int32, device)
        self._work = torch.zeros(length, dtype=torch.int32, device=device)
        self._on_device = cascade_plan.split(self._work, self._capacity)
        self._suffix = suffix_config(shape, rows, device)
        self._own = SuffixTables(shape, self._suffix, rows, tokens, device)
        parts = self._own.limit + pairs
        self.part_out = torch.zeros((parts, shape.heads, shape.d_v), device=device)
        self.part_lse = torch.zeros((parts, shape.heads), device=device)
        self.current: DecodePlan | None = None
        self._ranges: list[_Range] = []
        self._covered = 0

    def plan(self, plan: DecodePlan) -> None:
        """Make `plan` the one that the next launches follow; does nothing when it is already.

        Raises:
            WorkListOverflow: it does not fit; the plan before stays in force.
            ValueError: a segment lies on ordinary pages.
        """
        if plan is self.current:
            return
        for segment in plan.segments:
            if segment.base is None:
                raise ValueError(
                    f"the products read contiguous slabs only, but the segment at position "
                    f"{segment.p0} lies on ordinary pages (base is None)"
                )
        # Eager admission makes a slab of each prompt: launches by the hundred, for one row each.
        shared, arrays = plan.shared(), self._arrays
        cascade_plan.fill_segments(shared, self._capacity, 1, arrays)
        gathered = arrays.gathered[: arrays.query_ptr[-1]].astype(np.uint16)
        arrays.parts[: gathered.size] = self._own.limit + np.argsort(gathered, kind="stable")
        counts = np.bincount(gathered, minlength=self.rows)
        arrays.part_ptr[0], arrays.part_ptr[1:] = 0, np.cumsum(counts)
        upload = self._uploads.take()
        upload.numpy()[:] = self._buffer
        self._work.copy_(upload, non_blocking=True)
        self._uploads.sent()
        bounds = arrays.query_ptr.tolist()
        kept = [s for s in shared.segments if s.length and s.rows]
        self._ranges = [
            _Range(s.base, s.length, first, last)
            for s, first, last in zip(kept, bounds[:-1], bounds[1:], strict=False)
            if s.base is not None
        ]
        self._covered = shared.covered
        self.current = plan

    def snapshot(
        self, page_table: Tensor, table_rows: Tensor, seq_lens: Tensor, tokens: int
    ) -> None:
        """Copy out of the page table what the layers of this step will read.

        Arguments as in `DenseStep.snapshot`. Raises WorkListOverflow when the step has more
        uncovered tokens than there is room for.
        """
        self._own.require_room(seq_lens.numel(), tokens - self._covered)
        self._own.snapshot(page_table, table_rows, seq_lens, self._on_device)

    def attend(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, out: Tensor, scale: float
    ) -> None:
        """One layer of the step: out [n, H_q, d_v] from q [n, H_q, d] and the layer's cache.

        n is that of the last `snapshot`. Last dimensions must be contiguous.
        """
        work = self._on_device
        with profiling.PREFIX:
            self.attend_prefix(q, k_cache, v_cache, scale)
        with profiling.SUFFIX:
            paged_suffix(
                q,
                k_cache,
                v_cache,
                self._own.slots,
                self._own.parts,
                self._own.ptr,
                self.part_out,
                self.part_lse,
                q.shape[0],
                scale,
                self.shape,
                self._suffix,
            )
        with profiling.MERGE:
            merge(
                self.part_out,
                self.part_lse,
                self._own.ptr,
                work.part_ptr,
                work.parts,
                out,
                self.shape,
            )

    def attend_prefix(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, scale: float) -> None:
        """The slabs' parts of `attend`."""
        if not self._ranges:
            return
        queries = q.index_select(0, self._on_device.gathered[: self._ranges[-1].last])
        for base, length, first, last in self._ranges:
            k = k_cache.narrow(0, base, length)
            v = v_cache.narrow(0, base, length)
            at_once = max(1, self._score_bytes // (4 * self.shape.heads * length))
            for start in range(first, last, at_once):
                stop = min(start + at_once, last)
                part = self._dense.prefix(queries[start:stop], k, v, scale)
                self.part_out[self._own.limit + start : self._own.limit + stop] = part.out
                self.part_lse[self._own.limit + start : self._own.limit + stop] = part.lse

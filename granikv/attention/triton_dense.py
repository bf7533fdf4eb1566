"""The fused dense backend: each slab range read once for all its rows, by our own kernels (§3.5).

`DenseStep` is what a serving engine holds: buffers at fixed addresses, a plan that is data, and a
layer's launches, two or three, that can be captured.
"""

from __future__ import annotations

import torch
from torch import Tensor

from granikv import profiling
from granikv.attention.kernels import worklist
from granikv.attention.kernels.config import Shape, StepConfig, step_config
from granikv.attention.kernels.dense_prefix import dense_prefix, describable
from granikv.attention.kernels.merge import merge
from granikv.attention.kernels.paged_suffix import paged_suffix, ringable
from granikv.attention.staging import HostBuffers
from granikv.attention.suffix_tables import SuffixTables
from granikv.plan import DecodePlan


class DenseStep:
    """Buffers and plan of the decode steps of one model, for batches of up to `rows` rows.

    A step: `plan` (host), `snapshot` (one small launch, after the page table is written and before
    the layers run), then `attend` for each layer. What `plan` and `snapshot` write is read by the
    launches of `attend` when they run, so `attend` may be captured once and replayed for every
    step; its launches depend on the number of rows given to it alone.

    Attributes:
        shape, prefix, suffix, overlap, early: what the kernels are compiled for, and how they run.
        current: the plan in force, None before the first.
        part_out, part_lse: the parts of the last layer, as `dense_prefix` writes them.
    """

    def __init__(
        self,
        shape: Shape,
        rows: int,
        tokens: int,
        device: torch.device,
        depth: int = 4,
        config: StepConfig | None = None,
    ) -> None:
        """Allocate the buffers.

        rows    largest batch
        tokens  most tokens of one step that no segment covers
        depth   segments that a row reads, on average
        config  None for what was measured to be the fastest
        """
        self.shape = shape
        self.rows = rows
        config = config or step_config(shape, rows, device)
        self.prefix, self.suffix, self.overlap, self.early = config
        self._own = SuffixTables(shape, self.suffix, rows, tokens, device)
        self._tiling = worklist.Tiling(
            shape.kv_heads,
            shape.group,
            self.prefix.block_m,
            self.prefix.block_n,
            self.prefix.programs,
            first_part=self._own.limit,
        )
        self._capacity = worklist.Capacity.for_rows(rows, self._tiling, depth)
        length = worklist.buffer_length(self._capacity, self._tiling)
        self._uploads = HostBuffers(length, torch.int32, device)
        self._work = torch.zeros(length, dtype=torch.int32, device=device)
        self._on_device = worklist.split(self._work, self._capacity, self._tiling)
        self.current: DecodePlan | None = None
        self._covered = 0
        parts = self._own.limit + self._capacity.parts
        self.part_out = torch.empty((parts, shape.heads, shape.d_v), device=device)
        self.part_lse = torch.empty((parts, shape.heads), device=device)

    def plan(self, plan: DecodePlan) -> None:
        """Make `plan` the one that the next launches follow; does nothing when it is already.

        Host work and one upload in the current stream; the device is not waited for.

        Raises:
            WorkListOverflow: it does not fit; the plan before stays in force.
            ValueError: a segment lies on ordinary pages.
        """
        if plan is self.current:
            return
        upload = self._uploads.take()
        counts = worklist.fill(
            plan,
            self._tiling,
            self._capacity,
            worklist.split(upload.numpy(), self._capacity, self._tiling),
        )
        used = worklist.used_length(counts, self._capacity, self._tiling)
        self._work[:used].copy_(upload[:used], non_blocking=True)
        self._uploads.sent()
        self.current = plan
        self._covered = plan.covered

    def snapshot(
        self, page_table: Tensor, table_rows: Tensor, seq_lens: Tensor, tokens: int
    ) -> None:
        """Copy out of the page table what the layers of this step will read.

        page_table  [requests, context] int32 or int64; table_rows [n] its row of each batch row;
        seq_lens    [n] int32 or int64 on the device; rows may exceed the plan's (graph filler)
        tokens      the sum of seq_lens, or more, as the host knows it

        Raises WorkListOverflow when the step has more uncovered tokens than there is room for.
        """
        self._own.require_room(seq_lens.numel(), tokens - self._covered)
        self._own.snapshot(page_table, table_rows, seq_lens, self._on_device)

    def attend(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, out: Tensor, scale: float
    ) -> None:
        """One layer of the step: out [n, H_q, d_v] from q [n, H_q, d] and the layer's cache.

        n is that of the last `snapshot`. Last dimensions must be contiguous.
        """
        if self.overlap == "fused" and _fusable(q, k_cache, v_cache):
            with profiling.PREFIX, profiling.SUFFIX:
                self._attend_fused(q, k_cache, v_cache, scale)
        else:
            with profiling.PREFIX:
                self.attend_prefix(q, k_cache, v_cache, scale)
            with profiling.SUFFIX:
                self.attend_suffix(q, k_cache, v_cache, scale, self.early)
        with profiling.MERGE:
            self.merge(out)

    def _attend_fused(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, scale: float) -> None:
        # Its module needs Triton's Gluon, which not every build of Triton has.
        from granikv.attention.kernels.fused_hopper import fused_hopper

        fused_hopper(
            q,
            k_cache,
            v_cache,
            self._on_device.program_ptr,
            self._on_device.items,
            self._on_device.rows,
            self._own.slots,
            self._own.parts,
            self._own.ptr,
            self.part_out,
            self.part_lse,
            q.shape[0],
            scale,
            self.shape,
            self.prefix,
            self.suffix,
        )

    def attend_prefix(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        scale: float,
        slot_table: Tensor | None = None,
    ) -> None:
        """The slabs' parts of `attend`; slot_table as in `dense_prefix`."""
        dense_prefix(
            q,
            k_cache,
            v_cache,
            self._on_device.program_ptr,
            self._on_device.items,
            self._on_device.rows,
            self.part_out,
            self.part_lse,
            scale,
            self.shape,
            self.prefix,
            slot_table,
        )

    def attend_suffix(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, scale: float, early: bool = False
    ) -> None:
        """The other slots' parts of `attend`; early, if `attend_prefix` was the launch before."""
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
            self.suffix,
            early,
        )

    def merge(self, out: Tensor) -> None:
        """The parts of each row into out [n, H_q, d_v]."""
        merge(
            self.part_out,
            self.part_lse,
            self._own.ptr,
            self._on_device.part_ptr,
            self._on_device.parts,
            out,
            self.shape,
            self.early,
        )


def _fusable(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> bool:
    return ringable(q, k_cache, v_cache) and describable(k_cache) and describable(v_cache)

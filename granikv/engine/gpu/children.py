"""The backends of ours that serve decode steps on a GPU, behind one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch

from granikv.attention.flashinfer_cascade import CascadeStep
from granikv.attention.hydragen import HydragenStep
from granikv.attention.kernels.config import Shape
from granikv.attention.triton_dense import DenseStep
from granikv.cost import Geometry
from granikv.dispatch import CASCADE, DENSE, HYDRAGEN
from granikv.plan import DecodePlan


class Room(NamedTuple):
    """What the buffers of a child are made for.

    rows: largest batch. tokens: most tokens of one step outside segments. shared_tokens: most
    tokens of all its segments. page_size: of segments on the engine's ordinary pages; 1 for slabs.
    """

    rows: int
    tokens: int
    shared_tokens: int
    page_size: int


class SharingChild(ABC):
    """Reads each segment of a step once. What a step reads is data that `prepare` uploads."""

    def __init__(self, step: DenseStep | HydragenStep | CascadeStep) -> None:
        self._step = step

    @abstractmethod
    def prepare(self, plan: DecodePlan, page_table: torch.Tensor, batch: Any) -> None:
        """Make the coming launches follow ``plan``; the device is not waited for.

        Args:
            page_table: [requests, context] slot of each token position.
            batch: the engine's forward batch, n rows, a graph's filler rows included.

        Raises:
            WorkListOverflow: the step does not fit the buffers.
        """

    def attend(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        out: torch.Tensor,
        scale: float,
    ) -> None:
        """One layer: out [n, H_q, d_v] from q [n, H_q, d] and the layer's [slots, H_kv, d]."""
        self._step.attend(q, k_cache, v_cache, out, scale)


class SlabChild(SharingChild):
    """Our own kernels over slabs: the fused form, or the literal one."""

    _step: DenseStep | HydragenStep

    def prepare(self, plan: DecodePlan, page_table: torch.Tensor, batch: Any) -> None:
        """Work list and snapshot of the page table."""
        self._step.plan(plan)
        self._step.snapshot(page_table, batch.req_pool_indices, batch.seq_lens, tokens_of(batch))


class CascadeChild(SharingChild):
    """FlashInfer's cascade over slabs, or over ordinary pages."""

    _step: CascadeStep

    def prepare(self, plan: DecodePlan, page_table: torch.Tensor, batch: Any) -> None:
        """FlashInfer's plans, from the host's sequence lengths, and snapshot of the page table."""
        self._step.plan(plan, batch.seq_lens_cpu)
        self._step.snapshot(page_table, batch.req_pool_indices, batch.seq_lens)


def child(name: str, shape: Shape, room: Room, device: torch.device) -> SharingChild:
    """The backend that the dispatcher calls ``name``, with its buffers."""
    if name == DENSE:
        return SlabChild(DenseStep(shape, room.rows, room.tokens, device))
    if name == HYDRAGEN:
        return SlabChild(HydragenStep(shape, room.rows, room.tokens, device))
    sizes = {"segments": 1, "depth": 1} if room.page_size > 1 else {}
    step = CascadeStep(
        shape,
        room.rows,
        room.tokens,
        room.shared_tokens,
        device,
        page_size=room.page_size,
        **sizes,
    )
    return CascadeChild(step)


IN_GRAPHS = (CASCADE, DENSE)
"""Backends whose launches serve any composition; another's steps run outside CUDA graphs."""


_LIBRARY_WIDTHS = (64, 128, 256)
"""Head widths that FlashInfer has a cascade for."""
_LARGEST_GROUP = 16
"""Query heads of a KV head up to which our kernels were tried on a GPU."""


def lacks(name: str, shape: Geometry) -> str:
    """Why a backend has no kernels for this attention; empty where it has them."""
    if name == CASCADE:
        if shape.element_bytes != 2:
            return "FlashInfer has 16-bit types only"
        if shape.d != shape.d_v or shape.d not in _LIBRARY_WIDTHS:
            return f"FlashInfer has no heads of width {shape.d} for K and {shape.d_v} for V"
        return ""
    if shape.group > _LARGEST_GROUP:
        return f"{shape.group} query heads share a KV head; our kernels serve {_LARGEST_GROUP}"
    if any(width < 16 or width & (width - 1) for width in (shape.d, shape.d_v)):
        return f"head widths must be powers of two from 16, not {shape.d} for K, {shape.d_v} for V"
    return ""


def tokens_of(batch: Any) -> int:
    """Tokens that the step attends to, filler rows included, from the host's own copy."""
    total = batch.seq_lens_sum
    return int(batch.seq_lens_cpu.sum()) if total is None else int(total)

"""The cascade backend: a tiled pass over each segment with an online softmax (§3.5)."""

from __future__ import annotations

import torch
from torch import Tensor

from granikv.attention.interface import Partial
from granikv.attention.numerics import fold_rows, group_size, product, unfold_rows
from granikv.attention.segmented import SegmentedBackend


class CascadeBackend(SegmentedBackend):
    """FlashInfer cascade's form: the segment is read once for all rows, BLOCK_N tokens at a time.

    From the slab in place where there is one (cascade on GraniKV's storage), else by one gather
    through the page table (SGLang-Cascade, §4.3).
    """

    name = "cascade"
    reads_pages = True

    def __init__(self, block_n: int = 128) -> None:
        if block_n < 1:
            raise ValueError(f"block_n must be at least 1 token, not {block_n}")
        self.block_n = block_n

    def prefix(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Partial:
        """Online softmax over tiles of the segment (contract in SegmentedBackend)."""
        group = group_size(q, k)
        folded = fold_rows(q, group)
        shape = (*folded.shape[:2], 1)
        peak = torch.full(shape, -torch.inf, device=q.device)
        total = torch.zeros(shape, device=q.device)
        out = torch.zeros(*folded.shape[:2], v.shape[2], device=q.device)
        for start in range(0, k.shape[0], self.block_n):
            tile = slice(start, start + self.block_n)
            scores = product(folded, k[tile].permute(1, 2, 0)).mul_(scale)
            raised = torch.maximum(peak, scores.amax(-1, keepdim=True))
            weights = scores.sub_(raised).exp_()
            shrink = peak.sub_(raised).exp_()
            total.mul_(shrink).add_(weights.sum(-1, keepdim=True))
            out.mul_(shrink).add_(product(weights, v[tile].transpose(0, 1)))
            peak = raised
        return unfold_rows(out.div_(total), total.log_().add_(peak).squeeze(-1), group)

"""Contiguous storage without the shared read: every row goes through the slab for itself.

With paged, cascade on pages and cascade or dense on slabs it completes the 2 x 2 that tells the
gain of contiguity from the gain of reading once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from granikv.attention.interface import Partial
from granikv.attention.numerics import attend_batch, group_size
from granikv.attention.segmented import SegmentedBackend


class ContiguousUnsharedBackend(SegmentedBackend):
    """One product a row and KV head (M = n_q/kv) over the slab in place.

    A segment on ordinary pages is refused with ValueError.
    """

    name = "contiguous_unshared"

    def prefix(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Partial:
        """A batch item for each row, all over the same slab (contract in SegmentedBackend)."""
        rows, group = q.shape[0], group_size(q, k)
        outs, lses = zip(
            *(
                attend_batch(
                    q[:, h * group : (h + 1) * group],
                    k[:, h].expand(rows, -1, -1),
                    v[:, h].expand(rows, -1, -1),
                    scale,
                )
                for h in range(k.shape[1])
            ),
            strict=True,
        )
        return Partial(torch.cat(outs, dim=1), torch.cat(lses, dim=1))

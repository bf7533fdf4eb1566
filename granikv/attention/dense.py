"""The dense backend: one fat product with a slab's K, a softmax, one with its V (§3.5)."""

from __future__ import annotations

from torch import Tensor

from granikv.attention.interface import Partial
from granikv.attention.numerics import attend_batch, fold_rows, group_size, unfold_rows
from granikv.attention.segmented import SegmentedBackend


class DenseBackend(SegmentedBackend):
    """Hydragen's form: M = rows * n_q/kv, N = L_p for each KV head, no loop over the prefix.

    The slab is read in place: a head's operand is a view of row stride H_kv * d. Scores take
    H_q * rows * L_p * 4 bytes. A segment on ordinary pages is refused with ValueError.
    """

    name = "dense"

    def prefix(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Partial:
        """One softmax over the whole segment for all rows (contract in SegmentedBackend)."""
        group = group_size(q, k)
        folded = fold_rows(q, group)
        out, lse = attend_batch(folded, k.transpose(0, 1), v.transpose(0, 1), scale)
        return unfold_rows(out, lse, group)

"""The executable specification: what every backend must compute, one row and one head at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from granikv.attention.interface import DecodeBackend, Partial, StepInputs
from granikv.attention.numerics import empty_partial, group_size


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Partial:
    """Attention of every row of q [n, H_q, d] over the same keys k [L, H_kv, d], v [L, H_kv, d_v].

    Float32, whole softmax; L = 0 gives out 0, lse -inf.
    """
    group = group_size(q, k)
    result = empty_partial(q.shape[0], q.shape[1], v.shape[2], q.device)
    if not k.shape[0]:
        return result
    for head in range(q.shape[1]):
        keys, values = k[:, head // group].float(), v[:, head // group].float()
        scores = scale * (q[:, head].float() @ keys.T)
        result.out[:, head] = torch.softmax(scores, dim=-1) @ values
        result.lse[:, head] = torch.logsumexp(scores, dim=-1)
    return result


class ReferenceBackend(DecodeBackend):
    """Each row's whole softmax over its slots in page-table order; segments are ignored."""

    name = "reference"

    def decode(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, step: StepInputs, scale: float
    ) -> Tensor:
        out = torch.empty(*q.shape[:2], v_cache.shape[2], dtype=q.dtype, device=q.device)
        for row, length in enumerate(step.seq_lens):
            slots = step.page_table[row, :length].long()
            out[row] = attend(q[row : row + 1], k_cache[slots], v_cache[slots], scale).out[0]
        return out

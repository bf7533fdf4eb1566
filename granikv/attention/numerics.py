"""The arithmetic the backends share: float32 products, softmax with its log-sum-exp, head folds."""

from __future__ import annotations

import torch
from torch import Tensor

from granikv.attention.interface import Partial


def product(a: Tensor, b: Tensor) -> Tensor:
    """Batched a [b, m, k] @ b [b, k, n], accumulated and returned in float32.

    On CUDA, 16-bit operands stay as they are so that Tensor Cores are used; elsewhere they are
    widened, since a 16-bit result would round every score.
    """
    if b.is_cuda and b.dtype != torch.float32:
        return torch.bmm(a.to(b.dtype), b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())


def attend_batch(
    q: Tensor, k: Tensor, v: Tensor, scale: float, padding: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Whole softmax over each batch item's keys.

    q [b, m, d], k [b, L, d], v [b, L, d_v], any strides, L >= 1; padding [b, 1, L] bool is True
    at keys to leave out, of which no item may have L. Returns out [b, m, d_v] and the natural
    lse [b, m], float32.
    """
    scores = product(q, k.mT).mul_(scale)
    if padding is not None:
        scores.masked_fill_(padding, -torch.inf)
    peak = scores.amax(-1, keepdim=True)
    weights = scores.sub_(peak).exp_()
    total = weights.sum(-1, keepdim=True)
    return product(weights, v).div_(total), total.log_().add_(peak).squeeze(-1)


def group_size(q: Tensor, k_cache: Tensor) -> int:
    """Query heads to a KV head, n_q/kv. ValueError when the heads do not divide."""
    group, rest = divmod(q.shape[1], k_cache.shape[1])
    if rest or not group:
        raise ValueError(f"{q.shape[1]} query heads are no multiple of {k_cache.shape[1]} KV heads")
    return group


def fold_rows(q: Tensor, group: int) -> Tensor:
    """q [n, H_q, d] -> [H_kv, n * group, d]: all rows of a KV head as one matrix's M dimension."""
    n, heads, d = q.shape
    return q.reshape(n, heads // group, group, d).transpose(0, 1).flatten(1, 2)


def unfold_rows(out: Tensor, lse: Tensor, group: int) -> Partial:
    """fold_rows undone: out [H_kv, n * group, d_v], lse [H_kv, n * group] -> Partial of n rows."""
    kv_heads, m, d_v = out.shape
    return Partial(
        out.reshape(kv_heads, m // group, group, d_v).transpose(0, 1).flatten(1, 2),
        lse.reshape(kv_heads, m // group, group).transpose(0, 1).flatten(1, 2),
    )


def empty_partial(rows: int, heads: int, d_v: int, device: torch.device) -> Partial:
    """The partial of rows that read nothing: out 0, lse -inf."""
    return Partial(
        torch.zeros(rows, heads, d_v, device=device),
        torch.full((rows, heads), -torch.inf, device=device),
    )


def place_rows(target: Partial, rows: Tensor, part: Partial) -> None:
    """Write part's rows into target at the batch indices rows [m]."""
    target.out.index_copy_(0, rows, part.out)
    target.lse.index_copy_(0, rows, part.lse)

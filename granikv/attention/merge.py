"""Log-sum-exp merge of partial attention results (paper, §2.3, Eq. 1), and lse base changes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from granikv.attention.interface import Partial


def merge(partials: Sequence[Partial], into: Partial | None = None) -> Partial:
    """Combine partials over disjoint sets of keys into the partial over their union.

    m = max_i lse_i;  out = sum_i e^(lse_i - m) out_i / sum_i e^(lse_i - m);
    lse = m + log sum_i e^(lse_i - m)  (Eq. 1, for any number of sides).

    An lse of -inf marks an empty side, and so does +inf, which is how FlashAttention reports a
    row without keys; an empty side's out is ignored whatever it holds, and a row whose sides are
    all empty gets out 0, lse -inf. A NaN lse stays NaN. Inputs may have any strides and may alias
    each other and `into`, whose tensors receive the result when it is given; nothing else is
    written. Raises ValueError when there is nothing to merge.
    """
    if not partials:
        raise ValueError("merge needs at least one partial result")
    lse = torch.stack([part.lse for part in partials])
    empty = lse.isinf()
    lse.masked_fill_(empty, -torch.inf)
    # A finite stand-in for the maximum of an all-empty row keeps -inf - (-inf) from being NaN.
    peak = lse.amax(0).clamp_min_(torch.finfo(lse.dtype).min)
    weights = lse.sub_(peak).exp_()
    total = weights.sum(0)
    # The largest side weighs 1, so total >= 1 unless every side is empty.
    weights.div_(total.clamp_min(1.0))
    out = torch.stack([part.out for part in partials])
    out.masked_fill_(empty.unsqueeze(-1), 0.0).mul_(weights.unsqueeze(-1))
    result = Partial(out.sum(0), total.log_().add_(peak))
    if into is None:
        return result
    into.out.copy_(result.out)
    into.lse.copy_(result.lse)
    return into


def lse_base2_to_natural(lse: Tensor) -> Tensor:
    """log2 of the sum of exponentials, as FlashInfer returns it -> natural log, as in Partial."""
    return lse * math.log(2.0)


def lse_natural_to_base2(lse: Tensor) -> Tensor:
    """Natural log-sum-exp, as in Partial -> log2, as FlashInfer's merge kernels take it."""
    return lse * math.log2(math.e)

"""The engine's ordinary decode: every row gathers its own slots through the page table."""

from __future__ import annotations

import torch
from torch import Tensor

from granikv.attention.interface import DecodeBackend, Partial, StepInputs
from granikv.attention.layout import RowGroup, whole_groups
from granikv.attention.numerics import attend_batch, empty_partial, group_size, place_rows


def gathered_partial(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, groups: tuple[RowGroup, ...], scale: float
) -> Partial:
    """Each row's attention over the slots that its group lists; rows in no group read nothing."""
    if len(groups) == 1 and groups[0].rows is None:
        return _attend_group(q, k_cache, v_cache, groups[0], scale)
    result = empty_partial(q.shape[0], q.shape[1], v_cache.shape[2], q.device)
    for group in groups:
        assert group.rows is not None, "a group of all rows is the only group"
        part = _attend_group(q.index_select(0, group.rows), k_cache, v_cache, group, scale)
        place_rows(result, group.rows, part)
    return result


def _attend_group(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, group: RowGroup, scale: float
) -> Partial:
    # One KV head at a time: [g, w, H_kv, d] has no single stride over (g, H_kv), so a product over
    # both at once would copy the gathered keys a second time.
    flat, shape = group.slots.flatten(), group.slots.shape
    k = k_cache.index_select(0, flat).view(*shape, *k_cache.shape[1:])
    v = v_cache.index_select(0, flat).view(*shape, *v_cache.shape[1:])
    size = group_size(q, k_cache)
    outs, lses = zip(
        *(
            attend_batch(
                q[:, h * size : (h + 1) * size], k[:, :, h], v[:, :, h], scale, group.padding
            )
            for h in range(k_cache.shape[1])
        ),
        strict=True,
    )
    return Partial(torch.cat(outs, dim=1), torch.cat(lses, dim=1))


class PagedBackend(DecodeBackend):
    """No sharing: a prefix that n rows have in common is read n times. Segments are ignored."""

    name = "paged"

    def decode(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, step: StepInputs, scale: float
    ) -> Tensor:
        return gathered_partial(q, k_cache, v_cache, whole_groups(step), scale).out.to(q.dtype)

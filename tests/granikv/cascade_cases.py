"""Steps for `CascadeStep`, whichever FlashInfer it runs: the library, or what stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from granikv.attention import Segment, StepInputs
from granikv.attention.flashinfer_cascade import CascadeStep
from granikv.attention.kernels.config import Shape
from granikv.plan import DecodePlan
from tests.granikv.attention_cases import GARBAGE_SLOT, Case
from tests.granikv.planned_steps import plan_of


def step_for(case: Case, rows: int, flashinfer: Any = None, **options: Any) -> CascadeStep:
    """A step object for up to `rows` rows of the case's model."""
    heads, width = case.k_cache.shape[1:]
    shape = Shape(heads, case.q.shape[1] // heads, width, case.v_cache.shape[2], case.q.dtype)
    room = {"tokens": 20_000, "shared_tokens": 20_000, "depth": 4, **options}
    return CascadeStep(shape, rows, device=case.q.device, flashinfer=flashinfer, **room)


def decode(step: CascadeStep, case: Case, plan: DecodePlan | None = None) -> Tensor:
    """The case by `step`, whose results of earlier steps are poisoned first; on the CPU."""
    case = case.to(step.device)
    lens = case.step.seq_lens
    step.part_out.fill_(torch.nan)
    step.part_lse.fill_(torch.nan)
    step.plan(plan or plan_of(case.step), lens)
    device = step.device
    table_rows = torch.arange(len(lens), device=device)
    step.snapshot(case.step.page_table, table_rows, torch.tensor(lens, device=device))
    out = torch.full_like(case.q, torch.nan)
    step.attend(case.q, case.k_cache, case.v_cache, out, case.scale)
    return out.cpu()


def page_case(
    seq_lens: Sequence[int],
    prefix: int,
    page_size: int,
    *,
    heads: tuple[int, int] = (4, 2),
    d: int = 32,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    """All rows share `prefix` tokens, in whole pages of an ordinary pool; the rest is their own.

    The last of the prefix's pages is shared too, whether it is full or not.
    """
    g = torch.Generator().manual_seed(seed)
    shared = -(-prefix // page_size)
    own = [-(-(n - prefix) // page_size) for n in seq_lens]
    pages = (1 + torch.randperm(2 * (shared + sum(own)), generator=g)).tolist()
    slots = (len(pages) + 1) * page_size + 1
    table = torch.full((len(seq_lens), max(seq_lens) + 3), GARBAGE_SLOT)
    within = torch.arange(page_size)
    head = torch.cat([page * page_size + within for page in pages[:shared]])[:prefix]
    at = shared
    for row, (length, count) in enumerate(zip(seq_lens, own, strict=True)):
        mine = [page * page_size + within for page in pages[at : at + count]]
        table[row, :length] = torch.cat([head, *mine])[:length]
        at += count
    segment = Segment(None, 0, prefix, torch.arange(len(seq_lens)))
    step = StepInputs(table.int(), list(seq_lens), (segment,), page_size)
    live = torch.tensor(
        sorted({s for row, n in enumerate(seq_lens) for s in table[row, :n].tolist()})
    )
    caches = []
    for _ in "kv":
        cache = torch.full((slots, heads[1], d), torch.nan, dtype=dtype)
        cache[live] = torch.randn(live.numel(), heads[1], d, generator=g).to(dtype)
        caches.append(cache)
    q = torch.randn(len(seq_lens), heads[0], d, generator=g).to(dtype)
    return Case(q, caches[0], caches[1], step, d**-0.5)

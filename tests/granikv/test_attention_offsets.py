"""Slots whose element offset exceeds 2^31: a 32-bit product would wrap (8 heads of 128 wide)."""

from __future__ import annotations

import mmap

import pytest
import torch
from torch import Tensor

from granikv.attention import Segment, StepInputs
from tests.granikv.attention_cases import Case, assert_matches_reference

HEADS, D = 8, 128
FIRST = 2**31 // (HEADS * D)
PREFIX, SUFFIX, ROWS = 40, 5, 3
MAP_NORESERVE = 0x4000  # Linux's value; Python 3.11's mmap lacks the name


def huge_cache() -> Tensor:
    """bfloat16 [slots, 8, 128], 4.3 GB of address space of which only touched pages exist."""
    slots = FIRST + 128
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, slots * HEADS * D * 2, flags=flags)
    return torch.frombuffer(memory, dtype=torch.bfloat16).view(slots, HEADS, D)


def far_case(dtype: torch.dtype) -> Case:
    """Three rows behind one prefix, all of it in slots that only 64-bit offsets reach; 16 bits."""
    base, cold = FIRST + 7, FIRST + 64
    table = torch.empty(ROWS, PREFIX + SUFFIX, dtype=torch.int32)
    table[:, :PREFIX] = torch.arange(base, base + PREFIX)
    table[:, PREFIX:] = cold + torch.arange(ROWS * SUFFIX).view(ROWS, SUFFIX)
    segment = Segment(base, 0, PREFIX, torch.arange(ROWS))
    g = torch.Generator().manual_seed(0)
    k_cache, v_cache = (huge_cache().view(dtype) for _ in "kv")
    assert k_cache.stride(0) * base >= 2**31
    for cache in (k_cache, v_cache):
        cache[base:] = torch.randn(cache[base:].shape, generator=g)
    q = torch.randn(ROWS, 2 * HEADS, D, generator=g).to(dtype)
    step = StepInputs(table, [PREFIX + SUFFIX] * ROWS, (segment,))
    return Case(q, k_cache, v_cache, step, D**-0.5)


@pytest.mark.parametrize("name", ["paged", "cascade", "dense", "contiguous_unshared"])
def test_slots_past_32_bit_offsets(name: str) -> None:
    case = far_case(torch.bfloat16)
    assert case.decode("reference").abs().max() > 0.1, "the far slots were written"
    assert_matches_reference(case, name)

"""Relocation: COLD slots to a contiguous slab, K and V of all layers in one launch (§3.2)."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_WORD = 8
"""Bytes of the integers that a slot is copied as."""
_TOKENS = 16
"""Slots that one program copies."""


@triton.jit(do_not_specialize=["tokens"])
def _relocate_kernel(
    buffers: tl.tensor,
    source: tl.tensor,
    target: tl.tensor,
    tokens: tl.tensor,
    slot_words: tl.tensor,
    WORDS: tl.constexpr,
    BLOCK_W: tl.constexpr,
    TOKENS: tl.constexpr,
) -> None:
    """Program (i, j): slots i * TOKENS onwards of buffer j."""
    at = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    inside = at < tokens
    words = tl.load(buffers + tl.program_id(1)).to(tl.pointer_type(tl.int64))
    words = tl.multiple_of(words, 16)
    origin = tl.load(source + at, mask=inside, other=0).to(tl.int64) * slot_words
    goal = tl.load(target + at, mask=inside, other=0).to(tl.int64) * slot_words
    for first in range(0, WORDS, BLOCK_W):
        at_w = first + tl.arange(0, BLOCK_W)
        mask = inside[:, None] & (at_w < WORDS)[None, :]
        copied = tl.load(words + origin[:, None] + at_w[None, :], mask=mask)
        tl.store(words + goal[:, None] + at_w[None, :], copied, mask=mask)


class Relocator:
    """Copies slots inside the K and V buffers of one pool.

    Holds the table of the buffers' addresses, so the buffers must outlive it.
    """

    def __init__(self, buffers: Sequence[Tensor]) -> None:
        """buffers: K and V of every layer, each [slots, H_kv, width], of one stride and row size.

        Raises ValueError when they differ, when a slot's heads are not contiguous, or when a slot
        is no multiple of 16 bytes.
        """
        first = buffers[0]
        self._slot_bytes = first.stride(0) * first.element_size()
        self._bytes = first[0].numel() * first.element_size()
        for buffer in buffers:
            alike = (
                buffer.stride(0) * buffer.element_size() == self._slot_bytes
                and buffer[0].numel() * buffer.element_size() == self._bytes
                and buffer.device == first.device
            )
            if not alike or not buffer[0].is_contiguous():
                raise ValueError(
                    "K and V buffers must be alike, with contiguous heads, to relocate"
                )
            if self._bytes % 16 or self._slot_bytes % 16 or buffer.data_ptr() % 16:
                raise ValueError("to relocate, a slot must be a multiple of 16 bytes, and aligned")
        self._buffers = list(buffers)
        addresses = [buffer.data_ptr() for buffer in buffers]
        self._table = torch.tensor(addresses, dtype=torch.int64, device=first.device)

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copy the slots `source` [n] to the slots `target` [n], in the current stream.

        Both are int32 or int64 and contiguous; no slot may be in both. Slot offsets are 64-bit.
        """
        tokens = source.numel()
        if not tokens:
            return
        words = self._bytes // _WORD
        _relocate_kernel[(-(-tokens // _TOKENS), len(self._buffers))](
            self._table,
            source,
            target,
            tokens,
            self._slot_bytes // _WORD,
            WORDS=words,
            BLOCK_W=min(triton.next_power_of_2(words), 256),
            TOKENS=_TOKENS,
            num_warps=8,
        )

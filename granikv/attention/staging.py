"""Host buffers that are filled anew each step while the device may still copy from the last."""

from __future__ import annotations

import torch
from torch import Tensor

_TURNS = 3
"""Buffers in turn: one is filled, one is on its way, one waits behind the step before."""


class HostBuffers:
    """Page-locked buffers in turn (ordinary memory where the device is the CPU)."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._buffers = [torch.zeros(size, dtype=dtype, pin_memory=on_gpu) for _ in range(_TURNS)]
        self._copied = [torch.cuda.Event() for _ in range(_TURNS) if on_gpu]  # type: ignore[no-untyped-call]
        self._turn = 0

    def take(self) -> Tensor:
        """The buffer that was sent longest ago; waits only if it is still being copied."""
        self._turn = (self._turn + 1) % _TURNS
        if self._copied:
            self._copied[self._turn].synchronize()
        return self._buffers[self._turn]

    def sent(self) -> None:
        """Call when the copies out of what `take` returned are in the current stream."""
        if self._copied:
            self._copied[self._turn].record()

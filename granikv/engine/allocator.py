"""COLD as the storage layer needs it: SGLang's token-level allocator behind a small interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from granikv.pools import PoolError
from granikv.ranges import Range


class SglangAllocator:
    """`granikv.pools.EngineAllocator` over SGLang's TokenToKVPoolAllocator or its paged sibling.

    Both keep a tensor of free page ids, so a range of slots is a range of page ids. Asking whether
    a range is free reads the device; it is asked only when a slab found no room.
    """

    def __init__(self, allocator: Any) -> None:
        self._allocator = allocator
        self._page = int(allocator.page_size)

    def free_size(self) -> int:
        """Free slots."""
        return int(self._allocator.available_size())

    def free_slots(self) -> torch.Tensor:
        """Every free slot [free_size], on the device."""
        pages = torch.cat((self._allocator.free_pages, self._allocator.release_pages))
        return slots_of(pages, self._page)

    def reserve(self, length: int) -> int:
        """Take the first ``length`` slots of a fresh allocator; their base.

        Raises:
            PoolError: they are not one contiguous range, so the allocator was in use.
        """
        slots = self._allocator.alloc(length)
        if slots is None:
            raise PoolError(f"HOT wants {length} slots and the engine has {self.free_size()}")
        base = int(slots[0])
        expected = torch.arange(base, base + length, device=slots.device, dtype=slots.dtype)
        if not torch.equal(slots, expected):
            raise PoolError("HOT was reserved from an allocator in use; it must be fresh")
        return base

    def give(self, ranges: Sequence[Range]) -> None:
        """Make the slots of ``ranges`` free in COLD, behind what is free already."""
        pages = [self._pages(r) for r in ranges]
        if pages:
            self._allocator.free_pages = torch.cat((self._allocator.free_pages, *pages))

    def holds_free(self, slots: Range) -> bool:
        """Whether every slot of the range is free in COLD."""
        count = self._inside(self._allocator.free_pages, slots).sum()
        count += self._inside(self._allocator.release_pages, slots).sum()
        return int(count) * self._page == slots.length

    def withdraw(self, slots: Range) -> None:
        """Take free slots out of COLD."""
        for name in ("free_pages", "release_pages"):
            pages = getattr(self._allocator, name)
            setattr(self._allocator, name, pages[~self._inside(pages, slots)])

    def _pages(self, slots: Range) -> torch.Tensor:
        first, end = slots.base // self._page, slots.end // self._page
        free: torch.Tensor = self._allocator.free_pages
        return torch.arange(first, end, dtype=free.dtype, device=free.device)

    def _inside(self, pages: torch.Tensor, slots: Range) -> torch.Tensor:
        return (pages >= slots.base // self._page) & (pages < slots.end // self._page)


def slots_of(pages: torch.Tensor, page_size: int) -> torch.Tensor:
    """All slots of the pages [n] -> [n * page_size], in order."""
    offsets = torch.arange(page_size, dtype=pages.dtype, device=pages.device)
    return (pages[:, None] * page_size + offsets).flatten()

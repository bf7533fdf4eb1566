"""Stand-ins for the two Triton kernels of SGLang's page allocator, on a machine without a GPU.

With pages of more than one slot, stock SGLang allocates by a Triton kernel even on a CPU. Every
system measured here, stock included, gets the same stand-in there, and only there.
"""

from __future__ import annotations

import os

import torch


def on_cpu_engine() -> bool:
    """Whether SGLang was asked to run on the CPU."""
    return os.environ.get("SGLANG_USE_CPU_ENGINE") == "1"


def install_paged_allocator() -> None:
    """Let the engine build page allocators that run without Triton."""
    import sglang.srt.mem_cache.kv_cache_configurator as configurator

    configurator.PagedTokenToKVPoolAllocator = torch_paged_allocator()


def torch_paged_allocator() -> type:
    """The engine's page allocator as a class that needs no Triton."""
    from sglang.srt.mem_cache.allocator.paged import (
        PagedTokenToKVPoolAllocator,
        alloc_extend_naive,
    )
    from sglang.srt.utils import get_num_new_pages

    class TorchPagedAllocator(PagedTokenToKVPoolAllocator):  # type: ignore[misc]
        """SGLang's page allocator, its two kernels in torch."""

        free_pages: torch.Tensor

        def alloc_extend(
            self,
            prefix_lens: torch.Tensor,
            prefix_lens_cpu: torch.Tensor,
            seq_lens: torch.Tensor,
            seq_lens_cpu: torch.Tensor,
            last_loc: torch.Tensor,
            extend_num_tokens: int,
            num_new_pages: int | None = None,
        ) -> torch.Tensor | None:
            """The new tokens' slots, [extend_num_tokens] int64; None where pages are lacking."""
            if num_new_pages is None:
                num_new_pages = get_num_new_pages(
                    seq_lens=seq_lens_cpu, page_size=self.page_size, prefix_lens=prefix_lens_cpu
                )
            if not self._make_ready(int(num_new_pages)):
                return None
            slots = torch.empty((extend_num_tokens,), dtype=torch.int64, device=self.device)
            alloc_extend_naive(
                prefix_lens,
                seq_lens,
                last_loc,
                self.free_pages,
                slots,
                self.page_size,
                self.device,
            )
            self.free_pages = self.free_pages[num_new_pages:]
            return slots

        def alloc_decode(
            self, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, last_loc: torch.Tensor
        ) -> torch.Tensor | None:
            """The slot of each row's next token, [rows] int64; None where pages are lacking."""
            opens_page = seq_lens_cpu % self.page_size == 1 % self.page_size
            pages = int(opens_page.sum())
            if not self._make_ready(pages):
                return None
            slots = last_loc.to(torch.int64) + 1
            slots[opens_page] = self.free_pages[:pages] * self.page_size
            self.free_pages = self.free_pages[pages:]
            return slots

        def _make_ready(self, pages: int) -> bool:
            if self.need_sort and pages > len(self.free_pages):
                self.merge_and_sort_free()
            return pages <= len(self.free_pages)

    return TorchPagedAllocator


def install() -> None:
    """All stand-ins; nothing happens where SGLang runs on a GPU."""
    if on_cpu_engine():
        install_paged_allocator()

"""FlashInfer's two wrappers as one batch size of a captured cascade uses them.

Written against FlashInfer 0.6.15, the version that SGLang 0.5.17 brings. A wrapper's own `plan`
copies indices about and reduces tensors element by element in Python; it is called once, to choose
and load the compiled module at the capacity of the buffers, and from then on the module's plan is
called directly, as the engine does for its own graphs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from granikv.attention.kernels.config import Shape, multiprocessors
from granikv.attention.staging import HostBuffers

_BACKEND = "fa2"
"""FlashInfer's Hopper form neither splits a sequence nor folds the query heads of a KV head."""
_LAYOUT = "NHD"
_TILES = (16, 64, 128)
"""Folded queries of a tile: the smallest that a request fits, as its length is known beforehand."""


def library() -> Any:
    """FlashInfer; raises RuntimeError in one line where it is not installed."""
    try:
        import flashinfer
    except ImportError as error:
        raise RuntimeError(
            f"cascade attention on a GPU needs FlashInfer: install the engine with its GPU extra "
            f"({error})"
        ) from error
    return flashinfer


class Requests(NamedTuple):
    """Level 0 as FlashInfer reads it on the device, int32; see `cascade_plan.Arrays`."""

    query_ptr: Tensor
    page_ptr: Tensor
    last_page: Tensor
    pages: Tensor
    queries: int


class Workspace:
    """Scratch memory of all wrappers of one step object; their launches follow one another."""

    def __init__(
        self, shape: Shape, rows: int, queries: int, requests: int, device: torch.device
    ) -> None:
        self.shape = shape
        self.units = multiprocessors(device)
        suffix_tile = next((tile for tile in _TILES if shape.group <= tile), max(_TILES))
        needed = max(
            self._float_bytes(rows, rows, suffix_tile),
            *(self._float_bytes(queries, requests, tile) for tile in _TILES),
        )
        self.floats = torch.empty(needed, dtype=torch.uint8, device=device)

    def _padded(self, queries: int, requests: int, tile: int) -> int:
        """Most tiles that FlashInfer launches for a KV head under graphs."""
        tiles = -(-queries * self.shape.group // tile) + requests - 1
        return max(2 * self.units // self.shape.kv_heads, tiles)

    def _float_bytes(self, queries: int, requests: int, tile: int) -> int:
        """Partial outputs and log-sum-exp of every tile, float32."""
        folded = tile * self._padded(queries, requests, tile)
        return 4 * self.shape.heads * folded * (self.shape.d + 1) + 256

    def integers(self, queries: int, requests: int) -> Tensor:
        """A buffer for the plan of one wrapper."""
        padded = self._padded(queries, requests, min(_TILES))
        size = 16 * padded + 8 * (queries + requests) + 4096
        return torch.empty(-(-size // 256) * 256, dtype=torch.uint8, device=self.floats.device)


class PrefixLevel:
    """Level 0: attention of each request's queries over its pages, no mask."""

    def __init__(self, library: Any, workspace: Workspace, level: Requests, page_size: int) -> None:
        shape, requests = workspace.shape, level.query_ptr.numel() - 1
        self._shape, self._page_size, self._level = shape, page_size, level
        self._wrapper = library.BatchPrefillWithPagedKVCacheWrapper(
            workspace.floats,
            _LAYOUT,
            use_cuda_graph=True,
            qo_indptr_buf=level.query_ptr,
            paged_kv_indptr_buf=level.page_ptr,
            paged_kv_indices_buf=level.pages,
            paged_kv_last_page_len_buf=level.last_page,
            backend=_BACKEND,
        )
        integers = workspace.integers(level.queries, requests)
        self._wrapper.reset_workspace_buffer(workspace.floats, integers)
        self._integers = HostBuffers(integers.numel(), torch.uint8, integers.device)
        self._wrapper._pin_memory_int_workspace_buffer = self._integers.take()
        # The first plan fixes how many queries a launch is made for: all that there is room for.
        self._wrapper.plan(
            _full(requests, level.queries),
            _full(requests, 1),
            torch.zeros(1, dtype=torch.int32, device=level.pages.device),
            torch.full((requests,), page_size, dtype=torch.int32),
            shape.heads,
            shape.kv_heads,
            shape.d,
            page_size,
            head_dim_vo=shape.d_v,
            causal=False,
            sm_scale=1.0,
            q_data_type=shape.dtype,
            kv_data_type=shape.dtype,
            o_data_type=shape.dtype,
        )
        self._integers.sent()

    def plan(self, query_ptr: Tensor, page_ptr: Tensor) -> None:
        """Plan a step: int32 [requests + 1] on the host, kept by nobody."""
        wrapper, shape, level = self._wrapper, self._shape, self._level
        requests = query_ptr.numel() - 1
        wrapper._pin_memory_int_workspace_buffer = self._integers.take()
        wrapper._plan_info = wrapper._cached_module.plan(
            wrapper._float_workspace_buffer,
            wrapper._int_workspace_buffer,
            wrapper._pin_memory_int_workspace_buffer,
            query_ptr,
            page_ptr,
            (page_ptr[1:] - page_ptr[:-1]) * self._page_size,
            level.queries,
            requests,
            shape.heads,
            shape.kv_heads,
            self._page_size,
            True,  # under graphs
            shape.d,
            shape.d_v,
            False,  # causal
            -1,  # window
            -1,  # no fixed split
            False,  # splitting is not disabled
            0,  # colocated blocks
        )
        self._integers.sent()

    def run(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, scale: float, out: Tensor, lse: Tensor
    ) -> None:
        """Write out [queries, H_q, d_v] and lse [queries, H_q], base 2, of the step's queries."""
        caches = (_pages(k_cache, self._page_size), _pages(v_cache, self._page_size))
        self._wrapper.run(q, caches, q_scale=scale, out=out, lse=lse, return_lse=True)


class SuffixLevel:
    """The suffix level: each row over its own slots, page size 1."""

    def __init__(
        self, library: Any, workspace: Workspace, ptr: Tensor, slots: Tensor, last_page: Tensor
    ) -> None:
        shape, rows = workspace.shape, last_page.numel()
        self._shape, self._slots, self._last_page = shape, slots, last_page
        self._plan = library.fast_decode_plan
        self._wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
            workspace.floats,
            _LAYOUT,
            use_cuda_graph=True,
            use_tensor_cores=True,  # one compiled module for both levels
            paged_kv_indptr_buffer=ptr,
            paged_kv_indices_buffer=slots,
            paged_kv_last_page_len_buffer=last_page,
            backend=_BACKEND,
        )
        integers = workspace.integers(rows, rows)
        self._wrapper.reset_workspace_buffer(workspace.floats, integers)
        self._integers = HostBuffers(integers.numel(), torch.uint8, integers.device)
        self._wrapper._pin_memory_int_workspace_buffer = self._integers.take()
        self._wrapper.plan(
            torch.arange(rows + 1, dtype=torch.int32),
            torch.zeros(1, dtype=torch.int32, device=slots.device),
            torch.ones(rows, dtype=torch.int32),
            shape.heads,
            shape.kv_heads,
            shape.d,
            1,
            sm_scale=1.0,
            q_data_type=shape.dtype,
            kv_data_type=shape.dtype,
            o_data_type=shape.dtype,
        )
        self._integers.sent()

    def plan(self, ptr: Tensor) -> None:
        """Plan a step: int32 [rows + 1] on the host, kept by nobody."""
        wrapper, shape = self._wrapper, self._shape
        wrapper._pin_memory_int_workspace_buffer = self._integers.take()
        self._plan(
            wrapper,
            ptr,
            self._slots,
            self._last_page,
            shape.heads,
            shape.kv_heads,
            shape.d,
            1,
            q_data_type=shape.dtype,
            kv_data_type=shape.dtype,
            sm_scale=1.0,
            global_override_indptr_cpu=ptr,
        )
        self._integers.sent()

    def run(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, scale: float, out: Tensor, lse: Tensor
    ) -> None:
        """Write out [rows, H_q, d_v] and lse [rows, H_q], base 2."""
        caches = (_pages(k_cache, 1), _pages(v_cache, 1))
        self._wrapper.run(q, caches, q_scale=scale, out=out, lse=lse, return_lse=True)


def _full(requests: int, size: int) -> Tensor:
    """Offsets of requests of which the first has everything."""
    ptr = torch.full((requests + 1,), size, dtype=torch.int32)
    ptr[0] = 0
    return ptr


def _pages(cache: Tensor, page_size: int) -> Tensor:
    """[slots, H_kv, d] as whole pages [slots / page_size, page_size, H_kv, d]: a view."""
    if page_size == 1:
        return cache.unsqueeze(1)
    pages = cache.shape[0] // page_size
    return cache[: pages * page_size].view(pages, page_size, *cache.shape[1:])

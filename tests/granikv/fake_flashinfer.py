"""FlashInfer 0.6.15's two wrappers in torch, as far as the cascade uses them, and as strict.

Arguments have the library's names, order and defaults. Like the library's, a launch takes the
schedule from the last plan and the data from the buffers that it was made with; what the two say
must agree. Scores and sums are float32; lse is base 2; an empty request leaves no trace.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

EMPTY_LSE = -5e4
"""The library's stand-in for minus infinity."""


class _Module:
    """A compiled module: what it was loaded for, and its plan."""

    def __init__(self, q_dtype: torch.dtype, kv_dtype: torch.dtype, o_dtype: torch.dtype) -> None:
        self.dtypes = (q_dtype, kv_dtype, o_dtype)

    def plan(
        self,
        float_workspace_buffer: Tensor,
        int_workspace_buffer: Tensor,
        page_locked_int_workspace_buffer: Tensor,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        kv_len_arr: Tensor,
        total_num_rows: int,
        batch_size: int,
        num_qo_heads: int,
        num_kv_heads: int,
        page_size: int,
        enable_cuda_graph: bool,
        head_dim_qk: int,
        head_dim_vo: int,
        causal: bool,
        window_left: int,
        fixed_split_size: int,
        disable_split_kv: bool,
        num_colocated_ctas: int,
    ) -> dict[str, Any]:
        for host in (qo_indptr, kv_indptr):
            assert host.device.type == "cpu"
            assert host.dtype == torch.int32
            assert host.is_contiguous()
            assert host.numel() == batch_size + 1
            assert host[0] == 0
            assert (host.diff() >= 0).all()
        assert kv_len_arr.numel() == batch_size
        assert int_workspace_buffer.numel() == page_locked_int_workspace_buffer.numel()
        assert float_workspace_buffer.dtype == int_workspace_buffer.dtype == torch.uint8
        assert int(qo_indptr[-1]) <= total_num_rows
        assert total_num_rows - batch_size + 1 >= 0, "the library's unsigned difference wraps"
        assert num_qo_heads % num_kv_heads == 0
        assert (enable_cuda_graph, causal, window_left) == (True, False, -1)
        assert (fixed_split_size, disable_split_kv, num_colocated_ctas) == (-1, False, 0)
        assert (head_dim_qk, page_size) != (0, 0)
        group = num_qo_heads // num_kv_heads
        folded = (total_num_rows - batch_size + 1) * group
        tile = 128 if folded > 64 else 64 if folded > 16 else 16
        padded = -(-total_num_rows * group // tile) + batch_size - 1
        assert (
            4 * num_qo_heads * padded * tile * (head_dim_vo + 1) <= float_workspace_buffer.numel()
        )
        assert 13 * padded + 4 * (batch_size + total_num_rows) < int_workspace_buffer.numel()
        return {"qo": qo_indptr.clone(), "kv": kv_indptr.clone(), "page_size": page_size}


class _Wrapper:
    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str, backend: str) -> None:
        assert kv_layout == "NHD"
        assert backend == "fa2"
        self._float_workspace_buffer = float_workspace_buffer
        self._int_workspace_buffer = torch.empty(8 << 20, dtype=torch.uint8)
        self._pin_memory_int_workspace_buffer = torch.empty(8 << 20, dtype=torch.uint8)
        self._plan_info: dict[str, Any] | None = None
        self._cached_module: _Module | None = None
        self._sm_scale: float | None = None
        self._fixed_batch_size: int
        self._qo_indptr_buf: Tensor
        self._paged_kv_indptr_buf: Tensor
        self._paged_kv_indices_buf: Tensor
        self._paged_kv_last_page_len_buf: Tensor

    def reset_workspace_buffer(
        self, float_workspace_buffer: Tensor, int_workspace_buffer: Tensor
    ) -> None:
        self._float_workspace_buffer = float_workspace_buffer
        self._int_workspace_buffer = int_workspace_buffer
        self._pin_memory_int_workspace_buffer = torch.empty_like(int_workspace_buffer)

    def _keep(
        self,
        page_ptr: Tensor,
        pages: Tensor,
        last_page_len: Tensor,
        dtypes: tuple[torch.dtype, ...],
    ) -> None:
        """Put a plan's data into the buffers, and load the module for its types."""
        self._paged_kv_indptr_buf.copy_(page_ptr)
        self._paged_kv_last_page_len_buf.copy_(last_page_len)
        self._paged_kv_indices_buf[: len(pages)].copy_(pages)
        self._cached_module = _Module(*dtypes)

    def _schedule(
        self,
        query_ptr: Tensor,
        page_ptr: Tensor,
        total_rows: int,
        heads: tuple[int, int],
        page_size: int,
        widths: tuple[int, int],
        sm_scale: float | None,
        causal: bool = False,
    ) -> None:
        assert self._cached_module is not None
        self._plan_info = self._cached_module.plan(
            self._float_workspace_buffer,
            self._int_workspace_buffer,
            self._pin_memory_int_workspace_buffer,
            query_ptr,
            page_ptr,
            page_ptr.diff() * page_size,
            total_rows,
            self._fixed_batch_size,
            *heads,
            page_size,
            True,
            *widths,
            causal,
            -1,
            -1,
            False,
            0,
        )
        self._sm_scale = sm_scale

    def _run(
        self,
        q: Tensor,
        paged_kv_cache: tuple[Tensor, Tensor],
        scale: float | None,
        out: Tensor | None,
        lse: Tensor | None,
        return_lse: bool,
    ) -> tuple[Tensor, Tensor]:
        assert return_lse
        assert out is not None
        assert lse is not None
        softmax_scale = self._sm_scale or q.shape[-1] ** -0.5
        self._attend(q, paged_kv_cache, softmax_scale * (scale or 1.0), out, lse)
        return out, lse

    def _attend(
        self,
        q: Tensor,
        paged_kv_cache: tuple[Tensor, Tensor],
        scale: float,
        out: Tensor,
        lse: Tensor,
    ) -> None:
        info, module = self._plan_info, self._cached_module
        assert info is not None
        assert module is not None
        k, v = paged_kv_cache
        assert k.dim() == v.dim() == 4
        assert k.stride() == v.stride()
        assert k.shape[1] == info["page_size"]
        assert (q.dtype, k.dtype, out.dtype) == module.dtypes
        assert out.shape == (*q.shape[:-1], v.shape[-1])
        assert lse.shape == q.shape[:2]
        assert lse.dtype == torch.float32
        assert out.is_contiguous()
        assert lse.is_contiguous()
        query_ptr, page_ptr = self._qo_indptr_buf, self._paged_kv_indptr_buf
        assert torch.equal(info["qo"], query_ptr), "planned for another step than what is read"
        assert torch.equal(info["kv"], page_ptr), "planned for another step than what is read"
        group = q.shape[1] // k.shape[2]
        for request in range(query_ptr.numel() - 1):
            mine = slice(int(query_ptr[request]), int(query_ptr[request + 1]))
            listed = slice(int(page_ptr[request]), int(page_ptr[request + 1]))
            if mine.start == mine.stop:
                continue
            if listed.start == listed.stop:
                out[mine], lse[mine] = 0.0, EMPTY_LSE
                continue
            pages = self._paged_kv_indices_buf[listed].long()
            last = int(self._paged_kv_last_page_len_buf[request])
            tokens = (pages.numel() - 1) * k.shape[1] + last
            keys = k[pages].flatten(0, 1)[:tokens].float().repeat_interleave(group, 1)
            values = v[pages].flatten(0, 1)[:tokens].float().repeat_interleave(group, 1)
            scores = torch.einsum("mhd,lhd->mhl", q[mine].float(), keys) * scale
            out[mine] = torch.einsum("mhl,lhd->mhd", scores.softmax(-1), values).to(out.dtype)
            lse[mine] = scores.logsumexp(-1) / math.log(2.0)


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Tensor | None = None,
        paged_kv_indptr_buf: Tensor | None = None,
        paged_kv_indices_buf: Tensor | None = None,
        paged_kv_last_page_len_buf: Tensor | None = None,
        custom_mask_buf: Tensor | None = None,
        mask_indptr_buf: Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
        jit_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, backend)
        assert use_cuda_graph
        assert not any(
            x is not None for x in (custom_mask_buf, mask_indptr_buf, jit_args, jit_kwargs)
        )
        assert qo_indptr_buf is not None
        assert paged_kv_indptr_buf is not None
        assert paged_kv_indices_buf is not None
        assert paged_kv_last_page_len_buf is not None
        self._fixed_batch_size = len(qo_indptr_buf) - 1
        assert len(paged_kv_indptr_buf) == self._fixed_batch_size + 1
        assert len(paged_kv_last_page_len_buf) == self._fixed_batch_size
        self._qo_indptr_buf = qo_indptr_buf
        self._paged_kv_indptr_buf = paged_kv_indptr_buf
        self._paged_kv_indices_buf = paged_kv_indices_buf
        self._paged_kv_last_page_len_buf = paged_kv_last_page_len_buf
        self._qo_indptr_last = -1

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        causal: bool = False,
        sm_scale: float | None = None,
        q_data_type: torch.dtype = torch.float16,
        kv_data_type: torch.dtype | None = None,
        o_data_type: torch.dtype | None = None,
    ) -> None:
        assert len(qo_indptr) - 1 == self._fixed_batch_size
        assert len(paged_kv_indices) <= len(self._paged_kv_indices_buf)
        self._qo_indptr_last = int(qo_indptr[-1])
        self._qo_indptr_buf.copy_(qo_indptr)
        types = (q_data_type, kv_data_type or q_data_type, o_data_type or q_data_type)
        self._keep(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, types)
        self._schedule(
            qo_indptr,
            paged_kv_indptr,
            self._qo_indptr_last,
            (num_qo_heads, num_kv_heads),
            page_size,
            (head_dim_qk, head_dim_vo or head_dim_qk),
            sm_scale,
            causal,
        )

    def run(
        self,
        q: Tensor,
        paged_kv_cache: tuple[Tensor, Tensor],
        *args: Any,
        q_scale: float | None = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
    ) -> tuple[Tensor, Tensor]:
        assert not args
        assert q.size(0) == self._qo_indptr_last, "q does not match qo_indptr[-1]"
        return self._run(q, paged_kv_cache, q_scale, out, lse, return_lse)


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: Tensor | None = None,
        paged_kv_indices_buffer: Tensor | None = None,
        paged_kv_last_page_len_buffer: Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, backend)
        assert use_cuda_graph
        assert use_tensor_cores
        assert jit_args is None
        assert paged_kv_indptr_buffer is not None
        assert paged_kv_indices_buffer is not None
        assert paged_kv_last_page_len_buffer is not None
        self._fixed_batch_size = len(paged_kv_last_page_len_buffer)
        assert len(paged_kv_indptr_buffer) == self._fixed_batch_size + 1
        self._paged_kv_indptr_buf = paged_kv_indptr_buffer
        self._paged_kv_indices_buf = paged_kv_indices_buffer
        self._paged_kv_last_page_len_buf = paged_kv_last_page_len_buffer
        self._qo_indptr_buf = torch.arange(self._fixed_batch_size + 1, dtype=torch.int32)

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *deprecated_positional_args: Any,
        q_data_type: torch.dtype = torch.float16,
        kv_data_type: torch.dtype | None = None,
        o_data_type: torch.dtype | None = None,
        sm_scale: float | None = None,
    ) -> None:
        assert not deprecated_positional_args
        assert len(last_page_len) == self._fixed_batch_size
        types = (q_data_type, kv_data_type or q_data_type, o_data_type or q_data_type)
        self._keep(indptr, indices, last_page_len, types)
        heads = (num_qo_heads, num_kv_heads)
        self._schedule_rows(indptr, heads, head_dim, page_size, sm_scale)

    def _schedule_rows(
        self,
        indptr: Tensor,
        heads: tuple[int, int],
        head_dim: int,
        page_size: int,
        sm_scale: float | None,
    ) -> None:
        rows = torch.arange(self._fixed_batch_size + 1, dtype=torch.int32)
        widths = (head_dim, head_dim)
        self._schedule(rows, indptr, self._fixed_batch_size, heads, page_size, widths, sm_scale)

    def run(
        self,
        q: Tensor,
        paged_kv_cache: tuple[Tensor, Tensor],
        *args: Any,
        q_scale: float | None = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
    ) -> tuple[Tensor, Tensor]:
        assert not args
        assert q.size(0) == self._fixed_batch_size
        assert out is not None
        assert out.shape == q.shape, "the library checks the output against the queries"
        return self._run(q, paged_kv_cache, q_scale, out, lse, return_lse)


def fast_decode_plan(
    self: BatchDecodeWithPagedKVCacheWrapper,
    indptr: Tensor,
    indices: Tensor,
    last_page_len: Tensor,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim: int,
    page_size: int,
    pos_encoding_mode: str = "NONE",
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    q_data_type: torch.dtype | None = None,
    kv_data_type: torch.dtype | None = None,
    data_type: torch.dtype | None = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    non_blocking: bool = True,
    fixed_split_size: int | None = None,
    disable_split_kv: bool = False,
    global_override_indptr_cpu: Tensor | None = None,
) -> None:
    assert (pos_encoding_mode, window_left, logits_soft_cap) == ("NONE", -1, None)
    assert not any(x is not None for x in (data_type, rope_scale, rope_theta, fixed_split_size))
    assert non_blocking
    assert not disable_split_kv
    assert q_data_type == kv_data_type
    assert len(last_page_len) == self._fixed_batch_size
    assert len(indices) <= len(self._paged_kv_indices_buf)
    assert global_override_indptr_cpu is not None, "the library would copy from the device"
    assert indptr.numel() == self._fixed_batch_size + 1
    self._schedule_rows(
        global_override_indptr_cpu, (num_qo_heads, num_kv_heads), head_dim, page_size, sm_scale
    )

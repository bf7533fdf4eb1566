"""The engine's decode backend: SGLang's interface in front of `granikv.attention` (paper §3.5)."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from granikv.attention import StepInputs, backend
from granikv.dispatch import PAGED
from granikv.engine.runtime import Runtime


class GraniKVDecodeBackend(AttentionBackend):  # type: ignore[misc]
    """Serves decode steps, each by the backend that the dispatch rule names.

    Prefill is the engine's: it runs this beside its own prefill backend.
    """

    def __init__(self, runner: Any, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime
        self.req_to_token_pool = runner.req_to_token_pool
        self.token_to_kv_pool = runner.token_to_kv_pool
        self.page_size = int(runner.page_size)
        assert runtime.rule is not None, "the rule is set before its backends are built"
        self._children = {name: backend(name) for name in (PAGED, *runtime.rule.sharing())}
        self._child = self._children[PAGED]
        self._step = StepInputs(torch.zeros((0, 0), dtype=torch.int64), [])

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Choose the backend of this step; every layer of it reads the same slots."""
        page_table = self.req_to_token_pool.req_to_token
        name, self._step = self.runtime.step(forward_batch, page_table, self.page_size)
        self._child = self._children[name]

    def forward_decode(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
    ) -> torch.Tensor:
        """One layer of one decode step; q [n, H_q·d] -> [n, H_q·d_v]."""
        pool, rows = self.token_to_kv_pool, q.shape[0]
        if save_kv_cache:
            pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc, None), k, v)
        out = self._child.decode(
            q.view(rows, layer.tp_q_head_num, layer.qk_head_dim),
            pool.get_key_buffer(layer.layer_id),
            pool.get_value_buffer(layer.layer_id),
            self._step,
            layer.scaling,
        )
        return out.reshape(rows, layer.tp_q_head_num * layer.v_head_dim)

    def forward_extend(self, *_: Any, **__: Any) -> torch.Tensor:
        """Never called: prefill stays with the engine's backend."""
        raise RuntimeError("GraniKV serves decode only; give the engine a prefill backend")

    def support_triton(self) -> bool:
        """Whether the engine may use its Triton index kernels beside this backend."""
        return bool(self.token_to_kv_pool.device != "cpu")

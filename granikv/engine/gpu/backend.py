"""The engine's decode backend on a GPU: the stock backend, and dense attention over slabs.

Each step is served whole by one of them. Under CUDA graphs both are captured for every batch size;
what a step reads is data on the device that is written before the replay, so one graph serves every
composition (`granikv.attention.triton_dense`). The paged child is the backend that the engine would
have used without us, so a step that reads no slab costs what it costs today.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from granikv.attention.kernels.config import Shape
from granikv.attention.triton_dense import DenseStep
from granikv.dispatch import DENSE, PAGED
from granikv.engine.runtime import Runtime
from granikv.plan import DecodePlan, PagedRange

_POOL_READS = 4
"""How many times the KV pool's tokens one step may read outside slabs; beyond that it is paged."""


class GraphDecodeBackend(AttentionBackend):  # type: ignore[misc]
    """Serves decode steps on a GPU, in CUDA graphs or without.

    Attributes:
        variants: the backends that are captured.
        variant: which one serves the step at hand.
        capturing: which one is being captured; None outside capture.
    """

    variants = (PAGED, DENSE)

    def __init__(self, runner: Any, runtime: Runtime, stock: str) -> None:
        super().__init__()
        self.runtime = runtime
        self.stock = ATTENTION_BACKENDS[stock](runner)
        self.needs_cpu_seq_lens = True
        self.req_to_token_pool = runner.req_to_token_pool
        self.token_to_kv_pool = runner.token_to_kv_pool
        self.variant = PAGED
        self.capturing: str | None = None
        rows = int(runner.req_to_token_pool.size)
        context = int(runner.req_to_token_pool.req_to_token.shape[1])
        slots = int(runner.max_total_num_tokens)
        self._room = min(rows * context, _POOL_READS * slots)
        self._dense = DenseStep(_shape(runner), rows, self._room, torch.device(runner.device))

    # -- before the layers run -----------------------------------------------------------------

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Static buffers; ours exist since the start."""
        self.stock.init_cuda_graph_state(max_bs, max_num_tokens)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """Sequence length of a graph's filler rows."""
        return int(self.stock.get_cuda_graph_seq_len_fill_value())

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """A step outside CUDA graphs."""
        self._choose(forward_batch, rows=int(forward_batch.batch_size))
        if self.variant == PAGED:
            self.stock.init_forward_metadata(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """A step whose layers are captured, or replayed right after."""
        rows = int(forward_batch.batch_size)
        if in_capture:
            self.variant = self.capturing or PAGED
            if self.variant == DENSE:
                self._prepare(_all_paged(rows), forward_batch, rows)
        else:
            self._choose(forward_batch, rows - int(getattr(forward_batch, "num_padding", 0)))
        if self.variant == PAGED:
            self.stock.init_forward_metadata_out_graph(forward_batch, in_capture=in_capture)

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        """What the stock backend records inside the graph."""
        if self.variant == PAGED:
            self.stock.init_forward_metadata_in_graph(forward_batch)

    def on_after_cuda_graph_warmup(self) -> None:
        """The stock backend's own hook, where it has one."""
        hook = getattr(self.stock, "on_after_cuda_graph_warmup", None)
        if hook is not None:
            hook()

    def _choose(self, forward_batch: Any, rows: int) -> None:
        """Pick the backend of this step, and upload what it reads."""
        tokens = _tokens(forward_batch)
        plan = self.runtime.plan_for(rows)
        covered = sum(len(s.rows) * s.length for s in plan.segments)
        fits = tokens - covered <= self._room
        self.runtime.overflowed += not fits
        self.variant = self.runtime.choose(rows, plan) if fits else PAGED
        if self.variant == DENSE:
            self._prepare(plan, forward_batch, tokens)

    def _prepare(self, plan: DecodePlan, forward_batch: Any, tokens: int) -> None:
        self._dense.plan(plan)
        self._dense.snapshot(
            self.req_to_token_pool.req_to_token,
            forward_batch.req_pool_indices,
            forward_batch.seq_lens,
            tokens,
        )

    # -- a layer -------------------------------------------------------------------------------

    def forward_decode(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        **options: Any,
    ) -> torch.Tensor:
        """One layer of one decode step; q [n, H_q·d] -> [n, H_q·d_v]."""
        if self.variant == PAGED:
            served: torch.Tensor = self.stock.forward_decode(
                q, k, v, layer, forward_batch, save_kv_cache, **options
            )
            return served
        if options:
            raise RuntimeError(f"dense attention has no {', '.join(options)}; use the stock engine")
        pool, rows = self.token_to_kv_pool, q.shape[0]
        if save_kv_cache:
            pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc, None), k, v)
        out = torch.empty(
            (rows, layer.tp_q_head_num, layer.v_head_dim), dtype=q.dtype, device=q.device
        )
        self._dense.attend(
            q.view(rows, layer.tp_q_head_num, layer.qk_head_dim),
            pool.get_key_buffer(layer.layer_id),
            pool.get_value_buffer(layer.layer_id),
            out,
            layer.scaling,
        )
        return out.view(rows, -1)

    def forward_extend(self, *_: Any, **__: Any) -> torch.Tensor:
        """Never called: prefill stays with the engine's backend."""
        raise RuntimeError("GraniKV serves decode only; give the engine a prefill backend")


def _shape(runner: Any) -> Shape:
    """What stays the same for every step of the model on this rank."""
    config, ranks = runner.model_config, runner.server_args.tp_size
    kv_heads = int(config.get_num_kv_heads(ranks))
    group = int(config.num_attention_heads) // ranks // kv_heads
    d = int(config.head_dim)
    return Shape(kv_heads, group, d, int(getattr(config, "v_head_dim", d) or d), runner.dtype)


def _tokens(forward_batch: Any) -> int:
    """Tokens that the step attends to, filler rows included, from the host's own copy."""
    total = forward_batch.seq_lens_sum
    return int(forward_batch.seq_lens_cpu.sum()) if total is None else int(total)


def _all_paged(rows: int) -> DecodePlan:
    return DecodePlan(rows, (), ((PagedRange(0, None),),) * rows)

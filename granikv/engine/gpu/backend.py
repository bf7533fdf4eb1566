"""The engine's decode backend on a GPU: the stock backend, and ours that read shared ranges once.

Each step is served whole by one of them. Under CUDA graphs all are captured for every batch size;
what a step reads is data on the device that is written before the replay, so one graph serves every
composition. The paged child is the backend that the engine would have used without us, so a step
that shares nothing costs what it costs today.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from granikv import profiling
from granikv.attention.kernels.config import Shape
from granikv.attention.kernels.worklist import WorkListOverflow
from granikv.config import SGLANG_CASCADE
from granikv.cost import Geometry
from granikv.dispatch import PAGED, Decision
from granikv.engine.gpu.children import IN_GRAPHS, Room, child, tokens_of
from granikv.engine.runtime import Runtime
from granikv.plan import DecodePlan, PagedRange

_POOL_READS = 4
"""How many times the KV pool's tokens one step may read outside segments; beyond, it is paged."""


class GraphDecodeBackend(AttentionBackend):  # type: ignore[misc]
    """Serves decode steps on a GPU, in CUDA graphs or without.

    Attributes:
        variants: the backends that are captured.
        variant: which one serves the step at hand.
        capturing: which one is being captured; None outside capture.
    """

    def __init__(
        self,
        runner: Any,
        runtime: Runtime,
        stock: str,
        sharing: Sequence[str],
        geometry: Geometry,
    ) -> None:
        """
        stock     the engine's backend that serves paged steps
        sharing   the backends beside it that may serve a step
        geometry  the attention of this rank
        """
        super().__init__()
        self.runtime = runtime
        self.stock = ATTENTION_BACKENDS[stock](runner)
        self.needs_cpu_seq_lens = True
        self.req_to_token_pool = runner.req_to_token_pool
        self.token_to_kv_pool = runner.token_to_kv_pool
        self.variant = PAGED
        self.capturing: str | None = None
        shape, device = Shape(*geometry[:4], runner.dtype), torch.device(runner.device)
        room = _room(runner, on_pages=runtime.config.system == SGLANG_CASCADE)
        self._children = {name: child(name, shape, room, device) for name in sharing}
        self.variants = (PAGED, *(name for name in sharing if name in IN_GRAPHS))

    # -- before the layers run -----------------------------------------------------------------

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """The stock backend's static buffers; ours exist since the start."""
        self.stock.init_cuda_graph_state(max_bs, max_num_tokens)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """Tokens of a graph's filler row: what the stock backend gives it."""
        return int(self.stock.get_cuda_graph_seq_len_fill_value())

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Choose who serves a step outside CUDA graphs; the stock backend prepares only its own."""
        self._choose(forward_batch, filler=0)
        if self.variant == PAGED:
            self.stock.init_forward_metadata(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Take the variant being captured, or choose the replay's, filler rows not counted."""
        if in_capture:
            self.variant = self.capturing or PAGED
            plan = _all_paged(int(forward_batch.batch_size))
            self._prepare(Decision(self.variant, plan), forward_batch)
        else:
            self._choose(forward_batch, filler=int(getattr(forward_batch, "num_padding", 0)))
        if self.variant == PAGED:
            self.stock.init_forward_metadata_out_graph(forward_batch, in_capture=in_capture)

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        """Record the stock backend's part alone; what ours read is uploaded before the graph."""
        if self.variant == PAGED:
            self.stock.init_forward_metadata_in_graph(forward_batch)

    def on_after_cuda_graph_warmup(self) -> None:
        """The stock backend's own hook, where it has one."""
        hook = getattr(self.stock, "on_after_cuda_graph_warmup", None)
        if hook is not None:
            hook()

    def must_run_eagerly(self) -> bool:
        """Whether the coming decode step may be served by a backend that no graph holds."""
        return len(self.variants) <= len(self._children) and self.runtime.shares()

    def _choose(self, forward_batch: Any, filler: int) -> None:
        """Pick the backend of this step, and upload what it reads.

        filler: rows of the batch that only fill a graph.
        """
        with profiling.METADATA:
            rows = int(forward_batch.batch_size) - filler
            of_filler = filler * self.get_cuda_graph_seq_len_fill_value() if filler else 0
            decision = self.runtime.decide(rows, tokens_of(forward_batch) - of_filler)
            try:
                self._prepare(decision, forward_batch)
            except WorkListOverflow:
                decision = self.runtime.overflow(decision)
        self.variant = decision.backend
        self.runtime.count(decision)

    def _prepare(self, decision: Decision, forward_batch: Any) -> None:
        if decision.backend != PAGED:
            page_table = self.req_to_token_pool.req_to_token
            self._children[decision.backend].prepare(decision.plan, page_table, forward_batch)

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
        """One layer by the step's variant; q [n, H_q·d] -> [n, H_q·d_v]."""
        if self.variant == PAGED:
            served: torch.Tensor = self.stock.forward_decode(
                q, k, v, layer, forward_batch, save_kv_cache, **options
            )
            return served
        if options:
            raise RuntimeError(f"GraniKV has no attention with {', '.join(options)}")
        pool, rows = self.token_to_kv_pool, q.shape[0]
        if save_kv_cache:
            pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc, None), k, v)
        out = torch.empty(
            (rows, layer.tp_q_head_num, layer.v_head_dim), dtype=q.dtype, device=q.device
        )
        self._children[self.variant].attend(
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


def _room(runner: Any, on_pages: bool) -> Room:
    """on_pages: segments lie on the engine's ordinary pages, whole pages of them."""
    rows = int(runner.req_to_token_pool.size)
    context = int(runner.req_to_token_pool.req_to_token.shape[1])
    slots = int(runner.max_total_num_tokens)
    page_size = int(runner.server_args.page_size) if on_pages else 1
    return Room(rows, min(rows * context, _POOL_READS * slots), slots, page_size)


def _all_paged(rows: int) -> DecodePlan:
    return DecodePlan(rows, (), ((PagedRange(0, None),),) * rows)

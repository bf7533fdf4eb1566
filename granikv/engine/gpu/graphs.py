"""SGLang's decode graph runner with one captured graph for each (attention backend, batch size)."""

from __future__ import annotations

from typing import Any

from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner

from granikv.engine.gpu.backend import GraphDecodeBackend


class GraniKVGraphRunner(DecodeCudaGraphRunner):  # type: ignore[misc]
    """Captures every variant of our decode backend and replays the one of the step."""

    def capture_one_shape(
        self,
        size: int,
        forward: Any,
        stream_idx: int | None = None,
        variant_label: str | None = None,
    ) -> None:
        """Capture one batch size, once a variant; the label becomes part of the graph's key."""
        backend = self._ours()
        if backend is None:
            super().capture_one_shape(size, forward, stream_idx, variant_label)
            return
        try:
            for variant in backend.variants:
                backend.capturing = variant
                super().capture_one_shape(size, forward, stream_idx, variant)
        finally:
            backend.capturing = None

    def can_run_graph(self, forward_batch: Any) -> bool:
        """Not where the step's backend cannot be replayed."""
        backend = self._ours()
        if backend is not None and backend.must_run_eagerly():
            return False
        return bool(super().can_run_graph(forward_batch))

    def _resolve_lora_variant(self, forward_batch: Any) -> str | None:
        """The engine asks for the label after the step's metadata is prepared."""
        backend = self._ours()
        return None if backend is None else backend.variant

    def _ours(self) -> GraphDecodeBackend | None:
        backend = getattr(self.attn_backend, "decode_backend", self.attn_backend)
        return backend if isinstance(backend, GraphDecodeBackend) else None

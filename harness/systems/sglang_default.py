"""SGLang default: FlashInfer on 16-token pages, the paper's baseline (§4.3)."""

from harness.systems.stock import Stock


class SglangDefault(Stock):
    """On the CPU: torch_native on 1-token pages, since the paged allocator is a Triton kernel."""

    name = "sglang_default"

"""SGLang with FlashInfer on 1-token pages: tells the page size apart from the backend."""

from harness.systems.stock import GpuStock


class SglangFlashinferP1(GpuStock):
    """As `sglang_default`, with page size 1."""

    name = "sglang_flashinfer_p1"

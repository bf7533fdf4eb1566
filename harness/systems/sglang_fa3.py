"""SGLang with FlashAttention 3 on 1-token pages: what a user of a Hopper GPU gets."""

from harness.systems.base import Hardware
from harness.systems.stock import GpuStock


class SglangFa3(GpuStock):
    """The engine's own default on Hopper."""

    name = "sglang_fa3"

    def refusal(self, hardware: Hardware) -> str | None:
        """FlashAttention 3 is written for Hopper."""
        if hardware.name.startswith("a100"):
            return "sglang_fa3 needs a Hopper GPU; on an A100 use system=sglang_default"
        return super().refusal(hardware)

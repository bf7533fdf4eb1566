"""Contiguous slabs, but every row reads the prefix for itself."""

from __future__ import annotations

from harness.systems.base import CPU, Hardware
from harness.systems.plugin import StorageSystem


class GranikvContiguousUnshared(StorageSystem):
    """Tells contiguity apart from the shared read (2 × 2 with paged storage)."""

    name = "granikv_contiguous_unshared"
    backend = "contiguous_unshared"

    def refusal(self, hardware: Hardware) -> str | None:
        """It has no GPU kernel: there Table 5 tells the two apart, kernel by kernel."""
        if hardware.device != CPU:
            return f"{self.name} runs on a CPU only: its decode backend has no GPU kernel"
        return None

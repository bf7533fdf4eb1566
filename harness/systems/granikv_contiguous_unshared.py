"""Contiguous slabs, but every row reads the prefix for itself."""

from __future__ import annotations

from harness.systems.base import CPU, Hardware
from harness.systems.plugin import StorageSystem


class GranikvContiguousUnshared(StorageSystem):
    """Tells contiguity apart from the shared read (2 × 2 with paged storage)."""

    name = "granikv_contiguous_unshared"
    backend = "contiguous_unshared"

    def backend_on(self, hardware: Hardware) -> str:
        """On a GPU `paged`: the engine's own kernel, a slab's slots to every row that has them."""
        return self.backend if hardware.device == CPU else "paged"

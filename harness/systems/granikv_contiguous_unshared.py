"""Contiguous slabs, but every row reads the prefix for itself."""

from harness.systems.plugin import StorageSystem


class GranikvContiguousUnshared(StorageSystem):
    """Tells contiguity apart from the shared read (2 × 2 with paged storage)."""

    name = "granikv_contiguous_unshared"
    backend = "contiguous_unshared"

"""GraniKV: HOT/COLD storage, the decode backend dispatched every step (§3.6)."""

from harness.systems.plugin import StorageSystem


class Granikv(StorageSystem):
    """The paper's system."""

    name = "granikv"
    backend = "auto"

"""GraniKV with the cascade backend in every step, slabs read per class."""

from harness.systems.plugin import StorageSystem


class GranikvCascade(StorageSystem):
    """For the dispatcher's regret: cascade whether or not it pays."""

    name = "granikv_cascade"
    backend = "cascade"

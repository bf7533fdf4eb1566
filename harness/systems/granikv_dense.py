"""GraniKV with the dense backend in every step."""

from harness.systems.plugin import StorageSystem


class GranikvDense(StorageSystem):
    """For the dispatcher's regret: dense whether or not it pays."""

    name = "granikv_dense"
    backend = "dense"

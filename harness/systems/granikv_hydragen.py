"""GraniKV with dense attention as two matrix products and a softmax, the paper's literal form."""

from harness.systems.plugin import StorageSystem


class GranikvHydragen(StorageSystem):
    """Told apart from the fused dense kernel on a GPU."""

    name = "granikv_hydragen"
    backend = "hydragen"
    needs_gpu = True

"""SGL-C/GKV: the cascade kernel on HOT/COLD storage (Appendix B.3), the ablation of dispatch."""

from harness.systems.plugin import StorageSystem


class CascadeOnGranikv(StorageSystem):
    """The paper's fourth system in Tables 13 and 14."""

    name = "cascade_on_granikv"
    backend = "cascade"

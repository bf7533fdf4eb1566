"""The systems under test: one file each, and the registry that the configuration chooses from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import HarnessError
from harness.systems.base import Hardware, ServerInfo, System, Traffic
from harness.systems.cascade_on_granikv import CascadeOnGranikv
from harness.systems.granikv import Granikv
from harness.systems.granikv_cascade import GranikvCascade
from harness.systems.granikv_contiguous_unshared import GranikvContiguousUnshared
from harness.systems.granikv_dense import GranikvDense
from harness.systems.granikv_hydragen import GranikvHydragen
from harness.systems.sglang_cascade import SglangCascade
from harness.systems.sglang_default import SglangDefault
from harness.systems.sglang_fa3 import SglangFa3
from harness.systems.sglang_flashinfer_p1 import SglangFlashinferP1

__all__ = ["SYSTEMS", "Hardware", "ServerInfo", "System", "Traffic", "make"]

SYSTEMS: dict[str, type[System]] = {
    system.name: system
    for system in (
        SglangDefault,
        SglangFlashinferP1,
        SglangFa3,
        SglangCascade,
        CascadeOnGranikv,
        Granikv,
        GranikvDense,
        GranikvCascade,
        GranikvHydragen,
        GranikvContiguousUnshared,
    )
}
"""The registry: a new system is a module with a class, a line here and a file in conf/system/."""


def make(options: Mapping[str, Any], storage: Mapping[str, Any]) -> System:
    """The system that the group `system` of a configuration names."""
    name = options.get("name")
    if name not in SYSTEMS:
        raise HarnessError(f"unknown system {name!r}; there are: {', '.join(SYSTEMS)}")
    return SYSTEMS[name](options, storage)

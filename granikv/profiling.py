"""NVTX ranges, domain `granikv`: what a profiler shows of the storage layer on its timeline.

Without a profiler a range costs a fraction of a microsecond. Ranges around launches that are
captured in a CUDA graph show at capture; on replay the kernels' names tell.
"""

from __future__ import annotations

from typing import Any

import nvtx

_DOMAIN: Any = nvtx.get_domain("granikv")


class ProfilerRange:
    """A named range of host time, as a context manager; ranges may nest."""

    __slots__ = ("_attributes",)

    def __init__(self, name: str) -> None:
        self._attributes = _DOMAIN.get_event_attributes(message=name)

    def __enter__(self) -> None:
        _DOMAIN.push_range(self._attributes)

    def __exit__(self, *_: object) -> None:
        _DOMAIN.pop_range()


RELOCATION = ProfilerRange("relocation")
PLAN = ProfilerRange("plan")
"""Classes of the step, from the tree."""
METADATA = ProfilerRange("metadata")
"""The choice of a backend, and the upload of what its launches read."""
PREFIX = ProfilerRange("prefix")
SUFFIX = ProfilerRange("suffix")
MERGE = ProfilerRange("merge")

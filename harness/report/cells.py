"""What the page tells of each cell: what was served, on what, and the command that measures it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.analysis.cells import KERNEL, CellLike, number, standing
from harness.report.command import command
from harness.tables import provenance
from harness.tables.labels import length_label, system_label
from harness.tables.sources import Sources

PACKAGES = ("sglang", "torch", "triton", "flashinfer-python", "granikv")


@dataclass
class Registry:
    """The cells that the page mentions, each once, in the order in which tables ask for them."""

    cells: Mapping[str, CellLike]
    places: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, sources: Sources) -> Registry:
        """A cell measured here stands before a shipped one of the same id."""
        return cls({cell.id: cell for cell in (*sources.shipped, *sources.here)})

    def place(self, cell_id: str) -> int:
        """The cell's index on the page."""
        return self.places.setdefault(cell_id, len(self.places))

    def entries(self) -> list[dict[str, Any]]:
        """What was asked for, in order."""
        return [describe(self.cells[name]) for name in self.places]


def describe(cell: CellLike) -> dict[str, Any]:
    """One cell in words: strings by name, empty where the cell does not say."""
    at = standing(cell)
    lengths = "/".join(length_label(n) for n in at.prefix_lengths[:8])
    served = [at.kind, f"prefix {lengths}" if lengths else "", f"B = {at.b}" if at.b else ""]
    if at.kind != KERNEL and (at.stream_interval > 1 or not at.functional):
        served.append(f"tokens streamed {provenance.grouping(at.stream_interval)}")
    return {
        "id": cell.id,
        "system": system_label(at.system),
        "model": at.model,
        "hardware": _hardware(cell),
        "workload": ", ".join(part for part in served if part),
        "engine": _engine(cell),
        "valid": cell.valid,
        "reasons": list(cell.reasons),
        "software": _software(cell),
        "command": command(cell.config) or "",
    }


def _engine(cell: CellLike) -> str:
    """What the engine decodes by its own log, and the client's steady rate beside it."""
    rate, share = number(cell, "engine_decode_tok_s"), number(cell, "delivered_share")
    if rate is None:
        return ""
    decoded = f"decodes {rate:,.0f} tok/s by its own log"
    if share is None:
        return decoded
    return f"{decoded}; the client's steady rate, prefills included, is {share:.0%} of that"


def _hardware(cell: CellLike) -> str:
    environment = _environment(cell)
    gpus = environment.get("gpus") or []
    title = standing(cell).title
    if gpus:
        first = gpus[0]
        used = int(standing(cell).model.rpartition("=")[2])
        count = f"{used} of {len(gpus)} × " if len(gpus) > 1 else ""
        return f"{title} ({count}{first.get('name')}, driver {first.get('driver')})"
    processor = environment.get("cpu") or {}
    if standing(cell).functional and processor.get("name"):
        return f"{title} ({processor['name']}, {processor.get('cores')} cores)"
    return title


def _software(cell: CellLike) -> str:
    environment = _environment(cell)
    packages = environment.get("packages") or {}
    parts = [f"{name} {packages[name]}" for name in PACKAGES if packages.get(name)]
    commit = (environment.get("revision") or {}).get("commit")
    return ", ".join([*parts, f"revision {commit[:12]}"] if commit else parts)


def _environment(cell: CellLike) -> Mapping[str, Any]:
    environment = cell.record.get("environment")
    return environment if isinstance(environment, Mapping) else {}

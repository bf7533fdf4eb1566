"""Made-up cells for tests of tables, figures and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CPU = {"name": "cpu", "device": "cpu", "title": "tiny model on the CPU", "dispatch": {"m_sat": 8}}
H200 = {"name": "h200", "device": "cuda", "title": "one H200", "dispatch": {"m_sat": 512}}
LLAMA_8B = {"name": "llama31_8b", "tp": 1}
TINY = {"name": "tiny", "tp": 1}


@dataclass(frozen=True)
class MadeUpCell:
    """A cell with the given parts; nothing of it was measured."""

    id: str
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    valid: bool = True
    reasons: Sequence[str] = ()
    state: Mapping[str, Any] | None = None
    layout: Mapping[str, Any] | None = None
    record: Mapping[str, Any] = field(default_factory=dict)


def workload(kind: str, lengths: Sequence[int], scale: int = 1) -> dict[str, Any]:
    """A workload's configuration: one length gives `prefix_length`, several `prefix_lengths`."""
    base: dict[str, Any] = {"kind": kind, "scale": scale}
    return base | (
        {"prefix_length": lengths[0]} if len(lengths) == 1 else {"prefix_lengths": list(lengths)}
    )


def gpu_cell(
    system: str,
    tok_s: float,
    *,
    lengths: Sequence[int] = (16384,),
    kind: str = "sharegpt",
    b: int = 256,
    repetition: int = 0,
    model: Mapping[str, Any] = LLAMA_8B,
    **parts: Any,
) -> MadeUpCell:
    """An H200 cell; further metrics in `metrics`, other parts by name."""
    config = {
        "system": {"name": system},
        "model": dict(model),
        "workload": workload(kind, lengths),
        "load": {"kind": "poisson_capped", "permits": b},
        "hardware": H200,
        "repetition": repetition,
    }
    metrics = {"output_tok_s": tok_s} | parts.pop("metrics", {})
    name = f"{system}-{'-'.join(map(str, lengths))}-{b}-{repetition}"
    return MadeUpCell(name, config, metrics, **parts)


def cpu_cell(
    system: str,
    tok_s: float,
    *,
    lengths: Sequence[int] = (512,),
    kind: str = "sharegpt",
    b: int = 8,
    repetition: int = 0,
    **parts: Any,
) -> MadeUpCell:
    """A cell of the tiny model on the CPU, lengths scaled down by 32."""
    config = {
        "system": {"name": system},
        "model": TINY,
        "workload": workload(kind, lengths, scale=32),
        "load": {"kind": "poisson_capped", "permits": b},
        "hardware": CPU,
        "repetition": repetition,
    }
    metrics = {"output_tok_s": tok_s} | parts.pop("metrics", {})
    name = f"cpu-{system}-{'-'.join(map(str, lengths))}-{b}-{repetition}"
    return MadeUpCell(name, config, metrics, **parts)


def tree_node(
    node_id: int, parent: int | None, p0: int, length: int, base: int | None, readers: int = 0
) -> dict[str, Any]:
    """One node as `/server_info` lists it."""
    pool = "COLD" if base is None else "HOT"
    return {
        "id": node_id,
        "parent": parent,
        "p0": p0,
        "length": length,
        "pool": pool,
        "base": base,
        "readers": readers,
        "pinned": False,
        "children": 0,
    }


def pools(
    hot_start: int, hot_size: int, hot_live: int, cold_live: int, cold_free: int
) -> dict[str, Any]:
    """Pool occupancy in slots, nothing donated."""
    return {
        "capacity": hot_size + cold_live + cold_free,
        "page_size": 1,
        "hot_start": hot_start,
        "hot_size": hot_size,
        "hot_free": hot_size - hot_live,
        "hot_live": hot_live,
        "hot_donated": 0,
        "cold_free": cold_free,
        "cold_live": cold_live,
        "hot_live_ranges": [[hot_start, hot_live]],
        "hot_donated_ranges": [],
    }

"""Table 2: the model and tensor-parallel configurations (§4.2), and which of them have cells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from harness import paper
from harness.analysis.cells import MODEL_CONFIGS, CellLike, standing
from harness.tables.entries import Entry, Kind, Missing, Printed
from harness.tables.sources import Sources
from harness.tables.table import Column, Table

_METRICS = (("tp", "TP"), ("n_q_per_kv", "n_q/kv"), ("kv_heads_per_rank", "KV heads per rank"))
_SHAPES = paper.ROOT / "harness" / "models" / "shapes"


@dataclass(frozen=True)
class _Shape:
    """What one configuration is by its model file: counts."""

    tp: int
    n_q_per_kv: int
    kv_heads_per_rank: int


def _shape(config: str, name: str) -> _Shape:
    model = json.loads((_SHAPES / f"{name}.json").read_text("utf-8"))
    tp = int(config.rpartition("=")[2])
    kv_heads = int(model["num_key_value_heads"])
    return _Shape(tp, int(model["num_attention_heads"]) // kv_heads, kv_heads // tp)


def _count(cells: Sequence[CellLike], model: str, absent: str) -> Entry:
    count = sum(1 for cell in cells if cell.valid and standing(cell).model == model)
    return f"{count:,}" if count else Missing(absent)


def _columns() -> list[Column]:
    columns = [Column("config", "Model / TP")]
    for source, heading in (("paper", "paper"), ("shape", "model file here")):
        columns += [
            Column(f"{source}.{metric}", title, Kind.COUNT, heading, source)
            for metric, title in _METRICS
        ]
    return [
        *columns,
        Column("shipped.cells", "shipped", Kind.COUNT, "valid cells", "shipped"),
        Column("here.cells", "here", Kind.COUNT, "valid cells", "here"),
    ]


def _row(config: str, name: str, sources: Sources) -> dict[str, Entry]:
    printed, shape = paper.select(paper.table(2), config=config), _shape(config, name)
    row: dict[str, Entry] = {"config": config}
    for metric, _ in _METRICS:
        row[f"paper.{metric}"] = Printed(paper.printed(printed, metric=metric))
        row[f"shape.{metric}"] = str(getattr(shape, metric))
    row["shipped.cells"] = _count(sources.shipped, config, "no shipped cell: not measured yet")
    row["here.cells"] = _count(sources.here, config, "not measured on this machine")
    return row


def _others(sources: Sources) -> list[dict[str, Entry]]:
    """Models that were served but are none of the paper's, such as the CPU's tiny one."""
    known = set(MODEL_CONFIGS.values())
    served = {standing(cell).model for cell in (*sources.here, *sources.shipped)} - known
    return [
        {
            "config": model,
            "shipped.cells": _count(sources.shipped, model, "none shipped"),
            "here.cells": _count(sources.here, model, "not measured on this machine"),
        }
        for model in sorted(served)
    ]


def build(sources: Sources) -> Table:
    """The paper's three configurations beside the model files, then other models with cells."""
    rows = [_row(config, name, sources) for name, config in MODEL_CONFIGS.items()]
    title = "Evaluation configurations (§4.2) and the valid cells of each."
    return Table(2, title, _columns(), rows + _others(sources))

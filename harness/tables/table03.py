"""Table 3: ShareGPT throughput at B = 256 on the long-prefix part of the L_p ladder (§4.5)."""

from __future__ import annotations

from harness import paper
from harness.tables.comparison import Comparison, Row
from harness.tables.labels import length_label, system_label
from harness.tables.metrics import (
    DRAWN,
    FA3_NOTE,
    OUTPUT,
    TO_CASCADE,
    TO_DEFAULT,
    TO_FA3,
    of_granikv,
)
from harness.tables.numbers import Point
from harness.tables.sources import Sources
from harness.tables.table import Column, Table

LENGTHS = (4096, 8192, 16384)
B = 256


def _rows() -> list[Row]:
    return [
        Row(
            {"config": config, "l_p": length_label(l_p), "system": system_label(system)},
            Point(config, system, "sharegpt", B, l_p),
        )
        for config in paper.CONFIGS
        for l_p in LENGTHS
        for system in DRAWN
    ]


TABLE = Comparison(
    number=3,
    title="ShareGPT output throughput at B = 256 over the long part of the L_p ladder.",
    labels=(Column("config", "Model / TP"), Column("l_p", "L_p"), Column("system", "System")),
    metrics=(OUTPUT, *(of_granikv(ratio) for ratio in (TO_DEFAULT, TO_CASCADE, TO_FA3))),
    rows=_rows(),
    command="make reproduce (another model: ARGS=model=qwen25_14b)",
    notes=(
        "Paper: means of three runs. SGL is SGLang default, SGL-C is SGLang-Cascade.",
        FA3_NOTE,
    ),
)


def build(sources: Sources) -> Table:
    """Three models, three lengths, four systems; ratios of GraniKV to the baselines."""
    return TABLE.build(sources)

"""The L_p × B grids of Appendix B.1 (Tables 6–8) and B.2 (Tables 9–11): one table a model."""

from __future__ import annotations

from harness import paper
from harness.tables.comparison import Comparison, Row
from harness.tables.labels import length_label, system_label
from harness.tables.metrics import (
    DRAWN,
    FA3_NOTE,
    OUTPUT,
    TO_DEFAULT,
    TO_FA3,
    TPOT_P50,
    TTFT_P50,
    TTFT_P99,
    TTFT_P99_TO_FA3,
    TTFT_SCHEDULED_P50,
    of_granikv,
)
from harness.tables.numbers import Point
from harness.tables.table import Column

SYNTHETIC = {6: paper.LLAMA_8B, 7: paper.QWEN_14B, 8: paper.QWEN_32B}
SHAREGPT = {9: paper.LLAMA_8B, 10: paper.QWEN_14B, 11: paper.QWEN_32B}
SYNTHETIC_LENGTHS = (512, 1024, 2048, 4096, 8192)
SYNTHETIC_B = (8, 32, 128, 256)
SHAREGPT_LENGTHS = (*SYNTHETIC_LENGTHS, 16384)
SHAREGPT_B = (*SYNTHETIC_B, 512, 1024)

_LABELS = (Column("l_p", "L_p"), Column("b", "B"), Column("system", "System"))
_METRICS = (OUTPUT, of_granikv(TO_DEFAULT), of_granikv(TO_FA3), TPOT_P50, TTFT_P50)


def _rows(config: str, kind: str, lengths: tuple[int, ...], bs: tuple[int, ...]) -> list[Row]:
    return [
        Row(
            {"l_p": length_label(l_p), "b": f"{b:,}", "system": system_label(system)},
            Point(config, system, kind, b, l_p),
        )
        for l_p in lengths
        for b in bs
        for system in DRAWN
    ]


def synthetic(number: int) -> Comparison:
    """The burst grid of one model: all requests at once, 128 output tokens each."""
    config = SYNTHETIC[number]
    return Comparison(
        number=number,
        title=f"Synthetic burst grid, L_p × B: {config}.",
        labels=_LABELS,
        metrics=(*_METRICS, TTFT_P99, of_granikv(TTFT_P99_TO_FA3)),
        rows=_rows(config, "synthetic", SYNTHETIC_LENGTHS, SYNTHETIC_B),
        command=f"python -m harness -m experiment=table{number:02d}",
        notes=(
            "B requests are sent at once. The paper's output length is not printed; 128 tokens fit "
            "its durations.",
            "The paper leaves out L_p = 16K, where its client does not stream; Tables 9–11 have "
            "it.",
            FA3_NOTE,
        ),
    )


def sharegpt(number: int) -> Comparison:
    """The ShareGPT matrix of one model at saturation."""
    config = SHAREGPT[number]
    return Comparison(
        number=number,
        title=f"ShareGPT at saturation, L_p × B: {config}.",
        labels=_LABELS,
        metrics=(*_METRICS, TTFT_SCHEDULED_P50),
        rows=_rows(config, "sharegpt", SHAREGPT_LENGTHS, SHAREGPT_B),
        command=f"python -m harness -m experiment=table{number:02d}",
        notes=(
            "The paper's 500 requests cannot fill B = 512 or 1,024; cells here send at least 2 B.",
            "TTFT counts from sending, as the paper's does; from due time it adds the wait for a "
            "permit.",
            FA3_NOTE,
        ),
    )

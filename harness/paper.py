"""The paper's printed numbers, transcribed in `results/paper/`, and what does not follow from them.

One tidy CSV a table: table, config, system, l_p (tokens), b (requests), k (distinct prefixes),
case, metric, value (the text as printed), unit. `notes.yaml` holds the contradictions; the numbers
in it are recomputed by `harness.analysis.discrepancies`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import yaml

from harness.errors import HarnessError

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
DIRECTORY = RESULTS / "paper"

HARDWARE = "A100-SXM4-40GB"
LLAMA_8B = "Llama-3.1-8B/TP=1"
QWEN_14B = "Qwen-2.5-14B/TP=2"
QWEN_32B = "Qwen-2.5-32B/TP=4"
CONFIGS = (LLAMA_8B, QWEN_14B, QWEN_32B)
Key: TypeAlias = dict[str, str | int]
KEYS = ("config", "system", "l_p", "b", "k", "case", "metric")


class PaperError(HarnessError):
    """The transcription has no such number."""


@dataclass(frozen=True)
class Note:
    """One place where the paper's text does not follow from its tables.

    `numbers` are what `harness.analysis.discrepancies` computes from `results/paper/`.
    """

    id: str
    where: str
    printed: str
    found: str
    numbers: dict[str, float]


@cache
def _read(stem: str) -> pd.DataFrame:
    path = DIRECTORY / f"{stem}.csv"
    if not path.is_file():
        raise PaperError(f"{path} is missing: restore results/paper from the repository")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column in ("l_p", "b", "k"):
        frame[column] = pd.to_numeric(frame[column]).astype("Int64")
    frame["printed"] = frame["value"]
    frame["value"] = pd.to_numeric(frame["value"], errors="coerce")
    return frame


def table(number: int) -> pd.DataFrame:
    """Tidy rows of one table. `value` is a float (NaN for words), `printed` the paper's text."""
    return _read(f"table{number:02d}").copy()


def figure(number: int) -> pd.DataFrame:
    """Tidy rows of the numbers printed in one figure and its caption."""
    return _read(f"figure{number:02d}").copy()


def select(frame: pd.DataFrame, **key: str | int) -> pd.DataFrame:
    """Rows whose columns equal `key`; keys are those of `KEYS`."""
    unknown = set(key) - set(KEYS)
    if unknown:
        raise PaperError(f"unknown key {sorted(unknown)}; use {', '.join(KEYS)}")
    for column, wanted in key.items():
        frame = frame[(frame[column] == wanted).fillna(False).astype(bool)]
    return frame


def printed(frame: pd.DataFrame, **key: str | int) -> str:
    """The one printed text that `key` names. Raises PaperError unless exactly one row matches."""
    rows = select(frame, **key)
    if len(rows) != 1:
        raise PaperError(f"{len(rows)} transcribed numbers match {key}; exactly one should")
    return str(rows["printed"].iloc[0])


def value(frame: pd.DataFrame, **key: str | int) -> float:
    """The one number that `key` names, in the unit of its row."""
    return float(printed(frame, **key))


@cache
def notes() -> tuple[Note, ...]:
    """The contradictions in the paper, as data."""
    raw: list[dict[str, Any]] = yaml.safe_load((DIRECTORY / "notes.yaml").read_text("utf-8"))
    return tuple(Note(**entry) for entry in raw)

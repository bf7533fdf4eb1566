"""What a figure module returns, and what several of them draw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from harness.analysis.statistics import Estimate
from harness.tables import provenance, sides
from harness.tables.numbers import Point
from harness.tables.sides import Ratio
from harness.tables.sources import CellSource


class NothingToDraw(Exception):  # noqa: N818 - it is an answer, not an error
    """The cells hold nothing that this figure shows; the message is the reason, for the index."""


@dataclass(frozen=True)
class Drawing:
    """A figure with the sentence that says what it shows and where its numbers come from."""

    figure: Figure
    caption: str


def whiskers(estimates: Sequence[Estimate]) -> NDArray[np.float64]:
    """Lengths of intervals below and above, (2, estimates); NaN, which is not drawn, of one run.

    Two caps on one another would say of a single run, or of a printed number, that it is exact.
    """
    lengths = [
        (math.nan, math.nan) if e.runs < 2 else (e.value - e.low, e.high - e.value)
        for e in estimates
    ]
    return np.transpose(np.array(lengths, dtype=np.float64))


def conditions(
    sources: Iterable[CellSource], points: Sequence[Point], ratios: Sequence[Ratio] = ()
) -> str:
    """What tables say of how these points' cells streamed and prefilled and of a ratio's sides.

    Stands behind a caption: each sentence with a blank before it.
    """
    said = [
        sentence
        for source in sources
        for sentence in (
            provenance.streaming(source, points),
            sides.prefill(source, points),
            sides.apart(source, ratios),
            sides.joined(source, ratios),
        )
    ]
    return "".join(f" {sentence}" for sentence in said if sentence)

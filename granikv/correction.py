"""What the cost terms leave out, looked up among the steps that calibration measured.

The terms of `granikv.cost` are few, and a kernel's time also has edges: a launch that fills the
device once and a half, a cache that holds the shared range. Such errors are alike for steps that
are alike, so a prediction is multiplied by measured over predicted of the nearest measured steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_NEAREST = 3
_SOFTENING = 0.25
"""In octaves: below that, how near a step is matters little beside the noise of its measurement."""


class Place(NamedTuple):
    """Where a step lies among others.

    rows: batch size; covered, own: tokens a row reads in shared ranges and outside; ranges: shared
    ranges of the step; kv_heads: of one rank.
    """

    rows: float
    covered: float
    own: float
    ranges: float
    kv_heads: float


_WEIGHTS = Place(rows=3.0, covered=1.0, own=0.7, ranges=3.0, kv_heads=3.0)
"""How much an octave of each counts. Rows, heads and ranges decide how many programs there are and
so whether the last wave is full: that jumps, while lengths change times smoothly. Chosen by the
regret of steps left out, on one H200 (results/h200/dispatch)."""


@dataclass(frozen=True)
class Correction:
    """Factors of one child at the steps where it was measured.

    Attributes:
        places: the measured steps.
        ratios: measured over predicted time of each.
    """

    places: tuple[Place, ...] = ()
    ratios: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.places) != len(self.ratios) or not all(ratio > 0 for ratio in self.ratios):
            raise ValueError("a correction needs one positive ratio a step")

    @cached_property
    def _at(self) -> NDArray[np.float64]:
        """[5, steps]: a decision waits for what is computed of it."""
        return np.concatenate([_position(place) for place in self.places], axis=1)

    @cached_property
    def _logs(self) -> list[float]:
        return [math.log(ratio) for ratio in self.ratios]

    def factor(self, place: Place) -> float:
        """What to multiply a prediction by; 1 where nothing was measured."""
        return self._factor(place, None)

    def factor_without(self, index: int) -> float:
        """The factor at a measured step as the others alone give it: for judging the fit."""
        return self._factor(self.places[index], index)

    def _factor(self, place: Place, but: int | None) -> float:
        if len(self.ratios) <= (but is not None):
            return 1.0
        away = self._at - _position(place)
        squares = np.einsum("ij,ij->j", away, away)
        if but is not None:
            squares[but] = np.inf
        weight = total = 0.0
        for _ in range(min(_NEAREST, len(self.ratios) - (but is not None))):
            nearest = int(squares.argmin())  # the first of equals, on every rank
            near = 1.0 / (math.sqrt(squares[nearest]) + _SOFTENING) ** 2
            weight += near
            total += near * self._logs[nearest]
            squares[nearest] = np.inf
        return math.exp(total / weight)

    def document(self) -> str:
        """Steps apart by semicolons, each the place and the ratio.

        One string: as lists, hundreds of steps would make hundreds of nodes in every configuration
        that names the profile.
        """
        steps = zip(self.places, self.ratios, strict=True)
        return "; ".join(" ".join(map(_shortest, (*place, ratio))) for place, ratio in steps)

    @classmethod
    def parse(cls, document: object, where: str) -> Correction:
        """The inverse of `document`; none for None. Raises ValueError, one line."""
        if document is None or document == "":
            return cls()
        width = len(Place._fields) + 1
        try:
            if not isinstance(document, str):
                raise TypeError
            rows = [[float(number) for number in step.split()] for step in document.split(";")]
            table = np.array(rows, dtype=np.float64).reshape(len(rows), width)
        except (TypeError, ValueError):
            raise ValueError(f"{where} must hold steps of {width} numbers, ; between") from None
        if not (np.isfinite(table).all() and (table >= 0).all() and (table[:, -1] > 0).all()):
            raise ValueError(f"{where} must hold positive, finite numbers")
        return cls(
            tuple(Place(*row[:-1]) for row in rows),
            tuple(row[-1] for row in rows),
        )


def _shortest(number: float) -> str:
    return repr(float(number)).removesuffix(".0")


def _position(place: Place) -> NDArray[np.float64]:
    """[5, 1] octaves, weighted."""
    octaves = [w * math.log2(1.0 + x) for w, x in zip(_WEIGHTS, place, strict=True)]
    return np.array(octaves, dtype=np.float64)[:, None]

"""What one place of a table can hold, and how it is written for people."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from harness.analysis.statistics import Estimate

DASH = "–"
TIMES = "×"


class Kind(Enum):
    """What a column's numbers are; decides decimals and the unit sign."""

    TEXT = "text"
    COUNT = "count"
    DECIMAL = "number"
    FRACTION = "fraction"
    THROUGHPUT = "tok/s"
    RATIO = "x"
    MICROSECONDS = "µs"
    MILLISECONDS = "ms"
    SECONDS = "s"
    PERCENT = "%"
    MEGABYTES = "MB"
    GIGABYTES = "GB"
    BANDWIDTH = "GB/s"
    TERAFLOPS = "TFLOP/s"
    INTENSITY = "FLOP/byte"


@dataclass(frozen=True)
class Printed:
    """A number of the paper, kept as printed there. `kind` where it is not the column's."""

    text: str
    kind: Kind | None = None

    @property
    def value(self) -> float:
        """The number; NaN where the paper prints a word."""
        try:
            return float(self.text)
        except ValueError:
            return math.nan


@dataclass(frozen=True)
class Measured:
    """A number from cells: the estimate and the ids of the cells behind it.

    kind: what the number is, where it is not what its column says (a table of quantities).
    """

    estimate: Estimate
    cells: tuple[str, ...]
    kind: Kind | None = None


@dataclass(frozen=True)
class Missing:
    """Nothing to print where there could be something, and why."""

    reason: str


@dataclass(frozen=True)
class Blank:
    """A place where no number belongs, such as a baseline's ratio to itself."""


Entry: TypeAlias = str | Printed | Measured | Missing | Blank

# Decimals that are never exceeded: below these a difference says nothing about serving.
_MOST_DECIMALS = {
    Kind.COUNT: 0,
    Kind.DECIMAL: 1,
    Kind.FRACTION: 3,
    Kind.THROUGHPUT: 0,
    Kind.RATIO: 2,
    Kind.MICROSECONDS: 2,
    Kind.MILLISECONDS: 1,
    Kind.SECONDS: 3,
    Kind.PERCENT: 3,
    Kind.MEGABYTES: 1,
    Kind.GIGABYTES: 2,
    Kind.BANDWIDTH: 0,
    Kind.TERAFLOPS: 2,
    Kind.INTENSITY: 2,
}
_SIGNS = {Kind.RATIO: TIMES, Kind.PERCENT: "%", Kind.MEGABYTES: " MB", Kind.GIGABYTES: " GB"}
# One run states no spread; runs of one cell differ by up to ten percent: three digits are generous.
_DIGITS_OF_ONE_RUN = 3


def _place(value: float) -> int:
    """Decimal exponent of the leading digit: 0 for 7, 2 for 250, -1 for 0.3."""
    return math.floor(math.log10(abs(value)))


def decimals(estimate: Estimate, kind: Kind) -> int:
    """Decimals that the interval supports (negative: round left of the point)."""
    most = _MOST_DECIMALS[kind]
    if kind is Kind.COUNT:
        return 0
    if estimate.runs > 1 and estimate.half_width > 0:
        # A leading 1 is kept with the digit behind it: without, rounding moves a bound too far.
        leading = _place(estimate.half_width)
        exact = estimate.half_width < 2 * 10.0**leading
        return min(most, -leading + exact)
    if estimate.value == 0:
        return 0 if kind is Kind.PERCENT else most
    return min(most, _DIGITS_OF_ONE_RUN - 1 - _place(estimate.value))


def _rounded(value: float, places: int) -> str:
    return f"{round(value, places):,.{max(places, 0)}f}"


def _sign(kind: Kind) -> str:
    return _SIGNS.get(kind, "")


def _with_separators(text: str) -> str:
    whole, point, fraction = text.partition(".")
    return f"{int(whole):,}{point}{fraction}" if whole.isdigit() else text


def write(entry: Entry, kind: Kind) -> str:
    """The entry as text, without the mark of a missing entry's reason."""
    match entry:
        case str():
            return entry
        case Printed(text, own):
            sign = _sign(own or kind)
            return _with_separators(text) + ("" if math.isnan(entry.value) else sign)
        case Measured(estimate, _, own):
            shown = own or kind
            return spread(estimate, decimals(estimate, shown), _sign(shown))
        case Missing(_):
            return DASH
        case Blank():
            return ""


def spread(estimate: Estimate, places: int, unit: str) -> str:
    """`value unit [low, high]` with so many decimals; without the interval where there is none."""
    text = _rounded(estimate.value, places) + unit
    if estimate.low == estimate.high:
        return text
    low, high = (_rounded(bound, places) for bound in (estimate.low, estimate.high))
    return f"{text} [{low}, {high}]"

"""How numbers are written for people."""

from __future__ import annotations

import math

import pytest

from harness.analysis.statistics import Estimate
from harness.tables.entries import Blank, Kind, Measured, Missing, Printed, write


def measured(value: float, low: float | None = None, high: float | None = None) -> Measured:
    runs = 1 if low is None else 3
    return Measured(
        Estimate(value, value if low is None else low, value if high is None else high, runs), ()
    )


@pytest.mark.parametrize(
    ("entry", "kind", "text"),
    [
        (Printed("3478"), Kind.THROUGHPUT, "3,478"),
        (Printed("298"), Kind.THROUGHPUT, "298"),
        (Printed("2.16"), Kind.RATIO, "2.16×"),
        (Printed("38.0"), Kind.MILLISECONDS, "38.0"),
        (Printed("0.10"), Kind.SECONDS, "0.10"),
        (Printed("mixed"), Kind.TEXT, "mixed"),
        (Missing("why"), Kind.THROUGHPUT, "–"),
        (Blank(), Kind.RATIO, ""),
        ("GraniKV", Kind.TEXT, "GraniKV"),
    ],
)
def test_what_is_not_measured(
    entry: Printed | Missing | Blank | str, kind: Kind, text: str
) -> None:
    assert write(entry, kind) == text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (12818.3, Kind.THROUGHPUT, "12,800"),
        (974.6, Kind.THROUGHPUT, "975"),
        (9.87, Kind.THROUGHPUT, "10"),
        (2.1638, Kind.RATIO, "2.16×"),
        (21.84, Kind.MILLISECONDS, "21.8"),
        (218.4, Kind.MILLISECONDS, "218"),
        (0.012345, Kind.SECONDS, "0.012"),
        (9.2468, Kind.SECONDS, "9.25"),
        (0.0, Kind.SECONDS, "0.000"),
    ],
)
def test_one_run_has_three_digits_at_most(value: float, kind: Kind, text: str) -> None:
    assert write(measured(value), kind) == text


@pytest.mark.parametrize(
    ("entry", "kind", "text"),
    [
        (measured(4684.2, 4610.0, 4758.0), Kind.THROUGHPUT, "4,680 [4,610, 4,760]"),
        (measured(4684.2, 4683.0, 4686.0), Kind.THROUGHPUT, "4,684 [4,683, 4,686]"),
        (measured(4684.2, 3900.0, 5500.0), Kind.THROUGHPUT, "4,700 [3,900, 5,500]"),
        (measured(1.347, 1.30, 1.40), Kind.RATIO, "1.35× [1.30, 1.40]"),
        (measured(1.35, 1.1, 1.6), Kind.RATIO, "1.4× [1.1, 1.6]"),
        (measured(2.0, 2.0, 2.0), Kind.RATIO, "2.00×"),
        # Three runs stay three runs where rounding hides their spread: no brackets means one.
        (measured(1.1301, 1.1290, 1.1312), Kind.RATIO, "1.13× [1.13, 1.13]"),
        # A half width that starts with 1 keeps a digit more, or 9,649 would read as 10,000.
        (measured(11281.2, 9649.3, 12960.0), Kind.THROUGHPUT, "11,300 [9,600, 13,000]"),
        (measured(1.275, 1.115, 1.435), Kind.RATIO, "1.27× [1.11, 1.44]"),
    ],
)
def test_digits_follow_the_interval(entry: Measured, kind: Kind, text: str) -> None:
    assert write(entry, kind) == text


def test_a_word_has_no_value() -> None:
    assert math.isnan(Printed("cascade").value)
    assert Printed("0.67").value == 0.67

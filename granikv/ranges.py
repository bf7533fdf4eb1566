"""Ranges of slots and disjoint sets of them, sorted by address."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class Range(NamedTuple):
    """The slots [base, base + length)."""

    base: int
    length: int

    @property
    def end(self) -> int:
        """The slot after the last one."""
        return self.base + self.length

    def __str__(self) -> str:
        return f"[{self.base}, {self.end})"


class RangeSet:
    """Disjoint ranges sorted by address; neighbours merge as they meet.

    The caller checks that what it adds is absent and what it removes is present.
    """

    __slots__ = ("_bases", "_ends", "total")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._bases: list[int] = []
        self._ends: list[int] = []
        self.total = 0
        for slots in sorted(ranges):
            self.add(slots)

    def add(self, slots: Range) -> None:
        """Put in a range that meets none that is here."""
        base, end = slots.base, slots.end
        low = high = bisect_left(self._bases, base)
        if low and self._ends[low - 1] == base:
            low -= 1
            base = self._bases[low]
        if high < len(self._bases) and self._bases[high] == end:
            end = self._ends[high]
            high += 1
        self._bases[low:high] = [base]
        self._ends[low:high] = [end]
        self.total += slots.length

    def remove(self, slots: Range) -> None:
        """Take out a range that lies wholly inside one that is here."""
        at = bisect_right(self._bases, slots.base) - 1
        pieces = ((self._bases[at], slots.base), (slots.end, self._ends[at]))
        kept = [(base, end) for base, end in pieces if base < end]
        self._bases[at : at + 1] = [base for base, _ in kept]
        self._ends[at : at + 1] = [end for _, end in kept]
        self.total -= slots.length

    def holds(self, slots: Range) -> bool:
        """Whether every slot of the range is here."""
        at = bisect_right(self._bases, slots.base) - 1
        return at >= 0 and slots.end <= self._ends[at]

    def first_fit(self, length: int) -> int | None:
        """The lowest base with room for ``length`` slots."""
        for base, end in zip(self._bases, self._ends, strict=True):
            if end - base >= length:
                return base
        return None

    def longest(self) -> int:
        """Slots of the longest range; 0 when there is none."""
        pairs = zip(self._bases, self._ends, strict=True)
        return max((end - base for base, end in pairs), default=0)

    def last(self) -> Range:
        """The range with the highest address; there must be one."""
        return Range(self._bases[-1], self._ends[-1] - self._bases[-1])

    def end(self, default: int) -> int:
        """The slot after the highest range; ``default`` when there is none."""
        return self._ends[-1] if self._ends else default

    def ranges(self) -> list[Range]:
        """Every range, by address."""
        pairs = zip(self._bases, self._ends, strict=True)
        return [Range(base, end - base) for base, end in pairs]

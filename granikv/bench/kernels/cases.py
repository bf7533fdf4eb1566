"""Decode steps to be measured, and what each must cost at least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Read(NamedTuple):
    """A slab range that `rows` rows from `first` on read, from token position p0."""

    first: int
    rows: int
    p0: int
    length: int


class Case(NamedTuple):
    """One decode step: `rows` rows with `suffix` own tokens each behind what `reads` lists."""

    name: str
    rows: int
    suffix: int
    heads: tuple[int, int]
    d: int
    reads: tuple[Read, ...]

    @property
    def flop(self) -> int:
        """Multiply-adds of the shared part, twice: 4 H_q d for each (row, token)."""
        return 4 * self.heads[0] * self.d * sum(r.rows * r.length for r in self.reads)

    def kv_bytes(self, tokens: int) -> int:
        """K and V of that many slots, 16-bit."""
        return 2 * 2 * self.heads[1] * self.d * tokens

    @property
    def prefix_bytes(self) -> int:
        """Every slab range once."""
        return self.kv_bytes(sum(r.length for r in self.reads))

    @property
    def suffix_bytes(self) -> int:
        """Every row's own slots once."""
        return self.kv_bytes(self.rows * self.suffix)


def _uniform(rows: int, length: int, q_heads: int, kv_heads: int, d: int = 128) -> Case:
    name = f"B={rows} L_p={length} {q_heads}/{kv_heads} d={d}"
    return Case(name, rows, 256, (q_heads, kv_heads), d, (Read(0, rows, 0, length),))


def _classes(name: str, lengths: Sequence[int], head: int = 0) -> Case:
    """Equal classes of 256 rows in all, behind `head` tokens that all read."""
    rows = 256 // len(lengths)
    common = (Read(0, 256, 0, head),) if head else ()
    own = tuple(Read(i * rows, rows, head, length) for i, length in enumerate(lengths))
    return Case(name, 256, 256, (32, 8), 128, (*common, *own))


CASES = (
    _uniform(256, 8192, 32, 8),
    _uniform(256, 4096, 32, 8),
    _uniform(256, 1024, 32, 8),
    _uniform(128, 8192, 32, 8),
    _uniform(64, 16384, 32, 8),
    _uniform(64, 8192, 32, 8),
    _uniform(32, 8192, 32, 8),
    _uniform(8, 16384, 32, 8),
    _uniform(256, 16384, 20, 4),
    _uniform(256, 16384, 10, 2),
    _uniform(256, 8192, 32, 8, d=64),
    _classes("one class of 7,680", [7680]),
    _classes("four classes 2K/4K/8K/16K", [2048, 4096, 8192, 16384]),
    _classes("four classes of 8K", [8192] * 4),
    _classes("4K read by all, then four of 4K", [4096] * 4, head=4096),
)


class Ceilings(NamedTuple):
    """This device's copy bandwidth and matrix-product peak, measured in this run."""

    bandwidth_gbps: float
    peak_tflops: float


class Work(NamedTuple):
    """What a pass must do at least: floating-point operations, and bytes of K and V."""

    flop: int
    bytes: int

    def floors(self, ceilings: Ceilings) -> dict[str, float]:
        """µs that each takes at the ceiling; no implementation is much faster than the larger."""
        return {
            "floor_flop_us": round(self.flop / ceilings.peak_tflops / 1e6, 2),
            "floor_bytes_us": round(self.bytes / ceilings.bandwidth_gbps / 1e3, 2),
        }


def work_of(case: Case) -> dict[str, Work]:
    """By pass; merging is counted as free, the suffix's arithmetic too."""
    return {
        "prefix": Work(case.flop, case.prefix_bytes),
        "suffix": Work(0, case.suffix_bytes),
        "merge": Work(0, 0),
        "whole": Work(case.flop, case.prefix_bytes + case.suffix_bytes),
    }


def layers_for(case: Case, l2: str, l2_bytes: int) -> int:
    """Layers of which neither the slabs nor the rest fit three L2s over, or one for a warm L2."""
    if l2 == "warm":
        return 1
    smallest = min(b for b in (case.prefix_bytes, case.suffix_bytes) if b)
    return max(2, -(-3 * l2_bytes // smallest))

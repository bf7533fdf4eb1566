"""What one layer of a decode step costs by each child: paged, dense and cascade (paper, §3.6).

A cost is a short sum of physical terms, each a coefficient of the device times a quantity that
follows from the step alone: a launch, (row, KV head) pairs, bytes, floating-point operations. The
quantities hold the model's geometry, the coefficients do not, so one profile serves every model.
`granikv calibrate` fits the coefficients; none is written in code.

Host arithmetic only: no torch, no clock, nothing that differs between the ranks of a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from granikv.correction import Correction, Place

Floats = NDArray[np.float64]

_PART_BYTES = 8
"""A part's element is written and read back once, as float32."""
_LEAST_BLOCKS = 2
"""The work list cuts no piece shorter than this."""


class Geometry(NamedTuple):
    """The attention of one rank. group: n_q/kv; d, d_v: widths of K and V; bytes of an element."""

    kv_heads: int
    group: int
    d: int
    d_v: int
    element_bytes: int

    @property
    def token_bytes(self) -> int:
        """K and V of one token in one layer."""
        return self.kv_heads * (self.d + self.d_v) * self.element_bytes


class Reads(NamedTuple):
    """What one step reads, as the costs see it.

    rows          batch size
    own           (row, token) pairs outside shared ranges
    own_distinct  different tokens among them
    lengths       [segments] tokens of each shared range
    readers       [segments] rows that read it
    """

    rows: int
    own: float
    own_distinct: float
    lengths: Floats
    readers: Floats

    @classmethod
    def of(cls, rows: int, own: float, shared: Sequence[tuple[int, int]] = ()) -> Reads:
        """shared: (length, readers) of each range; own tokens are read by one row each."""
        both = np.array(shared, dtype=np.float64).reshape(-1, 2)
        return cls(rows, own, own, both[:, 0], both[:, 1])

    def place(self, geometry: Geometry) -> Place:
        """Where the step lies among others."""
        covered = float(self.lengths @ self.readers)
        rows = max(self.rows, 1)
        ranges = float(self.lengths.size)
        return Place(self.rows, covered / rows, self.own / rows, ranges, geometry.kv_heads)

    def keeping(self, kept: NDArray[np.bool_]) -> Reads:
        """The same step with only these ranges shared; every reader reads the others itself."""
        lengths, readers = self.lengths[~kept], self.readers[~kept]
        return Reads(
            self.rows,
            self.own + float(lengths @ readers),
            self.own_distinct + float(lengths.sum()),
            self.lengths[kept],
            self.readers[kept],
        )


class Residuals(NamedTuple):
    """How far the fit is off its points, relative to the measured time."""

    points: int
    median: float
    p95: float
    largest: float


class PagedCost(NamedTuple):
    """Coefficients of a stock decode kernel: each row reads all it attends to.

    launch_us; unit_us for each (row, KV head); read_us_per_gb for all that all rows read, from
    whatever cache; memory_us_per_gb for each different token once.
    """

    launch_us: float
    unit_us: float
    read_us_per_gb: float
    memory_us_per_gb: float

    @staticmethod
    def quantities(reads: Reads, geometry: Geometry) -> tuple[float, ...]:
        """What each coefficient multiplies."""
        gb = geometry.token_bytes / 1e9
        total = reads.own + float(reads.lengths @ reads.readers)
        distinct = reads.own_distinct + float(reads.lengths.sum())
        return 1.0, reads.rows * geometry.kv_heads, gb * total, gb * distinct

    def microseconds(self, reads: Reads, geometry: Geometry) -> float:
        """Predicted µs of one layer."""
        _, units, read, memory = self.quantities(reads, geometry)
        own = self.read_us_per_gb * read + self.memory_us_per_gb * memory
        return self.launch_us + self.unit_us * units + own


class Tile(NamedTuple):
    """How the shared read is cut: folded rows and tokens of a tile, and programs that take them."""

    block_m: int
    block_n: int
    programs: int


class SharedCost(NamedTuple):
    """Coefficients of a child that reads each shared range once (dense, cascade).

    launch_us           all launches of a layer
    unit_us             each (row, KV head)
    slab_us_per_gb      shared ranges, once each; overlap the next, so the larger counts
    us_per_gflop        products with the shared ranges, whole tiles: rows x group rounded up to
                        block_m. A persistent work list spreads the tiles evenly: there is no last
                        wave to round up to
    read_us_per_gb      what rows read for themselves, all rows
    memory_us_per_gb    the same, each different token once
    part_us_per_gb      partial results, written and merged
    """

    launch_us: float
    unit_us: float
    slab_us_per_gb: float
    us_per_gflop: float
    read_us_per_gb: float
    memory_us_per_gb: float
    part_us_per_gb: float

    def combined(self, quantities: Sequence[float], overlapped: bool) -> float:
        """Predicted µs from `SharedTerms.quantities`.

        overlapped: the rows' own reads run beside the products too, as in one fused launch.
        """
        _, units, slab, gflop, read, memory, part = quantities
        own = self.read_us_per_gb * read + self.memory_us_per_gb * memory
        slabs, products = self.slab_us_per_gb * slab, self.us_per_gflop * gflop
        busy = max(slabs + own, products) if overlapped else max(slabs, products) + own
        return self.launch_us + self.unit_us * units + busy + self.part_us_per_gb * part


class SharedTerms:
    """The quantities of one step for a child that shares its reads, segment by segment."""

    def __init__(self, reads: Reads, geometry: Geometry, tile: Tile) -> None:
        self.reads = reads
        self.geometry = geometry
        self._units = reads.rows * geometry.kv_heads
        self._gb = geometry.token_bytes / 1e9
        blocks = np.ceil(reads.lengths / tile.block_n)
        tiles = np.ceil(reads.readers * geometry.group / tile.block_m) * geometry.kv_heads
        work = tiles * blocks
        of_tile = 2 * tile.block_m * tile.block_n * (geometry.d + geometry.d_v)
        pieces = 1 + blocks * (tile.programs / max(float(work.sum()), 1.0))
        pieces = np.minimum(pieces, np.maximum(blocks / _LEAST_BLOCKS, 1))
        of_part = _PART_BYTES * geometry.kv_heads * geometry.group * geometry.d_v
        self.slab_gb = self._gb * reads.lengths
        self.gflop = work * (of_tile / 1e9)
        self.part_gb = reads.readers * pieces * (of_part / 1e9)

    def quantities(self, kept: NDArray[np.bool_] | None = None) -> tuple[float, ...]:
        """What each coefficient of `SharedCost` multiplies, with only `kept` ranges shared."""
        if kept is None or kept.all():
            reads, shared = self.reads, (self.slab_gb, self.gflop, self.part_gb)
        else:
            reads = self.reads.keeping(kept)
            shared = (self.slab_gb[kept], self.gflop[kept], self.part_gb[kept])
        slab, gflop, part = (float(term.sum()) for term in shared)
        own, distinct = self._gb * reads.own, self._gb * reads.own_distinct
        return 1.0, self._units, slab, gflop, own, distinct, part

    def worth_sharing(self, cost: SharedCost) -> NDArray[np.bool_]:
        """[segments] whether a range costs less read once than by each of its readers."""
        once = np.maximum(cost.slab_us_per_gb * self.slab_gb, cost.us_per_gflop * self.gflop)
        once += cost.part_us_per_gb * self.part_gb
        each = cost.read_us_per_gb * self.reads.readers + cost.memory_us_per_gb
        worth: NDArray[np.bool_] = once <= each * self.slab_gb
        return worth


@dataclass(frozen=True, slots=True)
class SharedChild:
    """A child that shares its reads, as calibrated; overlapped as in `SharedCost.combined`."""

    cost: SharedCost
    overlapped: bool
    tile: Tile
    residuals: Residuals
    correction: Correction = field(default_factory=Correction)

    def terms(self, reads: Reads, geometry: Geometry) -> SharedTerms:
        """The step's quantities for this child's tiles."""
        return SharedTerms(reads, geometry, self.tile)

    def microseconds(self, terms: SharedTerms, kept: NDArray[np.bool_] | None = None) -> float:
        """Predicted µs of one layer with only `kept` ranges shared; None: all."""
        reads = terms.reads if kept is None else terms.reads.keeping(kept)
        factor = self.correction.factor(reads.place(terms.geometry))
        return factor * self.cost.combined(terms.quantities(kept), self.overlapped)


@dataclass(frozen=True, slots=True)
class PagedChild:
    """A stock decode kernel, as calibrated."""

    cost: PagedCost
    residuals: Residuals
    correction: Correction = field(default_factory=Correction)

    def microseconds(self, reads: Reads, geometry: Geometry) -> float:
        """Predicted µs of one layer."""
        factor = self.correction.factor(reads.place(geometry))
        return factor * self.cost.microseconds(reads, geometry)


@dataclass(frozen=True, slots=True)
class CostModel:
    """The children of one device.

    Attributes:
        paged: by the engine's name of the stock decode backend ("fa3", "flashinfer").
        shared: by the child's name ("dense", "cascade"); what was not measured is not there.
    """

    paged: Mapping[str, PagedChild] = field(default_factory=dict)
    shared: Mapping[str, SharedChild] = field(default_factory=dict)

    def paged_cost(self, stock: str, reads: Reads, geometry: Geometry) -> float:
        """Predicted µs of the stock backend; of the fastest known where `stock` was not measured.

        So against an unknown stock backend sharing must beat everything known.
        """
        known = [self.paged[stock]] if stock in self.paged else self.paged.values()
        return min(child.microseconds(reads, geometry) for child in known)

    @property
    def residuals(self) -> dict[str, Residuals]:
        """By child, stock ones first."""
        stock = {name: child.residuals for name, child in self.paged.items()}
        return stock | {name: child.residuals for name, child in self.shared.items()}

    def document(self) -> dict[str, Any]:
        """As the profile's YAML holds it."""
        paged = {
            name: {
                **child.cost._asdict(),
                "residuals": child.residuals._asdict(),
                "correction": child.correction.document(),
            }
            for name, child in self.paged.items()
        }
        shared = {
            name: {
                **child.cost._asdict(),
                "overlapped": child.overlapped,
                "tile": child.tile._asdict(),
                "residuals": child.residuals._asdict(),
                "correction": child.correction.document(),
            }
            for name, child in self.shared.items()
        }
        return {"paged": paged, "shared": shared}

    @classmethod
    def parse(cls, document: object) -> CostModel:
        """The inverse of `document`. Raises ValueError, one line, for anything wrong."""
        top = _mapping(document, "the cost model")
        paged = _mapping(top.get("paged"), "paged")
        shared = _mapping(top.get("shared"), "shared")
        if not paged:
            raise ValueError("paged must name at least one stock backend")
        return cls(
            {
                str(name): PagedChild(
                    _numbers(PagedCost, _mapping(child, name)),
                    _numbers(Residuals, child.get("residuals"), f"{name}.residuals"),
                    Correction.parse(child.get("correction"), f"{name}.correction"),
                )
                for name, child in paged.items()
            },
            {
                str(name): SharedChild(
                    _numbers(SharedCost, _mapping(child, name)),
                    bool(child.get("overlapped", False)),
                    _tile(child.get("tile"), f"{name}.tile"),
                    _numbers(Residuals, child.get("residuals"), f"{name}.residuals"),
                    Correction.parse(child.get("correction"), f"{name}.correction"),
                )
                for name, child in shared.items()
            },
        )


def _mapping(value: object, where: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must hold keys and values")
    return value


def _numbers(kind: Any, value: object, where: str = "") -> Any:
    """A NamedTuple of numbers, none negative."""
    mapping = _mapping(value, where or kind.__name__)
    numbers = []
    for name in kind._fields:
        number = mapping.get(name)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"{where} {name} must be a number, not {number!r}".strip())
        if not 0 <= number < math.inf:
            raise ValueError(f"{where} {name} must not be negative or infinite".strip())
        numbers.append(number)
    return kind(*numbers)


def _tile(value: object, where: str) -> Tile:
    tile = _numbers(Tile, value, where)
    if not all(isinstance(n, int) and n >= 1 for n in tile):
        raise ValueError(f"{where} must hold whole numbers from 1")
    return Tile(*tile)

"""Table 5: the prefix kernel alone, by storage layout and by who shares the read (§4.6)."""

from __future__ import annotations

from dataclasses import dataclass

from harness import paper
from harness.analysis.cells import KERNEL
from harness.tables.comparison import Comparison, Row
from harness.tables.entries import Entry, Kind
from harness.tables.metrics import NOT_CPU
from harness.tables.numbers import Metric, Point, Source
from harness.tables.printed import PaperSource
from harness.tables.sources import CellSource, Sources
from harness.tables.table import Column, Table

B, L_P = 256, 8192
CASES = {
    ("HOT", "shared"): ("contiguous (HOT)", "once for all rows", "shared (HOT)"),
    ("paged", "unshared"): ("paged", "by each row", "unique (paged)"),
    ("HOT", "unshared"): ("contiguous (HOT)", "by each row", "not in the paper"),
    ("paged", "shared"): ("paged", "once for all rows", "not in the paper"),
}
"""(layout, read) -> labels and the paper's case. The last two tell layout and sharing apart."""


def point(layout: str, read: str) -> Point:
    """A kernel cell of the dense backend at the headline shape."""
    case = CASES[(layout, read)][2]
    place = Point(paper.LLAMA_8B, KERNEL, KERNEL, B, L_P, case=case)
    return place.with_traits(layout=layout, read=read, backend="dense")


BASELINE = point("paged", "unshared")


@dataclass(frozen=True)
class Speedup:
    """How many times faster than the paged kernel in which each row reads for itself."""

    key: str = "speedup"
    title: str = "× paged"
    kind: Kind = Kind.RATIO
    systems: frozenset[str] | None = None
    only: frozenset[str] | None = NOT_CPU

    def entry(self, source: Source, point: Point) -> Entry:
        """Ratio of wall times, the paged kernel's on top."""
        if isinstance(source, PaperSource):
            return source.printed(point, self.key)
        assert isinstance(source, CellSource)
        return source.compute(
            lambda: source.ratio(
                source.runs(BASELINE, "kernel_wall_us"), source.runs(point, "kernel_wall_us")
            )
        )


TABLE = Comparison(
    number=5,
    title="The dense prefix kernel alone at B = 256, L_p = 8K, Llama-3.1-8B heads: storage layout "
    "by who reads.",
    labels=(Column("storage", "Storage"), Column("read", "Prefix is read")),
    metrics=(
        Metric("kernel_wall_us", "Wall (µs)", Kind.MICROSECONDS),
        Metric("kernel_modelled_gb_s", "K+V read (GB/s)", Kind.BANDWIDTH, printed_as="hbm_gb_s"),
        Speedup(),
    ),
    rows=[
        Row({"storage": storage, "read": read}, point(*key))
        for key, (storage, read, _) in CASES.items()
    ],
    command="python -m harness -m experiment=table05",
    notes=(
        "The paper's two rows change layout and sharing together; the other two separate them.",
        "GB/s is what the byte model says is read, over the wall time. Of the paper's, 1,170 and "
        "71 should be 1,229 and 74.7 by its own byte model.",
    ),
)


def build(sources: Sources) -> Table:
    """Four kernels: wall time, modelled bandwidth and the gain over the paged one."""
    return TABLE.build(sources)

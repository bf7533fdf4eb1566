"""Table 5: the prefix kernel alone, by storage layout and by who shares the read (§4.6)."""

from __future__ import annotations

from harness import paper
from harness.analysis.cells import KERNEL
from harness.tables.comparison import Comparison, Row
from harness.tables.computed import Computed
from harness.tables.entries import Kind, Measured
from harness.tables.numbers import Metric, Point
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


def _speedup(source: CellSource, point: Point) -> Measured:
    wall = "kernel_wall_us"
    return source.ratio(source.runs(BASELINE, wall), source.runs(point, wall))


SPEEDUP = Computed("speedup", "× paged", Kind.RATIO, _speedup)
"""How many times faster than the paged kernel in which each row reads for itself."""

TABLE = Comparison(
    number=5,
    title="The dense prefix kernel alone at B = 256, L_p = 8K, Llama-3.1-8B heads: storage layout "
    "by who reads.",
    labels=(Column("storage", "Storage"), Column("read", "Prefix is read")),
    metrics=(
        Metric("kernel_wall_us", "Wall (µs)", Kind.MICROSECONDS),
        Metric("kernel_modelled_gb_s", "K+V read (GB/s)", Kind.BANDWIDTH, printed_as="hbm_gb_s"),
        SPEEDUP,
    ),
    rows=[
        Row({"storage": storage, "read": read}, point(*key))
        for key, (storage, read, _) in CASES.items()
    ],
    command="python -m harness -m experiment=table05",
    notes=(
        "The paper's two rows change layout and sharing together; the other two separate them.",
        "GB/s is what the byte model says is read, over the wall time. Of the paper's, 1,170 and "
        "71 should be 1,229 and 74.7 by its own byte model. Where each row reads it can exceed the "
        "memory's bandwidth: caches serve rows that read the same prefix. Table 23 counts what "
        "DRAM gave.",
        "Ours are one kernel in a form that can gather, since all four need it. What serves a slab "
        "has bulk copies and is faster: its launch is in Table 17.",
    ),
)


def build(sources: Sources) -> Table:
    """Four kernels: wall time, modelled bandwidth and the gain over the paged one."""
    return TABLE.build(sources)

"""Table 23: hardware counters of both storage layouts (B.11)."""

from __future__ import annotations

from dataclasses import dataclass

from harness import paper
from harness.tables import table05
from harness.tables.entries import Blank, Entry, Kind, Printed
from harness.tables.numbers import Metric, Point, Source
from harness.tables.printed import PaperSource
from harness.tables.quantities import Quantities, Quantity
from harness.tables.sources import Sources
from harness.tables.table import Table

PROBE = "ncu"
LAUNCHES = {
    "HOT, read once": ("HOT", "shared"),
    "paged, read by each row": ("paged", "unshared"),
    "HOT, read by each row": ("HOT", "unshared"),
    "paged, read once": ("paged", "shared"),
}
"""(layout, read); the paper has the first two."""
PRINTED_BYTES = {"MB": Kind.MEGABYTES, "GB": Kind.GIGABYTES}


@dataclass(frozen=True)
class DramBytes:
    """DRAM bytes read in one launch; the paper prints one layout in MB, the other in GB."""

    key: str = "kernel_dram_mb"
    title: str = ""
    kind: Kind = Kind.MEGABYTES
    systems: frozenset[str] | None = None
    only: frozenset[str] | None = None

    def entry(self, source: Source, point: Point) -> Entry:
        """Megabytes, or as printed."""
        if not isinstance(source, PaperSource):
            return source.entry(point, Metric(self.key, self.title, self.kind))
        rows = paper.select(paper.table(23), case=point.case or "", metric="dram_read")
        if rows.empty:
            return Blank()
        return Printed(str(rows["printed"].iloc[0]), PRINTED_BYTES[str(rows["unit"].iloc[0])])


def _row(label: str, name: str, kind: Kind, printed_as: str) -> Quantity:
    return Quantity(label, Metric(name, "", kind, printed_as=printed_as))


TABLE = Quantities(
    number=23,
    title="Hardware counters of the prefix kernel on both storage layouts: B = 256, L_p = 8K, "
    "Llama-3.1-8B heads.",
    rows=(
        Quantity("DRAM bytes read a launch", DramBytes()),
        _row("over the byte model", "kernel_over_model_pct", Kind.PERCENT, "over_byte_model_pct"),
        _row("L2 hit rate", "kernel_l2_hit_pct", Kind.PERCENT, "l2_hit_pct"),
        _row(
            "Tensor pipe active",
            "kernel_tensor_active_pct",
            Kind.PERCENT,
            "tensor_pipe_active_pct",
        ),
        _row("Waves per SM", "kernel_waves_per_sm", Kind.DECIMAL, "waves_per_sm"),
        _row("Wall time (µs)", "kernel_wall_us", Kind.MICROSECONDS, "kernel_wall_us"),
        _row("Useful throughput (TFLOP/s)", "kernel_tflops", Kind.TERAFLOPS, "throughput"),
        _row("DRAM bandwidth (GB/s)", "kernel_dram_gb_s", Kind.BANDWIDTH, "dram_bandwidth"),
        _row("Arithmetic intensity (FLOP/byte)", "kernel_intensity", Kind.INTENSITY, "intensity"),
    ),
    points={
        title: table05.point(*launch).with_traits(probe=PROBE) for title, launch in LAUNCHES.items()
    },
    command="python -m harness -m experiment=table23",
    notes=(
        "Times come from runs without counters.",
        "Byte model: B · L_p · 2 · H_kv · d · 2 bytes where each row reads for itself, L_p · 2 · "
        "H_kv · d · 2 where the prefix is read once; FLOP: 4 · B · H_q · d · L_p. Below zero, DRAM "
        "gave fewer bytes than the model says are read: caches served the rest.",
    ),
)


def build(sources: Sources) -> Table:
    """Nine quantities of both layouts, each read once and by each row."""
    return TABLE.build(sources)

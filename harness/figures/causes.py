"""What the gain comes from: contiguity, the shared read, grouping by class, kernel and dispatch.

Each is told apart by two bars that differ in it alone: the 2 × 2 of Table 5 for the kernel, the
ablations for serving.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes

from harness import paper
from harness.analysis.cells import STORAGE_SYSTEMS
from harness.analysis.statistics import Estimate
from harness.figures import style
from harness.figures.drawing import Drawing, NothingToDraw, conditions
from harness.tables import provenance, table05
from harness.tables.entries import TIMES, Entry, Kind, Measured, write
from harness.tables.labels import length_label
from harness.tables.metrics import TO_DEFAULT
from harness.tables.numbers import Point
from harness.tables.sources import CellSource, Sources

KERNELS = {
    ("paged", "unshared"): "pages, each row reads",
    ("HOT", "unshared"): "slab, each row reads",
    ("paged", "shared"): "pages, read once",
    ("HOT", "shared"): "slab, read once",
}
ONE_PREFIX = {
    "sglang_default": "SGLang default: pages, each row reads",
    "sglang_flashinfer_p1": "pages of one token, each row reads",
    "sglang_fa3": "pages of one token, each row reads by FA3",
    "granikv_contiguous_unshared": "slab, each row reads by the engine's kernel",
    "sglang_cascade": "pages, read once (SGLang-Cascade)",
    "cascade_on_granikv": "slab, read once by cascade",
    "granikv_hydragen": "slab, read once by two products, no CUDA graph",
    "granikv_dense": "slab, read once by the fused kernel",
    "granikv": "GraniKV: dispatched each step",
}
FOUR_PREFIXES = {
    "sglang_default": "SGLang default: pages, each row reads",
    "sglang_fa3": "pages of one token, each row reads by FA3",
    "sglang_cascade": "what the whole batch shares, once",
    "cascade_on_granikv": "each class's slab, once, by cascade",
    "granikv": "GraniKV: dispatched each step",
}
LENGTHS = (16384, 8192, 4096)
"""L_p of Table 3, in tokens, the longest first."""
COLOUR = style.BLUE


@dataclass(frozen=True)
class Panel:
    """Gains over the first bar, by label; a label without cells has none.

    served: the places whose throughput the bars are of; none of a kernel.
    """

    title: str
    labels: Sequence[str]
    gains: Mapping[str, Estimate]
    served: Sequence[Point] = ()


def _gains(names: Mapping[str, str], entry: Callable[[str], Entry]) -> dict[str, Estimate]:
    entries = {label: entry(name) for name, label in names.items()}
    return {label: one.estimate for label, one in entries.items() if isinstance(one, Measured)}


def panels(source: CellSource) -> list[Panel]:
    """Three, of one GPU's cells; those that have two bars to compare."""
    kernels = {f"{layout} {read}": label for (layout, read), label in KERNELS.items()}
    four = Point(paper.LLAMA_8B, "granikv", "multi_prefix", 256, None, 4)

    def of_kernel(name: str) -> Entry:
        layout, read = name.split()
        return table05.SPEEDUP.entry(source, table05.point(layout, read))

    found = [
        Panel("Kernel alone, L_p = 8K", [*kernels.values()], _gains(kernels, of_kernel)),
        _one_prefix(source),
        _serving(
            source,
            "Serving four unequal prefixes",
            FOUR_PREFIXES,
            four.with_traits(kv_budget="full"),
        ),
    ]
    return [panel for panel in found if len(panel.gains) > 1]


def _serving(source: CellSource, title: str, names: Mapping[str, str], point: Point) -> Panel:
    """Throughput of each system at a place over SGLang default's."""
    at = source.place(point)
    if at is not None:
        title += f" (tokens streamed {provenance.grouping(at.stream_interval)})"
    places = {system: replace(point, system=system) for system in names}
    gains = _gains(names, lambda system: TO_DEFAULT.entry(source, places[system]))
    return Panel(title, [*names.values()], gains, [*places.values()])


def _one_prefix(source: CellSource) -> Panel:
    """At the length that tells most causes apart; among equals the longest.

    Before that comes the largest stream interval at which at least two systems with storage were
    measured: sent one by one, tokens come as fast as the front end lets them, whatever the cause.
    """
    stored = [label for system, label in ONE_PREFIX.items() if system in STORAGE_SYSTEMS]
    found = []
    for l_p in LENGTHS:
        point = Point(paper.LLAMA_8B, "granikv", "sharegpt", 256, l_p)
        panel = _serving(
            source, f"Serving one prefix, L_p = {length_label(l_p)}", ONE_PREFIX, point
        )
        at = source.place(point)
        compared = sum(label in panel.gains for label in stored) > 1
        interval = at.stream_interval if at is not None and compared else 1
        found.append((interval, len(panel.gains), panel))
    return max(found, key=lambda one: one[:2])[2]


def draw(sources: Sources) -> Drawing:
    """Of the first GPU that has cells: the machine's own, else a shipped one."""
    measured = sources.measured("")
    for source in sorted(measured, key=lambda one: not one.key.startswith("here")):
        if not source.functional and (found := panels(source)):
            return _drawing(source, found)
    raise NothingToDraw(
        "No GPU cell of the 2 × 2 or of the ablations: "
        "python -m harness.reproduce --experiments table05 table03 table21"
    )


def _drawing(source: CellSource, found: Sequence[Panel]) -> Drawing:
    rows = [len(panel.labels) for panel in found]
    figure = style.figure(7.4, 0.6 * len(found) + 0.27 * sum(rows))
    axes = figure.subplots(len(found), 1, squeeze=False, height_ratios=rows)[:, 0]
    for panel, place in zip(found, axes, strict=True):
        _draw_panel(place, panel)
    served = [point for panel in found for point in panel.served]
    return Drawing(
        figure,
        f"What the gain comes from, {source.heading}: B = 256, Llama-3.1-8B/TP=1, against the "
        "first bar of each panel. Two bars that differ in one thing show what it gives, where both "
        "were measured. [low, high]: the 95% interval over runs; without it one run of either "
        "side, whose spread is not known."
        + conditions([source], served, [(point, TO_DEFAULT) for point in served]),
    )


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for row, label in enumerate(panel.labels):
        gain = panel.gains.get(label)
        if gain is None:
            axes.text(0, row, " not measured", va="center", fontsize=8, color=style.GREY)
            continue
        axes.barh(row, gain.value, color=COLOUR if row else style.GREY, height=0.7)
        if row and gain.low < gain.high:
            spread = [[gain.value - gain.low], [gain.high - gain.value]]
            axes.errorbar(gain.value, row, xerr=spread, color=style.BLACK, capsize=2, linewidth=1)
        text = write(Measured(gain, ()), Kind.RATIO) if row else f"1{TIMES}"
        axes.text(gain.high, row, f"  {text}", va="center", fontsize=8)
    highest = max(gain.high for gain in panel.gains.values())
    axes.set_xlim(0, 1.45 * highest)
    axes.set_ylim(len(panel.labels) - 0.5, -0.5)
    axes.set_yticks(range(len(panel.labels)), list(panel.labels))
    axes.grid(True, axis="x")
    style.describe(axes, title=panel.title, x="× the first bar", y="")

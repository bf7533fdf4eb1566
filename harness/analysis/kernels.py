"""Kernel cells: one microbenchmark of prefix attention, in the paper's units (Tables 5, 17, 23).

Such a cell has workload.kind `kernel`, workload.layout `HOT` or `paged`, workload.read `shared` or
`unshared` (left out: HOT is shared, paged unshared), workload.backend (left out: `dense`), the
launch's shape as workload.rows, prefix_length, q_heads, kv_heads and head_dim (per rank), and the
metrics kernel_wall_s of a launch and, from hardware counters, kernel_dram_bytes, kernel_l2_hit_pct,
kernel_tensor_active_pct and kernel_waves_per_sm. kernel_flop is the useful work; where it is left
out, the shape gives it.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.analysis.cells import CellLike, number, standing
from harness.analysis.roofline import Placement, placement, shape_of, useful_flop


def modelled_bytes(cell: CellLike) -> int | None:
    """K and V that the byte model says a launch reads from memory, bytes."""
    launch = shape_of(cell)
    if launch is None:
        return None
    return launch.bytes_read(shared=standing(cell).read == "shared")


def _wall_us(cell: CellLike) -> float | None:
    wall = number(cell, "kernel_wall_s")
    return None if wall is None else wall * 1e6


def _modelled_gb_s(cell: CellLike) -> float | None:
    wall, modelled = number(cell, "kernel_wall_s"), modelled_bytes(cell)
    return None if not wall or modelled is None else modelled / wall / 1e9


def _tflops(cell: CellLike) -> float | None:
    wall, flop = number(cell, "kernel_wall_s"), useful_flop(cell)
    return None if not wall or flop is None else flop / wall / 1e12


def _dram_mb(cell: CellLike) -> float | None:
    dram = number(cell, "kernel_dram_bytes")
    return None if dram is None else dram / 1e6


def _over_model_pct(cell: CellLike) -> float | None:
    placed, modelled = placement(cell), modelled_bytes(cell)
    return None if placed is None or not modelled else 100.0 * placed.over_model(modelled)


def _of_placement(read: Callable[[Placement], float]) -> Callable[[CellLike], float | None]:
    def derived(cell: CellLike) -> float | None:
        placed = placement(cell)
        return None if placed is None else read(placed)

    return derived


DERIVED: dict[str, Callable[[CellLike], float | None]] = {
    "kernel_wall_us": _wall_us,
    "kernel_modelled_gb_s": _modelled_gb_s,
    "kernel_tflops": _tflops,
    "kernel_dram_mb": _dram_mb,
    "kernel_over_model_pct": _over_model_pct,
    "kernel_dram_gb_s": _of_placement(lambda placed: placed.bandwidth_gbps),
    "kernel_intensity": _of_placement(lambda placed: placed.intensity),
}
"""By name, with the unit in the name."""

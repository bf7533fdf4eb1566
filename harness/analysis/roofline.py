"""The roofline of prefix attention (paper B.11, Table 23, Figure 1).

One launch is one layer: B rows read L_p tokens of K and V. FLOP counts QK^T and PV, 2 FLOP a
multiply-add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.analysis.cells import KERNEL, CellLike, number

BF16_BYTES = 2


@dataclass(frozen=True)
class Shape:
    """A prefix-attention launch: b rows, l_p tokens, heads of width d; h_q and h_kv per rank."""

    b: int
    l_p: int
    h_q: int
    h_kv: int
    d: int

    @property
    def flop(self) -> int:
        """Useful work of one launch, FLOP: 4 · B · H_q · d · L_p."""
        return 4 * self.b * self.h_q * self.d * self.l_p

    @property
    def kv_bytes(self) -> int:
        """K and V of the prefix read once, bytes: L_p · 2 · H_kv · d · 2 (bf16)."""
        return self.l_p * 2 * self.h_kv * self.d * BF16_BYTES

    def bytes_read(self, *, shared: bool) -> int:
        """The paper's byte model: once for a shared slab, else once for each of the B rows."""
        return self.kv_bytes if shared else self.b * self.kv_bytes

    def intensity(self, *, shared: bool) -> float:
        """FLOP a byte by the byte model; n_q/kv where each row reads for itself."""
        return self.flop / self.bytes_read(shared=shared)


LLAMA_8B_HEADLINE = Shape(b=256, l_p=8192, h_q=32, h_kv=8, d=128)


@dataclass(frozen=True)
class Ceilings:
    """Roofs of one device: bf16 matmul in TFLOP/s, memory in GB/s."""

    name: str
    title: str
    peak_tflops: float
    bandwidth_gbps: float

    @property
    def ridge(self) -> float:
        """Intensity where the two roofs meet, FLOP/byte."""
        return self.peak_tflops * 1e3 / self.bandwidth_gbps

    def roof_tflops(self, intensity: float) -> float:
        """Attainable TFLOP/s at an intensity in FLOP/byte."""
        return min(self.peak_tflops, self.memory_roof_tflops(intensity))

    def memory_roof_tflops(self, intensity: float) -> float:
        """TFLOP/s that memory alone allows at an intensity in FLOP/byte."""
        return intensity * self.bandwidth_gbps / 1e3


@dataclass(frozen=True)
class Placement:
    """One measured kernel: work in FLOP, DRAM bytes read and wall seconds of a launch."""

    layout: str
    flop: float
    dram_bytes: float
    wall_s: float

    @property
    def intensity(self) -> float:
        """Measured FLOP a byte."""
        return self.flop / self.dram_bytes

    @property
    def tflops(self) -> float:
        """Useful throughput, TFLOP/s."""
        return self.flop / self.wall_s / 1e12

    @property
    def bandwidth_gbps(self) -> float:
        """Achieved DRAM bandwidth, GB/s."""
        return self.dram_bytes / self.wall_s / 1e9

    def over_model(self, modelled_bytes: float) -> float:
        """Measured bytes over the byte model, minus one."""
        return self.dram_bytes / modelled_bytes - 1.0

    def headroom(self, ceilings: Ceilings) -> float:
        """How many times faster the launch could be without changing its intensity."""
        return ceilings.roof_tflops(self.intensity) / self.tflops


def ceilings_of(profile: Mapping[str, Any]) -> Ceilings | None:
    """Ceilings of a hardware profile (`conf/hardware/*.yaml`); None where it states none."""
    roofs = profile.get("ceilings") or {}
    peak, bandwidth = roofs.get("peak_tflops"), roofs.get("bandwidth_gbps")
    if peak is None or bandwidth is None:
        return None
    name = str(profile["name"])
    return Ceilings(name, str(profile.get("title", name)), float(peak), float(bandwidth))


def read_profiles(directory: Path) -> list[dict[str, Any]]:
    """The hardware profiles of a directory (`*.yaml` with a name), by file name."""
    profiles = [
        yaml.safe_load(path.read_text("utf-8")) for path in sorted(directory.glob("*.yaml"))
    ]
    return [profile for profile in profiles if isinstance(profile, dict) and "name" in profile]


def read_ceilings(directory: Path) -> dict[str, Ceilings]:
    """Every hardware profile in a directory that states both ceilings, by name."""
    found = (ceilings_of(profile) for profile in read_profiles(directory))
    return {ceilings.name: ceilings for ceilings in found if ceilings is not None}


def shape_of(cell: CellLike) -> Shape | None:
    """The launch that a kernel cell states (`harness.analysis.kernels`); None unless all of it."""
    workload = cell.config.get("workload") or {}
    if workload.get("kind") != KERNEL:
        return None
    parts = [workload.get(n) for n in ("rows", "prefix_length", "q_heads", "kv_heads", "head_dim")]
    if any(part is None for part in parts):
        return None
    b, l_p, h_q, h_kv, d = (int(part) for part in parts if part is not None)
    return Shape(b=b, l_p=l_p, h_q=h_q, h_kv=h_kv, d=d)


def useful_flop(cell: CellLike) -> float | None:
    """Useful work of one launch in FLOP: as the cell counts it, else by its shape."""
    launch = shape_of(cell)
    return number(cell, "kernel_flop") or (None if launch is None else float(launch.flop))


def placement(cell: CellLike) -> Placement | None:
    """A kernel-counter cell as a placement; None for any other cell.

    Such a cell has workload.kind `kernel`, workload.layout `paged` or `HOT`, and the metrics
    kernel_dram_bytes (bytes read) and kernel_wall_s of one launch.
    """
    workload = cell.config.get("workload") or {}
    layout = workload.get("layout")
    if workload.get("kind") != KERNEL or layout not in ("paged", "HOT"):
        return None
    flop, dram_bytes = useful_flop(cell), number(cell, "kernel_dram_bytes")
    wall_s = number(cell, "kernel_wall_s")
    if not flop or not dram_bytes or not wall_s:
        return None
    return Placement(str(layout), flop, dram_bytes, wall_s)

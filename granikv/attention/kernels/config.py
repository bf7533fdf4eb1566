"""Tile sizes and grids: the choices that a kernel is compiled for.

They were chosen on an H200 (torch 2.11, Triton 3.6, CUDA-graph replay, one layer of 32/8 heads of
128, bfloat16, suffix 256, caches of several layers in turn), in µs:

    prefix, 256 rows, 8K     specialised 64.5 to 72.7; descriptors 128 x 128 80.0, 128 x 64 81.0
    prefix, 8 rows, 16K      descriptors 32 x 64 22.8; 64 x 64 24.0; 16 x 64 36.7
    prefix, 2 rows, 8K       descriptors 16 x 64 12.5; 32 x 64 13.3; 64 x 64 14.2
    suffix, 256 rows         ring 64, 2 stages, 396 programs 71.8; parts 128 73.6; 64 76.1
    suffix, 64 rows          parts 32, 2 warps 22.0; 128, 4 warps 23.8; 64, 4 warps 25.4
    whole step               portable, fused, streams, specialised without overlap:
      256 rows, 8K           176.9, 147.9, 156.6, 165.9
      256 rows, 1K           121.6, 118.0, 126.3, 118.2
      64 rows, 8K            71.7, 61.1, 61.5, 68.3
      8 rows, 16K            52.2, 37.4, 41.9, 41.8
      256 rows, 16K, 20/4    165.8, 146.2, 140.8, 147.5
      256 rows, 16K, 10/2    102.0, 84.2, 83.2, 95.6

So where the fused kernel exists it is taken: one rule, first or within 4% of it everywhere.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

Form = Literal["specialised", "descriptors", "pointers"]
"""specialised: warp-specialised, Hopper only, 16-bit types, block_m 128. descriptors: portable
Triton, full tiles read through tensor descriptors (bulk copies). pointers: on any GPU."""

SuffixForm = Literal["ring", "parts"]
"""ring: persistent, Hopper only, 16-bit types, K and V of one width. parts: on any GPU."""

Overlap = Literal["fused", "none"]
"""fused: prefix and suffix in one launch, of a specialised prefix and a ring. none: one after the
other."""


class PrefixConfig(NamedTuple):
    """How `dense_prefix` is compiled and launched.

    block_m     folded rows (row x query head of one KV head) of a tile; a power of two >= 16
    block_n     tokens of a tile; a power of two >= 16
    programs    the persistent grid
    num_stages  tiles of K and V that are on their way or in use
    form        which kernel; one that needs more than a cache or a device has gives way to the next
    registers   a thread, averaged over its 12 warps; specialised only, and 168 are all there are
    q_shared    queries in shared memory rather than in registers; specialised only
    """

    block_m: int
    block_n: int
    programs: int
    num_warps: int
    num_stages: int
    form: Form
    registers: int = 168
    q_shared: bool = True


class SuffixConfig(NamedTuple):
    """How `paged_suffix` is compiled and launched.

    block_n   tokens of a tile; a power of two >= 16, and >= 64 for a ring
    programs  (row part, KV head) pairs that run at once: rows are split until these are busy; the
              persistent grid of a ring
    num_stages
              tiles that are on their way or in use
    form      which kernel; a ring gives way where a cache or a device has not what it needs
    """

    block_n: int
    programs: int
    num_warps: int
    num_stages: int
    form: SuffixForm = "parts"


class StepConfig(NamedTuple):
    """The passes of a step, and whether prefix and suffix run at the same time.

    early   begin each launch of a layer while the one before still ends (programmatic dependent
            launch); needs a device of capability 9.0 or more
    """

    prefix: PrefixConfig
    suffix: SuffixConfig
    overlap: Overlap = "none"
    early: bool = False


class Shape(NamedTuple):
    """What stays the same for every step of a model on one rank.

    group is n_q/kv, query heads to a KV head; d and d_v are the widths of K and V.
    """

    kv_heads: int
    group: int
    d: int
    d_v: int
    dtype: torch.dtype

    @property
    def heads(self) -> int:
        """H_q."""
        return self.kv_heads * self.group


def multiprocessors(device: torch.device) -> int:
    """Streaming multiprocessors of a GPU; 4 stands in for them where kernels are interpreted."""
    if device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def prefix_config(shape: Shape, rows: int, device: torch.device) -> PrefixConfig:
    """The portable prefix kernel for steps of up to `rows` rows."""
    units = multiprocessors(device)
    if shape.dtype == torch.float32:
        return PrefixConfig(16, 32, 2 * units, 4, 2, "pointers")
    form: Form = "descriptors" if _capability(device) >= (9, 0) else "pointers"
    folded = rows * shape.group
    if folded <= 32:
        return PrefixConfig(16 if folded <= 16 else 32, 64, 2 * units, 4, 3, form)
    if folded <= 64:
        return PrefixConfig(64, 64, 2 * units, 4, 2, form)
    return PrefixConfig(128, 64, units, 8, 3, form)


def suffix_config(shape: Shape, rows: int, device: torch.device) -> SuffixConfig:
    """The portable suffix kernel for steps of up to `rows` rows."""
    units = multiprocessors(device)
    if shape.dtype == torch.float32:
        return SuffixConfig(32, 4 * units, 4, 2)
    if rows * shape.kv_heads > 4 * units:
        return SuffixConfig(128, 3 * units, 4, 3)
    return SuffixConfig(32, 4 * units, 2, 5)


def step_config(shape: Shape, rows: int, device: torch.device) -> StepConfig:
    """All passes for steps of up to `rows` rows."""
    if _has_fused(shape, device):
        units = multiprocessors(device)
        return StepConfig(
            PrefixConfig(128, 64, units, 8, 2, "specialised", q_shared=False),
            SuffixConfig(128, units, 4, 2, "ring"),
            "fused",
            early=True,
        )
    return StepConfig(prefix_config(shape, rows, device), suffix_config(shape, rows, device))


def _has_fused(shape: Shape, device: torch.device) -> bool:
    """Whether the fused kernel exists for the shape, was measured for it, and runs here."""
    return (
        _capability(device) == (9, 0)
        and shape.dtype in (torch.bfloat16, torch.float16)
        and shape.d == shape.d_v == 128
        and shape.group <= 16
    )


def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)

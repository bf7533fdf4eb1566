"""Tile sizes and grids: the choices that a kernel is compiled for."""

from __future__ import annotations

from typing import NamedTuple

import torch

_SHARED_BYTES = 227 * 1024
"""Shared memory that one Hopper program can have."""


class PrefixConfig(NamedTuple):
    """How `dense_prefix` is compiled and launched.

    block_m      folded rows (row x query head of one KV head) of a tile; a power of two >= 16
    block_n      tokens of a tile; a power of two >= 16
    programs     the persistent grid
    descriptors  read full tiles through tensor descriptors (Hopper's bulk copies)
    """

    block_m: int
    block_n: int
    programs: int
    num_warps: int
    num_stages: int
    descriptors: bool


class SuffixConfig(NamedTuple):
    """How `paged_suffix` is compiled and launched.

    block_n   tokens of a tile; a power of two >= 16
    programs  (row part, KV head) pairs that run at once: rows are split until these are busy
    """

    block_n: int
    programs: int
    num_warps: int
    num_stages: int


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


def _has_bulk_copies(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9


def prefix_config(shape: Shape, rows: int, device: torch.device) -> PrefixConfig:
    """The prefix kernel for steps of up to `rows` rows."""
    units = multiprocessors(device)
    if shape.dtype == torch.float32:
        return PrefixConfig(16, 32, 2 * units, 4, 2, False)
    bulk = _has_bulk_copies(device)
    folded = rows * shape.group
    if folded <= 32:
        return PrefixConfig(16 if folded <= 16 else 32, 64, 2 * units, 4, 3, bulk)
    if folded <= 64:
        return PrefixConfig(64, 64, 2 * units, 4, 2, bulk)
    fits = 2 * 128 * (shape.d + 2 * (shape.d + shape.d_v)) <= _SHARED_BYTES
    return PrefixConfig(128, 128 if bulk and fits else 64, units, 8, 2, bulk)


def suffix_config(shape: Shape, device: torch.device) -> SuffixConfig:
    """The suffix kernel."""
    units = multiprocessors(device)
    if shape.dtype == torch.float32:
        return SuffixConfig(32, 4 * units, 4, 2)
    return SuffixConfig(64, 3 * units, 4, 3)
